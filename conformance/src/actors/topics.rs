//! Groups of a topic, each with a node of its own.

use std::time::Duration;

use postroom_actors::HandlerError;
use postroom_core::{Envelope, Place};

use super::worker::{done, script};
use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Topics;
    each_group_handles_all [Topics] "each of two groups handles every message";
    a_retry_returns_to_its_group_alone [Topics] "one group is done at once, the other errs twice: 1 run and 3 (C18)";
    a_delayed_retry_returns_to_its_group_alone [Topics, Delay] "the same with delayed retries";
    members_of_a_group_share [Topics] "two nodes of a group share its messages, each handled once";
    an_unhandled_type_is_acked_in_a_group [Topics] "a type that no handler takes is acked in a group, and counted as ignored";
}

fn group(world: &World<impl Subject>, name: &str) -> Result<Place, Stop> {
    world.group("t", name)
}

async fn each_group_handles_all<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let one = world.worker(&group(&world, "one")?, done()).await?;
    let two = world.worker(&group(&world, "two")?, done()).await?;
    one.send_many(30).await?;
    one.until_done(30).await?;
    two.until_done(30).await?;
    one.stop_clean().await?;
    two.stop_clean().await?;
    Ok(())
}

async fn a_retry_returns_to_its_group_alone<S: Subject>(world: World<S>) -> Result<(), Stop> {
    retries(world, Duration::ZERO).await
}

async fn a_delayed_retry_returns_to_its_group_alone<S: Subject>(world: World<S>) -> Result<(), Stop> {
    retries(world, Duration::from_millis(150)).await
}

async fn retries<S: Subject>(world: World<S>, after: Duration) -> Result<(), Stop> {
    let good = world.worker(&group(&world, "good")?, done()).await?;
    let act = script(move |received| async move {
        if received.attempt() < 3 { Err(HandlerError::retry("erred").after(after)) } else { Ok(()) }
    });
    let bad = world.worker(&group(&world, "bad")?, act).await?;
    good.send(vec![Envelope::new("one message")]).await?;
    bad.until_done(1).await?;
    good.until_done(1).await?;
    let (well, badly) = (good.stop_clean().await?.1.len(), bad.stop_clean().await?.1.len());
    ensure!(well == 1 && badly == 3, "the good group ran {well} times, the erring one {badly}");
    Ok(())
}

async fn members_of_a_group_share<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let place = group(&world, "team")?;
    let act = script(|_| async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(())
    });
    let (one, two) = (world.worker(&place, act.clone()).await?, world.worker(&place, act).await?);
    one.send_many(60).await?;
    let started = std::time::Instant::now();
    while one.runs().len() + two.runs().len() < 60 {
        ensure!(started.elapsed() < world.patience(), "{} and {} of 60", one.runs().len(), two.runs().len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let runs = one.stop_clean().await?.1.len() + two.stop_clean().await?.1.len();
    ensure!(runs == 60, "60 messages ran {runs} times");
    Ok(())
}

async fn an_unhandled_type_is_acked_in_a_group<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let place = group(&world, "some")?;
    let tune = |setup: &mut super::worker::Setup| {
        if let Ok(typed) = postroom_actors::TypePattern::new("wanted") {
            setup.handler.pattern = typed;
        }
    };
    let worker = world.worker_with(&place, done(), tune).await?;
    let typed = |name: &str| {
        let mut envelope = Envelope::new("body");
        envelope.message_type = postroom_core::TypeName::new(name).ok();
        envelope
    };
    let (wanted, other) = (typed("wanted"), typed("other"));
    let ignored = other.id.clone();
    worker.send(vec![other, wanted]).await?;
    worker.until_done(1).await?;
    let node = worker.node.clone();
    worker.stop().await?;
    let counted = node.board().counters(super::worker::MAIN).map(|counters| counters.ignored_count());
    ensure!(counted == Some(1), "one was ignored, counted are {counted:?}");
    world.ledger.borrow_mut().handled(&place, &ignored);
    Ok(())
}
