//! The broker's clock: this host's, in milliseconds. All processes of one file run on one host.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A thousand years: far enough for any delay, and no sum of it overflows.
const FOREVER: i64 = 1000 * 365 * 24 * 60 * 60 * 1000;

pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(FOREVER)
}

/// A span in whole milliseconds, rounded up.
pub(crate) fn span(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(FOREVER).min(FOREVER)
}

/// The first millisecond that is not earlier than `after` from now. The one more is for the part of a millisecond that
/// `now` cut off: nothing may be early.
pub(crate) fn due(now: i64, after: Duration) -> i64 {
    now + span(after) + 1
}

pub(crate) fn until(now: i64, at: i64) -> Duration {
    Duration::from_millis(u64::try_from(at.saturating_sub(now)).unwrap_or(0))
}
