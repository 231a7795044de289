//! Headers to an envelope.

use std::{fmt, marker::PhantomData, str};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, SeqAccess, Visitor},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{CONTENT_TYPE, MAX_CONTENT_TYPE, MAX_DONE, MAX_JSON, POSTROOM, PREFIXES, Prefix, STAMP, must_escape};
use crate::{Attempt, Envelope, MessageId, Stamps, Text, Timestamp, Track, TypeName, track::MAX_HISTORY};

/// What a message without metadata of its own is.
pub struct Fallback<'a, F> {
    /// Makes the id of a message that carries none; called at most once.
    pub id: F,
    /// The type of a message that carries none.
    pub message_type: Option<&'a TypeName>,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Read {
    /// The envelope.
    pub envelope: Envelope,
    /// How many headers were invalid or repeated; each is kept as a stamp.
    pub oddities: u32,
}

/// Reads a message's headers. Never fails: see [the module](super) for what becomes of odd ones. A message with an
/// invalid type has none, also where the fallback has one: it said that it is something else.
pub fn read<'h>(
    headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    prefix: Prefix,
    body: Bytes,
    fallback: Fallback<'_, impl FnOnce() -> MessageId>,
) -> Read {
    let mut found = Found::default();
    let mut stamps = Stamps::new();
    let mut oddities: u32 = 0;
    for (name, value) in headers {
        match found.take(name, value, prefix) {
            Taken::Metadata => {}
            Taken::Stamp => {
                // Only what `write` escapes is turned back; another's header of such a name keeps it.
                let inner = name.strip_prefix(STAMP).filter(|inner| must_escape(inner));
                if inner.is_some_and(is_type) {
                    // An invalid type that was kept as a stamp says the same after each hop.
                    found.message_type.get_or_insert(None);
                }
                stamps.push(inner.unwrap_or(name), Bytes::copy_from_slice(value));
            }
            Taken::Odd => {
                oddities = oddities.saturating_add(1);
                stamps.push(name, Bytes::copy_from_slice(value));
            }
        }
    }
    let message_type = match found.message_type {
        Some(own) => own,
        None => fallback.message_type.cloned(),
    };
    let envelope = Envelope {
        id: found.id.unwrap_or_else(fallback.id),
        message_type,
        content_type: found.content_type,
        key: found.key,
        time: found.time,
        source: found.source,
        traceparent: found.traceparent,
        body,
        stamps,
        track: found.track,
    };
    Read { envelope, oddities }
}

enum Taken {
    Metadata,
    Stamp,
    Odd,
}

#[derive(Default)]
struct Found {
    specversion: bool,
    id: Option<MessageId>,
    /// `Some(None)`: there was one, and it was not valid.
    message_type: Option<Option<TypeName>>,
    content_type: Option<Text>,
    key: Option<Text>,
    time: Option<Timestamp>,
    source: Option<Text>,
    traceparent: Option<Text>,
    track: Option<Box<Track>>,
    /// Which `postroom-*` headers were read already.
    seen: [bool; 7],
}

impl Found {
    fn take(&mut self, name: &str, value: &[u8], prefix: Prefix) -> Taken {
        if let Some(attribute) = prefix.attribute(name) {
            return self.attribute(attribute, value);
        }
        if let Some(part) = name.strip_prefix(POSTROOM) {
            return self.part(part, value);
        }
        // The one name of ours that foreign senders write in capitals.
        if name.eq_ignore_ascii_case(CONTENT_TYPE) { self.content_type(value) } else { Taken::Stamp }
    }

    fn attribute(&mut self, attribute: &str, value: &[u8]) -> Taken {
        match attribute {
            "specversion" if value == b"1.0" && !self.specversion => {
                self.specversion = true;
                Taken::Metadata
            }
            "specversion" => Taken::Odd,
            "id" => set(&mut self.id, || MessageId::new(text(value)?)),
            "type" => {
                let known = matches!(self.message_type, Some(Some(_)));
                match str::from_utf8(value).ok().and_then(|name| TypeName::new(name).ok()) {
                    Some(name) if !known => {
                        self.message_type = Some(Some(name));
                        Taken::Metadata
                    }
                    _ => {
                        self.message_type.get_or_insert(None);
                        Taken::Odd
                    }
                }
            }
            "source" => set(&mut self.source, || text(value)),
            "partitionkey" => set(&mut self.key, || text(value)),
            "time" => set(&mut self.time, || timestamp(value)),
            "traceparent" => set(&mut self.traceparent, || is_traceparent(value).then(|| text(value))?),
            "datacontenttype" => self.content_type(value),
            _ => Taken::Stamp,
        }
    }

