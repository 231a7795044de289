//! A lease is renewed while a handler runs, and its end is heard.

use std::time::{Duration, Instant};

use super::worker::{Setup, done, lease, script};
use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Leases;
    a_long_handler_runs_once [Lease] "a handler that takes seven leases runs once, beside an idle node that would take it";
    a_blocking_handler_runs_once [Lease] "a handler that blocks its thread for three leases runs once: the renewal is not on its thread (C10)";
    leases_are_renewed_during_a_stop [Lease] "a handler that runs three leases into a stop is done once";
    a_dead_process_loses_nothing [Lease] "what a dead process held is handled by another, and by it alone";
    a_cut_connection_is_made_again [] "a cut connection is made again within 5 s, and all is handled";
}

async fn alone<S: Subject>(world: World<S>, leases: u32, block: bool) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let span = lease(&world) * leases;
    let act = script(move |_| async move {
        if block {
            std::thread::sleep(span);
        } else {
            tokio::time::sleep(span).await;
        }
        Ok(())
    });
    let worker = world.worker(&queue, act).await?;
    worker.send_many(1).await?;
    worker.until("a run", |runs| runs.len() == 1).await?;
    let idle = world.worker(&queue, done()).await?;
    let started = Instant::now();
    while worker.runs().iter().all(|run| run.well.is_none()) {
        ensure!(started.elapsed() < span + world.patience(), "the handler did not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker.stop_clean().await?;
    let (_, runs) = idle.stop_clean().await?;
    ensure!(runs.is_empty(), "the idle node ran it too");
    Ok(())
}

async fn a_long_handler_runs_once<S: Subject>(world: World<S>) -> Result<(), Stop> {
    alone(world, 7, false).await
}

async fn a_blocking_handler_runs_once<S: Subject>(world: World<S>) -> Result<(), Stop> {
    alone(world, 3, true).await
}

async fn leases_are_renewed_during_a_stop<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let span = lease(&world) * 3;
    let act = script(move |_| async move {
        tokio::time::sleep(span).await;
        Ok(())
    });
    let worker = world.worker_with(&queue, act, |setup: &mut Setup| setup.grace = span * 3).await?;
    worker.send_many(2).await?;
    worker.until("two runs", |runs| runs.len() == 2).await?;
    let idle = world.worker(&queue, done()).await?;
    let (receipt, _) = worker.stop_clean().await?;
    ensure!(receipt.acked == 2, "{receipt}");
    let (_, runs) = idle.stop_clean().await?;
    ensure!(runs.is_empty(), "the idle node ran {} of 2 that were done", runs.len());
    Ok(())
}

async fn a_dead_process_loses_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|_| async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok(())
    });
    let dying = world.worker(&queue, act).await?;
    dying.send_many(10).await?;
    dying.until("four runs", |runs| runs.len() == 4).await?;
    dying.kill().await;
    let next = world.worker(&queue, done()).await?;
    next.until_done(10).await?;
    let (_, runs) = next.stop_clean().await?;
    ensure!(runs.iter().all(|run| run.envelope.attempts() == 0), "a death counted as an errored attempt");
    Ok(())
}

async fn a_cut_connection_is_made_again<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let worker = world.worker(&queue, done()).await?;
    worker.send_many(5).await?;
    worker.until_done(5).await?;
    // What was done before the cut is settled before it: the cut must lose nothing that was idle.
    let settled = Instant::now();
    while worker.fate.settles() < 5 {
        ensure!(settled.elapsed() < world.patience(), "{} of 5 acks came", worker.fate.settles());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    worker.fate.cut();
    let cut = Instant::now();
    worker.send_many(5).await?;
    worker.until_done(10).await?;
    ensure!(cut.elapsed() < Duration::from_secs(5), "used again after {:?}", cut.elapsed());
    let (receipt, _) = worker.stop().await?;
    ensure!(receipt.acked == 10, "{receipt}");
    Ok(())
}
