//! How deliveries end, and renewals: a statement for each kind, not for each delivery. Every one is fenced by owner and
//! generation.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write,
    sync::{Arc, LazyLock},
};

use postroom_core::{Envelope, Settled, Settlement};
use sqlx::{Arguments, AssertSqlSafe, Row, SqliteConnection, query, query_with, sqlite::SqliteArguments};

use crate::{
    arrivals::Bell,
    clock,
    publish::{DELAYED, IN_FLIGHT, WAITING, roomy},
    row,
    source::Token,
    work::{Frame, Work, framed},
};

/// Which of the deliveries are this owner's, and then what becomes of those.
macro_rules! fenced {
    ($change:literal) => {
        framed!(
            "SELECT group_concat(id) FROM postroom_message \
                 WHERE id IN (SELECT value FROM json_each(?)) AND generation = ? AND owner = ? AND state = 1; ",
            $change,
            " WHERE id IN (SELECT value FROM json_each(?)) AND generation = ? AND owner = ? AND state = 1"
        )
    };
}

pub(crate) const ACK: [&str; 2] = fenced!("DELETE FROM postroom_message");
// The owner stays, so that a second settle can be told from one that comes too late.
pub(crate) const RELEASE: [&str; 2] =
    fenced!("UPDATE postroom_message SET state = 0, at = 0, delivered = delivered - 1");
pub(crate) const EXTEND: [&str; 2] = fenced!("UPDATE postroom_message SET at = ?");

/// The replacements that a statement has room for.
const ROOMS: [usize; 3] = [1, 16, 128];
const FIELDS: usize = 11;

/// In place: the body stays where it is, and the message its place in the line.
pub(crate) static RETRY: LazyLock<Vec<(usize, Arc<str>)>> = LazyLock::new(|| {
    let rooms = ROOMS.iter().map(|rooms| {
        let room = format!("({})", ["?"; FIELDS].join(","));
        let sql = format!(
            "UPDATE postroom_message AS m SET state = v.column4, at = v.column5, since = v.column6, \
             message_id = v.column7, type = v.column8, key = v.column9, content_type = v.column10, \
             headers = v.column11, delivered = 0 \
             FROM (VALUES {}) AS v \
             WHERE m.id = v.column1 AND m.generation = v.column2 AND m.owner = v.column3 AND m.state = 1 \
             RETURNING id",
            vec![room.as_str(); *rooms].join(",")
        );
        (*rooms, Arc::from(sql))
    });
    rooms.collect()
});

/// Deliveries of one generation: their places in the batch, and their ids as a JSON list.
#[derive(Default)]
struct Run {
    items: Vec<(usize, i64)>,
    list: String,
}

impl Run {
    fn add(&mut self, item: usize, id: i64) {
        self.items.push((item, id));
        self.list.push(if self.list.is_empty() { '[' } else { ',' });
        // Writing to a String cannot fail.
        let _ = write!(self.list, "{id}");
    }

    fn json(&self) -> String {
        format!("{}]", self.list)
    }
}

/// Nearly all deliveries are a message's first, hence one run.
type Runs = BTreeMap<i64, Run>;

struct Replacement {
    item: usize,
    token: Token,
    envelope: Arc<Envelope>,
    due: Option<i64>,
}

/// Ends deliveries of one source.
pub(crate) struct Settle {
    place: i64,
    owner: Arc<str>,
    now: i64,
    tokens: Vec<Token>,
    acked: Runs,
    released: Runs,
    retried: Vec<Replacement>,
}

impl Settle {
    pub(crate) fn new(place: i64, owner: Arc<str>, batch: &[(&Token, Settlement)]) -> Self {
        let now = clock::now();
        let tokens = batch.iter().map(|(token, _)| **token).collect();
        let mut settle =
            Self { place, owner, now, tokens, acked: Runs::new(), released: Runs::new(), retried: Vec::new() };
        for (item, (token, how)) in batch.iter().enumerate() {
            match how {
                Settlement::Ack => settle.acked.entry(token.generation).or_default().add(item, token.id),
                Settlement::Release => settle.released.entry(token.generation).or_default().add(item, token.id),
                Settlement::Retry { replacement, after } => settle.retried.push(Replacement {
                    item,
                    token: **token,
                    envelope: replacement.clone(),
                    due: (!after.is_zero()).then(|| clock::due(now, *after)),
                }),
            }
        }
        settle
    }

    async fn retry(&self, chunk: &[Replacement], on: &mut SqliteConnection) -> Result<HashSet<i64>, sqlx::Error> {
        let mut values = SqliteArguments::default();
        values.reserve(chunk.len() * FIELDS, 0);
        let put = |values: &mut SqliteArguments, it: &Replacement| {
            let columns = row::columns(&it.envelope);
            let (state, at) = it.due.map_or((WAITING, 0), |due| (DELAYED, due));
            values.add(it.token.id)?;
            values.add(it.token.generation)?;
            values.add(&*self.owner)?;
            values.add(state)?;
            values.add(at)?;
            values.add(self.now)?;
            values.add(columns.message_id)?;
            values.add(columns.message_type)?;
            values.add(columns.key)?;
            values.add(columns.content_type)?;
            values.add(columns.headers)
        };
        for it in chunk {
            put(&mut values, it).map_err(sqlx::Error::Encode)?;
        }
        let (_, sql) = roomy(&RETRY, chunk.len());
        let done = query_with(AssertSqlSafe(sql), values).fetch_all(on).await?;
        done.iter().map(|row| row.try_get(0)).collect()
    }

