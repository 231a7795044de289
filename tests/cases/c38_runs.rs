//! C38: runs are 1 + the limit, and the count survives a restart.

use postroom::{HandlerError, Received};

use crate::harness::{Job, Log, builder, each, failed, idle, jobs, quick, send};

#[test]
fn c38_runs_are_one_plus_the_limit() {
    each(|on| async move {
        for max in [0, 1, 3] {
            let (log, (builder, probe)) = (Log::default(), builder());
            let mut queue = on.place("q", &format!("queue=q{max}"));
            queue.options.retry = quick(max);
            let seen = log.clone();
            let handler = move |job: Received<Job>| {
                let log = seen.clone();
                async move {
                    log.add(job.attempt().to_string());
                    Err::<(), _>(HandlerError::retry(format!("attempt {} \u{0}\u{fffd}\n", job.attempt())))
                }
            };
            let node = builder.transport(queue).handle(jobs(), handler).start().await.unwrap();
            send(&node, [1]).await;
            idle(&probe, &node).await;
            let attempts: Vec<_> = (1..=max + 1).map(|n| n.to_string()).collect();
            assert_eq!(log.all(), attempts, "on {}", on.name);
            let records = failed(&node).await;
            assert_eq!(records.len(), 1);
            let track = records[0].envelope().track.clone().unwrap();
            assert_eq!((track.attempts, track.history.len() as u32), (max + 1, max + 1));
            // C32: an error text with NUL is kept and shown.
            assert!(track.failure.unwrap().error.starts_with(&format!("attempt {}", max + 1)));
            node.stop().await;
        }
    });
}

#[test]
fn c38_the_count_survives_a_restart() {
    each(|on| async move {
        let log = Log::default();
        for round in 0..2 {
            let (builder, probe) = builder();
            let mut queue = on.queue();
            queue.options.retry = quick(2);
            queue.options.retry.delay = std::time::Duration::from_millis(if round == 0 { 300 } else { 10 });
            let seen = log.clone();
            let handler = move |job: Received<Job>| {
                let log = seen.clone();
                async move {
                    log.add(job.attempt().to_string());
                    Err::<(), _>(HandlerError::retry("no"))
                }
            };
            // A private memory store ends with its last user: this one is named and held by the test's own transport.
            let keep = builder.transport(queue).handle(jobs(), handler).start().await.unwrap();
            if round == 0 {
                send(&keep, [1]).await;
                log.wait_for(1).await;
                if on.name == "memory" {
                    // Its messages live in this process only.
                    idle(&probe, &keep).await;
                    assert_eq!(log.all(), ["1", "2", "3"]);
                    keep.stop().await;
                    return;
                }
                keep.stop().await;
            } else {
                idle(&probe, &keep).await;
                assert_eq!(failed(&keep).await.len(), 1);
                keep.stop().await;
            }
        }
        assert_eq!(log.all(), ["1", "2", "3"]);
    });
}
