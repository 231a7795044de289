//! The envelopes that a retry, a failure, the suspects' lane and a replay write.

use crate::{
    Envelope, Text,
    envelope::Timestamp,
    policy::Outcome,
    track::{Attempt, AttemptKind, Failure, MAX_HISTORY, Origin, Reason, Track, record_id},
};

fn note(track: &mut Track, outcome: &Outcome, done: &[Text], at: Timestamp) {
    // A run that ended for good is an attempt as well; what no handler has seen is none.
    let erred = match outcome {
        Outcome::Errored { kind, error, handler, .. } => Some((*kind, error, handler)),
        Outcome::Final { error, handler } => Some((AttemptKind::Error, error, handler)),
        Outcome::Done | Outcome::Undecodable { .. } | Outcome::Unhandled | Outcome::NotStarted => None,
    };
    if let Some((kind, error, handler)) = erred {
        track.attempts = track.attempts.saturating_add(1);
        if track.history.len() >= MAX_HISTORY {
            track.history.remove(0);
        }
        track.history.push(Attempt::new(at, kind, error, handler.clone()));
    }
    for name in done {
        if !track.done.contains(name) {
            track.done.push(name.clone());
        }
    }
}

/// The envelope that runs again after an errored attempt that ended at `at`.
#[must_use]
pub fn retried(envelope: &Envelope, outcome: &Outcome, done: &[Text], at: Timestamp) -> Envelope {
    let mut next = envelope.clone();
    note(next.track_mut(), outcome, done, at);
    next
}

/// The envelope that goes back uncounted, with the handlers marked that are done with it.
#[must_use]
pub fn marked(envelope: &Envelope, done: &[Text]) -> Envelope {
    let mut next = envelope.clone();
    note(next.track_mut(), &Outcome::NotStarted, done, 0);
    next
}

/// The record of a message that is given up at `at`.
#[must_use]
pub fn failed(
    envelope: &Envelope,
    outcome: &Outcome,
    done: &[Text],
    reason: Reason,
    origin: &Origin,
    position: &str,
    at: Timestamp,
) -> Envelope {
    let mut record = envelope.clone();
    let track = record.track_mut();
    if reason != Reason::Crashed {
        // No run of a crashed one ended with an error: its starts had no end.
        note(track, outcome, done, at);
    }
    let id = record_id(origin, &envelope.id, position, track.round);
    let (error_kind, error) = match outcome {
        Outcome::Errored { kind, error, .. } => (Some(*kind), error.clone()),
        // Of a crash no handler said anything.
        Outcome::Final { error, .. } if reason == Reason::Final => (Some(AttemptKind::Error), error.clone()),
        Outcome::Final { error, .. } | Outcome::Undecodable { error } => (None, error.clone()),
        Outcome::Unhandled => (None, no_handler(envelope)),
        Outcome::Done | Outcome::NotStarted => (None, Text::new()),
    };
    let error = Attempt::new(at, AttemptKind::Error, &error, None).error;
    let mut failure = Failure::new(id, reason, error, at);
    failure.error_kind = error_kind;
    track.failure = Some(failure);
    track.origin = Some(origin.clone());
    track.starts = 0;
    record
}

fn no_handler(envelope: &Envelope) -> Text {
    match &envelope.message_type {
        Some(name) => format!("no handler takes the type `{name}`").into(),
        None => Text::from_static("the message has no type, and no handler takes every type"),
    }
}

/// The envelope that moves to the suspects' lane, with its first start there recorded.
#[must_use]
pub fn suspected(envelope: &Envelope, origin: &Origin) -> Envelope {
    let mut next = envelope.clone();
    let track = next.track_mut();
    track.starts = 1;
    track.origin = Some(origin.clone());
    next
}

/// The envelope of a suspect whose last start had no recorded end, with one more start recorded.
#[must_use]
pub fn raised(envelope: &Envelope) -> Envelope {
    let mut next = envelope.clone();
    let track = next.track_mut();
    track.starts = track.starts.saturating_add(1);
    next
}

/// The message that a failed record becomes again: the same id and done-marks, a fresh budget, the next round.
#[must_use]
pub fn replayed(record: &Envelope) -> Envelope {
    let mut next = record.clone();
    let track = next.track_mut();
    track.attempts = 0;
    track.starts = 0;
    track.history.clear();
    track.round = track.round.saturating_add(1);
    track.origin = None;
    track.failure = None;
    next
}
