//! The seventeen through real handlers: sent, handled, erred, delayed, browsed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use postroom_actors::HandlerError;
use postroom_core::{
    AttemptKind, Envelope, MessageId, State,
    protocol::{Prefetch, replace},
};

use super::worker::{MAIN, Setup, done, script};
use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Settling;
    sent_arrives_marked [] "a sent message reaches its handler with its id and the name of its transport, as attempt 1";
    acked_never_comes_again [] "what a handler was done with never comes again, nor to the next node";
    erred_comes_back_counted [] "a message whose handler errs comes back counted 1, then 2, with the errors in its history";
    bodies_survive [] "1 MiB, emoji, quotes, CJK, escapes, NUL and 0xFF reach the handler as they were sent, also after a retry";
    two_nodes_share [] "two nodes share 200 messages, each handled once";
    a_delay_is_honoured [Delay] "a delayed message is handled, and never before its time";
    an_asked_delay_is_honoured [Delay] "a handler's own delay is honoured in place of the policy's";
    removing_a_browsed_one_removes_it [Browse] "a message removed while it waits reaches no handler";
    replay_leaves_no_stale_original [Browse] "a replay of a failed record runs again, and leaves no record";
    a_panic_is_an_errored_attempt [] "a panic counts as one errored attempt, and the pool works on (C39)";
    a_timeout_is_an_errored_attempt [] "a handler past its timeout counts as one errored attempt";
}

async fn sent_arrives_marked<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let worker = world.worker(&queue, done()).await?;
    let mut envelope = Envelope::new("hello");
    envelope.key = Some("key".into());
    envelope.stamps.push("tenant", "north");
    worker.send(vec![envelope.clone()]).await?;
    worker.until_done(1).await?;
    let (_, runs) = worker.stop_clean().await?;
    for run in runs {
        ensure!(run.transport == MAIN, "it came from the transport {:?}", run.transport);
        let found = &run.envelope;
        ensure!(found.id == envelope.id && found.body == envelope.body, "sent {envelope:?}, got {found:?}");
        ensure!(found.key == envelope.key && found.stamps == envelope.stamps, "sent {envelope:?}, got {found:?}");
        ensure!(found.attempt() == 1, "its first run is attempt {}", found.attempt());
        ensure!(found.time.is_some() && found.source.is_some(), "the node set neither time nor source: {found:?}");
    }
    Ok(())
}

async fn acked_never_comes_again<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let worker = world.worker(&queue, done()).await?;
    worker.send_many(50).await?;
    worker.until_done(50).await?;
    worker.stop_clean().await?;
    let next = world.worker(&queue, done()).await?;
    next.send_many(1).await?;
    next.until_done(1).await?;
    let (_, runs) = next.stop_clean().await?;
    ensure!(runs.len() == 1, "{} messages came to the next node, one was sent", runs.len());
    Ok(())
}

async fn erred_comes_back_counted<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|received| async move {
        match received.attempt() {
            3 => Ok(()),
            n => Err(HandlerError::retry(format!("error {n} \0 漢字"))),
        }
    });
    let worker = world.worker(&queue, act).await?;
    worker.send_many(1).await?;
    worker.until_done(1).await?;
    let (receipt, runs) = worker.stop_clean().await?;
    let attempts: Vec<_> = runs.iter().map(|run| run.envelope.attempts()).collect();
    ensure!(attempts == [0, 1, 2], "the runs counted {attempts:?} earlier errors");
    ensure!(receipt.retried == 2, "two retries: {receipt}");
    let Some(last) = runs.last() else { return Err(Stop::failed("no run")) };
    let history = last.envelope.track.as_ref().map(|track| track.history.clone()).unwrap_or_default();
    let kinds: Vec<_> = history.iter().map(|attempt| attempt.kind).collect();
    ensure!(kinds == [AttemptKind::Error, AttemptKind::Error], "its history is {history:?}");
    ensure!(history.iter().all(|attempt| attempt.error.starts_with("error ")), "its history is {history:?}");
    Ok(())
}

