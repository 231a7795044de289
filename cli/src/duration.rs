//! Durations in text, as core reads them.

use std::time::Duration;

/// Reads `250ms`, `30s`, `5m`, `1h30m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    postroom_core::duration::duration(text).map_err(|error| error.to_string())
}
