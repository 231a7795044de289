//! The wall clock, in one place.

use std::time::SystemTime;

use postroom_core::envelope::Timestamp;

/// Milliseconds since 1970 UTC.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::try_from(since.as_millis()).unwrap_or(Timestamp::MAX)
}
