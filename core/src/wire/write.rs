//! An envelope's metadata to headers.

use std::borrow::Cow;

use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{CONTENT_TYPE, MAX_FAILURE_BYTES, MAX_HISTORY_BYTES, Prefix, STAMP, must_escape};
use crate::{Attempt, AttemptKind, Envelope, Failure, Reason, Text, Timestamp, Track, track::MAX_HISTORY};

/// Hands each header of an envelope to `put`: metadata first, then the user stamps in their order. A time outside of
/// the years 0 to 9999 has no RFC 3339 form and is not written.
pub fn write(envelope: &Envelope, prefix: Prefix, put: &mut impl FnMut(&str, &[u8])) {
    let names = prefix.names();
    put(names.specversion, b"1.0");
    put(names.id, envelope.id.as_bytes());
    for (name, value) in [
        (names.source, envelope.source.as_deref()),
        (names.message_type, envelope.message_type.as_deref()),
        (names.key, envelope.key.as_deref()),
        (names.traceparent, envelope.traceparent.as_deref()),
        (CONTENT_TYPE, envelope.content_type.as_deref()),
    ] {
        if let Some(value) = value {
            put(name, value.as_bytes());
        }
    }
    if let Some(time) = envelope.time {
        let mut buffer = [0; 40];
        if let Some(text) = rfc3339(time, &mut buffer) {
            put(names.time, text);
        }
    }
    if let Some(track) = envelope.track.as_deref() {
        write_track(track, put);
    }
    for (name, value) in envelope.stamps.iter() {
        if must_escape(name) {
            put(&[STAMP, name].concat(), value);
        } else {
            put(name, value);
        }
    }
}

fn rfc3339(time: Timestamp, buffer: &mut [u8]) -> Option<&[u8]> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(time) * 1_000_000).ok()?;
    let room = buffer.len();
    let mut rest: &mut [u8] = &mut *buffer;
    // What it answers is not the length where there are fractions of a second (time 0.3.55).
    time.format_into(&mut rest, &Rfc3339).ok()?;
    let left = rest.len();
    buffer.get(..room - left)
}

fn write_track(track: &Track, put: &mut impl FnMut(&str, &[u8])) {
    // Always written, so that a track without anything else is still one.
    number("postroom-attempts", track.attempts, put);
    if track.starts > 0 {
        number("postroom-starts", track.starts, put);
    }
    if track.round > 0 {
        number("postroom-round", track.round, put);
    }
    if !track.done.is_empty() {
        json("postroom-done", &track.done, put);
    }
    if !track.history.is_empty() {
        json("postroom-history", &fitted(&track.history), put);
    }
    if let Some(origin) = &track.origin {
        json("postroom-origin", origin, put);
    }
    if let Some(failure) = &track.failure {
        let Failure { record, reason, error_kind, error, at } = failure;
        let error = cut(error, MAX_FAILURE_BYTES);
        let kept = FailureLine { record, reason: *reason, error_kind: *error_kind, error: &error, at: *at };
        json("postroom-failure", &kept, put);
    }
}

fn number(name: &str, mut value: u32, put: &mut impl FnMut(&str, &[u8])) {
    let mut digits = [0; 10];
    let mut start = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        start = at;
        if value == 0 {
            break;
        }
    }
    put(name, digits.get(start..).unwrap_or_default());
}

fn json(name: &str, value: &impl Serialize, put: &mut impl FnMut(&str, &[u8])) {
    // These types always have a JSON form.
    if let Ok(text) = serde_json::to_vec(value) {
        put(name, &text);
    }
}

/// [`Failure`] with a text that may be cut.
#[derive(Serialize)]
struct FailureLine<'a> {
    record: &'a Text,
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_kind: Option<AttemptKind>,
    error: &'a str,
    at: Timestamp,
}

/// [`Attempt`] with a text that may be cut.
#[derive(Serialize)]
struct AttemptLine<'a> {
    at: Timestamp,
    kind: AttemptKind,
    error: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<&'a Text>,
}

/// What an attempt takes beside its texts: `{"at":-9223372036854775808,"kind":"panicked","error":"","handler":""},`.
const FRAME: usize = 80;
/// What an older error text keeps at least, while there is room for it.
const FLOOR: usize = 256;

/// The attempts, as much of them as fits in [`MAX_HISTORY_BYTES`]: older texts are cut first, and the oldest attempts
/// go where even that is not enough.
fn fitted(history: &[Attempt]) -> Vec<AttemptLine<'_>> {
    let history = history.get(history.len().saturating_sub(MAX_HISTORY)..).unwrap_or_default();
    let frame = |attempt: &Attempt| FRAME + attempt.handler.as_ref().map_or(0, |handler| json_len(handler));
    let mut left = MAX_HISTORY_BYTES - 2;
    let mut reserved: usize = history.iter().map(|attempt| frame(attempt) + json_len(&attempt.error).min(FLOOR)).sum();
    let mut lines = Vec::with_capacity(history.len());
    for attempt in history.iter().rev() {
        let frame = frame(attempt);
        reserved = reserved.saturating_sub(frame + json_len(&attempt.error).min(FLOOR));
        let Some(room) = left.checked_sub(frame) else {
            break;
        };
        // The newest come first and leave the older ones their floor.
        let error = cut(&attempt.error, room.saturating_sub(reserved).max(FLOOR.min(room)));
        left = room.saturating_sub(json_len(&error));
        lines.push(AttemptLine { at: attempt.at, kind: attempt.kind, error, handler: attempt.handler.as_ref() });
    }
    lines.reverse();
    lines
}

const MARK: &str = "…";

/// The beginning of a text that takes at most `max` bytes as JSON, with a mark where something is missing.
fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if json_len(text) <= max {
        return Cow::Borrowed(text);
    }
    let mut room = max.saturating_sub(MARK.len());
    let mut end = 0;
    for (at, c) in text.char_indices() {
        let Some(rest) = room.checked_sub(json_char(c)) else {
            break;
        };
        room = rest;
        end = at + c.len_utf8();
    }
    let kept = text.get(..end).unwrap_or_default();
    Cow::Owned(if max < MARK.len() { String::new() } else { [kept, MARK].concat() })
}

fn json_len(text: &str) -> usize {
    text.chars().map(json_char).sum()
}

fn json_char(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        c => c.len_utf8(),
    }
}
