//! Messages taken, and given back by the load.

use std::sync::Arc;

use sqlx::{Row, SqliteConnection, query, sqlite::SqliteRow};

use crate::{
    arrivals::Bell,
    clock, error,
    pack::{Unpack, pack},
    work::{Frame, Work, framed},
};

/// What is read first is what is taken then: a transaction of ours is immediate, so nobody writes in between. `+?`,
/// because SQLite plans a bare `LIMIT ?` anew each time it is bound.
pub(crate) const CLAIM: [&str; 2] = framed!(
    "SELECT count(*), group_concat(",
    pack!(),
    ", '') FROM postroom_message \
         WHERE id IN (SELECT id FROM postroom_message WHERE place = ? AND state = 0 ORDER BY at, id LIMIT +?); \
     UPDATE postroom_message \
         SET state = 1, at = ?, owner = ?, generation = generation + 1, delivered = delivered + 1 \
         WHERE id IN (SELECT id FROM postroom_message WHERE place = ? AND state = 0 ORDER BY at, id LIMIT +?)"
);

/// Takes the oldest that are ready.
pub(crate) struct Claim {
    pub(crate) place: i64,
    pub(crate) owner: Arc<str>,
    pub(crate) lease: i64,
    pub(crate) max: i64,
}

/// What was taken.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) count: i64,
    row: Option<SqliteRow>,
}

impl Taken {
    /// The rows. Not copied: a pack can be large.
    pub(crate) fn pack(&self) -> Result<Unpack<'_>, sqlx::Error> {
        let pack = self.row.as_ref().map(|row| row.try_get_unchecked::<Option<&[u8]>, _>(1)).transpose()?;
        Ok(Unpack(pack.flatten().unwrap_or_default()))
    }
}

impl Work for Claim {
    type Answer = Taken;

    fn is_single(&self) -> bool {
        true
    }

    async fn run(&mut self, on: &mut SqliteConnection, frame: Frame) -> Result<Taken, sqlx::Error> {
        loop {
            // The lease begins when the claim runs, not when it was queued.
            let until = clock::now().saturating_add(self.lease);
            let (place, max) = (self.place, self.max);
            let claim = query(frame.of(&CLAIM));
            let claim = claim.bind(place).bind(max).bind(until).bind(&*self.owner).bind(place).bind(max);
            match claim.fetch_all(&mut *on).await {
                // More than SQLite puts into one value: fewer will do.
                Err(error) if error::is_too_large(&error) && max > 1 => {
                    frame.undo(on).await;
                    self.max = (max / 8).max(1);
                }
                Err(error) => return Err(error),
                Ok(rows) => {
                    let row = rows.into_iter().next();
                    let count = row.as_ref().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
                    return Ok(Taken { count, row });
                }
            }
        }
    }

    fn bells(&self, taken: &Taken) -> Vec<Bell> {
        // There may be more than were asked for.
        (taken.count >= self.max).then_some(Bell::Place(self.place)).into_iter().collect()
    }
}

pub(crate) const GIVE_BACK: &str =
    "UPDATE postroom_message SET state = 0, at = 0, owner = NULL WHERE place = ? AND state = 1 AND owner = ?";

/// Gives back all that some sources hold.
pub(crate) struct GiveBack {
    /// Place and owner.
    pub(crate) sources: Vec<(i64, Arc<str>)>,
}

impl Work for GiveBack {
    type Answer = ();

    fn is_single(&self) -> bool {
        self.sources.len() == 1
    }

    async fn run(&mut self, on: &mut SqliteConnection, _: Frame) -> Result<(), sqlx::Error> {
        for (place, owner) in &self.sources {
            query(GIVE_BACK).bind(place).bind(&**owner).execute(&mut *on).await?;
        }
        Ok(())
    }

    fn bells(&self, (): &()) -> Vec<Bell> {
        self.sources.iter().map(|(place, _)| Bell::Place(*place)).collect()
    }
}
