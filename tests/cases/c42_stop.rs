//! C42, C43, C44: a stop loses nothing, repeats nothing, and keeps its deadline.

use std::time::{Duration, Instant};

use postroom::{HandlerError, Prefetch, Received};

use crate::harness::{Job, Log, builder, each, failed, jobs, left, quick, send};

#[test]
fn c42_running_ones_finish_and_prefetched_ones_go_back_at_once() {
    each(|on| async move {
        let (log, (builder, _)) = (Log::default(), builder());
        // Another process would see the same: a second connection to the same store.
        let (other, _) = super::harness::builder();
        let other = other.transport(on.queue()).start().await.unwrap();
        let mut queue = on.queue();
        queue.options.prefetch = Prefetch::Fixed(10);
        let seen = log.clone();
        let handler = move |job: Received<Job>| {
            let log = seen.clone();
            async move {
                log.add(format!("start {}", job.n));
                tokio::time::sleep(Duration::from_millis(500)).await;
                log.add(format!("end {}", job.n));
                Ok::<(), std::io::Error>(())
            }
        };
        let node = builder.transport(queue).handle(jobs().concurrency(2), handler).start().await.unwrap();
        send(&node, 0..20).await;
        log.wait_for(2).await;
        let began = Instant::now();
        let stopping = node.clone();
        let stop = actix::spawn(async move { stopping.stop().await });
        // What the first had only prefetched is there for a second worker while the first still works.
        let place = postroom::Place::queue("q").unwrap();
        let counts = loop {
            let counts = other.transport("q").unwrap().count(&place).await.unwrap().unwrap();
            if counts.in_flight == Some(2) || began.elapsed() > Duration::from_millis(400) {
                break counts;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!((counts.waiting, counts.in_flight), (Some(18), Some(2)));
        let receipt = stop.await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(4));
        assert!(receipt.is_clean(), "{receipt}");
        assert_eq!(receipt.acked, 2, "{receipt}");
        assert_eq!(receipt.deliveries, receipt.acked + receipt.released);
        assert_eq!(log.all().iter().filter(|line| line.starts_with("start")).count(), 2);
        let counts = other.transport("q").unwrap().count(&place).await.unwrap().unwrap();
        assert_eq!((counts.waiting, counts.in_flight), (Some(18), Some(0)));
        other.stop().await;
    });
}

#[test]
fn c43_cancelled_handlers_give_back_uncounted() {
    each(|on| async move {
        let (log, (builder, _)) = (Log::default(), builder());
        let (other, _) = super::harness::builder();
        let other = other.transport(on.queue()).start().await.unwrap();
        let mut queue = on.queue();
        queue.options.retry = quick(0);
        let seen = log.clone();
        let handler = move |job: Received<Job>| {
            let log = seen.clone();
            async move {
                log.add("start");
                job.cancelled().await;
                if job.n == 0 { Ok(()) } else { Err(HandlerError::retry("cancelled")) }
            }
        };
        let node = builder.transport(queue).handle(jobs().concurrency(5), handler).start().await.unwrap();
        send(&node, 0..5).await;
        log.wait_for(5).await;
        let receipt = node.stop().await;
        assert_eq!((receipt.acked, receipt.released, receipt.failed), (1, 4, 0), "{receipt}");
        assert_eq!(left(&other).await, 4);
        assert!(failed(&other).await.is_empty());
        other.stop().await;
    });
}

#[test]
fn c44_a_handler_that_ignores_the_stop_is_abandoned_at_the_grace() {
    each(|on| async move {
        let (log, (builder, _)) = (Log::default(), builder());
        let (other, _) = super::harness::builder();
        let other = other.transport(on.queue()).start().await.unwrap();
        let seen = log.clone();
        let handler = move |job: Received<Job>| {
            let log = seen.clone();
            async move {
                log.add("start");
                match job.n {
                    0 => tokio::time::sleep(Duration::from_secs(60)).await,
                    1 => {
                        job.cancelled().await;
                        return Err(HandlerError::retry("cancelled"));
                    }
                    _ => std::thread::sleep(Duration::from_secs(6)),
                }
                Ok(())
            }
        };
        let node =
            builder.transport(on.queue()).handle(jobs().concurrency(3).threads(3), handler).start().await.unwrap();
        send(&node, 0..3).await;
        log.wait_for(3).await;
        let began = Instant::now();
        let receipt = node.stop_within(Duration::from_secs(1)).await;
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(990) && took < Duration::from_secs(2), "{took:?}");
        assert_eq!((receipt.abandoned.len(), receipt.released), (2, 1), "{receipt}");
        assert_eq!(receipt.deliveries, 3);
        let counts = other.transport("q").unwrap().count(&postroom::Place::queue("q").unwrap()).await.unwrap().unwrap();
        assert_eq!((counts.waiting, counts.in_flight), (Some(3), Some(0)), "each exists once");
        other.stop().await;
    });
}

#[test]
fn c44_a_second_call_shortens_the_wait() {
    each(|on| async move {
        let (log, (builder, _)) = (Log::default(), builder());
        let seen = log.clone();
        let handler = move |_: Received<Job>| {
            let log = seen.clone();
            async move {
                log.add("start");
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok::<(), HandlerError>(())
            }
        };
        let node = builder.transport(on.queue()).handle(jobs(), handler).start().await.unwrap();
        send(&node, [1]).await;
        log.wait_for(1).await;
        let (began, stopping) = (Instant::now(), node.clone());
        let stop = actix::spawn(async move { stopping.stop_within(Duration::from_secs(30)).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        node.hurry(Duration::from_millis(300));
        let receipt = stop.await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(2));
        assert_eq!(receipt.abandoned.len(), 1);
        // Nothing works on a stopped node.
        assert!(node.send("q", &Job { n: 1 }).await.is_err());
    });
}
