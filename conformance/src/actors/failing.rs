//! Given up and kept: every failed message lies in the failure store, with its reason, as it came.

use std::time::{Duration, Instant};

use postroom_actors::{HandlerError, HandlerOptions, Node, TransportOptions, TransportSpec, launcher};
use postroom_core::{Browsed, Envelope, Message, Place, Reason, TypeName};

use super::worker::{MAIN, Worker, done, script};
use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Operations;
    a_final_error_fails_at_once [Browse] "a final error fails after one run, with its reason, its text and where it belongs";
    a_spent_budget_fails [Browse] "with 2 retries a message that always errs runs 3 times, and fails as attempts (C38)";
    undecodable_ones_are_kept_as_they_came [Browse] "bodies that are not their type fail once, byte for byte, and block nobody (C37)";
    an_unhandled_type_fails_in_a_queue [Browse] "a type that no handler takes fails in a queue";
    two_groups_leave_two_records [Browse, Topics] "two groups that fail the same message leave two records";
    the_original_stays_while_the_store_is_down [Browse] "while the failure store cannot take it the original stays unsettled; then it is kept, once (C36)";
    done_marks_travel [] "of three named handlers the second errs once: they run 1, 2 and 1 times (C35)";
    figures_tell_the_truth [Count] "waiting and in flight are counted while a node works (C34)";
}

/// The one record of a store, waited for.
pub(super) async fn record<S: Subject>(world: &World<S>, worker: &Worker<S>, store: &Place) -> Result<Browsed, Stop> {
    let mut found = records(world, worker, store, 1).await?;
    found.pop().ok_or_else(|| Stop::failed("no record"))
}

async fn records<S: Subject>(
    world: &World<S>,
    worker: &Worker<S>,
    store: &Place,
    n: usize,
) -> Result<Vec<Browsed>, Stop> {
    let handle = worker.handle()?;
    let started = Instant::now();
    loop {
        let found = handle.page(store, None, None, 100).await?.map(|page| page.items).unwrap_or_default();
        if found.len() >= n {
            ensure!(found.len() == n, "{n} records were to come, there are {found:?}");
            return Ok(found);
        }
        ensure!(started.elapsed() < world.patience(), "{} of {n} records came to {store}", found.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn told(record: &Browsed, place: &Place, reason: Reason) -> Result<(), Stop> {
    let track = record.envelope.track.clone().unwrap_or_default();
    let found = track.failure.as_ref().map(|failure| failure.reason);
    ensure!(found == Some(reason), "it failed as {found:?}, not {reason:?}");
    let origin = track.origin.as_ref().map(|origin| (origin.transport.to_string(), origin.place.clone()));
    ensure!(origin == Some((MAIN.to_owned(), place.clone())), "it belongs to {origin:?}");
    Ok(())
}

async fn a_final_error_fails_at_once<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|_| async { Err(HandlerError::fail("no such region \0 漢字")) });
    let worker = world.worker(&queue, act).await?;
    let mut envelope = Envelope::new(vec![0xff, 0, 1]);
    envelope.stamps.push("tenant", vec![0xff, 0]);
    worker.send(vec![envelope.clone()]).await?;
    let record = record(&world, &worker, &queue.default_failure()).await?;
    let (receipt, runs) = worker.stop_clean().await?;
    told(&record, &queue, Reason::Final)?;
    let text =
        record.envelope.track.as_ref().and_then(|track| track.failure.as_ref()).map(|failure| failure.error.clone());
    ensure!(text.as_deref().is_some_and(|text| text.contains("no such region")), "its error is {text:?}");
    let kept = record.envelope.body == envelope.body && record.envelope.stamps == envelope.stamps;
    ensure!(kept && record.envelope.id == envelope.id, "kept is {:?}", record.envelope);
    ensure!(runs.len() == 1 && receipt.failed == 1, "{} runs; {receipt}", runs.len());
    Ok(())
}

async fn a_spent_budget_fails<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|_| async { Err(HandlerError::retry("always")) });
    let worker = world.worker_with(&queue, act, |setup| setup.options.retry.max = 2).await?;
    worker.send_many(1).await?;
    let record = record(&world, &worker, &queue.default_failure()).await?;
    let (receipt, runs) = worker.stop_clean().await?;
    told(&record, &queue, Reason::Attempts)?;
    ensure!(record.envelope.attempts() == 3, "it counts {} errored attempts, not 3", record.envelope.attempts());
    ensure!(runs.len() == 3 && receipt.retried == 2 && receipt.failed == 1, "{} runs; {receipt}", runs.len());
    Ok(())
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Parcel {
    weight: u32,
}

