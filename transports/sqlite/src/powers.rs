//! Counting, browsing, and the power over groups.

use postroom_core::{
    Browse, Browsed, Count, Counts, ErrorKind, Groups, Name, Page, Place, State, Text, TransportError,
};
use sqlx::{AssertSqlSafe, Row, SqliteConnection, query, sqlite::SqliteRow};

use crate::{
    broker::Powers,
    clock,
    error::{missing, translate},
    places::RemoveGroup,
    publish::{DELAYED, IN_FLIGHT, WAITING},
    row::Stored,
    work::{Frame, Work},
};

/// How far from the front of the line the oldest is looked for: what comes back or falls due joins by its number.
const FRONT: i64 = 1000;

impl Count for Powers {
    async fn count(&self, place: &Place) -> Result<Counts, TransportError> {
        let file = self.open()?;
        let id = self.places.holding(file, place).await?;
        file.ask(async |on| counts(on, id).await).await
    }
}

async fn counts(on: &mut SqliteConnection, place: i64) -> Result<Counts, sqlx::Error> {
    let mut counts = Counts::default();
    (counts.waiting, counts.in_flight, counts.delayed, counts.exact) = (Some(0), Some(0), Some(0), true);
    // One statement, so that the figures are of one moment.
    let sql = "SELECT state, count(*), NULL FROM postroom_message WHERE place = ?1 GROUP BY state \
         UNION ALL SELECT NULL, NULL, min(since) FROM \
             (SELECT since FROM postroom_message WHERE place = ?1 AND state = 0 ORDER BY at, id LIMIT +?2)";
    for row in query(sql).bind(place).bind(FRONT).fetch_all(on).await? {
        let (state, n): (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
        let n = n.and_then(|n| u64::try_from(n).ok());
        match state {
            Some(WAITING) => counts.waiting = n,
            Some(IN_FLIGHT) => counts.in_flight = n,
            Some(DELAYED) => counts.delayed = n,
            _ => {
                let since: Option<i64> = row.try_get(2)?;
                counts.oldest_waiting_ms = since.map(|since| u64::try_from(clock::now() - since).unwrap_or(0));
            }
        }
    }
    Ok(counts)
}

const SHOWN: &str =
    "SELECT id, state, at, delivered, message_id, type, key, content_type, headers, body FROM postroom_message";
/// The columns of [`SHOWN`] before the envelope's.
const BEFORE: usize = 4;

/// Place, after, how many. State by state: each is a walk along one index, also beside a large place of another name.
pub(crate) fn page_sql(states: &[i64]) -> String {
    let ids = states.iter().map(|state| {
        let start = if *state == WAITING { "AND at = 0" } else { "" };
        format!(
            "SELECT * FROM (SELECT id FROM postroom_message INDEXED BY postroom_message_line \
             WHERE place = ?1 AND state = {state} {start} AND id > ?2 ORDER BY id LIMIT +?3)"
        )
    });
    format!("{SHOWN} WHERE id IN ({}) ORDER BY id LIMIT +?3", ids.collect::<Vec<_>>().join(" UNION ALL "))
}

/// Place, message or record id.
pub(crate) fn find_sql() -> String {
    format!(
        "{SHOWN} WHERE id IN (SELECT id FROM postroom_message INDEXED BY postroom_message_id \
             WHERE message_id = ?2 AND place = ?1 \
         UNION SELECT id FROM postroom_message INDEXED BY postroom_message_record \
             WHERE place = ?1 AND record = ?2) ORDER BY id"
    )
}

impl Browse for Powers {
    async fn page(
        &self,
        place: &Place,
        state: Option<State>,
        after: Option<&Text>,
        max: usize,
    ) -> Result<Page, TransportError> {
        let after = match after {
            None => 0,
            Some(text) => text.parse::<i64>().map_err(|error| {
                let message = format!("{:?} is not where a page of {place} begins", &**text);
                TransportError::new(ErrorKind::Config, message).caused_by(error)
            })?,
        };
        let file = self.open()?;
        let id = self.places.holding(file, place).await?;
        let max = max.clamp(1, 100_000);
        let states: &[i64] = match state {
            None => &[WAITING, IN_FLIGHT, DELAYED],
            Some(State::Waiting) => &[WAITING],
            Some(State::InFlight) => &[IN_FLIGHT],
            Some(State::Delayed) => &[DELAYED],
        };
        let sql = page_sql(states);
        let limit = i64::try_from(max + 1).unwrap_or(i64::MAX);
        let rows = file
            .ask(async |on| query(AssertSqlSafe(sql.as_str())).bind(id).bind(after).bind(limit).fetch_all(on).await);
        let rows = rows.await?;
        let items = rows.iter().take(max).map(browsed).collect::<Result<Vec<_>, _>>();
        let items = items.map_err(|error| translate(&file.path, error))?;
        let next = items.last().filter(|_| rows.len() > max).map(|last| last.handle.clone());
        Ok(Page::new(items, next))
    }

    async fn find(&self, place: &Place, wanted: &str) -> Result<Vec<Browsed>, TransportError> {
        let file = self.open()?;
        let id = self.places.holding(file, place).await?;
        let sql = find_sql();
        let rows = file.ask(async |on| query(AssertSqlSafe(sql.as_str())).bind(id).bind(wanted).fetch_all(on).await);
        let found = rows.await?.iter().map(browsed).collect::<Result<_, _>>();
        found.map_err(|error| translate(&file.path, error))
    }

    async fn remove(&self, place: &Place, handles: &[Text]) -> Result<Vec<bool>, TransportError> {
        let file = self.open()?;
        let place = self.places.holding(file, place).await?;
        let handles = handles.iter().map(|handle| handle.parse().ok()).collect();
        file.write(Remove { place, handles }).await
    }
}

fn browsed(row: &SqliteRow) -> Result<Browsed, sqlx::Error> {
    let (id, state, at): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let delivered: i64 = row.try_get(3)?;
    let (envelope, _) = Stored::of(row, BEFORE)?.envelope(id);
    let state = match state {
        IN_FLIGHT => State::InFlight,
        DELAYED => State::Delayed,
        _ => State::Waiting,
    };
    let mut browsed = Browsed::new(id.to_string(), state, envelope);
    browsed.due_at = (state == State::Delayed).then_some(at);
    browsed.delivered = u32::try_from(delivered).ok();
    Ok(browsed)
}

/// Removes messages in whatever state.
struct Remove {
    place: i64,
    handles: Vec<Option<i64>>,
}

impl Work for Remove {
    type Answer = Vec<bool>;

    fn is_single(&self) -> bool {
        true
    }

    async fn run(&mut self, on: &mut SqliteConnection, _: Frame) -> Result<Vec<bool>, sqlx::Error> {
        let list: Vec<String> = self.handles.iter().flatten().map(ToString::to_string).collect();
        let sql =
            "DELETE FROM postroom_message WHERE id IN (SELECT value FROM json_each(?)) AND place = ? RETURNING id";
        let gone = query(sql).bind(format!("[{}]", list.join(","))).bind(self.place).fetch_all(on).await?;
        let mut gone: std::collections::HashSet<i64> =
            gone.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        Ok(self.handles.iter().map(|handle| handle.is_some_and(|id| gone.remove(&id))).collect())
    }
}

impl Groups for Powers {
    async fn list(&self, topic: &Name) -> Result<Vec<(Name, Option<u64>)>, TransportError> {
        let file = self.open()?;
        let place = Place::Topic(topic.clone());
        let id = self.places.find_anew(file, &place).await?.ok_or_else(|| missing(&place))?;
        let rows = file.ask(async |on| {
            let sql = "SELECT group_name, (SELECT count(*) FROM postroom_message WHERE place = g.id AND state = 0) \
                 FROM postroom_place AS g WHERE topic = ? ORDER BY group_name";
            query(sql).bind(id).fetch_all(on).await
        });
        let mut groups = Vec::new();
        for row in &rows.await? {
            let read = || Ok((row.try_get::<String, _>(0)?, row.try_get::<i64, _>(1)?));
            let (group, waiting) = read().map_err(|error| translate(&file.path, error))?;
            groups.push((Name::new(&group)?, u64::try_from(waiting).ok()));
        }
        Ok(groups)
    }

    async fn remove(&self, topic: &Name, group: &Name) -> Result<bool, TransportError> {
        let file = self.open()?;
        let place = Place::Group { topic: topic.clone(), group: group.clone() };
        let Some(place) = self.places.find_anew(file, &place).await? else { return Ok(false) };
        let gone = file.write(RemoveGroup { place }).await;
        self.places.forget();
        gone
    }
}
