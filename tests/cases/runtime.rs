//! What users expect of the runtime, beyond the field cases.

use std::time::{Duration, Instant};

use postroom::{HandlerError, HandlerOptions, Health, Kind, Received};

use crate::harness::{Job, Log, builder, each, failed, idle, jobs, left, no_failure, quick, send};

fn noting(
    log: &Log,
) -> impl Fn(Received<Job>) -> std::future::Ready<Result<(), HandlerError>> + Clone + Send + Sync + use<> {
    let log = log.clone();
    move |job: Received<Job>| {
        log.add(format!("{}", job.n));
        std::future::ready(Ok(()))
    }
}

#[test]
fn a_handler_ten_leases_long_runs_once() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let mut queue = on.queue();
        queue.options.lease = Duration::from_secs(1);
        let seen = log.clone();
        let handler = move |_: Received<Job>| {
            let log = seen.clone();
            async move {
                log.add("start");
                tokio::time::sleep(Duration::from_secs(10)).await;
                Ok::<(), HandlerError>(())
            }
        };
        let node = builder.transport(queue).handle(jobs().concurrency(2), handler).start().await.unwrap();
        send(&node, [1]).await;
        idle(&probe, &node).await;
        assert_eq!(log.all(), ["start"]);
        let receipt = node.stop().await;
        assert_eq!((receipt.acked, receipt.lost), (1, 0));
    });
}

#[test]
fn a_lease_is_renewed_while_a_handler_blocks_its_thread_and_during_a_drain() {
    each(|on| async move {
        let (log, (builder, _)) = (Log::default(), builder());
        let mut queue = on.queue();
        queue.options.lease = Duration::from_secs(1);
        let seen = log.clone();
        let handler = move |_: Received<Job>| {
            let log = seen.clone();
            async move {
                log.add("start");
                std::thread::sleep(Duration::from_secs(3));
                Ok::<(), HandlerError>(())
            }
        };
        let node = builder.transport(queue).handle(jobs(), handler).start().await.unwrap();
        send(&node, [1]).await;
        log.wait_for(1).await;
        let receipt = node.stop().await;
        assert_eq!((receipt.acked, receipt.lost, log.all().len()), (1, 0, 1), "{receipt}");
    });
}

#[test]
fn a_timeout_is_an_errored_attempt_also_where_the_thread_is_blocked() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let mut queue = on.queue();
        queue.options.retry = quick(0);
        let seen = log.clone();
        let handler = move |job: Received<Job>| {
            let log = seen.clone();
            async move {
                match job.n {
                    0 => tokio::time::sleep(Duration::from_secs(60)).await,
                    1 => std::thread::sleep(Duration::from_secs(3)),
                    _ => log.add(format!("{}", job.n)),
                }
                Ok::<(), HandlerError>(())
            }
        };
        let options = jobs().timeout(Duration::from_millis(200));
        let node = builder.transport(queue).handle(options, handler).start().await.unwrap();
        let began = Instant::now();
        send(&node, [0, 1, 2, 3]).await;
        log.wait_for(2).await;
        assert!(began.elapsed() < Duration::from_millis(2_500), "the blocked thread was not replaced");
        idle(&probe, &node).await;
        let records = failed(&node).await;
        assert_eq!(records.len(), 2);
        for record in records {
            assert_eq!(record.failure().unwrap().error_kind, Some(postroom::core::AttemptKind::Timeout));
        }
        node.stop().await;
    });
}

#[test]
fn without_a_failure_transport_the_consumer_pauses_and_nothing_is_lost() {
    each(|on| async move {
        let (log, (builder, _)) = (Log::default(), builder());
        let seen = log.clone();
        let handler = move |job: Received<Job>| {
            let log = seen.clone();
            async move {
                log.add(format!("{}", job.n));
                Err::<(), _>(HandlerError::fail("never"))
            }
        };
        let node = builder.transport(no_failure(on.queue())).handle(jobs(), handler).start().await.unwrap();
        send(&node, 0..5).await;
        let paused = async {
            while node.board().line(Kind::Consumer, "q").unwrap().health != Health::Degraded {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), paused).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(left(&node).await, 5);
        assert!(log.all().len() <= 2, "{:?}", log.all());
        assert!(!node.board().is_ready());
        node.stop().await;
    });
}