    fn content_type(&mut self, value: &[u8]) -> Taken {
        if self.content_type.as_ref().is_some_and(|known| known.as_bytes() == value) {
            // Some senders write both `content-type` and `datacontenttype`.
            return Taken::Metadata;
        }
        set(&mut self.content_type, || {
            let valid = (1..=MAX_CONTENT_TYPE).contains(&value.len()) && value.iter().all(|b| matches!(b, b' '..=b'~'));
            valid.then(|| text(value))?
        })
    }

    fn part(&mut self, part: &str, value: &[u8]) -> Taken {
        let [attempts, starts, round, done, history, origin, failure] = &mut self.seen;
        let track = &mut self.track;
        match part {
            "attempts" => put(attempts, track, number(value), |track, value| track.attempts = value),
            "starts" => put(starts, track, number(value), |track, value| track.starts = value),
            "round" => put(round, track, number(value), |track, value| track.round = value),
            "done" => put(done, track, json(value), |track, Bounded::<Text, MAX_DONE>(value)| track.done = value),
            "history" => {
                put(history, track, json(value), |track, Bounded::<Attempt, MAX_HISTORY>(value)| track.history = value)
            }
            "origin" => put(origin, track, json(value), |track, value| track.origin = Some(value)),
            "failure" => put(failure, track, json(value), |track, value| track.failure = Some(value)),
            _ => Taken::Stamp,
        }
    }
}

/// Whether this is the name of a type attribute, under any prefix.
fn is_type(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.strip_prefix(prefix) == Some("type"))
}

/// Sets a field once; a repeat or an invalid value is odd.
fn set<T>(field: &mut Option<T>, value: impl FnOnce() -> Option<T>) -> Taken {
    if field.is_some() {
        return Taken::Odd;
    }
    *field = value();
    if field.is_some() { Taken::Metadata } else { Taken::Odd }
}

/// As [`set`], for a part of the track.
fn put<T>(
    seen: &mut bool,
    track: &mut Option<Box<Track>>,
    value: Option<T>,
    into: impl FnOnce(&mut Track, T),
) -> Taken {
    match value {
        Some(value) if !*seen => {
            *seen = true;
            into(track.get_or_insert_default(), value);
            Taken::Metadata
        }
        _ => Taken::Odd,
    }
}

fn text(value: &[u8]) -> Option<Text> {
    str::from_utf8(value).ok().map(Text::from)
}

fn number(value: &[u8]) -> Option<u32> {
    // `parse` would take a sign.
    let digits = str::from_utf8(value).ok().filter(|text| text.starts_with(|c: char| c.is_ascii_digit()))?;
    digits.parse().ok()
}

fn timestamp(value: &[u8]) -> Option<Timestamp> {
    let time = OffsetDateTime::parse(str::from_utf8(value).ok()?, &Rfc3339).ok()?;
    Timestamp::try_from(time.unix_timestamp_nanos().div_euclid(1_000_000)).ok()
}

/// W3C trace context: `00-<32 hex>-<16 hex>-<2 hex>`; later versions may go on after another `-`.
fn is_traceparent(value: &[u8]) -> bool {
    let mut parts = value.splitn(5, |b| *b == b'-');
    let mut hex = |len: usize| {
        let part = parts.next().unwrap_or_default();
        let hex = part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (part.len() == len && hex).then_some(part)
    };
    let (Some(version), Some(trace), Some(parent), Some(_)) = (hex(2), hex(32), hex(16), hex(2)) else {
        return false;
    };
    let zero = |part: &[u8]| part.iter().all(|b| *b == b'0');
    let more = parts.next().is_some();
    let valid = !zero(trace) && !zero(parent) && value.len() <= 256;
    match version {
        b"ff" => false,
        b"00" => valid && !more,
        _ => valid,
    }
}

fn json<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    (value.len() <= MAX_JSON).then(|| serde_json::from_slice(value).ok())?
}

/// A list of at most `MAX` items, so that a short text cannot become a large list.
struct Bounded<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX} items")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    if list.len() == MAX {
                        return Err(A::Error::custom("too many items"));
                    }
                    list.push(item);
                }
                Ok(list)
            }
        }
        from.deserialize_seq(List::<T, MAX>(PhantomData)).map(Self)
    }
}
