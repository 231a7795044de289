//! How messages are taken.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use postroom_core::{Envelope, Source};
use tokio::time::{sleep, timeout};

use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Pull;
    at_most_max [] "a pull takes at least one and at most what was asked for";
    what_was_not_asked_for_stays [] "what a small pull leaves is there for another connection at once";
    wake_ends_a_waiting_pull [] "wake() ends a waiting pull";
    wake_before_a_pull [] "wake() without a waiting pull makes the next one answer at once";
    wake_at_any_moment_strands_nothing [] "wake() at any moment strands nothing: all comes, each once, in time";
    a_message_ends_the_wait [] "a message ends a wait, whichever connection sent it";
    a_release_ends_the_wait [] "a message that another connection gives back ends a wait";
    a_due_delay_ends_the_wait [Delay] "a delayed message that falls due ends a wait";
    every_wait_ends [] "with several pulls waiting, several messages end them all";
    sources_of_one_connection_compete [] "several sources of one connection share its messages, each once";
}

async fn at_most_max<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send_many(&queue, 50).await?;
    let reader = connection.reader(&queue).await?;
    let mut left = 50;
    for max in [1, 2, 7, 1, 16, 1000] {
        // The reader fails a pull that gives more than was asked for.
        let taken = reader.take(max.min(left)).await?;
        left -= taken.len();
        reader.ack_all(&taken).await?;
    }
    ensure!(left == 0, "{left} of 50 did not come");
    Ok(())
}

async fn what_was_not_asked_for_stays<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    first.send_many(&queue, 30).await?;
    let one = first.reader(&queue).await?;
    let few = one.take(3).await?;
    let two = second.reader(&queue).await?;
    let rest = two.take(27).await?;
    one.ack_all(&few).await?;
    two.ack_all(&rest).await
}

async fn wake_ends_a_waiting_pull<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let reader = connection.reader(&queue).await?;
    for millis in [0, 1, 30, 150] {
        let waiting = reader.source.clone();
        let pull = tokio::task::spawn_local(async move { waiting.pull(5).await.map(|pulled| pulled.len()) });
        sleep(Duration::from_millis(millis)).await;
        reader.source.wake();
        // Shorter than the 5 s that a pull may wait of its own accord.
        let ended = timeout(Duration::from_secs(3).min(world.patience()), pull).await;
        let ended =
            ended.map_err(|_| Stop::failed(format_args!("woken {millis} ms after it began, a pull waits on")))?;
        let n = ended.map_err(Stop::failed)??;
        ensure!(n == 0, "{n} messages from an empty queue");
    }
    Ok(())
}

async fn wake_before_a_pull<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let reader = connection.reader(&queue).await?;
    reader.source.wake();
    let ended = timeout(Duration::from_secs(3).min(world.patience()), reader.source.pull(5)).await;
    let pulled = ended.map_err(|_| Stop::failed("the next pull waits on"))??;
    ensure!(pulled.is_empty(), "{} messages from an empty queue", pulled.len());
    Ok(())
}

/// One task sends, one wakes at random moments, one pulls: nothing is stranded, so no pull needs a lease to end.
async fn wake_at_any_moment_strands_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let reader = connection.reader(&queue).await?;
    let woken = reader.source.clone();
    let waker = tokio::task::spawn_local(async move {
        loop {
            sleep(Duration::from_micros(fastrand::u64(0..1500))).await;
            woken.wake();
        }
    });
    let sending = async {
        for _ in 0..100 {
            connection.send_many(&queue, 2).await?;
            sleep(Duration::from_micros(fastrand::u64(0..800))).await;
        }
        Ok::<_, Stop>(())
    };
    let mut seen = BTreeSet::new();
    let reading = async {
        let started = Instant::now();
        while seen.len() < 200 {
            ensure!(started.elapsed() < world.patience(), "{} of 200 came", seen.len());
            let pulled = reader.pull(3, world.patience()).await?;
            for delivery in &pulled {
                ensure!(seen.insert(delivery.envelope.id.clone()), "{:?} came twice", delivery.envelope.id);
            }
            reader.ack_all(&pulled).await?;
        }
        Ok(())
    };
    let (sent, read) = tokio::join!(sending, reading);
    waker.abort();
    sent.and(read)
}

async fn a_message_ends_the_wait<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    let reader = first.reader(&queue).await?;
    for sender in [&first, &second] {
        let waiting = reader.clone();
        let wait = tokio::task::spawn_local(async move { waiting.one().await });
        sleep(Duration::from_millis(50)).await;
        sender.send(&queue, Envelope::new("wanted")).await?;
        let delivery = soon(wait).await?;
        reader.ack(&delivery).await?;
    }
    Ok(())
}

/// A wait that ends must end well before the 5 s after which a pull may look of its own accord.
async fn soon<T>(wait: tokio::task::JoinHandle<Result<T, Stop>>) -> Result<T, Stop> {
    let ended = timeout(Duration::from_secs(3), wait).await;
    ended.map_err(|_| Stop::failed("a waiting pull did not notice within 3 s"))?.map_err(Stop::failed)?
}

async fn a_release_ends_the_wait<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    first.send(&queue, Envelope::new("given back")).await?;
    let one = first.reader(&queue).await?;
    let held = one.one().await?;
    let two = second.reader(&queue).await?;
    let waiting = two.clone();
    let wait = tokio::task::spawn_local(async move { waiting.one().await });
    sleep(Duration::from_millis(50)).await;
    one.release(&held).await?;
    let delivery = soon(wait).await?;
    two.ack(&delivery).await
}

async fn a_due_delay_ends_the_wait<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let reader = connection.reader(&queue).await?;
    let waiting = reader.clone();
    let wait = tokio::task::spawn_local(async move { waiting.one().await });
    sleep(Duration::from_millis(20)).await;
    connection.send_after(&queue, Duration::from_millis(300)).await?;
    let delivery = soon(wait).await?;
    reader.ack(&delivery).await
}

async fn every_wait_ends<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    let mut waits = Vec::new();
    for connection in [&first, &first, &second, &second] {
        let reader = connection.reader(&queue).await?;
        waits.push(tokio::task::spawn_local(async move {
            let delivery = reader.one().await?;
            reader.ack(&delivery).await
        }));
    }
    sleep(Duration::from_millis(50)).await;
    first.send_many(&queue, 4).await?;
    for wait in waits {
        soon(wait).await?;
    }
    Ok(())
}

async fn sources_of_one_connection_compete<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let (one, two) = (connection.reader(&queue).await?, connection.reader(&queue).await?);
    connection.send_many(&queue, 60).await?;
    let mut seen = BTreeSet::new();
    let started = Instant::now();
    while seen.len() < 60 {
        ensure!(started.elapsed() < world.patience(), "{} of 60 came", seen.len());
        for reader in [&one, &two] {
            let pulled = reader.pull(4, Duration::from_millis(200)).await?;
            for delivery in &pulled {
                ensure!(seen.insert(delivery.envelope.id.clone()), "{:?} came to both", delivery.envelope.id);
            }
            reader.ack_all(&pulled).await?;
        }
    }
    Ok(())
}
