//! Messages taken, and given back by the load.

use std::sync::Arc;

use sqlx::{SqliteConnection, query, sqlite::SqliteRow};

use crate::{arrivals::Bell, clock, work::Work};

/// Takes the oldest that are ready.
pub(crate) struct Claim {
    pub(crate) place: i64,
    pub(crate) owner: Arc<str>,
    pub(crate) lease: i64,
    pub(crate) max: i64,
}

/// The columns before those of the envelope: id, generation, delivered.
pub(crate) const BEFORE: usize = 3;

impl Work for Claim {
    type Answer = Vec<SqliteRow>;

    fn is_single(&self) -> bool {
        true
    }

    async fn run(&mut self, on: &mut SqliteConnection) -> Result<Vec<SqliteRow>, sqlx::Error> {
        let sql = "UPDATE postroom_message \
             SET state = 1, at = ?, owner = ?, generation = generation + 1, delivered = delivered + 1 \
             WHERE id IN (SELECT id FROM postroom_message WHERE place = ? AND state = 0 ORDER BY at, id LIMIT ?) \
             RETURNING id, generation, delivered, message_id, type, key, content_type, headers, body";
        // The lease begins when the claim runs, not when it was queued.
        let until = clock::now().saturating_add(self.lease);
        query(sql).bind(until).bind(&*self.owner).bind(self.place).bind(self.max).fetch_all(on).await
    }

    fn bells(&self, rows: &Vec<SqliteRow>) -> Vec<Bell> {
        // There may be more than were asked for.
        let full = i64::try_from(rows.len()).is_ok_and(|taken| taken >= self.max);
        full.then_some(Bell::Place(self.place)).into_iter().collect()
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

    async fn run(&mut self, on: &mut SqliteConnection) -> Result<(), sqlx::Error> {
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