async fn bodies_survive<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|received| async move {
        if received.attempt() == 1 { Err(HandlerError::retry("once more")) } else { Ok(()) }
    });
    let worker = world.worker(&queue, act).await?;
    let room = world.powers.capabilities.max_body.unwrap_or(usize::MAX);
    let mut random = fastrand::Rng::with_seed(11);
    let large: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(room.min(1 << 20)).collect();
    let text = "🦀 \"quotes\" ' \\ 漢字 \\n \n \u{1b}[31m";
    let bodies = [large, text.into(), vec![0], vec![0xff, 0, 0xc3, 0x28], Vec::new(), (0..=u8::MAX).collect()];
    let sent: BTreeMap<MessageId, Vec<u8>> = bodies.map(|body| (MessageId::unique(), body)).into();
    worker.send(sent.iter().map(|(id, body)| Envelope::with_id(id.clone(), body.clone())).collect()).await?;
    worker.until_done(sent.len()).await?;
    let (_, runs) = worker.stop_clean().await?;
    for run in &runs {
        let body = sent.get(&run.envelope.id);
        ensure!(
            body.is_some_and(|body| run.envelope.body == *body),
            "a body changed in attempt {}",
            run.envelope.attempt()
        );
    }
    ensure!(runs.len() == 2 * sent.len(), "{} runs of {} messages, each retried once", runs.len(), sent.len());
    Ok(())
}

async fn two_nodes_share<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|_| async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(())
    });
    let (one, two) = (world.worker(&queue, act.clone()).await?, world.worker(&queue, act).await?);
    one.send_many(200).await?;
    let started = Instant::now();
    while one.runs().len() + two.runs().len() < 200 {
        let (left, right) = (one.runs().len(), two.runs().len());
        ensure!(started.elapsed() < world.patience(), "{left} and {right} of 200 were handled");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (left, right) = (one.stop_clean().await?.1, two.stop_clean().await?.1);
    let ids: BTreeSet<_> = left.iter().chain(&right).map(|run| run.envelope.id.clone()).collect();
    let runs = left.len() + right.len();
    ensure!(ids.len() == 200 && runs == 200, "{} distinct messages in {runs} runs", ids.len());
    Ok(())
}

async fn a_delay_is_honoured<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let worker = world.worker(&queue, done()).await?;
    let (sent, delay) = (Instant::now(), Duration::from_millis(700));
    worker.send_after(vec![Envelope::new("later")], delay).await?;
    worker.until_done(1).await?;
    let (_, runs) = worker.stop_clean().await?;
    let took = runs.first().map(|run| run.started - sent).unwrap_or_default();
    ensure!(took + Duration::from_millis(2) >= delay, "due after {delay:?}, it was handled after {took:?}");
    Ok(())
}

async fn an_asked_delay_is_honoured<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let delay = Duration::from_millis(600);
    let act = script(move |received| async move {
        if received.attempt() == 1 { Err(HandlerError::retry("not yet").after(delay)) } else { Ok(()) }
    });
    let worker = world.worker(&queue, act).await?;
    worker.send_many(1).await?;
    worker.until_done(1).await?;
    let (_, runs) = worker.stop_clean().await?;
    let [first, second] = runs.as_slice() else { return Err(Stop::failed(format_args!("{} runs", runs.len()))) };
    let took = second.started - first.started;
    ensure!(took + Duration::from_millis(2) >= delay, "asked for {delay:?}, it came back after {took:?}");
    Ok(())
}

