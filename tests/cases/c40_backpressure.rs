//! C40: a full pool makes the subscription wait; nothing is dropped, and memory is bounded by the permits.

use std::time::Duration;

use postroom::{Prefetch, Received};

use crate::harness::{Job, Log, builder, each, idle, jobs, send};

#[test]
fn c40_a_thousand_at_once_through_sixteen_permits() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let mut queue = on.queue();
        queue.options.prefetch = Prefetch::Fixed(16);
        let seen = log.clone();
        let handler = move |job: Received<Job>| {
            let log = seen.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(4)).await;
                log.add(job.n.to_string());
                Ok::<(), std::io::Error>(())
            }
        };
        let node = builder.transport(queue).handle(jobs().concurrency(8), handler).start().await.unwrap();
        send(&node, 0..1000).await;
        let place = node.transport("q").unwrap().place().clone();
        let mut most = 0;
        while log.all().len() < 1000 {
            let counts = node.transport("q").unwrap().count(&place).await.unwrap().unwrap();
            most = most.max(counts.in_flight.unwrap());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        idle(&probe, &node).await;
        assert!((1..=16).contains(&most), "{most} in flight");
        let mut all = log.all();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 1000);
        node.stop().await;
    });
}
