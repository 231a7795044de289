//! Durations as people write them: `250ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

/// A text that is not a duration. `Display` gives the text (shortened, escaped) and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a duration {rule}")]
pub struct DurationError {
    text: String,
    rule: &'static str,
}

const FORM: &str = "like 250ms, 30s, 5m or 1h30m";
const LARGE: &str = "that fits: it is too long";

/// The units, largest first, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads a duration: whole numbers, each with its unit (`d`, `h`, `m`, `s`, `ms`), each unit at most once, larger ones first.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(postroom_core::duration("1h30m").unwrap(), Duration::from_secs(5400));
/// assert!(postroom_core::duration("30").is_err());
/// ```
///
/// # Errors
/// When the text has another form, or is longer than about 584 million years.
pub fn duration(text: &str) -> Result<Duration, DurationError> {
    let error = |rule| {
        let shown = text.chars().take(40).flat_map(char::escape_debug).collect();
        DurationError { text: shown, rule }
    };
    let mut rest = text;
    let mut total: u64 = 0;
    let mut allowed = UNITS.as_slice();
    while !rest.is_empty() || allowed.len() == UNITS.len() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| error(FORM))?;
        let (digits, tail) = rest.split_at(end);
        let end = tail.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        if digits.is_empty() {
            return Err(error(FORM));
        }
        let at = allowed.iter().position(|(name, _)| *name == unit).ok_or_else(|| error(FORM))?;
        let milliseconds = allowed.get(at).map_or(1, |(_, milliseconds)| *milliseconds);
        // Only digits are left, so the one thing that can be wrong is the size.
        let number: u64 = digits.parse().map_err(|_| error(LARGE))?;
        total =
            number.checked_mul(milliseconds).and_then(|part| total.checked_add(part)).ok_or_else(|| error(LARGE))?;
        allowed = allowed.get(at + 1..).unwrap_or_default();
        rest = tail;
    }
    Ok(Duration::from_millis(total))
}

/// Writes a duration in the form that [`duration`] reads, in whole milliseconds (the rest is cut off) and hours at most;
/// zero is `0s`.
///
/// ```
/// assert_eq!(postroom_core::duration::text(std::time::Duration::from_millis(90_250)), "1m30s250ms");
/// ```
#[must_use]
pub fn text(duration: Duration) -> String {
    let mut left = duration.as_millis();
    if left == 0 {
        return "0s".into();
    }
    let mut out = String::new();
    for (name, milliseconds) in UNITS.into_iter().skip(1) {
        let count = left / u128::from(milliseconds);
        left %= u128::from(milliseconds);
        if count > 0 {
            out.push_str(&format!("{count}{name}"));
        }
    }
    out
}
