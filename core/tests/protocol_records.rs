//! What a retry, a failure, the lane and a replay write into the envelope.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use postroom_core::{
    AttemptKind, Envelope, MessageId, Origin, Outcome, Place, Reason, Text, TypeName,
    protocol::replace::{failed, raised, replayed, retried, suspected},
    track::MAX_HISTORY,
};

fn origin() -> Origin {
    Origin::new("main", Place::group("orders", "billing").unwrap())
}

fn envelope() -> Envelope {
    let mut envelope = Envelope::with_id(MessageId::new("m1").unwrap(), vec![0, 159, 146, 150]);
    envelope.message_type = Some(TypeName::new("order.placed").unwrap());
    envelope.content_type = Some("nobody/knows".into());
    envelope.stamps.push("user", vec![0xff, 0]);
    envelope.stamps.push("user", "twice");
    envelope
}

fn fail(envelope: &Envelope, outcome: &Outcome, reason: Reason) -> Envelope {
    failed(envelope, outcome, &[], reason, &origin(), "7", 9)
}

#[test]
fn undecodable_bytes_are_kept_as_they_came() {
    let record = fail(&envelope(), &Outcome::Undecodable { error: "not json".into() }, Reason::Undecodable);
    let mut without = record.clone();
    without.track = None;
    assert_eq!(without, envelope());
    let track = record.track.unwrap();
    let failure = track.failure.unwrap();
    assert_eq!(
        (failure.reason, failure.error_kind, &*failure.error, failure.at),
        (Reason::Undecodable, None, "not json", 9)
    );
    assert_eq!((track.attempts, track.history.len(), track.origin.unwrap()), (0, 0, origin()));
}

#[test]
fn the_kind_of_the_error_is_known_where_a_handler_erred() {
    let kind =
        |outcome: &Outcome, reason| fail(&envelope(), outcome, reason).track.unwrap().failure.unwrap().error_kind;
    let last = Outcome::Final { error: "no".into(), handler: None };
    assert_eq!(kind(&last, Reason::Final), Some(AttemptKind::Error));
    assert_eq!(kind(&Outcome::errored(AttemptKind::Timeout, "slow"), Reason::Attempts), Some(AttemptKind::Timeout));
    assert_eq!(kind(&last, Reason::Crashed), None);
    assert_eq!(kind(&Outcome::Unhandled, Reason::Unhandled), None);
}

#[test]
fn attempts_history_and_done_marks_grow_together() {
    let mut message = envelope();
    for n in 0..=MAX_HISTORY {
        let done = [Text::from(format!("h{}", n % 3))];
        let outcome = Outcome::errored(AttemptKind::Error, format!("e{n}"));
        message = retried(&message, &outcome, &done, i64::try_from(n).unwrap());
    }
    let track = message.track.clone().unwrap();
    assert_eq!((track.attempts, track.history.len()), (17, MAX_HISTORY));
    assert_eq!((&*track.history[0].error, &*track.history[MAX_HISTORY - 1].error), ("e1", "e16"));
    assert_eq!(track.done, ["h0", "h1", "h2"]);
    // A record's ids differ by round, not by what happened in it.
    let last = Outcome::Final { error: "no".into(), handler: None };
    let (record, again) = (fail(&message, &last, Reason::Final), fail(&message, &last, Reason::Final));
    let replay = replayed(&record);
    let track = replay.track.clone().unwrap();
    assert_eq!((track.attempts, track.history.len(), track.round, track.starts), (0, 0, 1, 0));
    assert_eq!((track.done.len(), track.origin, track.failure), (3, None, None));
    let id = |envelope: &Envelope| envelope.track.clone().unwrap().failure.unwrap().record;
    assert_eq!(id(&record), id(&again));
    assert_ne!(id(&record), id(&fail(&replay, &last, Reason::Final)));
}

#[test]
fn a_suspect_knows_where_it_belongs_and_its_retry_keeps_its_starts() {
    let elsewhere = Origin::new("other", Place::queue("else").unwrap());
    let mut suspect = suspected(&envelope(), &elsewhere);
    assert_eq!(suspect.track.as_ref().unwrap().starts, 1);
    suspect = raised(&suspect);
    suspect = retried(&suspect, &Outcome::errored(AttemptKind::Error, "e"), &[], 1);
    let track = suspect.track.clone().unwrap();
    assert_eq!((track.starts, track.attempts, track.origin), (2, 1, Some(elsewhere)));
    // The record belongs to the transport that read it, by the name it has there.
    let record = fail(&suspect, &Outcome::errored(AttemptKind::Error, "e"), Reason::Attempts).track.unwrap();
    assert_eq!((record.starts, record.origin), (0, Some(origin())));
}
