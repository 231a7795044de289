//! Messages taken, and given back by the load.

use std::sync::Arc;

use sqlx::{Row, SqliteConnection, query};

use crate::{
    arrivals::Bell,
    clock, error,
    pack::pack,
    work::{Frame, Work, framed},
};

/// What is read first is what is taken then: a transaction of ours is immediate, so nobody writes in between.
const CLAIM: [&str; 2] = framed!(
    "SELECT count(*), group_concat(",
    pack!(),
    ", '') FROM (SELECT * FROM postroom_message WHERE place = ? AND state = 0 ORDER BY at, id LIMIT ?); \
     UPDATE postroom_message \
         SET state = 1, at = ?, owner = ?, generation = generation + 1, delivered = delivered + 1 \
         WHERE id IN (SELECT id FROM postroom_message WHERE place = ? AND state = 0 ORDER BY at, id LIMIT ?)"
);

/// Takes the oldest that are ready.
pub(crate) struct Claim {
    pub(crate) place: i64,
    pub(crate) owner: Arc<str>,
    pub(crate) lease: i64,
    pub(crate) max: i64,
}

/// What was taken, as a pack.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) count: i64,
    pub(crate) pack: Vec<u8>,
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
                    let Some(row) = rows.first() else { return Ok(Taken::default()) };
                    let pack: Option<&[u8]> = row.try_get_unchecked(1)?;
                    return Ok(Taken { count: row.try_get_unchecked(0)?, pack: pack.unwrap_or_default().to_vec() });
                }
            }
        }
    }

    fn bells(&self, taken: &Taken) -> Vec<Bell> {
        // There may be more than were asked for.
        (taken.count >= self.max).then_some(Bell::Place(self.place)).into_iter().collect()
    }
}

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
        let sql =
            "UPDATE postroom_message SET state = 0, at = 0, owner = NULL WHERE place = ? AND state = 1 AND owner = ?";
        for (place, owner) in &self.sources {
            query(sql).bind(place).bind(&**owner).execute(&mut *on).await?;
        }
        Ok(())
    }

    fn bells(&self, (): &()) -> Vec<Bell> {
        self.sources.iter().map(|(place, _)| Bell::Place(*place)).collect()
    }
}
