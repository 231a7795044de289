//! `run`: how it ends, and what it says then.

use std::time::{Duration, Instant};

use super::support::{Place, handler, queue, until};

fn place(script: &str, more: &str) -> Place {
    let place = Place::with(&queue(&handler("*", "h.sh", more)));
    place.script("h.sh", script);
    place
}

#[test]
fn the_last_line_is_the_receipt() {
    let place = place("echo $POSTROOM_ID >>log", "concurrency = 4");
    place.postroom_with("send orders --ndjson", "{}\n".repeat(20).as_bytes()).exits(0);
    let done = place.postroom("run --until-empty --json").exits(0);
    let receipt = done.last()["receipt"].clone();
    for (name, figure) in
        [("deliveries", 20), ("acked", 20), ("retried", 0), ("failed", 0), ("released", 0), ("lost", 0)]
    {
        assert_eq!(receipt[name], figure, "{receipt}");
    }
    assert_eq!(receipt["abandoned"], serde_json::json!([]));
    assert!(receipt["stopped_in_ms"].is_u64());
    assert!(place.postroom("run --until-empty").exits(0).out.starts_with("0 deliveries"));
}

#[test]
fn it_ends_by_a_limit_and_by_time() {
    let place = place("echo $POSTROOM_ID >>log", "");
    place.postroom_with("send orders --ndjson", "{}\n".repeat(10).as_bytes()).exits(0);
    let receipt = place.postroom("run --limit 3 --json").exits(0).last();
    assert_eq!(receipt["receipt"]["acked"], 3, "{receipt}");
    assert_eq!(place.lines("log").len(), 3);
    assert_eq!(place.stats("orders")["waiting"], 7);
    let began = Instant::now();
    place.postroom("run --for 500ms --json").exits(0);
    assert!((500..5_000).contains(&began.elapsed().as_millis()));
}

#[test]
fn until_empty_waits_for_delayed_ones() {
    let place = place("echo $POSTROOM_ID >>log", "");
    place.postroom("send orders {} --delay 1s").exits(0);
    assert_eq!(place.postroom("run --until-empty --json").exits(0).last()["receipt"]["acked"], 1);
}

#[test]
fn only_some_transports_and_unknown_ones() {
    let place = Place::with(&queue(
        "[transports.other]\ndsn = \"sqlite:orders.db?queue=other\"\n[[handlers]]\nfrom = \"orders\"\ntype = \"*\"\nexec = [\"true\"]\n\
         [[handlers]]\nfrom = \"other\"\ntype = \"*\"\nexec = [\"true\"]\n",
    ));
    place.postroom("send orders x").exits(0);
    place.postroom("send other x").exits(0);
    place.postroom("run --only orders --until-empty").exits(0);
    assert_eq!((&place.stats("orders")["waiting"], &place.stats("other")["waiting"]), (&0.into(), &1.into()));
    place.postroom("run --only othr --until-empty").exits(5);
    place.postroom("run --only othr --only other --until-empty").exits(5);
    assert_eq!(place.stats("other")["waiting"], 0, "the other one still ran");
}

#[test]
fn an_unhandled_type_fails_and_is_told_so() {
    let place = Place::with(&queue(&handler("known.*", "h.sh", "")));
    place.script("h.sh", "exit 0");
    place.postroom("send orders x --type unknown").exits(0);
    place.postroom("run --until-empty --json").exits(0);
    assert_eq!(place.postroom("failed list --json").json()[0]["reason"], "unhandled");
}

#[test]
fn a_config_without_handlers_is_nothing_to_run() {
    Place::with(&queue("")).postroom("run").exits(2);
}

#[test]
fn a_broker_that_is_away_is_tried_again_unless_fail_fast() {
    let place = Place::with(
        "[transports.orders]\ndsn = \"sqlite:sub/orders.db?queue=orders\"\n[[handlers]]\nfrom = \"orders\"\ntype = \"*\"\nexec = [\"./h.sh\"]\n",
    );
    place.script("h.sh", "echo $POSTROOM_ID >>log");
    place.write("sub", "a file where the folder should be");
    place.postroom("run --fail-fast").exits(3);
    let mut running = place.start("run --json");
    std::thread::sleep(Duration::from_millis(500));
    assert!(running.is_running());
    std::fs::remove_file(place.path("sub")).unwrap();
    std::fs::create_dir(place.path("sub")).unwrap();
    place.postroom("send orders x").exits(0);
    until("it came back by itself", || !place.lines("log").is_empty());
    running.terminate();
    assert_eq!(running.wait().exits(0).last()["receipt"]["acked"], 1);
}

#[test]
fn a_paused_consumer_ends_until_empty_and_says_why() {
    let place =
        Place::with(&queue(&format!("failure = \"none\"\nretry = {{ max = 0 }}\n{}", handler("*", "h.sh", ""))));
    place.script("h.sh", "exit 65");
    place.postroom("send orders x --id m1").exits(0);
    let done = place.postroom("run --until-empty --json").exits(1);
    let error = done.errors().remove(0);
    assert_eq!(error["kind"], "paused", "{error}");
    assert!(error["message"].as_str().unwrap().contains("orders"), "{error}");
    assert_eq!(done.last()["receipt"]["acked"], 0);
    assert_eq!(place.stats("orders")["waiting"], 1, "the message stays");
}