impl Message for Parcel {
    const TYPE: &'static str = "conformance.parcel";
    type Reply = ();
}

fn parcel(body: impl Into<bytes::Bytes>) -> Result<Envelope, Stop> {
    let mut envelope = Envelope::new(body);
    envelope.message_type = Some(TypeName::new(Parcel::TYPE)?);
    envelope.content_type = Some("application/json".into());
    Ok(envelope)
}

async fn undecodable_ones_are_kept_as_they_came<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let queue = world.queue("q")?;
    connection.declare(&[&queue]).await?;
    let bodies: [&[u8]; 5] = [b"", b"{\"weight\": ", b"{\"mass\": 1}", &[0xff, 0, 0xfe], b"\"text\""];
    let mut bad = Vec::new();
    for body in bodies {
        bad.push(connection.send(&queue, parcel(body)?).await?);
    }
    for i in 0..10 {
        let good = connection.send(&queue, parcel(format!("{{\"weight\": {i}}}"))?).await?;
        // Its handler is typed, and tells the ledger nothing.
        world.ledger.borrow_mut().handled(&queue, &good.id);
    }
    let mut options = TransportOptions::new(MAIN, queue.clone());
    options.lease = super::worker::lease(&world);
    let spec = TransportSpec::new(options, launcher::<S::Broker>(world.subject.config()));
    let (sum, mut weights) = tokio::sync::mpsc::unbounded_channel();
    let handler = HandlerOptions::of::<Parcel>(MAIN)?;
    let weigh = move |received: postroom_actors::Received<Parcel>| {
        let _ = sum.send(received.weight);
        async { Ok::<(), HandlerError>(()) }
    };
    let node = Node::builder().transport(spec).handle(handler, weigh).start().await?;
    world.ledger.borrow_mut().worked(&queue);
    let mut total = 0;
    for _ in 0..10 {
        let next = tokio::time::timeout(world.patience(), weights.recv()).await;
        total += next.map_err(|_| Stop::failed("the good ones behind were not handled"))?.unwrap_or_default();
    }
    ensure!(total == 45, "the ten weigh 45, handled were {total}");
    let store = queue.default_failure();
    let started = Instant::now();
    let found = loop {
        let found = connection.pages(&store, None, 100).await?;
        if found.len() >= bad.len() {
            break found;
        }
        ensure!(started.elapsed() < world.patience(), "{} of {} were kept", found.len(), bad.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let receipt = node.stop().await;
    ensure!(receipt.failed == 5 && receipt.acked == 10 && receipt.deliveries == 15, "5 bad, 10 good: {receipt}");
    for sent in &bad {
        let record = found.iter().find(|record| record.envelope.id == sent.id);
        let record = record.ok_or_else(|| Stop::failed(format_args!("{:?} was not kept", sent.body)))?;
        ensure!(record.envelope.body == sent.body, "{:?} was kept as {:?}", sent.body, record.envelope.body);
        ensure!(record.envelope.content_type == sent.content_type, "kept as {:?}", record.envelope.content_type);
        let failure = record.envelope.track.as_ref().and_then(|track| track.failure.as_ref());
        ensure!(failure.is_some_and(|f| f.reason == Reason::Undecodable), "it failed as {failure:?}");
    }
    Ok(())
}

async fn an_unhandled_type_fails_in_a_queue<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let typed = postroom_actors::TypePattern::new("wanted")?;
    let worker = world.worker_with(&queue, done(), |setup| setup.handler.pattern = typed).await?;
    worker.send(vec![parcel("{}")?]).await?;
    let record = record(&world, &worker, &queue.default_failure()).await?;
    let (_, runs) = worker.stop_clean().await?;
    let failure = record.envelope.track.as_ref().and_then(|track| track.failure.as_ref());
    ensure!(failure.is_some_and(|f| f.reason == Reason::Unhandled), "it failed as {failure:?}");
    ensure!(runs.is_empty(), "it ran {} times", runs.len());
    Ok(())
}