#[test]
fn a_failure_transport_of_its_own_keeps_the_records() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let mut queue = on.queue();
        queue.options.failure = postroom::FailureRef::Transport("graveyard".into());
        let mut store = on.place("graveyard", "queue=graveyard");
        store.options.place = postroom::Place::store("graveyard").unwrap();
        let seen = log.clone();
        let handler = move |job: Received<Job>| {
            let log = seen.clone();
            async move {
                log.add(format!("{}", job.n));
                Err::<(), _>(HandlerError::fail("never"))
            }
        };
        let node = builder.transport(queue).transport(store).handle(jobs(), handler).start().await.unwrap();
        send(&node, 0..3).await;
        idle(&probe, &node).await;
        assert_eq!(failed(&node).await.len(), 3);
        node.stop().await;
    });
}

#[test]
fn a_relay_keeps_id_type_key_and_headers() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let all = HandlerOptions::new("q", "*").unwrap();
        let there = HandlerOptions::of::<Job>("there").unwrap();
        let seen = log.clone();
        let handler = move |job: Received<Job>| {
            let log = seen.clone();
            async move {
                let e = job.envelope();
                log.add(format!("{} {:?} {:?} {:?}", e.id, e.key, e.stamps.get_str("h"), e.attempts()));
                Ok::<(), HandlerError>(())
            }
        };
        let node = builder
            .transport(on.queue())
            .transport(on.place("there", "queue=there"))
            .relay(all, "there")
            .handle(there, handler)
            .start()
            .await
            .unwrap();
        let id = node.draft(&Job { n: 1 }).unwrap().key("k").header("h", "v").send("q").await.unwrap();
        log.wait_for(1).await;
        idle(&probe, &node).await;
        assert_eq!(log.all(), [format!("{id} Some(\"k\") Some(\"v\") 0")]);
        node.stop().await;
    });
}

#[test]
fn a_limit_is_kept_exactly() {
    each(|on| async move {
        let (log, (builder, _)) = (Log::default(), builder());
        let node = builder
            .limit(Some(7))
            .transport(on.queue())
            .handle(jobs().concurrency(4), noting(&log))
            .start()
            .await
            .unwrap();
        send(&node, 0..20).await;
        tokio::time::timeout(Duration::from_secs(10), node.limit_reached()).await.unwrap();
        let receipt = node.stop().await;
        assert_eq!((receipt.acked, log.all().len()), (7, 7), "{receipt}");
    });
}

#[test]
fn a_delay_is_kept_and_a_pause_holds_until_resumed() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let node = builder.transport(on.queue()).handle(jobs(), noting(&log)).start().await.unwrap();
        let began = Instant::now();
        node.draft(&Job { n: 1 }).unwrap().after(Duration::from_millis(700)).send("q").await.unwrap();
        log.wait_for(1).await;
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(700) && took < Duration::from_millis(1_700), "{took:?}");
        node.pause("q", "maintenance").await;
        // A pull that was waiting when the pause came may still bring one batch.
        send(&node, 2..4).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        send(&node, 4..8).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(log.all().len() < 7, "{:?}", log.all());
        node.resume("q").await;
        log.wait_for(7).await;
        idle(&probe, &node).await;
        node.stop().await;
    });
}

#[test]
fn all_faults_of_a_description_are_told_at_once() {
    each(|on| async move {
        let (builder, _) = builder();
        let mut queue = on.queue();
        queue.options.lease = Duration::from_millis(10);
        queue.options.crashes = 2;
        let log = Log::default();
        let error = builder
            .transport(queue)
            .handle(jobs(), noting(&log))
            .handle(jobs(), noting(&log))
            .handle(HandlerOptions::of::<Job>("nowhere").unwrap(), noting(&log))
            .start()
            .await
            .unwrap_err();
        let text = error.to_string();
        for part in ["below its minimum of 1s", "crashes = 2", "`nowhere`", "needs a name of its own"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    });
}
