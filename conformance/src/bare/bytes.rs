//! Every byte arrives as it was sent.

use std::time::Duration;

use postroom_core::{
    Attempt, AttemptKind, Broker, Envelope, ErrorKind, Failure, MessageId, Origin, Outgoing, Place, Reason, Text,
    TypeName,
    track::{MAX_ERROR, MAX_HISTORY},
    wire::MAX_HISTORY_BYTES,
};

use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Bytes;
    one_mebibyte_survives [] "a body of 1 MiB arrives byte for byte, also after a retry";
    hostile_text_survives [] "emoji, quotes, CJK, escapes and control characters in the body survive";
    every_byte_survives [] "NUL, 0xFF and every other byte in the body survive; so does an empty body";
    all_metadata_survives [] "every field of an envelope arrives as it was sent";
    the_track_survives [] "attempts, starts, done-marks, history, origin and failure arrive as they were sent";
    stamps_keep_order_and_repeats [] "stamps keep their order, repeated names, empty values and bytes that are no text";
    many_stamps_survive [] "a hundred stamps and a stamp of 8 KiB survive";
    a_long_history_survives [] "a history of 16 errors, at the limit of its header, survives a retry";
    the_longest_history_loses_text_alone [] "of 16 errors of 8 KiB each every attempt is kept, and of its text the beginning";
    odd_ids_survive [] "ids of 512 bytes, with quotes, spaces and emoji, are kept as they are";
    too_large_is_an_answer [BodyLimit] "a body above the broker's limit answers TooLarge, and its neighbour is confirmed";
}

/// Sends envelopes, takes them, compares all of them, retries one and compares again.
async fn same<S: Subject>(world: World<S>, envelopes: Vec<Envelope>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let sent: Vec<_> = envelopes.into_iter().map(|e| Outgoing::new(queue.clone(), e)).collect();
    connection.publish(&sent).await?;
    let reader = connection.reader(&queue).await?;
    let taken = reader.take(sent.len()).await?;
    for delivery in &taken {
        let found = &delivery.envelope;
        let original = sent.iter().find(|outgoing| outgoing.envelope.id == found.id);
        let original = original.ok_or_else(|| Stop::failed(format_args!("the id changed to {:?}", found.id)))?;
        differs(&original.envelope, found)?;
        ensure!(delivery.oddities == 0, "{} of our own headers counted as odd", delivery.oddities);
    }
    let mut held = taken;
    if let Some(last) = held.pop() {
        reader.retry(&last, Duration::ZERO).await?;
        let back = reader.one().await?;
        let mut wanted = Envelope::clone(&last.envelope);
        wanted.track_mut().attempts += 1;
        differs(&wanted, &back.envelope)?;
        held.push(back);
    }
    reader.ack_all(&held).await
}

/// Names the first field that differs, without printing a mebibyte.
fn differs(sent: &Envelope, found: &Envelope) -> Result<(), Stop> {
    ensure!(found.id == sent.id, "id {:?} became {:?}", sent.id, found.id);
    let (n, m) = (sent.body.len(), found.body.len());
    let at = sent.body.iter().zip(&found.body).position(|(a, b)| a != b);
    ensure!(found.body == sent.body, "a body of {n} bytes came with {m}, first different at {at:?}");
    ensure!(found.message_type == sent.message_type, "type {:?} became {:?}", sent.message_type, found.message_type);
    ensure!(found.content_type == sent.content_type, "content type became {:?}", found.content_type);
    ensure!(found.key == sent.key, "key {:?} became {:?}", sent.key, found.key);
    ensure!(found.time == sent.time, "time {:?} became {:?}", sent.time, found.time);
    ensure!(found.source == sent.source, "source {:?} became {:?}", sent.source, found.source);
    ensure!(found.traceparent == sent.traceparent, "traceparent became {:?}", found.traceparent);
    ensure!(found.stamps == sent.stamps, "{} stamps became {:.300?}", sent.stamps.len(), format!("{:?}", found.stamps));
    ensure!(found.track == sent.track, "track {:.300} became {:.300}", short(sent), short(found));
    ensure!(found == sent, "the envelope differs");
    Ok(())
}

fn short(envelope: &Envelope) -> String {
    format!("{:?}", envelope.track)
}

async fn one_mebibyte_survives<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let room = world.powers.capabilities.max_body.unwrap_or(usize::MAX);
    let mut random = fastrand::Rng::with_seed(7);
    let body: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(room.min(1 << 20)).collect();
    same(world, vec![Envelope::new(body)]).await
}

const HOSTILE: [&str; 8] = [
    "emoji 🦀🏳️‍🌈 and 𝔘nicode",
    r#"quotes " ' ` and \ escapes \n \u0000"#,
    "漢字 かな 한국어 العربية עברית",
    "line\nreturn\r\ntab\tbell\u{7}escape\u{1b}[31m",
    "nul \0 in the middle",
    "'; DROP TABLE messages; -- ${jndi:x} {{x}} %s %n",
    "\u{feff}byte order mark, \u{202e}right to left, \u{2028}line separator",
    "{\"json\": [1, null, \"\\ud83e\\udd80\"]}",
];

async fn hostile_text_survives<S: Subject>(world: World<S>) -> Result<(), Stop> {
    same(world, HOSTILE.map(|text| Envelope::new(text.as_bytes().to_vec())).into()).await
}

async fn every_byte_survives<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let bodies = [vec![], vec![0], vec![0xff], vec![0xff, 0xfe, 0], vec![0xc3, 0x28], all.repeat(4), all];
    same(world, bodies.map(Envelope::new).into()).await
}

