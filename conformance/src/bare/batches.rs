//! Batches: large ones, mixed ones, and many at once.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use postroom_core::{Envelope, Extended, Lease, Outgoing, Place, Settled, Settlement, Source};

use super::settling::early;
use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Settling;
    a_large_batch_is_whole [] "5,000 messages are published in one call, taken, renewed and settled in one call, each once";
    a_batch_for_many_places [] "a batch for ten places reaches each of them, and is answered in order";
    many_senders_at_once [] "four connections that send side by side lose nothing and double nothing";
    a_delay_outlives_its_sender [Delay] "a delayed message comes in time when its sender has long closed";
    a_delay_longer_than_a_lease_is_kept [Delay] "a delay of three leases is kept: it lies with the broker, not under a lease (C09)";
}

const LARGE: usize = 5_000;

async fn a_large_batch_is_whole<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let batch: Vec<_> = (0..LARGE).map(|i| Outgoing::new(queue.clone(), Envelope::new(format!("{i}")))).collect();
    connection.publish(&batch).await?;
    let reader = connection.reader(&queue).await?;
    let taken = reader.take(LARGE).await?;
    let ids: BTreeSet<_> = taken.iter().map(|delivery| delivery.envelope.id.clone()).collect();
    ensure!(ids.len() == LARGE, "{} distinct ids of {LARGE}", ids.len());
    if let Some(lease) = reader.source.lease() {
        let tokens: Vec<_> = taken.iter().map(|delivery| &delivery.token).collect();
        let answers = lease.extend(&tokens).await;
        let kept = answers.iter().filter(|answer| matches!(answer, Ok(Extended::Done))).count();
        ensure!(kept == LARGE && answers.len() == LARGE, "{kept} of {LARGE} were renewed, {} answered", answers.len());
    }
    let (released, acked) = taken.split_at(LARGE / 2);
    let how = |i: usize| if i < released.len() { Settlement::Release } else { Settlement::Ack };
    let items: Vec<_> = released.iter().chain(acked).enumerate().map(|(i, delivery)| (delivery, how(i))).collect();
    let answers = reader.settle_all(&items).await?;
    let odd = answers.iter().find(|answer| !matches!(answer, Settled::Done | Settled::Written));
    ensure!(odd.is_none(), "an owner's settle answered {odd:?}");
    let again = reader.take(LARGE / 2).await?;
    reader.ack_all(&again).await
}

async fn a_batch_for_many_places<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let places = (0..10).map(|i| world.queue(&format!("q{i}"))).collect::<Result<Vec<_>, _>>()?;
    mixed(world, &places, &places).await
}

/// One batch for many places, some of it delayed. Each place is read to its end when the scenario ends: all that is
/// owed must be there, and nothing else.
pub(super) async fn mixed<S: Subject>(world: World<S>, declared: &[Place], to: &[Place]) -> Result<(), Stop> {
    let connection = world.connect().await?;
    connection.declare(&declared.iter().collect::<Vec<_>>()).await?;
    let places = (0..60).filter_map(|i| to.get(i * 7 % to.len()));
    let mut batch: Vec<_> = places.map(|to| Outgoing::new(to.clone(), Envelope::new("mixed"))).collect();
    if world.powers.capabilities.delay {
        let later = batch.iter_mut().skip(5).step_by(9);
        later.for_each(|outgoing| outgoing.delay = Some(Duration::from_millis(200)));
    }
    connection.publish(&batch).await?;
    Ok(())
}

async fn many_senders_at_once<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (reading, queue) = world.with_queue().await?;
    let mut senders = Vec::new();
    for _ in 0..4 {
        senders.push(world.connect().await?);
    }
    let sending = senders.iter().map(|connection| async {
        for _ in 0..20 {
            connection.send_many(&queue, 5).await?;
        }
        Ok::<_, Stop>(())
    });
    let reader = reading.reader(&queue).await?;
    let handling = async {
        for _ in 0..40 {
            let taken = reader.take(10).await?;
            reader.ack_all(&taken).await?;
        }
        Ok::<_, Stop>(())
    };
    let (sent, handled) = tokio::join!(try_join_all(sending), handling);
    sent?;
    handled
}

async fn a_delay_outlives_its_sender<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (sender, queue) = world.with_queue().await?;
    let (sent, delay) = (Instant::now(), Duration::from_millis(400));
    sender.send_after(&queue, delay).await?;
    sender.close().await?;
    let other = world.connect().await?;
    let reader = other.reader(&queue).await?;
    let delivery = reader.one().await?;
    early(sent, delay)?;
    reader.ack(&delivery).await
}

async fn a_delay_longer_than_a_lease_is_kept<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let lease = world.lease().min(Duration::from_secs(1));
    let (one, two) = (connection.reader_for(&queue, lease).await?, connection.reader_for(&queue, lease).await?);
    let (sent, delay) = (Instant::now(), lease * 3);
    connection.send_after(&queue, delay).await?;
    let delivery = one.one().await?;
    early(sent, delay)?;
    one.ack(&delivery).await?;
    two.nothing_for(Duration::from_millis(50)).await
}
