//! Handlers that are commands, a process a message.

use std::time::{Duration, Instant};

use super::support::{Place, handler, is_alive, queue, until};

fn place(script: &str, more: &str) -> Place {
    let place =
        Place::with(&queue(&format!("retry = {{ max = 1, delay = \"10ms\" }}\n{}", handler("*", "h.sh", more))));
    place.script("h.sh", script);
    place
}

#[test]
fn a_command_gets_the_body_and_the_environment_and_its_exit_code_decides() {
    let place = place(
        "cat >body; env | grep ^POSTROOM_ | sort >env; echo to the log; echo why >&2; exit \"$POSTROOM_HEADER_CODE\"",
        "",
    );
    place.postroom("send orders {\"a\":1} --type t.x --id m1 --key k --header code=0 --header x-b.c=d --content-type application/json").exits(0);
    let done = place.postroom("run --until-empty --json").exits(0);
    assert_eq!(done.last()["receipt"]["acked"], 1);
    assert!(done.err.contains("to the log"));
    assert_eq!(place.read("body"), "{\"a\":1}");
    let env = place.read("env");
    for line in [
        "POSTROOM_ID=m1",
        "POSTROOM_TYPE=t.x",
        "POSTROOM_TRANSPORT=orders",
        "POSTROOM_ATTEMPT=1",
        "POSTROOM_KEY=k",
        "POSTROOM_CONTENT_TYPE=application/json",
        "POSTROOM_HEADER_X_B_C=d",
        "POSTROOM_HEADER_CODE=0",
    ] {
        assert!(env.lines().any(|found| found == line), "{line}\n{env}");
    }
    let time = env.lines().find_map(|line| line.strip_prefix("POSTROOM_TIME=")).unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");

    place.postroom("send orders x --id final --header code=65").exits(0);
    place.postroom("send orders x --id twice --header code=3").exits(0);
    let receipt = place.postroom("run --until-empty --json").exits(0).last();
    assert_eq!((&receipt["receipt"]["failed"], &receipt["receipt"]["retried"]), (&2.into(), &1.into()), "{receipt}");
    let listed = place.postroom("failed list --json").exits(0).json();
    let reason = |id: &str| listed.iter().find(|one| one["id"] == id).unwrap_or_else(|| panic!("{listed:?}")).clone();
    assert_eq!((&reason("final")["reason"], &reason("final")["error"]), (&"final".into(), &"why".into()));
    assert_eq!((&reason("final")["attempts"], &reason("final")["error_kind"]), (&1.into(), &"error".into()));
    assert_eq!((&reason("twice")["reason"], &reason("twice")["attempts"]), (&"attempts".into(), &2.into()));
    assert_eq!(place.read("env").lines().find(|line| line.starts_with("POSTROOM_ATTEMPT")), Some("POSTROOM_ATTEMPT=2"));
}

#[test]
fn a_death_by_a_signal_and_a_command_that_is_not_there_are_retried() {
    let place = place("kill -9 $$", "");
    place.postroom("send orders x").exits(0);
    place.postroom("run --until-empty --json").exits(0);
    let listed = place.postroom("failed list --json").exits(0).json();
    assert!(listed[0]["error"].as_str().unwrap().contains("signal 9"), "{listed:?}");
    assert_eq!(listed[0]["attempts"], 2);
    std::fs::remove_file(place.path("h.sh")).unwrap();
    place.postroom("failed retry --all").exits(0);
    place.postroom("run --until-empty --json").exits(0);
    let listed = place.postroom("failed list --json").exits(0).json();
    assert!(listed[0]["error"].as_str().unwrap().contains("could not start"), "{listed:?}");
}

#[test]
fn the_last_8_kib_of_stderr_are_the_error_and_a_large_body_that_is_not_read_blocks_nobody() {
    let place = place("head -c 20000 /dev/zero | tr '\\0' a >&2; echo the end >&2; exit 65", "");
    place.write("big", &"x".repeat(3_000_000));
    place.postroom("send orders -f big").exits(0);
    place.postroom("run --until-empty --json").exits(0);
    let listed = place.postroom("failed list --json").exits(0).json();
    let error = listed[0]["error"].as_str().unwrap();
    assert!(error.ends_with("aaa\nthe end") || error.ends_with("aaathe end"), "{}", &error[error.len() - 50..]);
    assert!((8_000..=8_192).contains(&error.len()), "{}", error.len());
    assert_eq!(listed[0]["size"], 3_000_000);
}

#[test]
fn at_the_timeout_the_whole_group_gets_term_then_kill() {
    let place = place(
        "trap 'echo term >>told' TERM; echo $$ >>pids; (trap '' TERM; echo 'sub' >/dev/null; sleep 61) & echo $! >>pids; while :; do sleep 0.1; done",
        "timeout = \"500ms\"",
    );
    place.postroom("send orders x").exits(0);
    let running = place.start("run --json");
    let start = Instant::now();
    until("a first run has begun", || place.lines("pids").len() >= 2);
    let pids = place.lines("pids");
    until("TERM came", || place.read("told").contains("term"));
    until("KILL came", || pids.iter().take(2).all(|pid| !is_alive(pid)));
    assert!(start.elapsed() > Duration::from_secs(2));
    until("it failed", || place.stats("orders")["failed"] == 1);
    let listed = place.postroom("failed list --json").exits(0).json();
    assert_eq!(listed[0]["error_kind"], "timeout");
    running.terminate();
    running.wait().exits(0);
}

#[test]
fn what_a_command_leaves_behind_in_its_group_ends_with_it() {
    let place = place("sleep 62 & echo $! >pid; exit 0", "");
    place.postroom("send orders x").exits(0);
    let start = Instant::now();
    place.postroom("run --until-empty --json").exits(0);
    assert!(start.elapsed() < Duration::from_secs(10));
    until("the rest is gone", || !is_alive(&place.read("pid")));
}

#[test]
fn kill_9_of_the_runtime_ends_its_children_and_theirs() {
    let place = place(
        "trap '' TERM HUP INT; echo $$ >>pids; (trap '' TERM HUP INT; sleep 63) & echo $! >>pids; wait",
        "concurrency = 3",
    );
    for _ in 0..3 {
        place.postroom("send orders x").exits(0);
    }
    let running = place.start("run");
    until("three run", || place.lines("pids").len() >= 6);
    let pids = place.lines("pids");
    assert!(pids.iter().all(|pid| is_alive(pid)));
    running.kill();
    let start = Instant::now();
    until("all are gone", || pids.iter().all(|pid| !is_alive(pid)));
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn several_named_handlers_run_in_order_and_a_retry_runs_those_not_done() {
    let place = Place::with(&queue(&format!(
        "retry = {{ max = 3, delay = \"10ms\" }}\n{}{}{}",
        handler("t", "h1.sh", "name = \"h1\""),
        handler("t", "h2.sh", "name = \"h2\""),
        handler("t", "h3.sh", "name = \"h3\"")
    )));
    place.script("h1.sh", "echo h1 >>log");
    place.script("h2.sh", "echo h2 >>log; test $POSTROOM_ATTEMPT -gt 1");
    place.script("h3.sh", "echo h3 >>log");
    place.postroom("send orders x --type t").exits(0);
    place.postroom("run --until-empty --json").exits(0);
    assert_eq!(place.lines("log"), ["h1", "h2", "h3", "h2"]);
}