    /// What became of a delivery that is not this owner's.
    async fn tell_lost(&self, lost: &[usize], on: &mut SqliteConnection) -> Result<Vec<Settled>, sqlx::Error> {
        let token = |item: &usize| self.tokens.get(*item).copied();
        let mut run = Run::default();
        lost.iter().filter_map(token).for_each(|token| run.add(0, token.id));
        let sql =
            "SELECT id, state, generation, owner FROM postroom_message WHERE id IN (SELECT value FROM json_each(?))";
        let rows = query(sql).bind(run.json()).fetch_all(on).await?;
        let mut found = HashMap::new();
        for row in &rows {
            let (id, state, generation): (i64, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            // Released or retried by this very delivery, and not taken since.
            let ours = row::text(row, 3)?.is_some_and(|owner| *owner == *self.owner);
            found.insert(id, (state != IN_FLIGHT && ours).then_some(generation));
        }
        let told = lost.iter().filter_map(token).map(|token| match found.get(&token.id) {
            None => Settled::Already,
            Some(Some(generation)) if *generation == token.generation => Settled::Already,
            Some(_) => Settled::LeaseLost,
        });
        Ok(told.collect())
    }
}

/// Changes the deliveries of a run that are still the owner's; answers which.
async fn fenced(
    sql: &'static str,
    (generation, run): (&i64, &Run),
    owner: &str,
    at: Option<i64>,
    on: &mut SqliteConnection,
) -> Result<HashSet<i64>, sqlx::Error> {
    let list = run.json();
    let mut asked = query(sql).bind(&list).bind(generation).bind(owner);
    if let Some(at) = at {
        asked = asked.bind(at);
    }
    let rows = asked.bind(&list).bind(generation).bind(owner).fetch_all(on).await?;
    let Some(row) = rows.first() else { return Ok(HashSet::new()) };
    let ids = row::text(row, 0)?.unwrap_or_default();
    Ok(ids.split(',').filter_map(|id| id.parse().ok()).collect())
}

impl Work for Settle {
    type Answer = Vec<Settled>;

    fn is_single(&self) -> bool {
        let most = ROOMS.last().copied().unwrap_or(1);
        self.acked.len() + self.released.len() + self.retried.len().div_ceil(most) == 1
    }

    async fn run(&mut self, on: &mut SqliteConnection, frame: Frame) -> Result<Vec<Settled>, sqlx::Error> {
        let mut told: Vec<Option<Settled>> = vec![None; self.tokens.len()];
        let mut mark = |items: &mut dyn Iterator<Item = (usize, i64)>, mut done: HashSet<i64>| {
            for (item, id) in items {
                // Taken out, so that the same delivery twice in a batch is done once.
                if done.remove(&id)
                    && let Some(told) = told.get_mut(item)
                {
                    *told = Some(Settled::Done);
                }
            }
        };
        for run in &self.acked {
            let done = fenced(frame.of(&ACK), run, &self.owner, None, on).await?;
            mark(&mut run.1.items.iter().copied(), done);
        }
        for run in &self.released {
            let done = fenced(frame.of(&RELEASE), run, &self.owner, None, on).await?;
            mark(&mut run.1.items.iter().copied(), done);
        }
        for chunk in self.retried.chunks(ROOMS.last().copied().unwrap_or(1)) {
            let done = self.retry(chunk, on).await?;
            mark(&mut chunk.iter().map(|it| (it.item, it.token.id)), done);
        }
        let lost: Vec<usize> =
            told.iter().enumerate().filter(|(_, told)| told.is_none()).map(|(item, _)| item).collect();
        if !lost.is_empty() {
            let answers = self.tell_lost(&lost, on).await?;
            for (item, answer) in lost.into_iter().zip(answers) {
                if let Some(told) = told.get_mut(item) {
                    *told = Some(answer);
                }
            }
        }
        Ok(told.into_iter().map(|told| told.unwrap_or(Settled::Already)).collect())
    }

    fn bells(&self, _: &Vec<Settled>) -> Vec<Bell> {
        let ready = !self.released.is_empty() || self.retried.iter().any(|it| it.due.is_none());
        ready.then_some(Bell::Place(self.place)).into_iter().collect()
    }
}

/// Renews deliveries of one source. Answers for each whether it was still the owner's.
pub(crate) struct Extend {
    owner: Arc<str>,
    lease: i64,
    count: usize,
    runs: Runs,
}

impl Extend {
    pub(crate) fn new(owner: Arc<str>, lease: i64, batch: &[&Token]) -> Self {
        let mut runs = Runs::new();
        for (item, token) in batch.iter().enumerate() {
            runs.entry(token.generation).or_default().add(item, token.id);
        }
        Self { owner, lease, count: batch.len(), runs }
    }
}

impl Work for Extend {
    type Answer = Vec<bool>;

    fn is_single(&self) -> bool {
        self.runs.len() == 1
    }

    async fn run(&mut self, on: &mut SqliteConnection, frame: Frame) -> Result<Vec<bool>, sqlx::Error> {
        let mut kept = vec![false; self.count];
        for run in &self.runs {
            let until = clock::now().saturating_add(self.lease);
            let done = fenced(frame.of(&EXTEND), run, &self.owner, Some(until), on).await?;
            for (item, id) in &run.1.items {
                if let Some(kept) = kept.get_mut(*item) {
                    *kept = done.contains(id);
                }
            }
        }
        Ok(kept)
    }
}
