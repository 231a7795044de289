//! What nobody asks for: due messages become ready, expired deliveries are taken back.

use sqlx::{Row, SqliteConnection, query};

use crate::{
    arrivals::Bell,
    publish::{DELAYED, IN_FLIGHT},
    work::{Frame, Work},
};

pub(crate) const FIRST: &str = "SELECT id, \
         (SELECT min(at) FROM postroom_message WHERE place = p.id AND state = 1), \
         (SELECT min(at) FROM postroom_message WHERE place = p.id AND state = 2) \
     FROM postroom_place AS p WHERE kind <> 'topic'";
pub(crate) const PROMOTE: &str = "UPDATE postroom_message SET state = 0, since = at, at = 0 \
     WHERE id IN (SELECT id FROM postroom_message WHERE place = ? AND state = 2 AND at <= ? ORDER BY at LIMIT +?)";
// Without an owner: to a settle that comes now it is another's.
pub(crate) const RECLAIM: &str = "UPDATE postroom_message SET state = 0, at = 0, owner = NULL \
     WHERE id IN (SELECT id FROM postroom_message WHERE place = ? AND state = 1 AND at <= ? ORDER BY at LIMIT +?)";

/// For each place and state the first moment at which something is to be done. One look into an index each; no lock.
pub(crate) async fn first(on: &mut SqliteConnection) -> Result<Vec<(i64, i64, i64)>, sqlx::Error> {
    let mut first = Vec::new();
    for row in query(FIRST).fetch_all(on).await? {
        let place = row.try_get(0)?;
        for (state, at) in [(IN_FLIGHT, row.try_get(1)?), (DELAYED, row.try_get(2)?)] {
            first.extend(Option::map(at, |at| (place, state, at)));
        }
    }
    Ok(first)
}

/// Does what is due at `now`, at most `max` messages.
pub(crate) struct Upkeep {
    pub(crate) now: i64,
    pub(crate) max: u64,
    /// Place and state.
    pub(crate) due: Vec<(i64, i64)>,
}

/// What was done: for each place and state how many.
pub(crate) type Kept = Vec<(i64, i64, u64)>;

impl Work for Upkeep {
    type Answer = Kept;

    fn is_single(&self) -> bool {
        self.due.len() == 1
    }

    async fn run(&mut self, on: &mut SqliteConnection, _: Frame) -> Result<Kept, sqlx::Error> {
        let mut kept = Kept::new();
        let mut left = self.max;
        for (place, state) in &self.due {
            let sql = if *state == DELAYED { PROMOTE } else { RECLAIM };
            let limit = i64::try_from(left).unwrap_or(i64::MAX);
            let done = query(sql).bind(place).bind(self.now).bind(limit).execute(&mut *on).await?;
            left = left.saturating_sub(done.rows_affected());
            kept.push((*place, *state, done.rows_affected()));
        }
        Ok(kept)
    }

    fn bells(&self, kept: &Kept) -> Vec<Bell> {
        kept.iter().filter(|(_, _, count)| *count > 0).map(|(place, ..)| Bell::Place(*place)).collect()
    }
}