async fn two_groups_leave_two_records<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let act = script(|_| async { Err(HandlerError::fail("refused")) });
    let one = world.worker(&world.group("t", "one")?, act.clone()).await?;
    let two = world.worker(&world.group("t", "two")?, act).await?;
    one.send_many(1).await?;
    let store = world.group("t", "one")?.default_failure();
    let found = records(&world, &one, &store, 2).await?;
    one.stop_clean().await?;
    two.stop_clean().await?;
    let mut origins: Vec<_> = found
        .iter()
        .filter_map(|record| record.envelope.track.as_ref()?.origin.as_ref())
        .map(|origin| origin.place.to_string())
        .collect();
    origins.sort();
    origins.dedup();
    ensure!(origins.len() == 2, "the records belong to {origins:?}");
    Ok(())
}

async fn the_original_stays_while_the_store_is_down<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let act = script(|_| async { Err(HandlerError::fail("refused")) });
    let worker = world.worker(&queue, act).await?;
    worker.fate.stores_down(true);
    worker.send_many(3).await?;
    worker.until("three runs", |runs| runs.len() == 3).await?;
    tokio::time::sleep(super::worker::lease(&world) * 2).await;
    ensure!(worker.fate.settles() == 0, "{} originals were settled with no record kept", worker.fate.settles());
    worker.fate.stores_down(false);
    records(&world, &worker, &queue.default_failure(), 3).await?;
    let (receipt, runs) = worker.stop_clean().await?;
    ensure!(runs.len() == 3 && receipt.failed == 3, "{} runs; {receipt}", runs.len());
    Ok(())
}

async fn done_marks_travel<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let queue = world.queue("q")?;
    connection.declare(&[&queue]).await?;
    let sent = connection.send(&queue, Envelope::new("for three")).await?;
    let mut options = TransportOptions::new(MAIN, queue.clone());
    options.lease = super::worker::lease(&world);
    options.retry.delay = Duration::ZERO;
    let spec = TransportSpec::new(options, launcher::<S::Broker>(world.subject.config()));
    let (ran, mut runs) = tokio::sync::mpsc::unbounded_channel();
    let mut builder = Node::builder().transport(spec);
    for name in ["first", "second", "third"] {
        let ran = ran.clone();
        let make = move || {
            let ran = ran.clone();
            move |received: postroom_actors::Received<postroom_core::Raw>| {
                let _ = ran.send(name);
                let errs = name == "second" && received.attempt() == 1;
                async move { if errs { Err(HandlerError::retry("once")) } else { Ok(()) } }
            }
        };
        let handler = HandlerOptions::new(MAIN, "*")?.name(name);
        builder = builder.handle_with::<postroom_core::Raw, _, _, _, _>(handler, make);
    }
    let node = builder.start().await?;
    world.ledger.borrow_mut().worked(&queue);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let next = tokio::time::timeout(world.patience(), runs.recv()).await;
        seen.push(next.map_err(|_| Stop::failed(format_args!("only {seen:?} ran")))?.unwrap_or_default());
    }
    let receipt = node.stop().await;
    drop(ran);
    while let Ok(more) = runs.try_recv() {
        seen.push(more);
    }
    ensure!(seen == ["first", "second", "third", "second"], "they ran as {seen:?}");
    ensure!(receipt.retried == 1 && receipt.acked == 1, "{receipt}");
    world.ledger.borrow_mut().handled(&queue, &sent.id);
    Ok(())
}

async fn figures_tell_the_truth<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let (free, gate) = tokio::sync::watch::channel(false);
    let act = script(move |_| {
        let mut gate = gate.clone();
        async move {
            let _ = gate.wait_for(|free| *free).await;
            Ok(())
        }
    });
    let tune = |setup: &mut super::worker::Setup| {
        setup.handler = setup.handler.clone().concurrency(2);
        setup.options.prefetch = postroom_core::protocol::Prefetch::Fixed(5);
    };
    let worker = world.worker_with(&queue, act, tune).await?;
    worker.send_many(12).await?;
    worker.until("two runs", |runs| runs.len() == 2).await?;
    let handle = worker.handle()?;
    let started = Instant::now();
    loop {
        let counts = handle.count(&queue).await?.unwrap_or_default();
        let right = counts.in_flight.is_none_or(|n| n == 5) && counts.waiting.is_none_or(|n| n == 7);
        if right {
            break;
        }
        ensure!(started.elapsed() < world.patience(), "5 of 12 are held, counted are {counts:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    free.send_replace(true);
    worker.until_done(12).await?;
    worker.stop_clean().await.map(|_| ())
}
