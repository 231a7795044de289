//! Runs every example and reads what it says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

/// How long an example may take; each needs less than a second.
const LIMIT: Duration = Duration::from_secs(30);

fn run(program: &str, arguments: &[&str]) -> Vec<String> {
    let child = Command::new(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let (said, errors) = (String::from_utf8(stdout).unwrap(), String::from_utf8_lossy(&stderr).into_owned());
    assert!(status.success(), "{program}: {status} after {:?}\n{said}\n{errors}", started.elapsed());
    said.lines().map(str::to_owned).collect()
}

/// The receipt without how long the stop took.
fn receipt(said: &[String]) -> &str {
    said.last().and_then(|line| line.split_once("; stopped in ")).map_or("no receipt", |(figures, _)| figures)
}

#[test]
fn actix_system() {
    let said = run(env!("CARGO_BIN_EXE_actix_system"), &[]);
    assert_eq!(said[..2], ["order 1 is shipped, attempt 1", "order 2 is shipped, attempt 1"]);
    assert_eq!(receipt(&said), "2 deliveries: 2 acked, 0 retried, 0 failed, 0 released, 0 lost, 0 abandoned");
}

#[test]
fn actix_web() {
    let said = run(env!("CARGO_BIN_EXE_actix_web"), &[]);
    let has = |line: &str| said.iter().any(|said| said == line);
    assert!(has("order 7 is shipped") && has("confirmed, an id of 36 characters"), "{said:?}");
    assert_eq!(said[2], "the server has finished");
    assert_eq!(receipt(&said), "1 deliveries: 1 acked, 0 retried, 0 failed, 0 released, 0 lost, 0 abandoned");
}

#[test]
fn plain_tokio() {
    let said = run(env!("CARGO_BIN_EXE_plain_tokio"), &[]);
    assert_eq!(said[0], "resized: cat 100, cat 200, cat 300, cat 400");
    assert_eq!(receipt(&said), "5 deliveries: 4 acked, 0 retried, 1 failed, 0 released, 0 lost, 0 abandoned");
}

fn ledger(arguments: &[&str]) {
    let said = run(env!("CARGO_BIN_EXE_stateful_actor"), arguments);
    assert_eq!(said[..3], ["ada +100 = 100 (restarts: 0)", "ada -40 = 60 (restarts: 1)", "ada +13 = 73 (restarts: 1)"]);
    assert_eq!(receipt(&said), "4 deliveries: 3 acked, 1 retried, 0 failed, 0 released, 0 lost, 0 abandoned");
}

#[test]
fn stateful_actor() {
    ledger(&[]);
}

#[test]
fn topic_groups() {
    let said = run(env!("CARGO_BIN_EXE_topic_groups"), &[]);
    for line in ["billing: ada", "billing: grace", "welcome: ada, attempt 1", "welcome: grace, attempt 2"] {
        assert_eq!(said.iter().filter(|said| *said == line).count(), 1, "{line}: {said:?}");
    }
    assert_eq!(said[4], "billing handled 2, welcome 2 after 1 retry");
    assert_eq!(receipt(&said), "5 deliveries: 4 acked, 1 retried, 0 failed, 0 released, 0 lost, 0 abandoned");
}

/// The same program over a file: nothing but the DSN differs.
#[test]
fn stateful_actor_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    ledger(&[&format!("sqlite:{}?queue=payments", folder.path().join("payments.db").display())]);
}

/// The earthquakes example has a config of its own and is run by the program's tests; here it only must be there.
#[test]
fn the_earthquakes_are_there() {
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("earthquakes/postroom.toml").exists());
}
