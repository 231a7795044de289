//! Headers: what is written is read back, foreign messages work, and hostile ones harm nothing and lose nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use bytes::Bytes;
use postroom_core::{
    Attempt, AttemptKind, Envelope, Failure, MessageId, Origin, Place, Reason, Text, Track, TypeName,
    wire::{Fallback, Prefix, Read, STAMP, read, write},
};
use proptest::{option, prelude::*, sample::select};

type Headers = Vec<(String, Vec<u8>)>;
const ALL: [Prefix; 3] = [Prefix::Dash, Prefix::Underscore, Prefix::CloudEvents];

fn written(envelope: &Envelope, prefix: Prefix) -> Headers {
    let mut headers = Headers::new();
    write(envelope, prefix, &mut |name, value| headers.push((name.into(), value.into())));
    headers
}

fn read_all(headers: &[(String, Vec<u8>)], prefix: Prefix, body: &Bytes) -> Read {
    let fallback = Fallback { id: || MessageId::new("fallback").unwrap(), message_type: None };
    read(headers.iter().map(|(n, v)| (n.as_str(), v.as_slice())), prefix, body.clone(), fallback)
}

fn read_one(name: &str, value: &[u8]) -> Read {
    read_all(&[(name.into(), value.into())], Prefix::Dash, &Bytes::new())
}

fn full() -> Envelope {
    let mut e = Envelope::with_id(MessageId::new("id-1").unwrap(), "body");
    e.message_type = Some(TypeName::new("order.placed").unwrap());
    e.content_type = Some("application/json".into());
    e.key = Some("kü".into());
    e.time = Some(1_700_000_000_123);
    e.source = Some("postroom:shop/billing".into());
    e.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
    e.stamps.push("tenant", "acme");
    let track = e.track_mut();
    (track.attempts, track.starts, track.round) = (2, 1, 3);
    track.done = vec!["notify".into()];
    track.history = vec![Attempt::new(5, AttemptKind::Timeout, "a\0\n\u{1b}\u{fffd}\"", Some("charge".into()))];
    track.origin = Some(Origin::new("orders", Place::group("events", "billing").unwrap()));
    track.failure = Some(Failure::new("0af7".into(), Reason::Attempts, "boom\0", 9));
    e
}

