//! Settled twice, settled late, settled without having been received: the registry answers, the broker never notices.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use postroom_actors::HandlerError;

use super::worker::{Setup, done, script};
use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Settling;
    acking_twice_is_harmless [] "acks whose answers were lost are sent again: each message is handled once and counted once";
    settling_twice_makes_one_copy [] "a retry whose answer was lost is sent again, and makes one copy";
    an_ack_after_a_retry_leaves_the_copy_alive [] "a handler that ends well after it was timed out changes nothing: its retry runs";
    a_retry_after_a_retry_makes_one_copy [] "a handler that errs after it was timed out makes no second copy";
    an_end_after_its_failure_leaves_one_record [Browse] "a handler that errs after its message was given up and acked brings nothing back, and leaves one record";
    settling_what_its_connection_lost_does_nothing [Lease] "a handler that ends after its connection was cut settles nothing; the message is handled again, once";
}

async fn acking_twice_is_harmless<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let worker = world.worker(&queue, done()).await?;
    worker.fate.lose_answers(10);
    worker.send_many(20).await?;
    worker.until_done(20).await?;
    let fate = worker.fate.clone();
    let (receipt, _) = worker.stop_clean().await?;
    ensure!(receipt.deliveries == 20, "20 deliveries: {receipt}");
    // Where the broker never answers, nothing was lost, and nothing was sent twice.
    ensure!(
        matches!(fate.settles(), 20 | 30),
        "20 acks of which 10 had no answer reached the broker {} times",
        fate.settles()
    );
    Ok(())
}

async fn settling_twice_makes_one_copy<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|received| async move {
        if received.attempt() == 1 { Err(HandlerError::retry("once more")) } else { Ok(()) }
    });
    let worker = world.worker(&queue, act).await?;
    worker.fate.lose_answers(5);
    worker.send_many(5).await?;
    worker.until_done(5).await?;
    let (receipt, runs) = worker.stop_clean().await?;
    ensure!(runs.len() == 10, "5 messages, retried once, ran {} times: {receipt}", runs.len());
    ensure!(receipt.retried == 5, "{receipt}");
    Ok(())
}

/// The first run blocks its thread past the timeout; only the pool's watcher can end it, and the handler ends later.
async fn late<S: Subject>(world: World<S>, well: bool) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let ended = Arc::new(AtomicUsize::new(0));
    let counter = ended.clone();
    let act = script(move |received| {
        let ended = counter.clone();
        async move {
            if received.attempt() > 1 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1500));
            ended.fetch_add(1, Ordering::SeqCst);
            if well { Ok(()) } else { Err(HandlerError::retry("late")) }
        }
    });
    let tune = |setup: &mut Setup| {
        setup.handler = setup.handler.clone().concurrency(1).timeout(Duration::from_millis(100));
    };
    let worker = world.worker_with(&queue, act, tune).await?;
    worker.send_many(1).await?;
    let both = |runs: &[super::worker::Run]| runs.len() == 2 && runs.iter().all(|run| run.well.is_some());
    worker.until("the late end and the second run", both).await?;
    ensure!(ended.load(Ordering::SeqCst) == 1, "the blocked run ended {} times", ended.load(Ordering::SeqCst));
    let (receipt, runs) = worker.stop().await?;
    ensure!(
        receipt.acked == 1 && receipt.retried == 1 && receipt.deliveries == 2,
        "timed out once, then done: {receipt}"
    );
    let attempts: Vec<_> = runs.iter().map(|run| run.envelope.attempt()).collect();
    ensure!(attempts == [1, 2], "the runs were attempts {attempts:?}");
    Ok(())
}

async fn an_ack_after_a_retry_leaves_the_copy_alive<S: Subject>(world: World<S>) -> Result<(), Stop> {
    late(world, true).await
}

async fn a_retry_after_a_retry_makes_one_copy<S: Subject>(world: World<S>) -> Result<(), Stop> {
    late(world, false).await
}

async fn an_end_after_its_failure_leaves_one_record<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|_| async {
        std::thread::sleep(Duration::from_millis(1500));
        Err(HandlerError::retry("late"))
    });
    let tune = |setup: &mut Setup| {
        setup.options.retry.max = 0;
        setup.handler = setup.handler.clone().concurrency(1).timeout(Duration::from_millis(100));
    };
    let worker = world.worker_with(&queue, act, tune).await?;
    worker.send_many(1).await?;
    worker.until("the late end", |runs| runs.iter().any(|run| run.well.is_some())).await?;
    let store = queue.default_failure();
    super::failing::record(&world, &worker, &store).await?;
    let (receipt, runs) = worker.stop().await?;
    ensure!(runs.len() == 1 && receipt.failed == 1 && receipt.deliveries == 1, "{} runs; {receipt}", runs.len());
    Ok(())
}

async fn settling_what_its_connection_lost_does_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|_| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(())
    });
    let worker = world.worker(&queue, act).await?;
    worker.send_many(1).await?;
    worker.until("a first run", |runs| runs.len() == 1).await?;
    worker.fate.cut();
    worker.until_done(2).await?;
    let (receipt, runs) = worker.stop().await?;
    ensure!(runs.len() == 2, "cut once, it ran {} times", runs.len());
    ensure!(receipt.acked == 1 && receipt.lost == 1, "one end was of a lost connection: {receipt}");
    Ok(())
}
