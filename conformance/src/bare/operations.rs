//! What a caller does wrong, or what is not there, is an answer.

use std::{future::Future, time::Duration};

use postroom_core::{
    Broker, Browse, Count, Declaration, DeclareMode, Envelope, ErrorKind, Groups, Outgoing, Place, Source,
    Subscription, TransportError,
};
use tokio::time::timeout;

use crate::{
    Subject,
    scenario::scenarios,
    support::{LONG, Stop, World, ensure},
};

scenarios! { Operations;
    use_after_close_is_an_error [] "after close every call answers stopped, at once";
    use_of_a_closed_source_is_an_error [] "after a source is closed it answers stopped, and its connection works on";
    an_unreachable_broker_is_named [Unreachable] "an unreachable broker is an error that names it and hides the password";
    publishing_nowhere_is_unroutable [] "a message for a place that was never declared is unroutable";
    a_missing_place_is_not_found [] "verifying a missing place answers not-found and creates nothing";
    declaring_again_changes_nothing [] "declaring a place twice changes nothing, and its messages stay";
    only_queues_and_groups_are_read [] "a topic and a store cannot be subscribed to";
    powers_agree_with_capabilities [] "the capability table and the powers that are there agree";
    tending_ends [] "tend comes to an end, and says when it wants to be called next";
}

/// A call that must answer `Stopped` soon.
async fn stopped<T>(
    call: &str,
    limit: Duration,
    work: impl Future<Output = Result<T, TransportError>>,
) -> Result<(), Stop> {
    match timeout(limit, work).await {
        Err(_) => Err(Stop::failed(format_args!("after close {call} hangs"))),
        Ok(Ok(_)) => Err(Stop::failed(format_args!("after close {call} is no error"))),
        Ok(Err(error)) if error.kind() == ErrorKind::Stopped => Ok(()),
        Ok(Err(error)) => Err(Stop::failed(format_args!("after close {call} answers {error:?}, not stopped"))),
    }
}

async fn use_after_close_is_an_error<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send_many(&queue, 2).await?;
    let reader = connection.reader(&queue).await?;
    let held = reader.take(1).await?;
    let Some(delivery) = held.first() else { return Err(Stop::failed("nothing was taken")) };
    connection.close().await?;
    let (broker, limit) = (&connection.broker, world.patience());
    let first = |answers: Vec<Result<_, _>>| {
        answers.into_iter().next().unwrap_or_else(|| Err(TransportError::new(ErrorKind::Codec, "no answer")))
    };
    let message = [Outgoing::new(queue.clone(), Envelope::new("late"))];
    stopped("publish", limit, async { first(broker.publish(&message).await) }).await?;
    let what = [Declaration::new(queue.clone())];
    stopped("declare", limit, broker.declare(&what, DeclareMode::Create)).await?;
    stopped("verify", limit, broker.declare(&what, DeclareMode::Verify)).await?;
    stopped("subscribe", limit, broker.subscribe(Subscription::new(queue.clone(), "late", LONG))).await?;
    stopped("tend", limit, broker.tend(10)).await?;
    stopped("pull", limit, reader.source.pull(1)).await?;
    let items = [(&delivery.token, postroom_core::Settlement::Release)];
    let settled =
        async { reader.source.settle(&items).await.into_iter().next().unwrap_or(Err(TransportError::stopped())) };
    stopped("settle", limit, settled).await?;
    if let Some(count) = broker.count() {
        stopped("count", limit, count.count(&queue)).await?;
    }
    if let Some(browse) = broker.browse() {
        stopped("page", limit, browse.page(&queue, None, None, 1)).await?;
        stopped("find", limit, browse.find(&queue, "x")).await?;
        stopped("remove", limit, browse.remove(&queue, &["x".into()])).await?;
    }
    if let Some(groups) = broker.groups() {
        stopped("listing groups", limit, groups.list(queue.name())).await?;
    }
    reader.source.wake();
    let again = timeout(limit, broker.close()).await.map_err(|_| Stop::failed("a second close hangs"))?;
    ensure!(again.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::Stopped), "a second close answers {again:?}");
    Ok(())
}

async fn use_of_a_closed_source_is_an_error<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let reader = connection.reader(&queue).await?;
    reader.source.close().await?;
    stopped("pull", world.patience(), reader.source.pull(1)).await?;
    connection.send_many(&queue, 3).await?;
    let next = connection.reader(&queue).await?;
    let taken = next.take(3).await?;
    next.ack_all(&taken).await
}

