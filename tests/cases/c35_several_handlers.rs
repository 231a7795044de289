//! C35: several handlers for one type; a retry runs only those that are not done.

use postroom::HandlerError;

use crate::harness::{Job, Log, builder, each, failed, idle, jobs, send};
use postroom::Received;

#[test]
fn c35_a_retry_runs_only_the_undone() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let run = |name: &'static str, errs: usize| {
            let log = log.clone();
            move |_: Received<Job>| {
                let log = log.clone();
                async move {
                    log.add(name);
                    if log.count(name) <= errs { Err(HandlerError::retry("not yet")) } else { Ok(()) }
                }
            }
        };
        let node = builder
            .transport(on.queue())
            .handle(jobs().name("h1"), run("h1", 0))
            .handle(jobs().name("h2"), run("h2", 1))
            .handle(jobs().name("h3"), run("h3", 0))
            .start()
            .await
            .unwrap();
        send(&node, [1]).await;
        idle(&probe, &node).await;
        assert_eq!(log.all(), ["h1", "h2", "h3", "h2"]);
        assert!(failed(&node).await.is_empty());
        node.stop().await;
    });
}

#[test]
fn c35_a_final_error_fails_after_the_others_ran_and_a_replay_runs_the_undone() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let run = |name: &'static str, errs: usize| {
            let log = log.clone();
            move |_: Received<Job>| {
                let log = log.clone();
                async move {
                    log.add(name);
                    if log.count(name) <= errs { Err(HandlerError::fail("never")) } else { Ok(()) }
                }
            }
        };
        let node = builder
            .transport(on.queue())
            .handle(jobs().name("h1"), run("h1", 1))
            .handle(jobs().name("h2"), run("h2", 0))
            .start()
            .await
            .unwrap();
        send(&node, [1]).await;
        idle(&probe, &node).await;
        let records = failed(&node).await;
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].envelope().track.as_ref().unwrap().done, ["h2"]);
        let back = postroom::ops::retry(&records, |_, _| node.transport("q")).await;
        assert!(back.iter().all(Result::is_ok), "{back:?}");
        idle(&probe, &node).await;
        assert_eq!(log.all(), ["h1", "h2", "h1"]);
        assert!(failed(&node).await.is_empty());
        node.stop().await;
    });
}

#[test]
fn c35_done_marks_survive_a_stop() {
    each(|on| async move {
        let (log, (builder, _)) = (Log::default(), builder());
        // Keeps the memory store while the first node is gone.
        let (second, probe) = crate::harness::builder();
        let run = |name: &'static str, waits: bool| {
            let log = log.clone();
            move |job: Received<Job>| {
                let log = log.clone();
                async move {
                    log.add(name);
                    if waits {
                        job.cancelled().await;
                        return Err(HandlerError::retry("cancelled"));
                    }
                    Ok(())
                }
            }
        };
        let queue = on.queue();
        let node = builder
            .transport(on.queue())
            .handle(jobs().name("h1"), run("h1", false))
            .handle(jobs().name("h2"), run("h2", true))
            .start()
            .await
            .unwrap();
        send(&node, [1]).await;
        log.wait_for(2).await;
        let receipt = node.stop().await;
        // It may meet the node's own last pull, and goes back once more.
        assert!(receipt.released >= 1 && receipt.released == receipt.deliveries, "{receipt}");
        let node = second
            .transport(queue)
            .handle(jobs().name("h1"), run("h1", false))
            .handle(jobs().name("h2"), run("h2", false))
            .start()
            .await
            .unwrap();
        idle(&probe, &node).await;
        assert_eq!(log.all(), ["h1", "h2", "h2"]);
        node.stop().await;
    });
}