fn full() -> Result<Envelope, Stop> {
    let mut envelope = Envelope::new("{}");
    envelope.message_type = Some(TypeName::new("order.placed_v2")?);
    envelope.content_type = Some("application/json; charset=utf-8".into());
    envelope.key = Some("customer 7 / é漢🦀".into());
    envelope.time = Some(1_793_500_000_123);
    envelope.source = Some("postroom:shop/node-1".into());
    envelope.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    envelope.stamps.push("tenant", "north");
    Ok(envelope)
}

async fn all_metadata_survives<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let mut bare = Envelope::new("bare");
    bare.time = Some(0);
    same(world, vec![full()?, bare, Envelope::new("nothing at all")]).await
}

async fn the_track_survives<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let mut envelope = full()?;
    let origin = Origin::new("main", Place::group("events", "billing")?);
    let track = envelope.track_mut();
    (track.attempts, track.starts, track.round) = (3, 2, 1);
    track.done = vec!["audit".into(), "mail, urgent".into()];
    let kinds = [AttemptKind::Error, AttemptKind::Timeout, AttemptKind::Panicked, AttemptKind::Dropped];
    for (i, (kind, text)) in kinds.into_iter().zip(HOSTILE).enumerate() {
        let handler = (i % 2 == 0).then(|| Text::from("mail, urgent"));
        track.history.push(Attempt::new(1_793_500_000_000 + i as i64, kind, text, handler));
    }
    track.origin = Some(origin);
    let mut failure = Failure::new("0123456789abcdef".into(), Reason::Attempts, "no \0 such 漢字", 1_793_500_000_999);
    failure.error_kind = Some(AttemptKind::Panicked);
    track.failure = Some(failure);
    same(world, vec![envelope]).await
}

async fn stamps_keep_order_and_repeats<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let mut envelope = Envelope::new("stamped");
    for (name, value) in [
        ("b", &b"1"[..]),
        ("a", b"2"),
        ("b", b"3"),
        ("empty", b""),
        ("no-text", &[0xff, 0, 0xc3, 0x28]),
        ("text", "é漢🦀 \" ' , ; =".as_bytes()),
        ("UPPER.Case_1", b" spaces "),
    ] {
        envelope.stamps.push(name, value.to_vec());
    }
    same(world, vec![envelope]).await
}

async fn many_stamps_survive<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let mut many = Envelope::new("many");
    for i in 0..100 {
        many.stamps.push(format!("stamp-{i:03}"), "v".repeat(100));
    }
    let mut long = Envelope::new("long");
    long.stamps.push("long", "é".repeat(4096));
    same(world, vec![many, long]).await
}

/// Sixteen attempts, with texts of this many bytes.
fn tried(bytes: usize) -> Envelope {
    let mut envelope = Envelope::new("tried");
    let text = "é".repeat(bytes / 2);
    for i in 0..MAX_HISTORY {
        let attempt = Attempt::new(1_793_500_000_000 + i as i64, AttemptKind::Error, &text, None);
        envelope.track_mut().history.push(attempt);
    }
    envelope.track_mut().attempts = u32::MAX - 1;
    envelope
}

async fn a_long_history_survives<S: Subject>(world: World<S>) -> Result<(), Stop> {
    // What frames a text in the header takes less than a hundred bytes.
    same(world, vec![tried(MAX_HISTORY_BYTES / MAX_HISTORY - 100)]).await
}

async fn the_longest_history_loses_text_alone<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let sent = connection.send(&queue, tried(MAX_ERROR)).await?;
    let reader = connection.reader(&queue).await?;
    let delivery = reader.one().await?;
    let history = |envelope: &Envelope| envelope.track.as_ref().map(|track| track.history.clone()).unwrap_or_default();
    let (wanted, found) = (history(&sent), history(&delivery.envelope));
    ensure!(found.len() == wanted.len(), "of {} attempts {} came", wanted.len(), found.len());
    for (wanted, found) in wanted.iter().zip(&found) {
        ensure!(found.at == wanted.at && found.kind == wanted.kind, "an attempt came as {found:.200?}");
        let text = found.error.strip_suffix('…').unwrap_or(&found.error);
        ensure!(!text.is_empty() && wanted.error.starts_with(text), "an error's text became {:.200}", found.error);
    }
    ensure!(delivery.envelope.attempts() == sent.attempts(), "attempts became {}", delivery.envelope.attempts());
    reader.ack(&delivery).await
}

async fn odd_ids_survive<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let ids = ["x".repeat(MessageId::MAX), "é".repeat(MessageId::MAX / 2), "a 'b' \"c\" %_*?[d]".into(), "🦀".into()];
    let mut envelopes = Vec::new();
    for id in ids {
        let id = MessageId::new(id).ok_or_else(|| Stop::failed("an id was refused"))?;
        envelopes.push(Envelope::with_id(id, "odd"));
    }
    same(world, envelopes).await
}

async fn too_large_is_an_answer<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let Some(limit) = world.powers.capabilities.max_body else { return Ok(()) };
    let (connection, queue) = world.with_queue().await?;
    let batch = [
        Outgoing::new(queue.clone(), Envelope::new(vec![b'x'; limit + 1])),
        Outgoing::new(queue.clone(), Envelope::new("small")),
    ];
    let mut answers = connection.broker.publish(&batch).await.into_iter();
    match answers.next() {
        Some(Err(error)) if error.kind() == ErrorKind::TooLarge => {}
        other => return Err(Stop::failed(format_args!("{} bytes of at most {limit} answered {other:?}", limit + 1))),
    }
    let small = answers.next().ok_or_else(|| Stop::failed("the neighbour had no answer"))??;
    world.ledger.borrow_mut().sent(&queue, &small);
    Ok(())
}
