//! DSNs: the forms, the errors, and that no password is ever shown.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::time::Duration;

use postroom_core::{Dsn, DsnError, ErrorKind, Place, Secret, TransportError, dsn::Host, protocol::Prefetch};
use proptest::prelude::*;

fn parse(dsn: &str) -> Dsn {
    Dsn::parse(dsn).unwrap_or_else(|error| panic!("{dsn}: {error}"))
}

fn hosts(dsn: &Dsn) -> Vec<(&str, Option<u16>)> {
    dsn.hosts().iter().map(|Host { name, port }| (name.as_str(), *port)).collect()
}

type Row<'a> = (&'a str, &'a str, Option<&'a str>, Option<&'a str>, Vec<(&'a str, Option<u16>)>, &'a str, &'a str);

#[test]
fn the_forms() {
    // DSN, scheme, user, password, hosts, raw path, path.
    let table: Vec<Row<'_>> = vec![
        ("memory:", "memory", None, None, vec![], "", ""),
        ("memory:?queue=q", "memory", None, None, vec![], "", ""),
        ("MEMORY:name?queue=q", "memory", None, None, vec![], "name", "name"),
        ("sqlite:orders.db?queue=orders", "sqlite", None, None, vec![], "orders.db", "orders.db"),
        ("sqlite:///abs/x.db", "sqlite", None, None, vec![], "/abs/x.db", "/abs/x.db"),
        ("sqlite:/abs/x.db", "sqlite", None, None, vec![], "/abs/x.db", "/abs/x.db"),
        ("sqlite:./a%20b.db", "sqlite", None, None, vec![], "./a%20b.db", "./a b.db"),
        ("sqlite:../ü%C3%BC+%2B.db", "sqlite", None, None, vec![], "../ü%C3%BC+%2B.db", "../üü++.db"),
        ("redis://h:6379/0?queue=q", "redis", None, None, vec![("h", Some(6379))], "/0", "/0"),
        ("redis://:p@h", "redis", None, Some("p"), vec![("h", None)], "", ""),
        ("redis://u@h", "redis", Some("u"), None, vec![("h", None)], "", ""),
        ("redis://u:@h", "redis", Some("u"), Some(""), vec![("h", None)], "", ""),
        ("redis://u:a:b@h", "redis", Some("u"), Some("a:b"), vec![("h", None)], "", ""),
        ("redis+unix:///run/r.sock", "redis+unix", None, None, vec![], "/run/r.sock", "/run/r.sock"),
        ("pg://%2Frun%2Fpg/db", "pg", None, None, vec![("/run/pg", None)], "/db", "/db"),
        ("rediss://[::1]:6380/3", "rediss", None, None, vec![("::1", Some(6380))], "/3", "/3"),
        (
            "amqp://u:p@[2001:db8::1]/%2f?queue=q",
            "amqp",
            Some("u"),
            Some("p"),
            vec![("2001:db8::1", None)],
            "/%2f",
            "//",
        ),
        ("amqp://h", "amqp", None, None, vec![("h", None)], "", ""),
        ("amqp://h/", "amqp", None, None, vec![("h", None)], "/", "/"),
        ("amqps://h/a%2Fb", "amqps", None, None, vec![("h", None)], "/a%2Fb", "/a/b"),
        (
            "amqp://u%40%3A%2F%C3%BC:p%25%23%3F%26%2F%40%3A%C3%A9@h:5672/test",
            "amqp",
            Some("u@:/ü"),
            Some("p%#?&/@:é"),
            vec![("h", Some(5672))],
            "/test",
            "/test",
        ),
        (
            "kafka://h1:9092,h2:9092?topic=t&group=g",
            "kafka",
            None,
            None,
            vec![("h1", Some(9092)), ("h2", Some(9092))],
            "",
            "",
        ),
        (
            "kafka://a:s@h1,[::1]:1,h3:65535/",
            "kafka",
            Some("a"),
            Some("s"),
            vec![("h1", None), ("::1", Some(1)), ("h3", Some(65535))],
            "/",
            "/",
        ),
    ];
    for (text, scheme, user, password, want, raw, path) in table {
        let dsn = parse(text);
        assert_eq!((dsn.scheme(), dsn.user(), dsn.password().map(Secret::expose)), (scheme, user, password), "{text}");
        assert_eq!((hosts(&dsn), dsn.raw_path(), dsn.path()), (want, raw, path), "{text}");
        dsn.finish(&[]).unwrap();
    }
}

