//! Figures tell the truth in every state.

use std::time::{Duration, Instant};

use postroom_core::{Counts, Place};

use crate::{
    Subject,
    scenario::scenarios,
    support::{Connection, LONG, Stop, World, ensure},
};

scenarios! { Operations;
    figures_are_true_in_every_state [Count] "waiting and in flight are counted as they are after each step (C34)";
    delayed_ones_are_counted_apart [Count, Delay] "delayed messages are counted as delayed, and as waiting once due";
    the_oldest_is_as_old_as_it_is [Count] "the age of the oldest waiting message grows, and is absent where nothing waits";
    groups_are_counted_apart [Count, Topics] "each group of a topic has its own figures";
    a_store_is_counted [Count, Browse] "a store counts its records";
}

/// The figures become what is wanted: at once where they are exact, in time where not. An absent figure is no lie.
async fn become_<S: Subject>(
    world: &World<S>,
    connection: &Connection<S::Broker>,
    place: &Place,
    wanted: [u64; 3],
) -> Result<(), Stop> {
    let started = Instant::now();
    loop {
        let counts = connection.counts(place).await?;
        let Counts { waiting, in_flight, delayed, exact, .. } = counts;
        let right =
            [waiting, in_flight, delayed].iter().zip(wanted).all(|(found, n)| found.is_none_or(|found| found == n));
        if right {
            return Ok(());
        }
        let [w, f, d] = wanted;
        let hopeless = exact || started.elapsed() > world.patience();
        ensure!(!hopeless, "{place} has {w} waiting, {f} in flight and {d} delayed; counted are {counts:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn figures_are_true_in_every_state<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let other = world.connect().await?;
    become_(&world, &connection, &queue, [0, 0, 0]).await?;
    connection.send_many(&queue, 10).await?;
    become_(&world, &other, &queue, [10, 0, 0]).await?;
    let reader = connection.reader(&queue).await?;
    let taken = reader.take(6).await?;
    let [acked, retried, released, held @ ..] = taken.as_slice() else { return Err(Stop::failed("six were taken")) };
    become_(&world, &other, &queue, [4, 6, 0]).await?;
    reader.ack(acked).await?;
    become_(&world, &other, &queue, [4, 5, 0]).await?;
    reader.retry(retried, Duration::ZERO).await?;
    become_(&world, &other, &queue, [5, 4, 0]).await?;
    reader.release(released).await?;
    become_(&world, &other, &queue, [6, 3, 0]).await?;
    for delivery in held {
        reader.ack(delivery).await?;
    }
    become_(&world, &other, &queue, [6, 0, 0]).await
}

async fn delayed_ones_are_counted_apart<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send_many(&queue, 2).await?;
    for _ in 0..3 {
        connection.send_after(&queue, Duration::from_secs(3)).await?;
    }
    become_(&world, &connection, &queue, [2, 0, 3]).await?;
    let reader = connection.reader(&queue).await?;
    let held = reader.take(2).await?;
    let [first, second] = held.as_slice() else { return Err(Stop::failed("two were taken")) };
    reader.retry(first, Duration::from_secs(2)).await?;
    become_(&world, &connection, &queue, [0, 1, 4]).await?;
    reader.ack(second).await?;
    // All four fall due: none may be counted as delayed any longer than it is.
    let taken = reader.take(4).await?;
    become_(&world, &connection, &queue, [0, 4, 0]).await?;
    reader.ack_all(&taken).await
}

async fn the_oldest_is_as_old_as_it_is<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let empty = connection.counts(&queue).await?.oldest_waiting_ms;
    ensure!(empty.is_none(), "nothing waits, and the oldest is {empty:?} ms old");
    let before = Instant::now();
    connection.send_many(&queue, 1).await?;
    let sent = Instant::now();
    tokio::time::sleep(Duration::from_millis(200)).await;
    connection.send_many(&queue, 1).await?;
    let least = sent.elapsed();
    let Some(age) = connection.counts(&queue).await?.oldest_waiting_ms else { return Ok(()) };
    let (age, most) = (Duration::from_millis(age), before.elapsed());
    let slack = Duration::from_millis(50);
    ensure!(age + slack >= least && age <= most + slack, "sent between {most:?} and {least:?} ago, its age is {age:?}");
    let reader = connection.reader_for(&queue, LONG).await?;
    let taken = reader.take(2).await?;
    let none = connection.counts(&queue).await?.oldest_waiting_ms;
    ensure!(none.is_none(), "all are in flight, and the oldest waiting is {none:?} ms old");
    reader.ack_all(&taken).await
}

async fn groups_are_counted_apart<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let (topic, one, two) = (world.topic("t")?, world.group("t", "one")?, world.group("t", "two")?);
    connection.declare(&[&topic, &one, &two]).await?;
    connection.send_many(&topic, 5).await?;
    let reader = connection.reader(&one).await?;
    let taken = reader.take(2).await?;
    become_(&world, &connection, &one, [3, 2, 0]).await?;
    become_(&world, &connection, &two, [5, 0, 0]).await?;
    reader.ack_all(&taken).await?;
    become_(&world, &connection, &one, [3, 0, 0]).await?;
    become_(&world, &connection, &two, [5, 0, 0]).await
}

async fn a_store_is_counted<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let store = world.store("failed")?;
    connection.declare(&[&store]).await?;
    connection.send_many(&store, 7).await?;
    become_(&world, &connection, &store, [7, 0, 0]).await
}
