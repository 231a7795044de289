//! Who owns a delivery, and for how long.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use postroom_core::{DeliveryCount, Envelope, Extended, Lease, Settled, Settlement, Source};

use super::settling::early;
use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, again, ensure},
};

scenarios! { Leases;
    expiry_gives_it_to_another [Lease] "a delivery whose lease ends goes to another, not before, with the count raised";
    extend_keeps_it_for_five_leases [Lease] "a renewed delivery stays its owner's for five leases";
    extend_answers_item_by_item [Lease] "a batch of renewals answers each: the lost is lost, the held is kept";
    stale_extend_is_lost [Lease, Fencing] "a stale renewal answers Lost and leaves the new owner's delivery alone";
    stale_ack_is_refused [Lease, Fencing] "a stale ack answers LeaseLost and leaves the new owner's delivery alone";
    stale_retry_is_refused [Lease, Fencing] "a stale retry answers LeaseLost, makes no copy, and leaves the new owner's delivery alone";
    stale_release_is_refused [Lease, Fencing] "a stale release answers LeaseLost and leaves the new owner's delivery alone";
    a_stale_token_of_the_same_owner_is_refused [Lease, Fencing] "an owner that holds the message again cannot settle it by its first, expired delivery";
    a_dead_process_loses_nothing [Lease] "what a connection held that was never closed comes to another once the lease ends";
    release_is_immediate [] "a released delivery goes to another connection at once, whatever its lease";
    release_counts_nothing [] "a release leaves the envelope and its attempts as they were";
    release_leaves_an_exact_count [ExactDeliveryCount] "a release leaves an exact delivery count as it was";
}

async fn expiry_gives_it_to_another<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    first.send(&queue, Envelope::new("slow")).await?;
    let (one, two) = (first.reader_for(&queue, world.lease()).await?, second.reader(&queue).await?);
    let asked = Instant::now();
    let held = one.one().await?;
    let other = two.one().await?;
    early(asked, world.lease())?;
    ensure!(other.envelope.id == held.envelope.id, "another message came");
    if world.powers.capabilities.delivery_count != DeliveryCount::None {
        ensure!(other.delivered == Some(2), "the second hand-over is counted {:?}", other.delivered);
    }
    ensure!(other.envelope.attempts() == 0, "an expiry counted as an errored attempt");
    two.ack(&other).await
}

/// A machine so busy that the test itself renews too late proves nothing: then it is tried again.
async fn extend_keeps_it_for_five_leases<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let mut tries = 0;
    loop {
        let slowest = Cell::new(Duration::ZERO);
        tries += 1;
        match kept(&world, &format!("q{tries}"), &slowest).await {
            Err(_) if slowest.get() > world.lease() * 3 / 4 && tries < 4 => {}
            ended => return ended,
        }
    }
}

async fn kept<S: Subject>(world: &World<S>, queue: &str, slowest: &Cell<Duration>) -> Result<(), Stop> {
    let (first, second, queue) = (world.connect().await?, world.connect().await?, world.queue(queue)?);
    first.declare(&[&queue]).await?;
    first.send(&queue, Envelope::new("long")).await?;
    let one = first.reader_for(&queue, world.lease()).await?;
    let asked = Instant::now();
    let held = one.one().await?;
    let two = second.reader_for(&queue, world.lease()).await?;
    let over = Cell::new(false);
    let renewing = async {
        let mut last = asked;
        // On until the other has seen nothing for the whole span, however late it looks.
        while !over.get() {
            tokio::time::sleep(world.lease() / 5).await;
            slowest.set(slowest.get().max(last.elapsed()));
            last = Instant::now();
            let answer = one.extend(&held).await?;
            ensure!(answer == Extended::Done, "an owner's renewal answered {answer:?} after {:?}", asked.elapsed());
        }
        slowest.set(slowest.get().max(last.elapsed()));
        Ok(())
    };
    let looking = async {
        let quiet = two.nothing_for(world.lease() * 5).await;
        over.set(true);
        quiet
    };
    let (renewed, quiet) = tokio::join!(renewing, looking);
    renewed.and(quiet)?;
    one.ack(&held).await
}

async fn extend_answers_item_by_item<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send_many(&queue, 3).await?;
    let reader = connection.reader(&queue).await?;
    let taken = reader.take(3).await?;
    let [first, second, third] = taken.as_slice() else { return Err(Stop::failed("three were taken")) };
    reader.ack(first).await?;
    let lease = reader.source.lease().ok_or_else(|| Stop::failed("the source has no lease"))?;
    let answers = lease.extend(&[&first.token, &second.token, &third.token]).await;
    let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    let wanted = [Extended::Lost, Extended::Done, Extended::Done];
    ensure!(answers == wanted, "acked, held, held answered {answers:?}");
    reader.ack(second).await?;
    reader.ack(third).await
}

