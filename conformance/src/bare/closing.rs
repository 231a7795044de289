//! Closing: what was begun counts, what waits ends, what was held goes back.

use std::time::Duration;

use postroom_core::{Envelope, ErrorKind, Settled, Settlement, Source};
use tokio::{join, time::timeout};

use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, again, ensure},
};

scenarios! { Settling;
    closing_the_source_ends_the_waiting_pull [] "closing a source ends its waiting pull";
    closing_the_broker_ends_the_waiting_pull [] "closing the connection ends the waiting pull of its sources";
    close_waits_for_an_ack_in_flight [] "an ack that runs while the connection closes either counts or errs; its answer is true";
    close_waits_for_a_whole_retry [] "a retry that runs while the connection closes happens whole or not at all: one message, never none or two";
    closing_a_source_gives_back [] "closing a source gives what it holds to others at once, whatever its lease";
    closing_the_broker_gives_back [] "closing the connection gives what its sources hold to others at once";
}

async fn closing_the_source_ends_the_waiting_pull<S: Subject>(world: World<S>) -> Result<(), Stop> {
    ends_the_wait(world, true).await
}

async fn closing_the_broker_ends_the_waiting_pull<S: Subject>(world: World<S>) -> Result<(), Stop> {
    ends_the_wait(world, false).await
}

async fn ends_the_wait<S: Subject>(world: World<S>, source: bool) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let reader = connection.reader(&queue).await?;
    let waiting = reader.source.clone();
    let pull = tokio::task::spawn_local(async move { waiting.pull(10).await.map(|pulled| pulled.len()) });
    tokio::time::sleep(Duration::from_millis(30)).await;
    if source {
        timeout(world.patience(), reader.source.close()).await.map_err(|_| Stop::failed("close hangs"))??;
    } else {
        connection.close().await?;
    }
    // Shorter than the 5 s that a pull may wait of its own accord.
    let ended = timeout(Duration::from_secs(3).min(world.patience()), pull).await;
    let ended = ended.map_err(|_| Stop::failed("the pull still waits 3 s after close"))?;
    match ended.map_err(Stop::failed)? {
        Ok(0) => {}
        Ok(n) => return Err(Stop::failed(format_args!("{n} messages from an empty queue"))),
        Err(error) => ensure!(error.kind() == ErrorKind::Stopped, "a pull ended by close answered {error:?}"),
    }
    let after = timeout(world.patience(), reader.source.pull(10)).await;
    match after.map_err(|_| Stop::failed("a pull after close hangs"))? {
        Ok(_) => Err(Stop::failed("a pull after close is no error")),
        Err(error) if error.kind() == ErrorKind::Stopped => Ok(()),
        Err(error) => Err(Stop::failed(format_args!("a pull after close answered {error:?}, not stopped"))),
    }
}

async fn close_waits_for_an_ack_in_flight<S: Subject>(world: World<S>) -> Result<(), Stop> {
    for _ in 0..10 {
        let (connection, queue) = (world.connect().await?, world.queue(&format!("q{:x}", fastrand::u32(..)))?);
        connection.declare(&[&queue]).await?;
        connection.send(&queue, Envelope::new("last")).await?;
        let reader = connection.reader(&queue).await?;
        let delivery = reader.one().await?;
        let items = [(&delivery.token, Settlement::Ack)];
        let (answers, closed) = join!(reader.source.settle(&items), connection.close());
        closed?;
        match answers.into_iter().next() {
            Some(Ok(Settled::Done | Settled::Written)) => {
                world.ledger.borrow_mut().ended(&queue, &delivery.envelope.id)
            }
            Some(Ok(other)) => return Err(Stop::failed(format_args!("an owner's ack answered {other:?}"))),
            Some(Err(_)) => {}
            None => return Err(Stop::failed("an ack had no answer")),
        }
    }
    Ok(())
}

async fn close_waits_for_a_whole_retry<S: Subject>(world: World<S>) -> Result<(), Stop> {
    for _ in 0..10 {
        let (connection, queue) = (world.connect().await?, world.queue(&format!("q{:x}", fastrand::u32(..)))?);
        connection.declare(&[&queue]).await?;
        connection.send(&queue, Envelope::new("again")).await?;
        let reader = connection.reader(&queue).await?;
        let delivery = reader.one().await?;
        let items = [(&delivery.token, again(&delivery, Duration::ZERO))];
        let (answers, closed) = join!(reader.source.settle(&items), connection.close());
        closed?;
        let counted = match answers.into_iter().next() {
            Some(Ok(Settled::Done)) => Some(1),
            Some(Ok(Settled::Written) | Err(_)) => None,
            Some(Ok(other)) => return Err(Stop::failed(format_args!("an owner's retry answered {other:?}"))),
            None => return Err(Stop::failed("a retry had no answer")),
        };
        let other = world.connect().await?;
        let reader = other.reader(&queue).await?;
        let back = reader.one().await?;
        let attempts = back.envelope.attempts();
        ensure!(counted.is_none_or(|n| n == attempts), "the retry was done, but {attempts} attempts came back");
        reader.ack(&back).await?;
    }
    Ok(())
}

async fn closing_a_source_gives_back<S: Subject>(world: World<S>) -> Result<(), Stop> {
    gives_back(world, true).await
}

async fn closing_the_broker_gives_back<S: Subject>(world: World<S>) -> Result<(), Stop> {
    gives_back(world, false).await
}

async fn gives_back<S: Subject>(world: World<S>, source: bool) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    first.send_many(&queue, 12).await?;
    let reader = first.reader(&queue).await?;
    let taken = reader.take(12).await?;
    let (acked, _held) = taken.split_at(3);
    reader.ack_all(acked).await?;
    if source {
        timeout(world.patience(), reader.source.close()).await.map_err(|_| Stop::failed("close hangs"))??;
    } else {
        first.close().await?;
    }
    let other = second.reader(&queue).await?;
    let back = other.take(9).await?;
    other.ack_all(&back).await
}
