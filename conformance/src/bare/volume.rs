//! A backlog does not reach a consumer that did not ask for it.

use std::collections::BTreeSet;

use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Pull;
    a_backlog_stays_on_the_broker [] "with a backlog (20,000, where the subject does not say otherwise) a pull of 16 holds 16, and the rest is still everyone's; all come, each once";
}

async fn a_backlog_stays_on_the_broker<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    let backlog = world.subject.backlog().max(100);
    first.send_many(&queue, backlog).await?;
    let one = first.reader(&queue).await?;
    let held = one.take(16).await?;
    if world.powers.count {
        let counts = first.counts(&queue).await?;
        ensure!(counts.in_flight.is_none_or(|n| n == 16), "16 are held, counted are {counts:?}");
        ensure!(counts.waiting.is_none_or(|n| n == (backlog - 16) as u64), "16 are held, counted are {counts:?}");
    }
    let two = second.reader(&queue).await?;
    let mut seen: BTreeSet<_> = held.iter().map(|delivery| delivery.envelope.id.clone()).collect();
    while seen.len() < backlog {
        let taken = two.take(200.min(backlog - seen.len())).await?;
        for delivery in &taken {
            ensure!(seen.insert(delivery.envelope.id.clone()), "{:?} came twice", delivery.envelope.id);
        }
        two.ack_all(&taken).await?;
        tokio::task::yield_now().await;
    }
    one.ack_all(&held).await
}
