//! How many deliveries a subscription may hold.

use std::time::Duration;

/// The most that an adaptive prefetch allows.
pub const MAX_ADAPTIVE: usize = 1024;
/// A pull for so many is never put off.
const MAX_PULL: usize = 256;
/// What an adaptive prefetch aims at: as much as the pools finish in this time.
pub const ADAPT_OVER: Duration = Duration::from_millis(100);

/// How many deliveries a subscription may hold at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// What its pools finish in about 100 ms, between their concurrency and 1,024.
    #[default]
    Auto,
    /// A fixed number, at least 1.
    Fixed(usize),
}

/// The permits of one subscription: taken before a pull, given back when the broker has answered the settle.
#[derive(Clone, Debug)]
pub struct Permits {
    prefetch: Prefetch,
    concurrency: usize,
    limit: usize,
    taken: usize,
    finished: usize,
    measured: Duration,
}

impl Permits {
    /// Permits of a subscription whose pools run `concurrency` messages at a time.
    #[must_use]
    pub fn new(prefetch: Prefetch, concurrency: usize) -> Self {
        let concurrency = concurrency.clamp(1, MAX_ADAPTIVE);
        let limit = match prefetch {
            Prefetch::Auto => concurrency,
            Prefetch::Fixed(n) => n.max(1),
        };
        Self { prefetch, concurrency, limit, taken: 0, finished: 0, measured: Duration::ZERO }
    }

    /// Changes the prefetch; what is held above it is not taken back.
    pub fn change(&mut self, prefetch: Prefetch) {
        self.prefetch = prefetch;
        self.limit = match prefetch {
            Prefetch::Auto => self.limit.clamp(self.concurrency, MAX_ADAPTIVE),
            Prefetch::Fixed(n) => n.max(1),
        };
    }

    /// How many may be pulled now. `now` is the time since any fixed moment.
    #[must_use]
    pub fn free(&mut self, now: Duration) -> usize {
        if self.prefetch == Prefetch::Auto {
            let elapsed = now.saturating_sub(self.measured);
            let whole = elapsed >= ADAPT_OVER;
            // All that may be held was finished early: a backlog need not wait to be taken in larger batches.
            if whole || (self.finished >= self.limit && !elapsed.is_zero()) {
                let rate = self.finished as f64 * ADAPT_OVER.as_secs_f64() / elapsed.as_secs_f64();
                let rate = rate.ceil() as usize;
                // Never jumps down by more than half: one slow message says little about the next. A short time says
                // too little to go down, or up by more than double.
                let goal =
                    if whole { rate.max(self.limit / 2) } else { rate.clamp(self.limit, self.limit.saturating_mul(2)) };
                self.limit = goal.clamp(self.concurrency, MAX_ADAPTIVE);
                self.finished = 0;
                self.measured = now;
            }
        }
        self.limit.saturating_sub(self.taken)
    }

    /// Whether a pull for `free` is worth it now: a small one is, only where the slots might run dry. `queued` are the
    /// deliveries that wait for a slot; those that wait for a retry or for their turn keep no slot busy.
    #[must_use]
    pub fn is_worth(&self, free: usize, queued: usize) -> bool {
        free > 0 && (queued < self.concurrency || free >= (self.limit / 4).min(MAX_PULL))
    }

    /// Takes permits for deliveries that arrived.
    pub fn take(&mut self, n: usize) {
        self.taken = self.taken.saturating_add(n);
    }

    /// Gives back permits that were taken for deliveries that did not come.
    pub fn refund(&mut self, n: usize) {
        self.taken = self.taken.saturating_sub(n);
    }

    /// Gives back the permits of deliveries that ended.
    pub fn give(&mut self, n: usize) {
        self.taken = self.taken.saturating_sub(n);
        self.finished = self.finished.saturating_add(n);
    }

    /// How many are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// How many there are.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_permits_are_never_exceeded() {
        let mut permits = Permits::new(Prefetch::Fixed(10), 2);
        assert_eq!(permits.free(Duration::ZERO), 10);
        permits.take(10);
        assert_eq!(permits.free(Duration::from_secs(9)), 0);
        permits.give(3);
        assert_eq!(permits.free(Duration::from_secs(9)), 3);
        permits.change(Prefetch::Fixed(4));
        assert_eq!(permits.free(Duration::from_secs(9)), 0);
    }

    #[test]
    fn adaptive_permits_follow_the_rate_between_concurrency_and_the_most() {
        let mut permits = Permits::new(Prefetch::Auto, 8);
        assert_eq!(permits.free(Duration::ZERO), 8);
        let mut now = Duration::ZERO;
        for _ in 0..10 {
            now += ADAPT_OVER;
            permits.take(5_000);
            permits.give(5_000);
            assert!(permits.free(now) <= MAX_ADAPTIVE);
        }
        assert_eq!(permits.limit(), MAX_ADAPTIVE);
        for _ in 0..20 {
            now += ADAPT_OVER;
            let _ = permits.free(now);
        }
        assert_eq!(permits.limit(), 8);
    }

    #[test]
    fn a_backlog_of_quick_messages_is_soon_taken_in_large_batches() {
        let mut permits = Permits::new(Prefetch::Auto, 1);
        let mut now = Duration::ZERO;
        for _ in 0..12 {
            let free = permits.free(now);
            permits.take(free);
            now += Duration::from_millis(2);
            permits.give(free);
        }
        assert_eq!(permits.free(now), MAX_ADAPTIVE);
        // A slow one is not: 30 ms each.
        let mut permits = Permits::new(Prefetch::Auto, 1);
        for _ in 0..12 {
            let free = permits.free(now);
            permits.take(free);
            now += Duration::from_millis(30) * u32::try_from(free).unwrap();
            permits.give(free);
        }
        assert!(permits.limit() <= 4, "{}", permits.limit());
    }

    #[test]
    fn a_pull_is_put_off_only_while_the_slots_have_enough() {
        let mut permits = Permits::new(Prefetch::Fixed(100), 4);
        permits.take(90);
        assert!(permits.is_worth(10, 3) && !permits.is_worth(0, 0));
        assert!(!permits.is_worth(10, 4) && permits.is_worth(25, 4));
    }

    #[test]
    fn a_hundred_milliseconds_of_work_is_the_goal() {
        let mut permits = Permits::new(Prefetch::Auto, 1);
        permits.take(40);
        permits.give(40);
        assert_eq!(permits.free(Duration::from_millis(200)), 20);
    }
}
