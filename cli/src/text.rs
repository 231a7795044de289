//! Text for people: escaped, shortened, dated.

use postroom_core::Timestamp;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The text with control characters (and what else a terminal would act on) escaped, so that a message cannot move the
/// cursor, change colours, or hide a line.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || is_invisible(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Marks that reorder or hide text on a terminal.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// As [`shown`], at most `max` characters.
pub(crate) fn cut(text: &str, max: usize) -> String {
    let mut out = shown(text);
    if let Some((at, _)) = out.char_indices().nth(max) {
        let keep = out.char_indices().nth(max.saturating_sub(1)).map_or(at, |(at, _)| at);
        out.truncate(keep);
        out.push('…');
    }
    out
}

/// RFC 3339 in UTC with milliseconds; a time that no calendar holds is shown as its number.
pub(crate) fn time(at: Timestamp) -> String {
    let formatted = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1_000_000)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok());
    formatted.unwrap_or_else(|| format!("{at} ms"))
}

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> Timestamp {
    Timestamp::try_from(OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000).unwrap_or(Timestamp::MAX)
}

/// A duration for people: `850 ms`, `12.3 s`, `4 min 10 s`, `3 h 05 min`.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {:02} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {:02} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// `1 message`, `2 messages`.
pub(crate) fn count(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// The valid name nearest to a mistyped one, where one is near.
pub(crate) fn nearest<'a>(name: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    valid
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.chars().count().max(name.chars().count()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean ...?` or `; valid are ...`, to end an error about an unknown name.
pub(crate) fn suggestion<'a>(name: &str, valid: impl IntoIterator<Item = &'a str>) -> String {
    let valid: Vec<&str> = valid.into_iter().collect();
    match nearest(name, valid.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if valid.is_empty() => String::new(),
        None => format!("; valid: {}", valid.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown("a\u{1b}[31mb\n\u{202e}\u{7f}é日"), "a\\u{1b}[31mb\\n\\u{202e}\\u{7f}é日");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }

    #[test]
    fn times_are_rfc_3339_in_utc() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(1_517_363_399_650), "2018-01-31T01:49:59.65Z");
        assert_eq!(time(i64::MAX), format!("{} ms", i64::MAX));
    }

    #[test]
    fn the_nearest_name_is_found() {
        assert_eq!(nearest("leese", ["lease", "prefetch"]), Some("lease"));
        assert_eq!(nearest("ordres", ["orders", "failed"]), Some("orders"));
        assert_eq!(nearest("zzz", ["orders", "failed"]), None);
        assert_eq!(suggestion("zzz", ["a.very.long.name"]), "; valid: `a.very.long.name`");
    }
}
