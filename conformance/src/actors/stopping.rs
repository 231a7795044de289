//! Stopping is provable: what ran is settled, what did not start goes back, and the receipt adds up.

use std::time::{Duration, Instant};

use postroom_actors::HandlerError;
use postroom_core::{Envelope, ErrorKind, Outgoing, protocol::Prefetch};

use super::worker::{Setup, done, script};
use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Settling;
    stop_ends_the_waiting_pull [] "the stop of an idle node ends its waiting pull at once";
    stop_waits_for_a_running_handler [] "a handler that runs when the stop comes finishes, and its ack counts";
    stop_waits_for_a_whole_retry [] "errors that end as the stop comes are retried whole or given back: one message each";
    an_error_while_stopping_counts_nothing [] "a handler that errs because it was told to stop gives its message back uncounted (C43)";
    what_has_not_started_goes_back_at_once [] "what was only prefetched is handled by the next node at once (C42)";
    past_the_grace_it_is_given_back [] "a handler that ignores the stop is named by the receipt, and its message is handled by the next node (C44)";
    use_after_stop_is_an_error [] "a stopped node answers stopped";
}

async fn stop_ends_the_waiting_pull<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let worker = world.worker(&queue, done()).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let started = Instant::now();
    let (receipt, _) = worker.stop_clean().await?;
    let took = started.elapsed();
    ensure!(took < Duration::from_secs(3), "the stop of an idle node took {took:?}");
    ensure!(receipt.deliveries == 0, "an idle node had deliveries: {receipt}");
    Ok(())
}

async fn stop_waits_for_a_running_handler<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|_| async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        Ok(())
    });
    let worker = world.worker(&queue, act).await?;
    worker.send_many(4).await?;
    worker.until("four runs", |runs| runs.len() == 4).await?;
    let (receipt, runs) = worker.stop_clean().await?;
    ensure!(receipt.acked == 4 && runs.len() == 4, "four ran when the stop came: {receipt}");
    Ok(())
}

async fn stop_waits_for_a_whole_retry<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|received| async move {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(1..8))).await;
        if received.attempt() == 1 { Err(HandlerError::retry("once more")) } else { Ok(()) }
    });
    let worker = world.worker(&queue, act).await?;
    worker.send_many(200).await?;
    worker.until("some runs", |runs| runs.len() > 20).await?;
    // The end of the scenario proves that each of the others is there once.
    worker.stop_clean().await.map(|_| ())
}

async fn an_error_while_stopping_counts_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|received| async move {
        received.cancelled().await;
        Err(HandlerError::retry("told to stop"))
    });
    let tune = |setup: &mut Setup| setup.options.retry.max = 0;
    let worker = world.worker_with(&queue, act, tune).await?;
    worker.send_many(3).await?;
    worker.until("three runs", |runs| runs.len() == 3).await?;
    let (receipt, _) = worker.stop_clean().await?;
    // One that was given back may meet the node's own last pull, and goes back once more.
    let all_back = receipt.released >= 3 && receipt.released == receipt.deliveries;
    ensure!(all_back, "three were told to stop: {receipt}");
    let next = world.worker(&queue, done()).await?;
    next.until_done(3).await?;
    let (_, runs) = next.stop_clean().await?;
    let counted = runs.iter().find(|run| run.envelope.attempts() != 0);
    ensure!(counted.is_none(), "an error of a stop was counted: {counted:?}");
    Ok(())
}

async fn what_has_not_started_goes_back_at_once<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|_| async {
        tokio::time::sleep(Duration::from_millis(3000)).await;
        Ok(())
    });
    let tune = |setup: &mut Setup| {
        setup.handler = setup.handler.clone().concurrency(2);
        setup.options.prefetch = Prefetch::Fixed(10);
        // Only giving back, and no lease that ends, brings them to the other in time.
        setup.options.lease = Duration::from_secs(60);
    };
    let worker = world.worker_with(&queue, act, tune).await?;
    worker.send_many(10).await?;
    worker.until("two runs", |runs| runs.len() == 2).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let next = world.worker(&queue, done()).await?;
    let told = Instant::now();
    let (stopped, handled) = tokio::join!(worker.stop_clean(), next.until_done(8));
    handled?;
    let (receipt, _) = stopped?;
    ensure!(receipt.acked == 2 && receipt.released <= 8, "two ran, eight waited: {receipt}");
    let (_, runs) = next.stop_clean().await?;
    let slowest = runs.iter().map(|run| run.started.saturating_duration_since(told)).max().unwrap_or_default();
    ensure!(slowest < Duration::from_millis(2000), "the last was given back after {slowest:?}, with the handlers' end");
    Ok(())
}

async fn past_the_grace_it_is_given_back<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|_| async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok(())
    });
    let tune = |setup: &mut Setup| setup.grace = Duration::from_millis(300);
    let worker = world.worker_with(&queue, act, tune).await?;
    worker.send_many(1).await?;
    worker.until("a run", |runs| runs.len() == 1).await?;
    let started = Instant::now();
    let (receipt, runs) = worker.stop().await?;
    let took = started.elapsed();
    ensure!(took < Duration::from_secs(3), "a grace of 300 ms took {took:?}");
    let named = runs.first().is_some_and(|run| receipt.abandoned == [run.envelope.id.clone()]);
    ensure!(named && !receipt.is_clean(), "the unfinished one is not named: {receipt:?}");
    let next = world.worker(&queue, done()).await?;
    next.until_done(1).await?;
    let (_, runs) = next.stop_clean().await?;
    ensure!(runs.len() == 1 && runs.iter().all(|run| run.envelope.attempts() == 0), "it came as {runs:?}");
    Ok(())
}

async fn use_after_stop_is_an_error<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let worker = world.worker(&queue, done()).await?;
    let (node, handle) = (worker.node.clone(), worker.handle()?);
    worker.stop_clean().await?;
    for answer in handle.publish(vec![Outgoing::new(queue.clone(), Envelope::new("late"))]).await {
        let kind = answer.map_err(|error| error.kind());
        ensure!(kind == Err(ErrorKind::Stopped), "publish after stop answers {kind:?}");
    }
    let kind = handle.count(&queue).await.map_err(|error| error.kind());
    ensure!(kind == Err(ErrorKind::Stopped), "count after stop answers {kind:?}");
    let again = tokio::time::timeout(Duration::from_secs(3), node.stop()).await;
    ensure!(again.is_ok(), "a second stop hangs");
    Ok(())
}
