//! A message as JSON, whole or in short.

use base64::{Engine, engine::general_purpose::STANDARD};
use postroom::ops::FailedRecord;
use postroom_core::{Attempt, AttemptKind, Browsed, Envelope, Failure, Place, Reason, State};
use serde_json::{Map, Value, json};

use crate::text::time;

/// A line of `failed list`.
pub(crate) fn short(record: &FailedRecord) -> Map<String, Value> {
    let envelope = record.envelope();
    let failure = record.failure();
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.into(), value);
    put("record", json!(record.id().as_ref() as &str));
    put("id", json!(&*envelope.id));
    put("type", json!(envelope.message_type.as_deref()));
    put("from", json!(record.from().map(|from| from.as_ref() as &str)));
    put("group", json!(record.origin().and_then(Place::group_name).map(|name| name.as_str())));
    put("attempts", json!(attempts(envelope)));
    put("failed_at", json!(failure.map(|failure| time(failure.at))));
    put("reason", json!(failure.map(|failure| failure.reason.as_str())));
    put("error", json!(failure.map(|failure| failure.error.as_ref() as &str)));
    put("error_kind", json!(failure.and_then(error_kind)));
    put("size", json!(envelope.body.len()));
    put("key", json!(envelope.key.as_deref()));
    object
}

/// `failed show`.
pub(crate) fn whole(record: &FailedRecord) -> Map<String, Value> {
    let envelope = record.envelope();
    let track = envelope.track.as_deref();
    let mut object = short(record);
    let mut put = |name: &str, value: Value| object.insert(name.into(), value);
    put("content_type", json!(envelope.content_type.as_deref()));
    put("time", json!(envelope.time.map(time)));
    put("source", json!(envelope.source.as_deref()));
    put("round", json!(track.map_or(0, |track| track.round)));
    let done: Vec<&str> = track.iter().flat_map(|track| &track.done).map(|name| name.as_ref() as &str).collect();
    put("done", json!(done));
    put("headers", headers(envelope));
    put("history", history(envelope).iter().map(attempt).collect());
    match std::str::from_utf8(&envelope.body) {
        Ok(text) => put("body", json!(text)),
        Err(_) => put("body_base64", json!(STANDARD.encode(&envelope.body))),
    };
    object
}

/// How many runs ended in an error.
pub(crate) fn attempts(envelope: &Envelope) -> u32 {
    envelope.attempts()
}

/// The runs that ended in an error, as far as they are remembered.
pub(crate) fn history(envelope: &Envelope) -> Vec<Attempt> {
    envelope.track.iter().flat_map(|track| track.history.iter().cloned()).collect()
}

/// The last error's own kind: what a handler gave up for good, it returned.
fn error_kind(failure: &Failure) -> Option<AttemptKind> {
    failure.error_kind.or((failure.reason == Reason::Final).then_some(AttemptKind::Error))
}

fn attempt(attempt: &Attempt) -> Value {
    let mut object = json!({"time": time(attempt.at), "error_kind": attempt.kind, "error": &*attempt.error});
    if let (Some(handler), Some(object)) = (&attempt.handler, object.as_object_mut()) {
        object.insert("handler".into(), json!(&**handler));
    }
    object
}

/// Headers as an object; of several with one name the first, as handlers see it.
fn headers(envelope: &Envelope) -> Value {
    let mut object = Map::new();
    for (name, value) in envelope.stamps.iter() {
        object.entry(name.to_string()).or_insert_with(|| json!(String::from_utf8_lossy(value)));
    }
    Value::Object(object)
}

/// A state's word.
pub(crate) fn state(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::InFlight => "in-flight",
        State::Delayed => "delayed",
    }
}

/// A line of `peek`: what the message has of a failed record's keys, its state and when it is due.
pub(crate) fn peeked(item: &Browsed, place: &Place) -> Map<String, Value> {
    let envelope = &item.envelope;
    let track = envelope.track.as_deref();
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.into(), value);
    if let Some(failure) = track.and_then(|track| track.failure.as_ref()) {
        put("record", json!(&*failure.record));
        put("failed_at", json!(time(failure.at)));
        put("reason", json!(failure.reason.as_str()));
        put("error", json!(&*failure.error));
        put("error_kind", json!(error_kind(failure)));
    }
    let origin = track.and_then(|track| track.origin.as_ref());
    if let Some(origin) = origin {
        put("from", json!(&*origin.transport));
    }
    if let Some(group) = origin.map_or(place, |origin| &origin.place).group_name() {
        put("group", json!(group.as_str()));
    }
    put("id", json!(&*envelope.id));
    put("type", json!(envelope.message_type.as_deref()));
    put("attempts", json!(attempts(envelope)));
    put("size", json!(envelope.body.len()));
    put("key", json!(envelope.key.as_deref()));
    put("state", json!(state(item.state)));
    put("due_at", json!(item.due_at.map(time)));
    object
}