async fn stale_extend_is_lost<S: Subject>(world: World<S>) -> Result<(), Stop> {
    stale(world, None).await
}

async fn stale_ack_is_refused<S: Subject>(world: World<S>) -> Result<(), Stop> {
    stale(world, Some("ack")).await
}

async fn stale_retry_is_refused<S: Subject>(world: World<S>) -> Result<(), Stop> {
    stale(world, Some("retry")).await
}

async fn stale_release_is_refused<S: Subject>(world: World<S>) -> Result<(), Stop> {
    stale(world, Some("release")).await
}

/// An owner whose delivery went to another does something with it; the new owner must not notice.
async fn stale<S: Subject>(world: World<S>, settle: Option<&str>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    first.send(&queue, Envelope::new("contested")).await?;
    let one = first.reader_for(&queue, world.lease()).await?;
    let held = one.one().await?;
    let two = second.reader(&queue).await?;
    let owned = two.one().await?;
    match settle {
        None => {
            let answer = one.extend(&held).await?;
            ensure!(answer == Extended::Lost, "a stale renewal answered {answer:?}");
        }
        Some(word) => {
            let how = match word {
                "ack" => Settlement::Ack,
                "retry" => again(&held, Duration::ZERO),
                _ => Settlement::Release,
            };
            let answer = one.settle(&held, how).await?;
            ensure!(answer == Settled::LeaseLost, "a stale {word} answered {answer:?}");
        }
    }
    // Nothing lies beside the new owner's delivery: no released original, no copy.
    one.nothing_for(Duration::from_millis(100)).await?;
    if world.powers.count {
        let counts = first.counts(&queue).await?;
        ensure!(counts.in_flight.unwrap_or(1) == 1, "after a stale settle: {counts:?}");
        ensure!(counts.waiting.unwrap_or(0) == 0, "after a stale settle: {counts:?}");
    }
    two.ack(&owned).await
}

async fn a_stale_token_of_the_same_owner_is_refused<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send(&queue, Envelope::new("twice mine")).await?;
    let reader = connection.reader_for(&queue, world.lease()).await?;
    let first = reader.one().await?;
    let second = reader.one().await?;
    for how in [Settlement::Ack, again(&first, Duration::ZERO), Settlement::Release] {
        let word = format!("{how:?}");
        let answer = reader.settle(&first, how).await?;
        ensure!(answer == Settled::LeaseLost, "by its expired delivery, {:.7} answered {answer:?}", word);
    }
    reader.ack(&second).await
}

async fn a_dead_process_loses_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    first.send_many(&queue, 5).await?;
    let dying = world.connect_mortal().await?;
    let reader = dying.reader_for(&queue, world.lease()).await?;
    let held = reader.take(5).await?;
    // A dead process runs no destructors.
    std::mem::forget((held, reader.source.clone(), dying.broker.clone()));
    drop((reader, dying));
    let other = first.reader(&queue).await?;
    let back = other.take(5).await?;
    other.ack_all(&back).await
}

async fn release_is_immediate<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    first.send_many(&queue, 10).await?;
    let (one, two) = (first.reader(&queue).await?, second.reader(&queue).await?);
    for delivery in one.take(10).await? {
        one.release(&delivery).await?;
    }
    let taken = two.take(10).await?;
    two.ack_all(&taken).await
}

async fn release_counts_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let mut envelope = Envelope::new("mine");
    envelope.track_mut().attempts = 2;
    let sent = connection.send(&queue, envelope).await?;
    let reader = connection.reader(&queue).await?;
    for _ in 0..3 {
        let delivery = reader.one().await?;
        ensure!(delivery.envelope == sent, "a release changed {sent:?} to {:?}", delivery.envelope);
        reader.release(&delivery).await?;
    }
    Ok(())
}

async fn release_leaves_an_exact_count<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send(&queue, Envelope::new("mine")).await?;
    let reader = connection.reader(&queue).await?;
    for _ in 0..3 {
        let delivery = reader.one().await?;
        ensure!(delivery.delivered == Some(1), "counted {:?} after releases", delivery.delivered);
        reader.release(&delivery).await?;
    }
    Ok(())
}
