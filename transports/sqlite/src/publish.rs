//! Messages into the file, many rows a statement.

use std::sync::{Arc, LazyLock};

use postroom_core::{Envelope, Place};
use sqlx::{Arguments, AssertSqlSafe, SqliteConnection, error::BoxDynError, query_with, sqlite::SqliteArguments};

use crate::{
    arrivals::Bell,
    row::columns,
    work::{Frame, Work},
};

/// Waiting, in flight, delayed: the column `state`.
pub(crate) const WAITING: i64 = 0;
pub(crate) const IN_FLIGHT: i64 = 1;
pub(crate) const DELAYED: i64 = 2;

/// The rows that a statement has room for. Rooms that are left over hold NULLs and insert nothing; so a few prepared
/// statements do for batches of any size.
const ROOMS: [usize; 5] = [1, 8, 32, 128, 256];
/// The most bytes of bodies in one statement.
const BYTES: usize = 16 * 1024 * 1024;
const FIELDS: usize = 11;

/// Rows of the statement, with room for `rooms`.
fn values(rooms: usize, fields: usize) -> String {
    let room = format!("({})", vec!["?"; fields].join(","));
    vec![room.as_str(); rooms].join(",")
}

fn statements(from: &str, place: &str) -> Vec<(usize, Arc<str>)> {
    let rooms = ROOMS.iter().map(|rooms| {
        let sql = format!(
            "INSERT INTO postroom_message \
             (place, state, at, since, message_id, type, key, content_type, headers, record, body) \
             SELECT {place}, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11 \
             FROM (VALUES {}){from} WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING",
            values(*rooms, FIELDS)
        );
        (*rooms, Arc::from(sql))
    });
    rooms.collect()
}

static TO_PLACE: LazyLock<Vec<(usize, Arc<str>)>> = LazyLock::new(|| statements("", "column1"));
/// Its groups are looked up as it is written, because another process may just have declared one.
static TO_TOPIC: LazyLock<Vec<(usize, Arc<str>)>> =
    LazyLock::new(|| statements(" AS v CROSS JOIN postroom_place AS g ON g.topic = v.column1", "g.id"));

/// The smallest statement that has room, else the largest.
pub(crate) fn roomy(statements: &[(usize, Arc<str>)], rows: usize) -> (usize, Arc<str>) {
    let found = statements.iter().find(|(rooms, _)| *rooms >= rows).or(statements.last());
    found.cloned().unwrap_or((1, Arc::from("")))
}

/// One message for one place.
pub(crate) struct New {
    pub(crate) to: i64,
    is_topic: bool,
    keeps_records: bool,
    due: Option<i64>,
    envelope: Arc<Envelope>,
}

impl New {
    /// `due` is when it is due, where it is delayed.
    pub(crate) fn addressed(to: i64, place: &Place, due: Option<i64>, envelope: Arc<Envelope>) -> Self {
        let (is_topic, keeps_records) = (matches!(place, Place::Topic(_)), matches!(place, Place::Store(_)));
        Self { to, is_topic, keeps_records, due, envelope }
    }

    fn put(&self, values: &mut SqliteArguments, now: i64) -> Result<(), BoxDynError> {
        let columns = columns(&self.envelope);
        let (state, at) = self.due.map_or((WAITING, 0), |due| (DELAYED, due));
        values.add(self.to)?;
        values.add(state)?;
        values.add(at)?;
        values.add(now)?;
        values.add(columns.message_id)?;
        values.add(columns.message_type)?;
        values.add(columns.key)?;
        values.add(columns.content_type)?;
        values.add(columns.headers)?;
        values.add(columns.record.filter(|_| self.keeps_records))?;
        values.add(&*self.envelope.body)
    }

    fn bell(&self) -> Bell {
        if self.is_topic { Bell::Topic(self.to) } else { Bell::Place(self.to) }
    }
}

struct Insert {
    sql: Arc<str>,
    values: SqliteArguments,
}

/// Messages that are stored all or none. They are put into statements by the caller, so that the writer's thread only
/// writes.
pub(crate) struct Publish {
    inserts: Vec<Insert>,
    bells: Vec<Bell>,
}

impl Publish {
    pub(crate) fn new(now: i64, rows: &[New]) -> Result<Self, sqlx::Error> {
        let mut inserts = Vec::new();
        for chunk in chunks(rows) {
            let to_topic = chunk.first().is_some_and(|row| row.is_topic);
            let (_, sql) = roomy(if to_topic { &TO_TOPIC } else { &TO_PLACE }, chunk.len());
            let mut values = SqliteArguments::default();
            values.reserve(chunk.len() * FIELDS, 0);
            for row in chunk {
                row.put(&mut values, now).map_err(sqlx::Error::Encode)?;
            }
            inserts.push(Insert { sql, values });
        }
        let mut bells: Vec<_> = rows.iter().filter(|row| row.due.is_none()).map(New::bell).collect();
        bells.dedup();
        Ok(Self { inserts, bells })
    }
}

/// The rows, statement by statement.
fn chunks(mut left: &[New]) -> impl Iterator<Item = &[New]> {
    let most = ROOMS.last().copied().unwrap_or(1);
    std::iter::from_fn(move || {
        let first = left.first()?;
        let mut bytes = 0;
        let fits = |row: &&New| {
            bytes += row.envelope.body.len();
            row.is_topic == first.is_topic && bytes <= BYTES
        };
        let fitting = left.iter().take(most).take_while(fits).count().max(1);
        let (chunk, rest) = left.split_at(fitting);
        left = rest;
        Some(chunk)
    })
}

impl Work for Publish {
    type Answer = ();

    fn is_single(&self) -> bool {
        self.inserts.len() == 1
    }

    async fn run(&mut self, on: &mut SqliteConnection, _: Frame) -> Result<(), sqlx::Error> {
        for Insert { sql, values } in &self.inserts {
            // The values are shared, not copied: they may be needed once more.
            query_with(AssertSqlSafe(sql.clone()), values.clone()).execute(&mut *on).await?;
        }
        Ok(())
    }

    fn bells(&self, (): &()) -> Vec<Bell> {
        self.bells.clone()
    }
}