#[test]
fn what_is_shown() {
    for (dsn, shown) in [
        ("memory:", "memory:"),
        ("sqlite:a%20b.db?queue=q&lease=5s", "sqlite:a%20b.db?queue=q&lease=5s"),
        ("amqp://u%40:hunter2@[::1]:5672,b/%2f?queue=q", "amqp://u%40:***@[::1]:5672,b/%2f?queue=q"),
        ("redis://:hunter2@h/0", "redis://:***@h/0"),
        ("nats://hunter2@h", "nats://***@h"),
        (
            "kafka://h?sasl.password=hunter2&API_TOKEN=hunter2&ssl.key=hunter2&passphrase=hunter2&a=b%26c",
            "kafka://h?sasl.password=***&API_TOKEN=***&ssl.key=***&passphrase=***&a=b%26c",
        ),
        ("redis://h?proxy=http%3A%2F%2Fu%3Ahunter2%40p", "redis://h?proxy=***"),
        ("x:?a=%1B%5B31m", "x:?a=%1B%5B31m"),
    ] {
        assert_eq!(parse(dsn).to_string(), shown);
        assert_eq!(format!("{:?}", parse(dsn)), format!("Dsn({shown})"));
        assert!(Dsn::parse(&shown.replace("***", "x")).is_ok(), "what is shown can be read again");
    }
    let secret = Secret::new("hunter2");
    assert_eq!(format!("{secret} {secret:?}"), "*** ***");
}

#[test]
fn malformed_ones_are_refused_and_not_repeated() {
    for dsn in [
        "",
        "hunter2",
        ":hunter2",
        "1hunter2:x",
        "hun ter2:x",
        "hunter2/x:",
        "//hunter2@h",
        "redis://u:hunter2",
        "redis://u:hunter2/x@h",
        "redis://u:hunter2?x@h",
        "redis://u:hunter2#x@h",
        "redis://u:hunter2@x@h",
        "redis:u:hunter2@h",
        "redis://u:hunter2%@h",
        "redis://u:hunter2%f",
        "redis://u:hunter2%zz@h",
        "redis://u:hunter2%ff@h",
        "redis://u:hunter2%00@h",
        "redis://u:hunter2 @h",
        "redis://u:hunter2\n@h",
        "redis://u:hunter2@",
        "redis://u:hunter2@/0",
        "redis://u:hunter2@:6379",
        "redis://u:hunter2@h:",
        "redis://u:hunter2@h:0",
        "redis://u:hunter2@h:65536",
        "redis://u:hunter2@h:+1",
        "redis://u:hunter2@h:x",
        "redis://u:hunter2@h:1:2",
        "redis://u:hunter2@h,,i",
        "redis://u:hunter2@::1",
        "redis://u:hunter2@[::1",
        "redis://u:hunter2@[::1]x",
        "redis://u:hunter2@[::1]:",
        "redis://u:hunter2@[h]",
        "redis://u:hunter2@[]",
        "redis://h/%e?a=hunter2",
        "redis://h?hunter2",
        "redis://h?a=%hunter2",
        "redis://h?a=1&a=hunter2",
        "redis://h?queue=1&queu%65=hunter2",
        "redis://h?password=hunter2#",
        "redis://h?x=hunter2@",
    ] {
        let error = Dsn::parse(dsn).expect_err(dsn).to_string();
        assert!(!error.contains("hunter2") && !error.ends_with('.') && error.len() < 200, "{dsn}: {error}");
    }
    assert!(Dsn::parse(&format!("x:{}", "a".repeat(9000))).is_err());
    let error = Dsn::parse("x:?a=1&a=2").unwrap_err();
    assert_eq!(error.to_string(), "the DSN has the key `a` twice");
    assert_eq!(TransportError::from(error).kind(), ErrorKind::Config);
}

#[test]
fn keys_are_asked_for_and_unknown_ones_named() {
    let mut dsn = parse("sqlite:x?queue=q&sync=full&busy=5s");
    assert_eq!(dsn.take("sync").as_deref(), Some("full"));
    assert_eq!(dsn.take("other"), None);
    assert_eq!(dsn.get("busy"), Some("5s"));
    assert!(dsn.finish(&["sync", "busy"]).is_ok());
    let error = |dsn: &str, known: &[&str]| parse(dsn).finish(known).unwrap_err().to_string();
    assert_eq!(
        dsn.finish(&["sync"]).unwrap_err().to_string(),
        format!("the DSN has the unknown key `busy`; {KNOWN}, sync")
    );
    assert_eq!(error("x:?queu=q", &[]), "the DSN has the unknown key `queu`; did you mean `queue`?");
    assert_eq!(error("x:?Topic=q", &[]), "the DSN has the unknown key `Topic`; did you mean `topic`?");
    assert_eq!(error("x:?snyc=q", &["sync"]), "the DSN has the unknown key `snyc`; did you mean `sync`?");
    assert_eq!(error("x:?%0A=q", &[]), format!(r"the DSN has the unknown key `\n`; {KNOWN}"));
    assert!(error(&format!("x:?{}=q", "k".repeat(5000)), &[]).len() < 250);
}

const KNOWN: &str = "known are queue, topic, group, type, prefetch, lease, setup, tls, require_group";

