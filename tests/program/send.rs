//! `send`, `stats`, `peek`, `group`.

use serde_json::{Value, json};

use super::support::{Place, queue};

const DSN: &str = "sqlite:x.db?queue=q";

#[test]
fn a_dsn_needs_no_config_file() {
    let place = Place::new();
    let done = place.postroom(&format!("send {DSN} hello --type t.a --id 7 --key k --header a=b --json")).exits(0);
    assert_eq!(done.json(), [json!({"id": "7", "transport": "q", "confirmed": true})]);
    place.postroom(&format!("send {DSN} later --delay 10m")).exits(0);
    let figures = place.stats(DSN);
    assert_eq!(
        figures,
        json!({"transport": "q", "waiting": 1, "in_flight": 0, "delayed": 1, "failed": 0,
            "oldest_waiting_ms": figures["oldest_waiting_ms"], "exact": true})
    );
    assert!(figures["oldest_waiting_ms"].is_u64());
    let peeked = place.postroom(&format!("peek {DSN} --json")).exits(0).json();
    assert_eq!(peeked[0]["id"], "7");
    assert_eq!(peeked[0]["type"], "t.a");
    assert_eq!(
        (&peeked[0]["key"], &peeked[0]["size"], &peeked[0]["state"]),
        (&json!("k"), &json!(5), &json!("waiting"))
    );
    assert_eq!(peeked[1]["state"], "delayed");
    assert!(peeked[1]["due_at"].as_str().unwrap().ends_with('Z'));
    let delayed = place.postroom(&format!("peek {DSN} --json --state delayed")).exits(0).json();
    assert_eq!(delayed.len(), 1);
    assert_eq!(place.postroom(&format!("peek {DSN} --json --limit 1")).exits(0).json().len(), 1);
}

#[test]
fn a_body_is_sent_as_it_is_from_a_file_or_the_standard_input() {
    let place = Place::new();
    std::fs::write(place.path("body"), b"\x00\xff\n").unwrap();
    place.postroom(&format!("send {DSN} -f body")).exits(0);
    place.postroom_with(&format!("send {DSN}"), b"abc\n").exits(0);
    let sizes: Vec<Value> =
        place.postroom(&format!("peek {DSN} --json")).json().iter().map(|one| one["size"].clone()).collect();
    assert_eq!(sizes, [json!(3), json!(4)]);
    place.postroom(&format!("send {DSN} -f nothing-here")).exits(2);
}

#[test]
fn lines_are_sent_in_order_and_each_is_answered() {
    let place = Place::new();
    let text: String = (0..1_000).map(|n| format!("{{\"n\": {n}}}\n")).collect();
    let done = place.postroom_with(&format!("send {DSN} --ndjson --type t --json"), text.as_bytes()).exits(0);
    let sent: Vec<String> = done.json().iter().map(|one| one["id"].as_str().unwrap().to_string()).collect();
    assert_eq!(sent.len(), 1_000);
    let peeked = place.postroom(&format!("peek {DSN} --json --limit 5000")).json();
    let lying: Vec<&str> = peeked.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(lying, sent, "in input order");
    let human = place.postroom_with(&format!("send {DSN} --ndjson"), b"{}\n\n{}").exits(0);
    assert!(human.out.contains("sent 2 messages"), "{}", human.out);
}

#[test]
fn a_bad_line_fails_alone_and_the_answer_says_which() {
    let place = Place::new();
    let text = "{\"data\":1,\"id\":\"a\"}\nnonsense\n{\"data\":{\"b\":2},\"type\":\"t\",\"headers\":{\"h\":\"v\"},\"delay\":\"5m\"}\n";
    let done = place.postroom_with(&format!("send {DSN} --envelopes --json"), text.as_bytes()).exits(1);
    let lines = done.json();
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["id"], &lines[0]["confirmed"]), (&json!("a"), &json!(true)));
    assert_eq!((&lines[1]["confirmed"], &lines[1]["line"]), (&json!(false), &json!(2)));
    assert_eq!(lines[1]["error"]["kind"], "codec");
    assert_eq!(lines[2]["confirmed"], true);
    assert_eq!(place.stats(DSN)["waiting"], 1);
    assert_eq!(place.stats(DSN)["delayed"], 1);
}

#[test]
fn an_unknown_transport_exits_5_and_the_others_are_still_answered() {
    let place = Place::with(&queue(""));
    place.postroom("setup").exits(0);
    let done = place.postroom("stats ordres orders --json").exits(5);
    assert_eq!(done.json()[0]["transport"], "orders");
    assert_eq!(done.errors()[0]["kind"], "not_found");
    assert!(done.errors()[0]["message"].as_str().unwrap().contains("did you mean `orders`?"));
    place.postroom("send nowhere x").exits(5);
    place.postroom("peek nowhere").exits(5);
}

#[test]
fn a_topics_groups_are_listed_counted_and_removed() {
    let place = Place::with(
        "[transports.a]\ndsn = \"sqlite:t.db?topic=events&group=a\"\n[transports.b]\ndsn = \"sqlite:t.db?topic=events&group=b\"\n\
         [transports.all]\ndsn = \"sqlite:t.db?topic=events\"\n",
    );
    place.postroom("setup").exits(0);
    place.postroom("send all x --type t").exits(0);
    place.postroom("send a y --type t").exits(0);
    let listed = place.postroom("group list all --json").exits(0).json();
    assert_eq!(listed.len(), 2);
    assert_eq!((&listed[0]["group"], &listed[0]["waiting"]), (&json!("a"), &json!(2)));
    let figures = place.postroom("stats all --json").exits(0).json();
    assert_eq!(figures.len(), 2);
    assert_eq!((&figures[1]["group"], &figures[1]["waiting"]), (&json!("b"), &json!(2)));
    assert_eq!(place.stats("a")["group"], "a");
    place.postroom("group remove all b").exits(2);
    place.postroom("group remove all b --yes").exits(0);
    place.postroom("group remove all b --yes").exits(5);
    assert_eq!(place.postroom("group list all --json").exits(0).json().len(), 1);
    assert_eq!(place.stats("a")["waiting"], 2);
    place.write("q.toml", &queue(""));
    place.postroom("-c q.toml setup").exits(0);
    place.postroom("-c q.toml group list orders").exits(2);
}

#[test]
fn a_broker_that_cannot_be_reached_exits_3() {
    let place = Place::new();
    place.write("file", "");
    let done = place.postroom("stats sqlite:file/x.db?queue=q --json").exits(3);
    assert_eq!(done.errors().len(), 1, "{}", done.err);
    place.postroom("send sqlite:file/x.db?queue=q x").exits(3);
}
