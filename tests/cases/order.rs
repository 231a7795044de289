//! Order: one at a time for each key, or for the whole subscription; a retry blocks what comes behind it.

use std::time::Duration;

use postroom::{Envelope, HandlerError, Order, Received, TypeName};

use crate::harness::{Job, Log, builder, each, idle, jobs};

async fn run(on: crate::harness::On, order: Order) -> Vec<String> {
    let (log, (builder, probe)) = (Log::default(), builder());
    let mut queue = on.queue();
    queue.options.order = order;
    let seen = log.clone();
    let handler = move |job: Received<Job>| {
        let log = seen.clone();
        async move {
            let key = job.envelope().key.clone().unwrap_or_default();
            log.add(format!("{key}{}.{}", job.n, job.attempt()));
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..5))).await;
            if job.n == 1 && job.attempt() == 1 { Err(HandlerError::retry("again")) } else { Ok(()) }
        }
    };
    let node = builder.transport(queue).handle(jobs().concurrency(8), handler).start().await.unwrap();
    let envelopes = (0..5).flat_map(|n| ["a", "b", "c"].map(|key| (n, key))).map(|(n, key)| {
        let mut envelope = Envelope::new(serde_json::to_vec(&Job { n }).unwrap());
        envelope.message_type = Some(TypeName::new("job").unwrap());
        envelope.key = Some(key.into());
        (envelope, Duration::ZERO)
    });
    for answer in node.send_all("q", envelopes.collect()).await.unwrap() {
        answer.unwrap();
    }
    idle(&probe, &node).await;
    node.stop().await;
    log.all()
}

#[test]
fn key_order_holds_with_concurrency_and_retries() {
    each(|on| async move {
        let log = run(on, Order::Key).await;
        for key in ["a", "b", "c"] {
            let mine: Vec<_> = log.iter().filter(|line| line.starts_with(key)).map(|line| &line[1..]).collect();
            assert_eq!(mine, ["0.1", "1.1", "1.2", "2.1", "3.1", "4.1"], "key {key}: {log:?}");
        }
    });
}

#[test]
fn broker_order_is_one_at_a_time() {
    each(|on| async move {
        let log = run(on, Order::Broker).await;
        let mut expected = Vec::new();
        for n in 0..5 {
            for key in ["a", "b", "c"] {
                expected.push(format!("{key}{n}.1"));
                if n == 1 {
                    expected.push(format!("{key}{n}.2"));
                }
            }
        }
        assert_eq!(log, expected);
    });
}