#[test]
fn places() {
    let place = |query: &str| parse(&format!("x:?{query}")).place().map_err(|error: DsnError| error.to_string());
    assert_eq!(place(""), Ok(None));
    assert_eq!(place("queue=a"), Ok(Some(Place::queue("a").unwrap())));
    assert_eq!(place("topic=t"), Ok(Some(Place::topic("t").unwrap())));
    assert_eq!(place("group=g&topic=t"), Ok(Some(Place::group("t", "g").unwrap())));
    for (query, part) in [
        ("queue=a&topic=t", "both `queue` and `topic`"),
        ("queue=a&topic=t&group=g", "both `queue` and `topic`"),
        ("queue=a&group=g", "both `queue` and `group`"),
        ("group=g", "`group` without `topic`"),
        ("queue=", "must not be empty"),
        ("queue=a%20b", "name `a b` has the character ' '"),
        ("topic=t&group=a--b", "`--`"),
    ] {
        assert!(place(query).unwrap_err().contains(part), "{query}");
        assert!(parse(&format!("x:?{query}")).finish(&[]).is_err(), "finish checks it too");
    }
}

#[test]
fn common_values() {
    let dsn = parse("x:?type=order.placed&prefetch=16&lease=1m30s&setup=false&tls=ca.pem&require_group=true");
    assert_eq!(dsn.message_type().unwrap().as_deref(), Some("order.placed"));
    assert_eq!(dsn.prefetch().unwrap(), Some(Prefetch::Fixed(16)));
    assert_eq!(dsn.lease().unwrap(), Some(Duration::from_secs(90)));
    assert_eq!((dsn.setup(), dsn.require_group(), dsn.tls()), (Ok(false), Ok(true), Some("ca.pem")));
    let dsn = parse("x:?prefetch=auto");
    assert_eq!((dsn.prefetch(), dsn.setup(), dsn.require_group()), (Ok(Some(Prefetch::Auto)), Ok(true), Ok(false)));
    assert_eq!((dsn.lease(), dsn.message_type(), dsn.tls()), (Ok(None), Ok(None), None));
    for (query, said) in [
        ("prefetch=0", "`prefetch` must be `auto` or a number from 1 to 65535, not `0`"),
        ("prefetch=many", "`prefetch` must be `auto` or a number from 1 to 65535, not `many`"),
        ("prefetch=65536", "`prefetch` must be `auto` or a number from 1 to 65535, not `65536`"),
        ("lease=999ms", "`lease` must be a duration of at least 1s, not `999ms`"),
        ("lease=30", "`lease` must be a duration of at least 1s, not `30`"),
        ("setup=no", "`setup` must be `true` or `false`, not `no`"),
        ("require_group=1", "`require_group` must be `true` or `false`, not `1`"),
        ("type=a%20b", "name `a b` has the character ' '; only A-Z a-z 0-9 . _ - are allowed"),
    ] {
        assert_eq!(parse(&format!("x:?{query}")).finish(&[]).unwrap_err().to_string(), said);
    }
    assert_eq!(
        parse("x:?api_key=hunter2").flag("api_key").unwrap_err().to_string(),
        "`api_key` must be `true` or `false`, not `***`"
    );
}

/// Percent-encodes everything but letters and digits.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02x}") })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn no_text_panics(text in prop_oneof!["\\PC{0,40}", "[a-z]{1,3}:(//)?[a-z0-9:@/?&=%,\\[\\]]{0,40}"]) {
        if let Ok(dsn) = Dsn::parse(&text) {
            let again = Dsn::parse(&dsn.to_string().replace("***", "x"));
            prop_assert!(again.is_ok(), "{text} is shown as {dsn}");
            let _ = dsn.finish(&["x"]);
        }
    }

    #[test]
    fn login_round_trips(user in "[^\0]{1,12}", password in "[^\0]{0,12}", path in "[^\0]{0,12}") {
        let dsn = parse(&format!("amqp://{}:{}@h:1/{}", encode(&user), encode(&password), encode(&path)));
        prop_assert_eq!(dsn.user(), Some(&*user));
        prop_assert_eq!(dsn.password().unwrap().expose(), password);
        prop_assert_eq!(dsn.path(), format!("/{path}"));
        prop_assert_eq!(hosts(&dsn), [("h", Some(1))]);
    }

    /// A password as people paste it, unencoded and with anything in it: whatever becomes of the DSN, nothing that is
    /// shown of it holds the password's middle.
    #[test]
    fn no_password_leaks(before in "[ -~é]{0,6}", after in "[ -~é]{0,6}", rest in "(:[0-9]{1,4})?(/[a-z]{0,3})?(\\?queue=q)?") {
        let raw = format!("redis://u:{before}S3cr3t{after}@h{rest}");
        let proper = format!("redis://u:{}@h{rest}", encode(&format!("{before}S3cr3t{after}")));
        for text in [raw, proper] {
            let shown = match Dsn::parse(&text) {
                Ok(dsn) => format!("{dsn} {dsn:?} {:?} {:?}", dsn.finish(&[]), dsn.password()),
                Err(error) => format!("{error} {error:?}"),
            };
            prop_assert!(!shown.contains("S3cr3t"), "{text}: {shown}");
        }
    }
}
