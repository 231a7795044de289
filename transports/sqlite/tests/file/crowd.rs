//! C33: many workers and processes, and a long reader, on one file.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use postroom_core::{Broker, Envelope, Outgoing, Settlement, Source};

use crate::support::{normal, open, other, queue, read, run};

const FILE: &str = "POSTROOM_TEST_FILE";
const EACH: usize = 1000;
const PROCESSES: usize = 2;
const WORKERS: usize = 8;

/// The other process: this test program itself, with a file to write to.
#[tokio::test]
async fn child() {
    let Ok(path) = std::env::var(FILE) else { return };
    let broker = open(&normal(Path::new(&path))).await;
    for batch in 0..EACH / 5 {
        let batch: Vec<_> = (0..5).map(|i| Outgoing::new(queue("q"), Envelope::new(format!("{batch} {i}")))).collect();
        for answer in broker.publish(&batch).await {
            answer.unwrap();
        }
    }
    broker.close().await.unwrap();
}

fn processes(path: &Path) -> Vec<std::process::Child> {
    let program = std::env::current_exe().unwrap();
    let child = || Command::new(&program).args(["--exact", "crowd::child"]).env(FILE, path).spawn().unwrap();
    (0..PROCESSES).map(|_| child()).collect()
}

/// Takes and acks until all of it is done. Every error fails the test.
fn worker(path: PathBuf, busy: Duration, seen: Arc<Mutex<BTreeSet<String>>>, done: Arc<AtomicUsize>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = open(&normal(&path).busy(busy)).await;
        let source = read(&broker, &queue("q")).await;
        let began = Instant::now();
        while done.load(Ordering::Relaxed) < PROCESSES * EACH {
            assert!(began.elapsed() < Duration::from_secs(40), "{} came", done.load(Ordering::Relaxed));
            let taken = source.pull(7).await.unwrap();
            for delivery in &taken {
                assert_eq!(delivery.delivered, Some(1));
                assert!(seen.lock().unwrap().insert(delivery.envelope.id.to_string()), "taken twice");
            }
            let batch: Vec<_> = taken.iter().map(|delivery| (&delivery.token, Settlement::Ack)).collect();
            for answer in source.settle(&batch).await {
                assert_eq!(answer.unwrap(), postroom_core::Settled::Done);
            }
            done.fetch_add(batch.len(), Ordering::Relaxed);
        }
        broker.close().await.unwrap();
    });
}

#[test]
fn a_crowd_meets_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crowd.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A reader that holds its view of the file all the while.
    let reader = runtime.block_on(async {
        let keeper = open(&normal(&path)).await;
        let mut reader = other(&path).await;
        run(&mut reader, "BEGIN; SELECT count(*) FROM postroom_message").await;
        (keeper, reader)
    });
    let (seen, done) = (Arc::default(), Arc::default());
    let children = processes(&path);
    let workers: Vec<_> = (0..WORKERS)
        .map(|i| {
            // Two writers in this process, too: what the others do is nothing that one process could order.
            let busy = Duration::from_secs(5 + i as u64 % 2);
            let (path, seen, done) = (path.clone(), Arc::clone(&seen), Arc::clone(&done));
            std::thread::spawn(move || worker(path, busy, seen, done))
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success(), "a publishing process failed");
    }
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(seen.lock().unwrap().len(), PROCESSES * EACH);
    drop(reader);
}
