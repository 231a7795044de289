//! From a place to its number in the file.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use postroom_core::{ErrorKind, Name, Place, TransportError};
use sqlx::{SqliteConnection, query, query_scalar};

use crate::{
    arrivals::Bell,
    error::missing,
    file::File,
    work::{Frame, Work},
};

/// A place as the columns of `postroom_place`: kind, name, group.
type Columns<'a> = (&'static str, &'a str, &'a str);

fn columns(place: &Place) -> Result<Columns<'_>, TransportError> {
    match place {
        Place::Queue(name) => Ok(("queue", name, "")),
        Place::Topic(name) => Ok(("topic", name, "")),
        Place::Group { topic, group } => Ok(("group", topic, group)),
        Place::Store(name) => Ok(("store", name, "")),
        _ => Err(TransportError::new(ErrorKind::Refused, format!("SQLite knows no such kind of place as {place}"))),
    }
}

/// The numbers of the places of one namespace, as far as they were asked for. A number is never used again, so what is
/// known here can be gone but not be another's.
pub(crate) struct Places {
    pub(crate) namespace: String,
    known: Mutex<HashMap<Place, i64>>,
}

impl Places {
    pub(crate) fn new(namespace: Option<&Name>) -> Self {
        Self { namespace: namespace.map(ToString::to_string).unwrap_or_default(), known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, i64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all: some place is gone.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    pub(crate) async fn find(&self, file: &File, place: &Place) -> Result<Option<i64>, TransportError> {
        let known = self.lock().get(place).copied();
        if known.is_some() {
            return Ok(known);
        }
        let (kind, name, group) = columns(place)?;
        let found = file.ask(async |on| select(on, &self.namespace, (kind, name, group)).await).await?;
        if let Some(id) = found {
            self.lock().insert(place.clone(), id);
        }
        Ok(found)
    }

    /// As [`Places::find`], from the file itself.
    pub(crate) async fn find_anew(&self, file: &File, place: &Place) -> Result<Option<i64>, TransportError> {
        self.lock().remove(place);
        self.find(file, place).await
    }

    /// A place that holds messages.
    pub(crate) async fn holding(&self, file: &File, place: &Place) -> Result<i64, TransportError> {
        if matches!(place, Place::Topic(_)) {
            let what = format!("{place} holds no messages, its groups do");
            return Err(TransportError::new(ErrorKind::Refused, what));
        }
        self.find_anew(file, place).await?.ok_or_else(|| missing(place))
    }

    pub(crate) async fn create(&self, file: &File, place: &Place) -> Result<(), TransportError> {
        // Asked first, so that a start of many replicas writes nothing.
        if self.find_anew(file, place).await?.is_some() {
            return Ok(());
        }
        let (kind, name, group) = columns(place)?;
        let id = file
            .write(Create { namespace: self.namespace.clone(), kind, name: name.to_owned(), group: group.to_owned() })
            .await?;
        self.lock().insert(place.clone(), id);
        Ok(())
    }
}

async fn select(
    on: &mut SqliteConnection,
    namespace: &str,
    (kind, name, group): Columns<'_>,
) -> Result<Option<i64>, sqlx::Error> {
    let sql = "SELECT id FROM postroom_place WHERE namespace = ? AND kind = ? AND name = ? AND group_name = ?";
    query_scalar(sql).bind(namespace).bind(kind).bind(name).bind(group).fetch_optional(on).await
}

/// Creates a place, and a group's topic with it.
struct Create {
    namespace: String,
    kind: &'static str,
    name: String,
    group: String,
}

impl Create {
    async fn one(
        &self,
        on: &mut SqliteConnection,
        (kind, name, group): Columns<'_>,
        topic: Option<i64>,
    ) -> Result<i64, sqlx::Error> {
        if let Some(id) = select(on, &self.namespace, (kind, name, group)).await? {
            return Ok(id);
        }
        let sql =
            "INSERT INTO postroom_place (namespace, kind, name, group_name, topic) VALUES (?, ?, ?, ?, ?) RETURNING id";
        query_scalar(sql).bind(&self.namespace).bind(kind).bind(name).bind(group).bind(topic).fetch_one(on).await
    }
}

impl Work for Create {
    type Answer = i64;

    fn is_single(&self) -> bool {
        false
    }

    async fn run(&mut self, on: &mut SqliteConnection, _: Frame) -> Result<i64, sqlx::Error> {
        let topic = match self.kind {
            "group" => Some(self.one(on, ("topic", &self.name, ""), None).await?),
            _ => None,
        };
        self.one(on, (self.kind, &self.name, &self.group), topic).await
    }
}

/// Removes a group and its messages.
pub(crate) struct RemoveGroup {
    pub(crate) place: i64,
}

impl Work for RemoveGroup {
    type Answer = bool;

    fn is_single(&self) -> bool {
        false
    }

    async fn run(&mut self, on: &mut SqliteConnection, _: Frame) -> Result<bool, sqlx::Error> {
        query("DELETE FROM postroom_message WHERE place = ?").bind(self.place).execute(&mut *on).await?;
        let gone = query("DELETE FROM postroom_place WHERE id = ?").bind(self.place).execute(on).await?;
        Ok(gone.rows_affected() > 0)
    }

    fn bells(&self, _: &bool) -> Vec<Bell> {
        // Its sources look, and find that it is gone.
        vec![Bell::All]
    }
}
