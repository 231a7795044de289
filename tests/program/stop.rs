//! C42, C43, C44: SIGTERM.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::support::{Place, handler, is_alive, queue, until};

fn place(script: &str, transport: &str, more: &str) -> Place {
    let place = Place::with(&queue(&format!("{transport}\n{}", handler("*", "h.sh", more))));
    place.script("h.sh", script);
    place
}

fn send(place: &Place, n: usize) {
    place.postroom_with("send orders --ndjson", "{}\n".repeat(n).as_bytes()).exits(0);
}

#[test]
fn c42_running_ones_finish_and_prefetched_ones_go_to_the_next_worker_at_once() {
    let place = place(
        "echo $POSTROOM_ID >>started; sleep 2; echo $POSTROOM_ID >>done",
        "prefetch = 10\nlease = \"30s\"",
        "concurrency = 2",
    );
    send(&place, 20);
    let first = place.start("run --json");
    until("two run", || place.lines("started").len() == 2);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(place.stats("orders")["in_flight"], 10);
    let signalled = Instant::now();
    first.terminate();
    let text = place
        .read("postroom.toml")
        .replace("concurrency = 2", "concurrency = 18")
        .replace("prefetch = 10", "prefetch = 18");
    place.write("second.toml", &text);
    let second = place.start("-c second.toml run --until-empty --json");
    until("the prefetched ones run", || place.lines("started").len() >= 10);
    assert!(signalled.elapsed() < Duration::from_millis(1_500), "{:?}", signalled.elapsed());
    let done = first.wait().exits(0);
    assert!(signalled.elapsed() < Duration::from_secs(4));
    let receipt = done.last()["receipt"].clone();
    assert_eq!((&receipt["acked"], &receipt["released"]), (&2.into(), &8.into()), "{receipt}");
    second.wait().exits(0);
    assert_eq!(place.lines("started").len(), 20);
    assert_eq!(place.lines("done").len(), 20);
}

#[test]
fn c42_a_second_signal_shortens_the_wait_and_loses_nothing() {
    let place = place("echo $POSTROOM_ID >>started; sleep 3; echo $POSTROOM_ID >>done", "", "concurrency = 2");
    send(&place, 4);
    let running = place.start("run --json");
    until("two run", || place.lines("started").len() == 2);
    running.terminate();
    std::thread::sleep(Duration::from_millis(200));
    let again = Instant::now();
    running.signal(Signal::INT);
    let receipt = running.wait().exits(4).last()["receipt"].clone();
    assert!(again.elapsed() < Duration::from_millis(2_500), "{:?}", again.elapsed());
    assert_eq!(receipt["abandoned"].as_array().unwrap().len(), 2, "{receipt}");
    assert_eq!(place.stats("orders")["waiting"], 4);
    assert!(place.lines("done").is_empty());
}

#[test]
fn c43_errors_during_a_stop_give_back_uncounted() {
    let place = place(
        "echo $POSTROOM_ID $POSTROOM_ATTEMPT >>started; sleep 1; test $(wc -l <started) -gt 5 && exit 0; case $POSTROOM_KEY in good) exit 0 ;; *) exit 1 ;; esac",
        "retry = { max = 0 }",
        "concurrency = 5",
    );
    for key in ["good", "good", "good", "bad", "bad"] {
        place.postroom(&format!("send orders x --key {key}")).exits(0);
    }
    let running = place.start("run --json");
    until("five run", || place.lines("started").len() == 5);
    running.terminate();
    let receipt = running.wait().exits(0).last()["receipt"].clone();
    assert_eq!(
        (&receipt["acked"], &receipt["released"], &receipt["failed"]),
        (&3.into(), &2.into(), &0.into()),
        "{receipt}"
    );
    let figures = place.stats("orders");
    assert_eq!((&figures["waiting"], &figures["failed"]), (&2.into(), &0.into()));
    place.postroom("run --until-empty --json").exits(0);
    assert!(place.lines("started").iter().all(|line| line.ends_with(" 1")), "no attempt was counted");
}

#[test]
fn c44_a_handler_that_ignores_the_stop_exits_4_within_the_grace_and_runs_again() {
    let place = place(
        "trap '' TERM INT HUP; echo $POSTROOM_ID >>started; echo $$ >>pids; test $(wc -l <started) -gt 3 && exit 0; \
         case $POSTROOM_KEY in error) sleep 1; exit 1 ;; *) sleep 67 ;; esac",
        "",
        "concurrency = 3",
    );
    for (id, key) in [("m1", "slow"), ("m2", "error"), ("m3", "slow")] {
        place.postroom(&format!("send orders x --id {id} --key {key}")).exits(0);
    }
    let running = place.start("run --json --grace 3s");
    until("three run", || place.lines("started").len() == 3);
    let signalled = Instant::now();
    running.terminate();
    let receipt = running.wait().exits(4).last()["receipt"].clone();
    let took = signalled.elapsed();
    assert!((2_900..4_000).contains(&took.as_millis()), "{took:?}");
    let mut abandoned: Vec<&str> =
        receipt["abandoned"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    abandoned.sort_unstable();
    assert_eq!(abandoned, ["m1", "m3"], "{receipt}");
    assert_eq!((&receipt["released"], &receipt["deliveries"]), (&1.into(), &3.into()), "{receipt}");
    until("their processes are gone", || place.lines("pids").iter().all(|pid| !is_alive(pid)));
    let figures = place.stats("orders");
    assert_eq!((&figures["waiting"], &figures["in_flight"], &figures["delayed"]), (&3.into(), &0.into(), &0.into()));
    let second = place.start("run --until-empty --json");
    let began = Instant::now();
    until("all run again", || place.lines("started").len() == 6);
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(second.wait().exits(0).last()["receipt"]["acked"], 3);
    assert_eq!(place.lines("started").len(), 6);
}
