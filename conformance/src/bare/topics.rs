//! Topics: every declared group has its own copy of each message.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use postroom_core::{Broker, Envelope, ErrorKind, Groups, MessageId, Outgoing, Place};

use super::settling::early;
use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Topics;
    two_groups_get_all [Topics] "each of two groups gets every message";
    an_ack_in_one_takes_nothing_from_the_other [Topics] "what one group acked, the other still gets";
    members_of_a_group_compete [Topics] "two members of a group on two connections share its messages, each once";
    a_retry_returns_to_its_group_alone [Topics] "a retry comes back to the group that erred and to no other (C18)";
    a_delayed_retry_returns_to_its_group_alone [Topics, Delay] "a delayed retry comes back to the group that erred and to no other";
    a_delayed_message_reaches_every_group [Topics, Delay] "a delayed message comes to every group, and never early";
    sending_to_a_group_reaches_it_alone [Topics] "a message sent to one group reaches no other";
    many_groups_get_all [Topics] "each of twenty groups gets every message of a batch";
    a_batch_for_topics_and_groups [Topics] "a batch for a queue, a topic and single groups gives each what it is owed";
    a_group_needs_no_consumer [Topics] "a group keeps what was published while nobody read it, over connections";
    a_topic_without_groups_takes_and_drops [Topics] "a topic without groups takes a message, unless a group is required";
    a_release_stays_in_its_group [Topics] "a released delivery returns to its own group alone";
    a_group_is_listed [Groups] "the declared groups of a topic are listed, those of another are not";
    a_removed_group_is_gone [Groups] "a removed group and its messages are gone, the others are as they were";
}

async fn two_groups_get_all<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let (topic, one, two) = (world.topic("t")?, world.group("t", "one")?, world.group("t", "two")?);
    connection.declare(&[&topic, &one, &two]).await?;
    let sent: BTreeSet<MessageId> = connection.send_many(&topic, 30).await?.into_iter().collect();
    for group in [&one, &two] {
        let reader = connection.reader(group).await?;
        let taken = reader.take(30).await?;
        let came: BTreeSet<MessageId> = taken.iter().map(|delivery| delivery.envelope.id.clone()).collect();
        ensure!(came == sent, "{group} got {} of 30 ids", came.intersection(&sent).count());
        reader.ack_all(&taken).await?;
    }
    Ok(())
}

async fn an_ack_in_one_takes_nothing_from_the_other<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, second) = (world.connect().await?, world.connect().await?);
    let (topic, one, two) = (world.topic("t")?, world.group("t", "one")?, world.group("t", "two")?);
    first.declare(&[&one, &two]).await?;
    first.send_many(&topic, 5).await?;
    let reader = first.reader(&one).await?;
    let mine = reader.take(5).await?;
    // The other group holds its own deliveries while these are acked.
    let other = second.reader(&two).await?;
    let theirs = other.take(5).await?;
    reader.ack_all(&mine).await?;
    for delivery in &theirs {
        other.release(delivery).await?;
    }
    let again = other.take(5).await?;
    other.ack_all(&again).await
}

async fn members_of_a_group_compete<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, second) = (world.connect().await?, world.connect().await?);
    let (topic, group, other) = (world.topic("t")?, world.group("t", "team")?, world.group("t", "other")?);
    first.declare(&[&group, &other]).await?;
    let (one, two) = (first.reader(&group).await?, second.reader(&group).await?);
    first.send_many(&topic, 100).await?;
    let mut seen = BTreeSet::new();
    let started = Instant::now();
    while seen.len() < 100 {
        ensure!(started.elapsed() < world.patience(), "{} of 100 came", seen.len());
        let pause = Duration::from_millis(200);
        let (left, right) = tokio::join!(one.pull(9, pause), two.pull(9, pause));
        let (left, right) = (left?, right?);
        for delivery in left.iter().chain(&right) {
            ensure!(seen.insert(delivery.envelope.id.clone()), "{:?} came to both", delivery.envelope.id);
        }
        one.ack_all(&left).await?;
        two.ack_all(&right).await?;
    }
    Ok(())
}

async fn a_retry_returns_to_its_group_alone<S: Subject>(world: World<S>) -> Result<(), Stop> {
    retries(world, Duration::ZERO).await
}

async fn a_delayed_retry_returns_to_its_group_alone<S: Subject>(world: World<S>) -> Result<(), Stop> {
    retries(world, Duration::from_millis(200)).await
}

/// One group errs twice; the end of the scenario proves that the other got its one copy and no more.
async fn retries<S: Subject>(world: World<S>, after: Duration) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let (topic, good, bad) = (world.topic("t")?, world.group("t", "good")?, world.group("t", "bad")?);
    connection.declare(&[&topic, &good, &bad]).await?;
    connection.send(&topic, Envelope::new("once")).await?;
    let (well, badly) = (connection.reader(&good).await?, connection.reader(&bad).await?);
    let handled = well.one().await?;
    well.ack(&handled).await?;
    for attempts in 0..2 {
        let delivery = badly.one().await?;
        ensure!(delivery.envelope.attempts() == attempts, "{} attempts after {attempts}", delivery.envelope.attempts());
        let retried = Instant::now();
        badly.retry(&delivery, after).await?;
        if attempts == 1 {
            let last = badly.one().await?;
            early(retried, after)?;
            badly.ack(&last).await?;
        }
    }
    Ok(())
}

