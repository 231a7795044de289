//! C07, C08: the server goes away and comes back; blocking reads disturb nobody.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use postroom_core::Source;
use postroom_redis::RedisConfig;
use postroom_testbed::redis::Redis as Server;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::harness::*;

/// An idle worker, something that happens to the server, and five messages right after it.
fn c07<Fut: std::future::Future<Output = ()>>(happens: impl FnOnce(Arc<Server>) -> Fut) {
    on_redis(|server| async move {
        let port = server.port();
        let runs = Runs::default();
        let node = worker("w", port, &runs, Duration::from_secs(30), AT_ONCE).await;
        send(&connect(port).await, &queue(), named(0..5)).await;
        runs.different(5, Duration::from_secs(2)).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        happens(server.clone()).await;
        send(&connect(port).await, &queue(), named(5..10)).await;
        let took = runs.different(10, Duration::from_secs(5)).await;
        println!("handled {took:?} after the server took connections");
        none_pending(port, Duration::from_secs(2)).await;
        assert!(node.stop().await.is_clean());
        assert_eq!(runs.total(), 10);
    });
}

#[test]
fn c07_stopped_for_three_seconds() {
    c07(|server| aside(move || server.stop_for(Duration::from_secs(3))));
}

#[test]
fn c07_killed_and_started_again() {
    c07(|server| {
        aside(move || {
            server.kill9();
            server.restart();
        })
    });
}

#[test]
fn c07_clients_killed_three_times() {
    c07(|server| async move {
        for _ in 0..3 {
            let mut client = raw(server.port()).await;
            redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec_async(&mut client).await.unwrap();
            tokio::time::sleep(Duration::from_millis(600)).await;
        }
    });
}

#[test]
fn c07_frozen_for_ten_seconds() {
    c07(|server| {
        aside(move || {
            server.pause();
            std::thread::sleep(Duration::from_secs(10));
            server.resume();
        })
    });
}

#[test]
fn c07_scripts_flushed() {
    c07(|server| async move {
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut raw(server.port()).await).await.unwrap();
    });
}

#[test]
fn c07_restarted_while_a_handler_runs() {
    on_redis(|server| async move {
        let port = server.port();
        let runs = Runs::default();
        let node = worker("w", port, &runs, Duration::from_secs(30), Act::Sleep(Duration::from_secs(2))).await;
        send(&connect(port).await, &queue(), named(0..3)).await;
        runs.different(3, Duration::from_secs(2)).await;
        let restarted = server.clone();
        aside(move || restarted.stop_for(Duration::from_secs(1))).await;
        send(&connect(port).await, &queue(), named(3..8)).await;
        runs.different(8, Duration::from_secs(8)).await;
        none_pending(port, Duration::from_secs(8)).await;
        assert!(node.stop().await.is_clean());
        // Those that ran when the connection was lost run again, and no others.
        assert!((8..=11).contains(&runs.total()), "{:?}", runs.counts());
    });
}

#[test]
fn c08_blocking_reads_delay_no_publish() {
    on_redis(|server| async move {
        let port = server.port();
        let broker = std::rc::Rc::new(connect(port).await);
        let other = postroom_core::Place::queue("empty").unwrap();
        let what = [postroom_core::Declaration::new(other.clone())];
        postroom_core::Broker::declare(&*broker, &what, postroom_core::DeclareMode::Create).await.unwrap();
        let sources = [subscribe(&broker, &other, "a").await, subscribe(&broker, &other, "b").await];
        let pulls = sources.map(|source| {
            actix_rt::spawn(async move {
                for _ in 0..3 {
                    assert!(source.pull(5).await.unwrap().is_empty());
                }
            })
        });
        let mut took = Vec::new();
        while !pulls.iter().all(|pull| pull.is_finished()) {
            let started = Instant::now();
            send(&broker, &queue(), ["quick".to_owned()]).await;
            took.push(started.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        took.sort();
        let p99 = took[took.len() * 99 / 100];
        assert!(took.len() > 50 && p99 < Duration::from_millis(100), "p99 of {} is {p99:?}", took.len());
        for pull in pulls {
            pull.await.unwrap();
        }
    });
}

/// Passes bytes on; what the server says comes late.
async fn slow_proxy(port: u16, late: Arc<AtomicU64>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let own = listener.local_addr().unwrap().port();
    actix_rt::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, late) = (TcpStream::connect(("127.0.0.1", port)).await.unwrap(), late.clone());
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            actix_rt::spawn(async move {
                let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
            });
            let (say, mut hear) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
            actix_rt::spawn(async move {
                while let Some((at, bytes)) = hear.recv().await {
                    let late = Duration::from_millis(late.load(Ordering::Relaxed));
                    tokio::time::sleep(late.saturating_sub(at.elapsed())).await;
                    if to_client.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            });
            actix_rt::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(n @ 1..) = from_server.read(&mut buffer).await {
                    let _ = say.send((Instant::now(), buffer[..n].to_vec()));
                }
            });
        }
    });
    own
}

#[test]
fn c08_replies_later_than_the_block_time_are_not_lost() {
    on_redis(|server| async move {
        let late = Arc::new(AtomicU64::new(0));
        let proxy = slow_proxy(server.port(), late.clone()).await;
        let runs = Runs::default();
        let lease = Duration::from_secs(20);
        let node = worker_of("w", RedisConfig::local(proxy), queue(), &runs, lease, AT_ONCE).await;
        late.store(2_200, Ordering::Relaxed);
        let broker = connect(server.port()).await;
        for n in 0..50 {
            send(&broker, &queue(), [format!("m{n}")]).await;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        runs.different(50, Duration::from_secs(30)).await;
        late.store(0, Ordering::Relaxed);
        none_pending(server.port(), Duration::from_secs(10)).await;
        assert!(node.stop().await.is_clean());
        assert_eq!(runs.total(), 50);
    });
}