#[test]
fn the_names_on_each_broker() {
    for (prefix, start) in ALL.into_iter().zip(["ce-", "ce_", "cloudEvents_"]) {
        let headers = written(&full(), prefix);
        let of = |name: &str| {
            let found: Vec<_> = headers.iter().filter(|(n, _)| n == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            String::from_utf8(found[0].1.clone()).unwrap()
        };
        for (attribute, value) in [
            ("specversion", "1.0"),
            ("id", "id-1"),
            ("type", "order.placed"),
            ("source", "postroom:shop/billing"),
            ("time", "2023-11-14T22:13:20.123Z"),
            ("partitionkey", "kü"),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ] {
            assert_eq!(of(&format!("{start}{attribute}")), value);
        }
        for (name, value) in [
            ("content-type", "application/json"),
            ("postroom-attempts", "2"),
            ("postroom-starts", "1"),
            ("postroom-round", "3"),
            ("postroom-done", r#"["notify"]"#),
            ("postroom-origin", r#"{"transport":"orders","place":{"group":{"topic":"events","group":"billing"}}}"#),
            ("postroom-failure", r#"{"record":"0af7","reason":"attempts","error":"boom\u0000","at":9}"#),
            ("tenant", "acme"),
        ] {
            assert_eq!(of(name), value);
        }
        assert_eq!(headers.len(), 16);
        assert_eq!(read_all(&headers, prefix, &full().body), read_ok(full()));
    }
    assert_eq!(written(&Envelope::new("x"), Prefix::Dash).len(), 2, "what is absent is not written");
}

fn read_ok(envelope: Envelope) -> Read {
    // `Read` is non-exhaustive, so one is made by reading nothing.
    let mut read = read_all(&[], Prefix::Dash, &Bytes::new());
    read.envelope = envelope;
    read
}

#[test]
fn a_foreign_message_works() {
    let orders = TypeName::new("orders").unwrap();
    let headers: [(&str, &[u8]); 2] = [("X-Tenant", b"\xff\0"), ("Content-Type", b"text/plain; charset=utf-8")];
    let fallback = Fallback { id: || MessageId::new("kafka:t/0/7").unwrap(), message_type: Some(&orders) };
    let Read { envelope, oddities, .. } = read(headers, Prefix::Underscore, Bytes::from_static(b"hi"), fallback);
    assert_eq!((&*envelope.id, oddities), ("kafka:t/0/7", 0));
    assert_eq!(envelope.message_type, Some(orders));
    assert_eq!(envelope.content_type.as_deref(), Some("text/plain; charset=utf-8"));
    assert_eq!(envelope.stamps.get("X-Tenant").unwrap(), &b"\xff\0"[..]);
    assert_eq!((envelope.stamps.len(), &envelope.track), (1, &None));
}

#[test]
fn the_fallback_id_is_made_only_when_needed() {
    let headers: [(&str, &[u8]); 1] = [("ce-id", b"own")];
    let fallback = Fallback { id: || panic!("not needed"), message_type: None };
    assert_eq!(&*read(headers, Prefix::Dash, Bytes::new(), fallback).envelope.id, "own");
}

#[test]
fn other_spellings_of_cloud_events() {
    let both = [("cloudEvents:id".into(), b"a".to_vec()), ("cloudEvents_type".into(), b"t".to_vec())];
    let Read { envelope, oddities, .. } = read_all(&both, Prefix::CloudEvents, &Bytes::new());
    assert_eq!((&*envelope.id, envelope.message_type.as_deref(), oddities), ("a", Some("t"), 0));
    // The content type as an attribute, alone and beside the header.
    let types = [("ce-datacontenttype".to_owned(), b"a/b".to_vec()), ("content-type".to_owned(), b"a/b".to_vec())];
    for headers in [&types[..1], &types[..]] {
        let Read { envelope, oddities, .. } = read_all(headers, Prefix::Dash, &Bytes::new());
        assert_eq!((envelope.content_type.as_deref(), envelope.stamps.len(), oddities), (Some("a/b"), 0, 0));
    }
    // Attributes that are not ours keep their names over a hop; another broker's prefix means nothing here.
    for name in ["ce-subject", "ce_type"] {
        let first = read_one(name, b"x");
        assert_eq!((first.envelope.stamps.get_str(name), first.oddities), (Some("x"), 0), "{name}");
        assert_eq!(first.envelope.message_type, None);
    }
    assert!(
        written(&read_one("ce-subject", b"x").envelope, Prefix::Dash).contains(&("ce-subject".into(), b"x".into()))
    );
    for (time, milliseconds) in [
        ("1969-12-31T23:59:59.9999Z", -1),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123),
    ] {
        assert_eq!(read_one("ce-time", time.as_bytes()).envelope.time, Some(milliseconds), "{time}");
    }
}

/// C37: what is invalid counts as absent, is counted, and keeps its name and bytes, over more hops too.
#[test]
fn invalid_metadata_is_absent_counted_and_kept() {
    let garbage = vec![b'x'; 1024];
    let long_id = vec![b'i'; 513];
    let long_type = vec![b't'; 257];
    let many = format!("[{}\"\"]", "\"\",".repeat(2000)).into_bytes();
    let huge = format!("[\"{}\"]", "x".repeat(70_000)).into_bytes();
    let attempts17 = format!("[{}]", [r#"{"at":1,"kind":"error","error":""}"#; 17].join(",")).into_bytes();
    let deep = b"[".repeat(10_000);
    let table: Vec<(&str, Vec<&[u8]>)> = vec![
        ("ce-specversion", vec![b"", b"0.3", b"1.0 ", &garbage]),
        ("ce-id", vec![b"", b"\xff", &long_id]),
        ("ce-type", vec![b"", b"order placed", b"a\0", "ä".as_bytes(), b"\xc3", &long_type]),
        ("ce-source", vec![b"\xff\xfe"]),
        ("ce-partitionkey", vec![b"\xed\xa0\x80"]),
        ("ce-time", vec![b"", b"yesterday", b"1700000000", b"2023-13-01T00:00:00Z", b"\xff", &garbage]),
        (
            "ce-traceparent",
            vec![
                b"",
                &garbage,
                b"00-00000000000000000000000000000000-b7ad6b7169203331-01",
                b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
                b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            ],
        ),
        ("content-type", vec![b"", b"a\nb", b"\xff", &garbage]),
        (
            "postroom-attempts",
            vec![b"", b"-1", b"+1", b" 1", b"1.0", b"4294967296", b"18446744073709551615", b"0x1", b"\xff", &garbage],
        ),
        ("postroom-starts", vec![b"-1", b"18446744073709551615"]),
        ("postroom-round", vec![b"-1", b"many"]),
        ("postroom-done", vec![b"", b"{}", b"[1]", b"[", b"[\"\xff\"]", b"[] x", &many, &huge, &deep]),
        ("postroom-history", vec![b"null", b"[{}]", b"[{\"at\":1e99,\"kind\":\"error\",\"error\":\"\"}]", &attempts17]),
        ("postroom-origin", vec![b"{}", b"{\"transport\":\"t\",\"place\":{\"queue\":\"a b\"}}", &garbage]),
        ("postroom-failure", vec![b"{}", b"{\"record\":\"r\",\"reason\":\"bored\",\"error\":\"\",\"at\":1}", &garbage]),
    ];
    for (name, values) in table {
        for value in values {
            let what = format!("{name}: {:?}", String::from_utf8_lossy(&value[..value.len().min(60)]));
            let first = read_one(name, value);
            let mut bare = Envelope::with_id(MessageId::new("fallback").unwrap(), "");
            bare.stamps.push(name, value.to_vec());
            assert_eq!((&first.envelope, first.oddities), (&bare, 1), "{what}");
            let mut envelope = first.envelope;
            for prefix in ALL {
                let headers = written(&envelope, prefix);
                let again = read_all(&headers, prefix, &Bytes::new());
                assert_eq!((&again.envelope, again.oddities), (&bare, 0), "{what}");
                envelope = again.envelope;
            }
        }
    }
}

#[test]
fn the_first_valid_one_counts_and_a_repeat_is_kept() {
    let headers: Vec<_> = [("", "a"), ("b", "c")]
        .into_iter()
        .flat_map(|(first, second)| {
            ["ce-id", "ce-type"].into_iter().flat_map(move |name| [(name, first), (name, second)])
        })
        .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
        .collect();
    let Read { envelope, oddities, .. } = read_all(&headers, Prefix::Dash, &Bytes::new());
    assert_eq!((&*envelope.id, envelope.message_type.as_deref(), oddities), ("a", Some("a"), 6));
    assert_eq!(envelope.stamps.len(), 6);
    let twice = [("postroom-attempts".to_owned(), b"1".to_vec()), ("postroom-attempts".to_owned(), b"9".to_vec())];
    let Read { envelope, oddities, .. } = read_all(&twice, Prefix::Dash, &Bytes::new());
    assert_eq!((envelope.attempts(), oddities), (1, 1));
}

#[test]
fn an_invalid_type_never_becomes_the_default_type() {
    let default = TypeName::new("default").unwrap();
    let mut headers = vec![("ce-type".to_owned(), b"not a type".to_vec())];
    for _ in 0..3 {
        let fallback = Fallback { id: MessageId::unique, message_type: Some(&default) };
        let pairs = headers.iter().map(|(n, v)| (n.as_str(), v.as_slice()));
        let read = read(pairs, Prefix::Dash, Bytes::new(), fallback);
        assert_eq!(read.envelope.message_type, None);
        headers = written(&read.envelope, Prefix::Dash);
    }
}

#[test]
fn stamps_cannot_pose_as_metadata() {
    let twice = format!("{STAMP}{STAMP}ce-id");
    let names = [
        "ce-id",
        "CE-Type",
        "ce_type",
        "cloudEvents:id",
        "CLOUDEVENTS_id",
        "content-type",
        "Content-Type",
        "postroom-attempts",
        "Postroom-Deadline",
        "Postroom-Starts",
        "postroom-",
        STAMP,
        "X-Postroom-Stamp-a",
        &twice,
        "x-postroom-stamp-a",
        "ce-datacontenttype",
    ];
    let mut envelope = Envelope::with_id(MessageId::new("real").unwrap(), "");
    for name in names {
        // A value that each of the numbers and names would take.
        envelope.stamps.push(name, "7");
    }
    for prefix in ALL {
        // Some brokers lower the names on the way: still nothing is taken for metadata.
        for lower in [false, true] {
            let mut headers = written(&envelope, prefix);
            if lower && prefix == Prefix::Dash {
                headers.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
            }
            let back = read_all(&headers, prefix, &Bytes::new()).envelope;
            assert_eq!((&*back.id, &back.track, &back.message_type), ("real", &None, &None));
            assert_eq!((back.stamps.len(), &back.content_type), (names.len(), &None));
            assert!(lower || back == envelope);
        }
    }
    // What we did not escape is not unescaped.
    assert_eq!(read_one("x-postroom-stamp-tenant", b"1").envelope.stamps.get_str("x-postroom-stamp-tenant"), Some("1"));
}

#[test]
fn an_empty_track_is_still_one() {
    let mut envelope = Envelope::with_id(MessageId::new("i").unwrap(), "");
    envelope.track_mut();
    assert_eq!(read_all(&written(&envelope, Prefix::Dash), Prefix::Dash, &Bytes::new()).envelope, envelope);
}

#[test]
fn headers_stay_small_and_the_newest_error_is_kept_longest() {
    for text in ["x".repeat(8192), "\0".repeat(8192), "\n\"".repeat(4096), "ü".repeat(4096), "\u{1f600}".repeat(2048)]
    {
        let mut envelope = full();
        let track = envelope.track_mut();
        track.history = (0..20).map(|at| Attempt::new(at, AttemptKind::Panicked, &text, Some("h".into()))).collect();
        track.failure = Some(Failure::new("r".into(), Reason::Attempts, text.as_str(), i64::MIN));
        let headers = written(&envelope, Prefix::Dash);
        let total: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(total <= 32 * 1024, "{total}");
        let Read { envelope: back, oddities, .. } = read_all(&headers, Prefix::Dash, &Bytes::new());
        assert_eq!(oddities, 0);
        let track = back.track.unwrap();
        assert_eq!(track.history.iter().map(|a| a.at).collect::<Vec<_>>(), (4..20).collect::<Vec<_>>());
        let lens: Vec<_> = track.history.iter().map(|a| a.error.len()).collect();
        assert!(lens.iter().all(|len| *len >= 40 && *len <= lens[15]) && lens[15] > 1500, "{lens:?}");
        for error in track.history.iter().map(|a| &a.error).chain([&track.failure.unwrap().error]) {
            let kept = error.strip_suffix('…').unwrap_or(error);
            assert!(text.starts_with(kept) && !kept.is_empty());
        }
    }
    // Even names that leave no room for anything.
    let mut envelope = full();
    let name = Text::from("\0".repeat(3000));
    envelope.track_mut().history = vec![Attempt::new(1, AttemptKind::Error, "e", Some(name)); 16];
    let history = written(&envelope, Prefix::Dash).into_iter().find(|(n, _)| n == "postroom-history").unwrap().1;
    assert!(history.len() <= 18 * 1024);
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z-]{0,8}", "\\PC{0,8}", "[\0-\u{1f}\"\\\\ü…]{0,8}"]
}

fn stamp_name() -> impl Strategy<Value = String> {
    const RESERVED: [&str; 7] = ["ce-id", "ce_id", "CE-type", "cloudEvents:type", "content-type", "postroom-x", STAMP];
    prop_oneof![
        text(),
        select(&RESERVED[..]).prop_map(str::to_owned),
        (select(&RESERVED[..]), text()).prop_map(|(a, b)| format!("{STAMP}{a}{b}")),
    ]
}

fn attempt() -> impl Strategy<Value = Attempt> {
    let kind = select(&[AttemptKind::Error, AttemptKind::Timeout, AttemptKind::Panicked, AttemptKind::Dropped][..]);
    (any::<i64>(), kind, text(), option::of(text()))
        .prop_map(|(at, kind, error, handler)| Attempt::new(at, kind, &error, handler.map(Text::from)))
}

fn track() -> impl Strategy<Value = Track> {
    let place = select(vec![Place::queue("q").unwrap(), Place::group("t", "g").unwrap(), Place::store("s").unwrap()]);
    (
        (any::<u32>(), 0..3_u32, 0..3_u32),
        proptest::collection::vec(text(), 0..3),
        proptest::collection::vec(attempt(), 0..=16),
        option::of((text(), place)),
        option::of((text(), text(), any::<i64>())),
    )
        .prop_map(|((attempts, starts, round), done, history, origin, failure)| {
            let mut track = Track::default();
            (track.attempts, track.starts, track.round) = (attempts, starts, round);
            (track.done, track.history) = (done.into_iter().map(Text::from).collect(), history);
            track.origin = origin.map(|(transport, place)| Origin::new(transport, place));
            track.failure = failure.map(|(record, error, at)| Failure::new(record.into(), Reason::Final, error, at));
            track
        })
}

fn envelope() -> impl Strategy<Value = Envelope> {
    // The years 0 to 9999.
    let time = -62_167_219_200_000..253_402_300_800_000_i64;
    (
        (text(), option::of("[A-Za-z0-9._-]{1,9}"), option::of("[ -~]{1,9}"), option::of(text()), option::of(time)),
        (option::of(text()), any::<bool>(), option::of(track())),
        proptest::collection::vec((stamp_name(), proptest::collection::vec(any::<u8>(), 0..8)), 0..6),
        proptest::collection::vec(any::<u8>(), 0..20),
    )
        .prop_map(|((id, message_type, content_type, key, time), (source, traced, track), stamps, body)| {
            let mut e = Envelope::with_id(MessageId::new(format!("i{id}")).unwrap(), body);
            e.message_type = message_type.map(|name| TypeName::new(&name).unwrap());
            e.content_type = content_type.map(Text::from);
            (e.key, e.time, e.source) = (key.map(Text::from), time, source.map(Text::from));
            e.traceparent = traced.then(|| "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
            stamps.into_iter().for_each(|(name, value)| e.stamps.push(name, value));
            e.track = track.map(Box::new);
            e
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn what_is_written_is_read(envelope in envelope(), prefix in select(&ALL[..])) {
        let Read { envelope: back, oddities, .. } = read_all(&written(&envelope, prefix), prefix, &envelope.body);
        prop_assert_eq!(oddities, 0);
        prop_assert_eq!(&back.track, &envelope.track);
        prop_assert!(back == envelope, "{:?} and {:?}", back.stamps, envelope.stamps);
    }

    /// Any bytes under our own names: nothing panics, and every header is metadata or a stamp that survives a hop.
    #[test]
    fn hostile_headers_lose_nothing(
        headers in proptest::collection::vec((
            prop_oneof![
                stamp_name(),
                select(&["ce-id", "ce-type", "ce-time", "ce-traceparent", "ce-partitionkey", "content-type", "postroom-attempts",
                    "postroom-done", "postroom-history", "postroom-origin", "postroom-failure"][..]).prop_map(str::to_owned),
            ],
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                "[0-9\\[\\]{}\":,a-z-]{0,20}".prop_map(String::into_bytes),
            ],
        ), 0..12),
    ) {
        let first = read_all(&headers, Prefix::Dash, &Bytes::new());
        prop_assert!(first.oddities as usize <= first.envelope.stamps.len());
        for (_, value) in &headers {
            let text = String::from_utf8_lossy(value);
            let e = &first.envelope;
            let kept = e.stamps.iter().any(|(_, kept)| kept == value)
                || *e.id == *text || e.message_type.as_deref() == Some(&*text) || e.content_type.as_deref() == Some(&*text)
                || e.key.as_deref() == Some(&*text) || e.time.is_some() || e.traceparent.is_some() || e.track.is_some();
            prop_assert!(kept, "{text} is gone");
        }
        let again = read_all(&written(&first.envelope, Prefix::Dash), Prefix::Dash, &Bytes::new());
        prop_assert!(again.envelope == first.envelope && again.oddities == 0);
    }
}
