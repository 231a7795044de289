//! What an operator sees and does through a transport's handle.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use postroom_actors::{Node, TransportOptions, TransportSpec, launcher};
use postroom_core::{Envelope, Outgoing, Place};

use super::worker::{MAIN, done, script};
use crate::{
    Foreign, Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Operations;
    a_backlog_stays_on_the_broker [Count] "with 5,000 waiting a node whose handlers are stuck holds 1,024 at most";
    a_group_is_listed_and_removed [Groups] "a transport's handle lists the groups of its topic, and removes one";
    an_unreachable_broker_is_named [Unreachable] "a node that must connect and cannot says where to, and hides the password";
    a_foreign_message_is_handled [Injection] "a message without any of our metadata reaches a handler of every type, with its body";
    an_undeclared_place_is_unroutable [] "a message for a place that was never declared is unroutable, and its neighbours are sent";
}

async fn a_backlog_stays_on_the_broker<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let queue = world.queue("q")?;
    connection.declare(&[&queue]).await?;
    connection.send_many(&queue, 5_000).await?;
    let stuck = script(|received| async move {
        received.cancelled().await;
        Err(postroom_actors::HandlerError::retry("told to stop"))
    });
    let worker = world.worker(&queue, stuck).await?;
    worker.until("four runs", |runs| runs.len() == 4).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let counts = connection.counts(&queue).await?;
    ensure!(counts.in_flight.is_none_or(|n| (4..=1_024).contains(&n)), "5,000 wait, four run: {counts:?}");
    let (receipt, _) = worker.stop_clean().await?;
    ensure!(receipt.released == receipt.deliveries, "{receipt}");
    // The end of the scenario need not read all of them: what is left is removed where it can be.
    if world.powers.browse {
        let left = connection.pages(&queue, None, 1_000).await?;
        ensure!(left.len() == 5_000, "5,000 were sent, {} are left", left.len());
        connection.remove(&queue, &left).await?;
    }
    Ok(())
}

async fn a_group_is_listed_and_removed<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (one, two) = (world.group("t", "one")?, world.group("t", "two")?);
    let first = world.worker(&one, done()).await?;
    let second = world.worker(&two, done()).await?;
    first.send_many(3).await?;
    first.until_done(3).await?;
    second.until_done(3).await?;
    let (topic, handle) = (one.name().clone(), first.handle()?);
    let names = |groups: Option<Vec<_>>| -> BTreeSet<String> {
        groups.unwrap_or_default().into_iter().map(|(name, _): (postroom_core::Name, _)| name.to_string()).collect()
    };
    let listed = names(handle.groups(&topic).await?);
    ensure!(listed == BTreeSet::from(["one".to_owned(), "two".to_owned()]), "listed are {listed:?}");
    second.stop_clean().await?;
    let Some(group) = two.group_name() else { return Err(Stop::failed("not a group")) };
    for was_there in [true, false] {
        let answer = handle.remove_group(&topic, group).await?;
        ensure!(answer == Some(was_there), "removing the group answers {answer:?}, not {was_there}");
    }
    world.ledger.borrow_mut().removed_group(&two);
    let listed = names(handle.groups(&topic).await?);
    ensure!(listed == BTreeSet::from(["one".to_owned()]), "after the removal are listed {listed:?}");
    first.stop_clean().await.map(|_| ())
}

async fn an_unreachable_broker_is_named<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let Some(nowhere) = world.subject.unreachable() else { return Ok(()) };
    let options = TransportOptions::new(MAIN, world.queue("q")?);
    let spec = TransportSpec::new(options, launcher::<S::Broker>(nowhere.config));
    let starting = Node::builder().fail_fast(true).transport(spec).start();
    let started = tokio::time::timeout(world.subject.limit() / 2, starting).await;
    let error = match started.map_err(|_| Stop::failed("a start without a broker hangs"))? {
        Ok(_) => return Err(Stop::failed("a node without its broker started")),
        Err(error) => error,
    };
    let shown = format!("{error}\n{error:?}");
    if let Some(secret) = nowhere.secret {
        ensure!(!shown.contains(secret), "the error shows the secret: {}", shown.replace(secret, "<secret>"));
    }
    ensure!(shown.contains(nowhere.named), "the error does not name {}: {shown}", nowhere.named);
    Ok(())
}

async fn a_foreign_message_is_handled<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let worker = world.worker(&queue, done()).await?;
    let headers = vec![("x-tenant".into(), Bytes::from_static(b"north"))];
    let message = Foreign { body: Bytes::from_static(&[b'{', 0xff, 0]), headers };
    world.subject.inject(&queue, message).await.map_err(Stop::failed)?;
    worker.until_done(1).await?;
    for run in worker.runs() {
        // Its id is the broker's, so the ledger learns of it here.
        world.ledger.borrow_mut().sent(&queue, &run.envelope.id);
        ensure!(run.envelope.body == [b'{', 0xff, 0][..], "its body became {:?}", run.envelope.body);
        ensure!(run.envelope.stamps.get_str("x-tenant") == Some("north"), "its headers are {:?}", run.envelope.stamps);
    }
    worker.stop_clean().await.map(|_| ())
}

async fn an_undeclared_place_is_unroutable<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let worker = world.worker(&queue, done()).await?;
    let nowhere: Place = world.queue("nowhere")?;
    let good = Envelope::new("good");
    let batch = vec![Outgoing::new(nowhere, Envelope::new("bad")), Outgoing::new(queue.clone(), good.clone())];
    let answers = worker.handle()?.publish(batch).await;
    let [bad, sent] = answers.as_slice() else { return Err(Stop::failed("two answers were to come")) };
    let kind = bad.as_ref().map_err(postroom_core::TransportError::kind);
    ensure!(kind == Err(postroom_core::ErrorKind::Unroutable), "a message for nowhere answers {kind:?}");
    ensure!(sent.is_ok(), "its neighbour answers {sent:?}");
    world.ledger.borrow_mut().sent(&queue, &good.id);
    worker.until_done(1).await?;
    worker.stop_clean().await.map(|_| ())
}
