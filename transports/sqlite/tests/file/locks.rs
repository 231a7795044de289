//! Locks that others hold.

use std::time::{Duration, Instant};

use postroom_core::{Broker, ErrorKind, Source};
use tokio::time::sleep;

use crate::support::{normal, one, open, other, queue, read, run, send};

#[tokio::test]
async fn a_short_lock_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let broker = open(&normal(&path).busy(Duration::from_millis(50))).await;
    let mut on = other(&path).await;
    run(&mut on, "BEGIN IMMEDIATE").await;
    let holding = async {
        sleep(Duration::from_millis(400)).await;
        run(&mut on, "COMMIT").await;
    };
    let q = queue("q");
    let (sent, ()) = tokio::join!(send(&broker, &q, "hello"), holding);
    sent.unwrap();
}

#[tokio::test]
async fn a_long_lock_is_busy_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let broker = open(&normal(&path).busy(Duration::from_millis(100))).await;
    let mut on = other(&path).await;
    run(&mut on, "BEGIN IMMEDIATE").await;
    let error = send(&broker, &queue("q"), "hello").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("q.db"), "{error}");
    run(&mut on, "COMMIT").await;
    send(&broker, &queue("q"), "hello").await.unwrap();
}

/// Who only waits asks for no lock: another's lock does not disturb him, nor his wait another.
#[tokio::test]
async fn a_wait_takes_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let broker = open(&normal(&path).busy(Duration::from_millis(50))).await;
    let source = read(&broker, &queue("q")).await;
    // The first look may claim; from now on it is known to be empty.
    source.wake();
    assert!(source.pull(1).await.unwrap().is_empty());
    let mut on = other(&path).await;
    run(&mut on, "BEGIN IMMEDIATE").await;
    assert!(source.pull(1).await.unwrap().is_empty());
    assert_eq!(broker.tend(10).await.unwrap().promoted, 0);
    run(&mut on, "COMMIT").await;
}

/// Another writer of the same file, so that nobody in this process rings.
#[tokio::test]
async fn what_another_process_sends_is_noticed_soon() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let here = open(&normal(&path)).await;
    let there = open(&normal(&path).busy(Duration::from_secs(6))).await;
    let (q, source) = (queue("q"), read(&here, &queue("q")).await);
    for _ in 0..3 {
        let sending = async {
            sleep(Duration::from_millis(700)).await;
            send(&there, &q, "hello").await.unwrap();
            Instant::now()
        };
        let taking = async {
            one(&source).await;
            Instant::now()
        };
        let (sent, taken) = tokio::join!(sending, taking);
        assert!(taken.saturating_duration_since(sent) < Duration::from_millis(1500), "{:?}", taken - sent);
    }
}
