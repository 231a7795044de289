//! C01, C02, C04, C05, C10: workers that die or are slow.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::harness::*;

/// What was logged, by all tests of this process.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged() -> Lines {
    static LINES: std::sync::LazyLock<Lines> = std::sync::LazyLock::new(|| {
        let lines = Lines::default();
        let (writer, level) = (lines.clone(), tracing_subscriber::filter::LevelFilter::WARN);
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_max_level(level).with_ansi(false);
        log.init();
        lines
    });
    LINES.clone()
}

fn c01(trim: &'static [&'static str]) {
    on_redis(move |server| async move {
        let (log, port) = (logged(), server.port());
        let broker = connect(port).await;
        send(&broker, &queue(), named(1..6)).await;
        dead_worker(port, "a", 1).await;
        let mut client = raw(port).await;
        let first: Vec<(String, redis::Value)> =
            redis::cmd("XRANGE").arg("q").arg("-").arg("+").arg("COUNT").arg(1).query_async(&mut client).await.unwrap();
        let id = &first[0].0;
        let mut cut = redis::cmd(trim[0]);
        trim[1..].iter().for_each(|word| _ = cut.arg(if *word == "ID" { id } else { *word }));
        cut.exec_async(&mut client).await.unwrap();
        let runs = Runs::default();
        let node = worker("b", port, &runs, LEASE, AT_ONCE).await;
        runs.different(4, LEASE + Duration::from_secs(2)).await;
        none_pending(port, LEASE + Duration::from_secs(2)).await;
        assert_eq!(runs.counts().into_keys().collect::<Vec<_>>(), ["m2", "m3", "m4", "m5"]);
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let warnings: Vec<_> = text.lines().filter(|line| line.contains(&format!("id={id}"))).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        send(&broker, &queue(), named(6..7)).await;
        runs.different(5, Duration::from_secs(2)).await;
        assert!(node.stop().await.is_clean());
    });
}

#[test]
fn c01_a_pending_entry_was_trimmed() {
    c01(&["XTRIM", "q", "MAXLEN", "4"]);
}

#[test]
fn c01_a_pending_entry_was_deleted() {
    c01(&["XDEL", "q", "ID"]);
}

async fn consumers(port: u16) -> Vec<String> {
    let list: Vec<std::collections::HashMap<String, redis::Value>> =
        redis::cmd("XINFO").arg("CONSUMERS").arg("q").arg("postroom").query_async(&mut raw(port).await).await.unwrap();
    let name =
        |one: &std::collections::HashMap<String, redis::Value>| redis::from_redis_value(one["name"].clone()).unwrap();
    list.iter().map(name).filter(|name: &String| name != "~free").collect()
}

#[test]
fn c02_a_dead_consumer_goes_only_when_it_owns_nothing() {
    on_redis(|server| async move {
        let port = server.port();
        let broker = connect(port).await;
        send(&broker, &queue(), named(0..10)).await;
        dead_worker(port, "a", 10).await;
        assert!(consumers(port).await[0].starts_with("a."));
        let runs = Runs::default();
        let node = worker("b", port, &runs, LEASE, AT_ONCE).await;
        runs.different(10, LEASE + Duration::from_secs(2)).await;
        // Idle for two leases and ten seconds.
        let gone = Instant::now();
        while consumers(port).await.iter().any(|name| name.starts_with("a.")) {
            assert!(gone.elapsed() < Duration::from_secs(16), "the dead consumer stays");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(consumers(port).await.len(), 1, "the living one was removed too");
        assert_eq!(runs.total(), 10);
        assert!(node.stop().await.is_clean());
        assert!(consumers(port).await.is_empty(), "a closed source leaves its consumer behind");
    });
}

#[test]
fn c04_all_that_a_dead_worker_held_is_taken_back_at_once() {
    on_redis(|server| async move {
        let port = server.port();
        let broker = connect(port).await;
        send(&broker, &queue(), named(0..200)).await;
        dead_worker(port, "a", 200).await;
        let runs = Runs::default();
        let node = worker("b", port, &runs, LEASE, Act::Sleep(Duration::from_millis(1))).await;
        // The runtime tends twice a second.
        let took = runs.different(200, LEASE + Duration::from_secs(2)).await;
        println!("200 were taken back and handled within {took:?}");
        assert!(node.stop().await.is_clean());
        assert_eq!(runs.total(), 200);
    });
}

#[test]
fn c05_two_workers_of_one_name_share() {
    on_redis(|server| async move {
        let port = server.port();
        let broker = connect(port).await;
        send(&broker, &queue(), named(0..100)).await;
        let runs = Runs::default();
        let one = worker("w", port, &runs, LEASE, Act::Sleep(Duration::from_millis(5))).await;
        let two = worker("w", port, &runs, LEASE, Act::Sleep(Duration::from_millis(5))).await;
        runs.different(100, Duration::from_secs(10)).await;
        assert!(one.stop().await.is_clean() && two.stop().await.is_clean());
        assert_eq!(runs.total(), 100);
    });
}

#[test]
fn c05_a_busy_successor_of_the_same_name_does_not_hide_what_was_left() {
    on_redis(|server| async move {
        let port = server.port();
        let broker = connect(port).await;
        send(&broker, &queue(), ["left".to_owned()]).await;
        dead_worker(port, "w", 1).await;
        let runs = Runs::default();
        let (node, started) = (worker("w", port, &runs, LEASE, AT_ONCE).await, Instant::now());
        while started.elapsed() < 3 * LEASE {
            send(&broker, &queue(), [format!("busy {:?}", started.elapsed())]).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let again = runs.first("left").expect("what was left was not run again");
        assert!(again.duration_since(started) < LEASE + Duration::from_millis(700));
        assert!(node.stop().await.is_clean());
    });
}

fn c10(act: Act) {
    on_redis(move |server| async move {
        let port = server.port();
        let broker = connect(port).await;
        let runs = Runs::default();
        let one = worker("one", port, &runs, LEASE, act).await;
        send(&broker, &queue(), ["long".to_owned()]).await;
        runs.different(1, Duration::from_secs(2)).await;
        let two = worker("two", port, &runs, LEASE, AT_ONCE).await;
        tokio::time::sleep(5 * LEASE).await;
        assert!(one.stop().await.is_clean() && two.stop().await.is_clean());
        assert_eq!(runs.total(), 1);
        assert_eq!(pending(port).await, 0);
    });
}

#[test]
fn c10_a_handler_longer_than_its_lease_runs_once() {
    c10(Act::Sleep(4 * LEASE));
}

#[test]
fn c10_a_handler_that_blocks_its_thread_runs_once() {
    c10(Act::Block(4 * LEASE));
}