async fn a_delayed_message_reaches_every_group<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let (topic, one, two) = (world.topic("t")?, world.group("t", "one")?, world.group("t", "two")?);
    connection.declare(&[&one, &two]).await?;
    let (sent, delay) = (Instant::now(), Duration::from_millis(700));
    let id = connection.send_after(&topic, delay).await?;
    for group in [&one, &two] {
        let reader = connection.reader(group).await?;
        let delivery = reader.one().await?;
        early(sent, delay)?;
        ensure!(delivery.envelope.id == id, "another message came");
        reader.ack(&delivery).await?;
    }
    Ok(())
}

async fn sending_to_a_group_reaches_it_alone<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let (one, two) = (world.group("t", "one")?, world.group("t", "two")?);
    connection.declare(&[&one, &two]).await?;
    connection.send_many(&one, 5).await?;
    let reader = connection.reader(&one).await?;
    let taken = reader.take(5).await?;
    reader.ack_all(&taken).await
}

async fn many_groups_get_all<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let topic = world.topic("t")?;
    let groups = (0..20).map(|i| world.group("t", &format!("g{i}"))).collect::<Result<Vec<_>, _>>()?;
    connection.declare(&groups.iter().collect::<Vec<_>>()).await?;
    connection.send_many(&topic, 25).await?;
    for group in &groups {
        let reader = connection.reader(group).await?;
        let taken = reader.take(25).await?;
        reader.ack_all(&taken).await?;
    }
    Ok(())
}

async fn a_batch_for_topics_and_groups<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (one, two, queue) = (world.group("t", "one")?, world.group("t", "two")?, world.queue("t")?);
    let to = [world.topic("t")?, one.clone(), queue.clone(), two.clone()];
    super::batches::mixed(world, &[one, two, queue], &to).await
}

async fn a_group_needs_no_consumer<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (topic, group) = (world.topic("t")?, world.group("t", "away")?);
    let declaring = world.connect().await?;
    declaring.declare(&[&group]).await?;
    declaring.close().await?;
    let sending = world.connect().await?;
    sending.send_many(&topic, 5).await?;
    sending.close().await?;
    let reading = world.connect().await?;
    let reader = reading.reader(&group).await?;
    let taken = reader.take(5).await?;
    reader.ack_all(&taken).await
}

async fn a_topic_without_groups_takes_and_drops<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let topic = world.topic("t")?;
    connection.declare(&[&topic]).await?;
    connection.send(&topic, Envelope::new("to nobody")).await?;
    let mut required = Outgoing::new(topic.clone(), Envelope::new("to somebody"));
    required.require_group = true;
    let answer = connection.broker.publish(std::slice::from_ref(&required)).await.into_iter().next();
    match answer {
        Some(Err(error)) if error.kind() == ErrorKind::Unroutable => {}
        other => return Err(Stop::failed(format_args!("a required group that is missing answered {other:?}"))),
    }
    let group = world.group("t", "first")?;
    connection.declare(&[&group]).await?;
    connection.publish(&[required]).await?;
    Ok(())
}

async fn a_release_stays_in_its_group<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let (topic, one, two) = (world.topic("t")?, world.group("t", "one")?, world.group("t", "two")?);
    connection.declare(&[&one, &two]).await?;
    connection.send_many(&topic, 3).await?;
    let (first, second) = (connection.reader(&one).await?, connection.reader(&two).await?);
    let done = second.take(3).await?;
    second.ack_all(&done).await?;
    for delivery in first.take(3).await? {
        first.release(&delivery).await?;
    }
    let again = first.take(3).await?;
    first.ack_all(&again).await
}

fn name(place: &Place) -> Result<postroom_core::Name, Stop> {
    place.group_name().cloned().ok_or_else(|| Stop::failed("not a group"))
}

async fn a_group_is_listed<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let (topic, one, two) = (world.topic("t")?, world.group("t", "one")?, world.group("t", "two")?);
    let (other, theirs) = (world.topic("u")?, world.group("u", "three")?);
    connection.declare(&[&topic, &one, &two, &other, &theirs]).await?;
    connection.send_many(&topic, 4).await?;
    connection.send_many(&one, 3).await?;
    let groups = connection.broker.groups().ok_or_else(|| Stop::failed("the power over groups has gone"))?;
    let listed = groups.list(topic.name()).await?;
    let names: BTreeSet<_> = listed.iter().map(|(group, _)| group.clone()).collect();
    ensure!(names == BTreeSet::from([name(&one)?, name(&two)?]), "{topic} has the groups {names:?}");
    for (group, waiting) in listed {
        let wanted = if group == name(&one)? { 7 } else { 4 };
        ensure!(waiting.is_none_or(|n| n == wanted), "{group} of {topic} has {waiting:?} waiting, not {wanted}");
    }
    Ok(())
}

async fn a_removed_group_is_gone<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let (topic, one, two) = (world.topic("t")?, world.group("t", "one")?, world.group("t", "two")?);
    connection.declare(&[&topic, &one, &two]).await?;
    connection.send_many(&topic, 4).await?;
    let groups = connection.broker.groups().ok_or_else(|| Stop::failed("the power over groups has gone"))?;
    ensure!(groups.remove(topic.name(), &name(&one)?).await?, "the group was not there to be removed");
    world.ledger.borrow_mut().forget(&one);
    ensure!(!groups.remove(topic.name(), &name(&one)?).await?, "a removed group was there to be removed again");
    let names: Vec<_> = groups.list(topic.name()).await?.into_iter().map(|(group, _)| group).collect();
    ensure!(names == [name(&two)?], "after the removal {topic} has the groups {names:?}");
    // Declared anew, it begins empty: the end of the scenario finds whatever came back.
    connection.declare(&[&one]).await?;
    connection.send_many(&topic, 2).await?;
    let reader = connection.reader(&two).await?;
    let taken = reader.take(6).await?;
    reader.ack_all(&taken).await
}