async fn removing_a_browsed_one_removes_it<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let (free, gate) = tokio::sync::watch::channel(false);
    let act = script(move |_| {
        let mut gate = gate.clone();
        async move {
            let _ = gate.wait_for(|free| *free).await;
            Ok(())
        }
    });
    let tune = |setup: &mut Setup| setup.options.prefetch = Prefetch::Fixed(1);
    let worker = world.worker_with(&queue, act, tune).await?;
    worker.send_many(4).await?;
    worker.until("a run", |runs| runs.len() == 1).await?;
    let handle = worker.handle()?;
    let page = handle.page(&queue, Some(State::Waiting), None, 10).await?;
    let items = page.map(|page| page.items).unwrap_or_default();
    ensure!(items.len() == 3, "one of four is held, waiting are {items:?}");
    let Some(gone) = items.last() else { return Err(Stop::failed("nothing waits")) };
    let removed = handle.remove(&queue, vec![gone.handle.clone()]).await?;
    ensure!(removed.as_deref() == Some(&[true]), "removing answered {removed:?}");
    world.ledger.borrow_mut().ended(&queue, &gone.envelope.id);
    free.send_replace(true);
    worker.until_done(3).await?;
    let (_, runs) = worker.stop_clean().await?;
    ensure!(runs.iter().all(|run| run.envelope.id != gone.envelope.id), "a removed message was handled");
    Ok(())
}

async fn replay_leaves_no_stale_original<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|received| async move {
        let round = received.envelope().track.as_ref().map_or(0, |track| track.round);
        if round == 0 { Err(HandlerError::fail("the rule is wrong")) } else { Ok(()) }
    });
    let worker = world.worker(&queue, act).await?;
    worker.send_many(1).await?;
    let (handle, store) = (worker.handle()?, queue.default_failure());
    let record = super::failing::record(&world, &worker, &store).await?;
    let replayed = replace::replayed(&record.envelope);
    for answer in handle.publish(vec![postroom_core::Outgoing::new(queue.clone(), replayed)]).await {
        answer?;
    }
    let removed = handle.remove(&store, vec![record.handle.clone()]).await?;
    ensure!(removed.as_deref() == Some(&[true]), "removing the record answered {removed:?}");
    worker.until_done(1).await?;
    let left = handle.find(&store, &record.envelope.id).await?.unwrap_or_default();
    ensure!(left.is_empty(), "a stale record stays: {left:?}");
    let (_, runs) = worker.stop_clean().await?;
    let attempts: Vec<_> = runs.iter().map(|run| run.envelope.attempt()).collect();
    ensure!(attempts == [1, 1], "a replay has a fresh budget; the runs were attempts {attempts:?}");
    Ok(())
}

async fn a_panic_is_an_errored_attempt<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|received| async move {
        // Into the backtrace of the test only: the pool catches it.
        assert!(received.attempt() != 1 || !received.envelope().body.starts_with(b"message 0"), "a bug in a handler");
        Ok(())
    });
    let worker = world.worker(&queue, act).await?;
    worker.send_many(12).await?;
    worker.until_done(12).await?;
    let (_, runs) = worker.stop_clean().await?;
    let again: Vec<_> = runs.iter().filter(|run| run.envelope.attempts() == 1).collect();
    ensure!(again.len() == 1, "one panicked, {} came back counted", again.len());
    let kinds: Vec<_> = again
        .iter()
        .filter_map(|run| run.envelope.track.as_ref())
        .flat_map(|track| track.history.iter().map(|attempt| (attempt.kind, attempt.error.to_string())))
        .collect();
    let told = kinds.iter().all(|(kind, text)| *kind == AttemptKind::Panicked && text.contains("a bug in a handler"));
    ensure!(told && kinds.len() == 1, "its history is {kinds:?}");
    Ok(())
}

async fn a_timeout_is_an_errored_attempt<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|received| async move {
        if received.attempt() == 1 {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        Ok(())
    });
    let short = Duration::from_millis(150);
    let worker = world.worker_with(&queue, act, |setup| setup.handler = setup.handler.clone().timeout(short)).await?;
    worker.send_many(1).await?;
    worker.until_done(1).await?;
    let (_, runs) = worker.stop_clean().await?;
    let last = runs.last().and_then(|run| run.envelope.track.clone()).unwrap_or_default();
    let kinds: Vec<_> = last.history.iter().map(|attempt| attempt.kind).collect();
    ensure!(kinds == [AttemptKind::Timeout], "its history is {:?}", last.history);
    Ok(())
}