async fn an_unreachable_broker_is_named<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let Some(nowhere) = world.subject.unreachable() else { return Ok(()) };
    let connecting = timeout(world.subject.limit() / 2, S::Broker::connect(&nowhere.config)).await;
    let error = match connecting.map_err(|_| Stop::failed("connecting to nowhere hangs"))? {
        Ok(_) => return Err(Stop::failed("connecting to nowhere succeeds")),
        Err(error) => error,
    };
    let shown = format!("{error}\n{error:?}");
    if let Some(secret) = nowhere.secret {
        ensure!(!shown.contains(secret), "the error shows the secret: {}", shown.replace(secret, "<secret>"));
    }
    ensure!(error.to_string().contains(nowhere.named), "the error does not name {}: {shown}", nowhere.named);
    let kind = error.kind();
    ensure!(matches!(kind, ErrorKind::Connection | ErrorKind::Timeout | ErrorKind::Refused), "its kind is {kind:?}");
    Ok(())
}

async fn publishing_nowhere_is_unroutable<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let mut places = vec![world.queue("nowhere")?];
    if world.powers.capabilities.topics {
        places.push(world.topic("nowhere")?);
        places.push(world.group("nowhere", "nobody")?);
    }
    for place in places {
        let answer = connection.broker.publish(&[Outgoing::new(place.clone(), Envelope::new("lost"))]).await;
        match answer.into_iter().next() {
            Some(Err(error)) if error.kind() == ErrorKind::Unroutable => {}
            other => return Err(Stop::failed(format_args!("a message for {place}, never declared: {other:?}"))),
        }
    }
    Ok(())
}

async fn a_missing_place_is_not_found<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.broker.declare(&[Declaration::new(queue)], DeclareMode::Verify).await?;
    let missing = [Declaration::new(world.queue("missing")?)];
    // Twice: the first must not have created it.
    for _ in 0..2 {
        match connection.broker.declare(&missing, DeclareMode::Verify).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let name = world.name("missing");
                ensure!(error.to_string().contains(&name), "the error does not name {name}: {error}");
            }
            other => return Err(Stop::failed(format_args!("verifying a missing queue answers {other:?}"))),
        }
    }
    Ok(())
}

async fn declaring_again_changes_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    let mut places = vec![queue.clone()];
    if world.powers.capabilities.topics {
        places.push(world.topic("t")?);
        places.push(world.group("t", "g")?);
    }
    let places: Vec<&Place> = places.iter().collect();
    first.declare(&places).await?;
    first.send_many(&queue, 4).await?;
    if world.powers.capabilities.topics {
        first.send_many(&world.topic("t")?, 4).await?;
    }
    let reader = first.reader(&queue).await?;
    let held = reader.take(2).await?;
    second.declare(&places).await?;
    second.declare(&places).await?;
    reader.ack_all(&held).await
}

async fn only_queues_and_groups_are_read<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let mut places = Vec::new();
    if world.powers.browse {
        places.push(world.store("s")?);
    }
    if world.powers.capabilities.topics {
        places.push(world.topic("t")?);
    }
    for place in places {
        connection.declare(&[&place]).await?;
        let answer = connection.broker.subscribe(Subscription::new(place.clone(), "reader", LONG)).await;
        ensure!(answer.is_err(), "{place} could be subscribed to");
    }
    Ok(())
}

async fn powers_agree_with_capabilities<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let can = connection.broker.capabilities();
    ensure!(can == world.powers.capabilities, "two connections differ: {can:?} and {:?}", world.powers.capabilities);
    ensure!(!can.broker.is_empty(), "the broker has no name");
    let leased = connection.reader(&queue).await?.source.lease().is_some();
    ensure!(leased == can.lease, "lease: the table says {}, the source {leased}", can.lease);
    ensure!(can.topics || !world.powers.groups, "there is a power over groups, but no topics");
    Ok(())
}

async fn tending_ends<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send_many(&queue, 3).await?;
    let ending = async {
        while connection.broker.tend(1000).await?.more {
            tokio::task::yield_now().await;
        }
        Ok::<_, Stop>(())
    };
    timeout(world.patience(), ending).await.map_err(|_| Stop::failed("there is always more to tend at once"))?
}
