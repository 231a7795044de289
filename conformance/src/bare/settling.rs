//! Sent, received, settled.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use postroom_core::{Broker, DeliveryCount, Envelope, Outgoing, Place, Settled, Settlement};

use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Settling;
    sent_arrives_with_its_id_and_place [] "a sent message arrives with the id that publish answered, at the same position each time";
    acked_never_comes_again [] "an acked message never comes again, nor after a new connection";
    retried_comes_back_counted [] "a retried message comes back counted 1, then 2, with a delivery count of its own";
    replacement_keeps_what_it_was_given [] "what comes back after a retry is the replacement, and the original is gone";
    delay_is_honoured [Delay] "a delayed message comes, and never before its time";
    delayed_retry_is_honoured [Delay] "a retry with a delay comes back, and never before its time";
    two_consumers_share [] "two consumers on two connections share 200 messages, each once";
    batches_answer_item_by_item [] "a batch of different settlements answers each in order, and each has its own effect";
    one_bad_message_in_a_batch [] "a message for a place that was never declared errs alone, its neighbours are confirmed";
    empty_batches_are_nothing [] "an empty publish and an empty settle answer an empty list";
    survives_reconnecting [] "waiting messages outlive the connection that sent them";
}

async fn sent_arrives_with_its_id_and_place<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let sent = connection.send(&queue, Envelope::new("hello")).await?;
    let reader = connection.reader(&queue).await?;
    let first = reader.one().await?;
    ensure!(first.envelope == sent, "sent {sent:?}, got {:?}", first.envelope);
    match world.powers.capabilities.delivery_count {
        DeliveryCount::None => {
            ensure!(first.delivered.is_none(), "a count {:?} of a broker that has none", first.delivered)
        }
        _ => ensure!(first.delivered == Some(1), "the first hand-over is counted {:?}", first.delivered),
    }
    reader.release(&first).await?;
    let second = reader.one().await?;
    ensure!(
        first.position == second.position,
        "the position changed from {:?} to {:?} by a release",
        first.position,
        second.position
    );
    reader.ack(&second).await
}

async fn acked_never_comes_again<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send_many(&queue, 20).await?;
    let reader = connection.reader(&queue).await?;
    let taken = reader.take(20).await?;
    reader.ack_all(&taken).await?;
    connection.close().await
    // The end of every scenario reads its places to their end on a new connection.
}

async fn retried_comes_back_counted<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let sent = connection.send(&queue, Envelope::new("again")).await?;
    let reader = connection.reader(&queue).await?;
    for attempts in 0..3 {
        let delivery = reader.one().await?;
        let found = delivery.envelope.attempts();
        ensure!(found == attempts, "after {attempts} retries the envelope counts {found} attempts");
        ensure!(delivery.envelope.id == sent.id, "a retry changed the id to {:?}", delivery.envelope.id);
        if world.powers.capabilities.delivery_count == DeliveryCount::Exact {
            ensure!(delivery.delivered == Some(1), "a replacement's own count starts at {:?}", delivery.delivered);
        }
        if attempts == 2 {
            return reader.ack(&delivery).await;
        }
        reader.retry(&delivery, Duration::ZERO).await?;
    }
    Ok(())
}

async fn replacement_keeps_what_it_was_given<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let mut envelope = Envelope::new("body");
    envelope.key = Some("key".into());
    envelope.stamps.push("tenant", "one");
    connection.send(&queue, envelope).await?;
    let reader = connection.reader(&queue).await?;
    let delivery = reader.one().await?;
    let mut replacement = Envelope::clone(&delivery.envelope);
    replacement.track_mut().attempts = 7;
    replacement.track_mut().done.push("first handler".into());
    let replacement = std::sync::Arc::new(replacement);
    let how = Settlement::Retry { replacement: replacement.clone(), after: Duration::ZERO };
    let answer = reader.settle(&delivery, how).await?;
    ensure!(matches!(answer, Settled::Done | Settled::Written), "a retry answered {answer:?}");
    let back = reader.one().await?;
    ensure!(back.envelope == replacement, "replaced by {replacement:?}, came back {:?}", back.envelope);
    reader.ack(&back).await
}

/// Three delays, sent the longest first; each is measured from before its publish was called.
async fn delay_is_honoured<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let reader = connection.reader(&queue).await?;
    let mut due = BTreeMap::new();
    for millis in [900, 600, 300] {
        let sent = Instant::now();
        let delay = Duration::from_millis(millis);
        let id = connection.send_after(&queue, delay).await?;
        due.insert(id.to_string(), (sent, delay));
    }
    for _ in 0..3 {
        let delivery = reader.one().await?;
        let Some((sent, delay)) = due.remove(&*delivery.envelope.id) else {
            return Err(Stop::failed("a delayed message came twice"));
        };
        early(sent, delay)?;
        reader.ack(&delivery).await?;
    }
    Ok(())
}

/// Brokers count in milliseconds, perhaps by another clock: two of them are not early.
pub(super) fn early(since: Instant, delay: Duration) -> Result<(), Stop> {
    let took = since.elapsed();
    ensure!(took + Duration::from_millis(2) >= delay, "due after {delay:?}, it came after {took:?}");
    Ok(())
}

async fn delayed_retry_is_honoured<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send(&queue, Envelope::new("again")).await?;
    let reader = connection.reader(&queue).await?;
    let delivery = reader.one().await?;
    let (retried, delay) = (Instant::now(), Duration::from_millis(500));
    reader.retry(&delivery, delay).await?;
    let back = reader.one().await?;
    early(retried, delay)?;
    ensure!(back.envelope.attempts() == 1, "counted {} attempts", back.envelope.attempts());
    reader.ack(&back).await
}

async fn two_consumers_share<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    let second = world.connect().await?;
    let (one, two) = (first.reader(&queue).await?, second.reader(&queue).await?);
    let sent = first.send_many(&queue, 200).await?;
    let mut seen = BTreeMap::<String, usize>::new();
    let started = Instant::now();
    while seen.len() < sent.len() {
        ensure!(started.elapsed() < world.patience(), "{} of 200 came", seen.len());
        let (left, right) =
            tokio::join!(one.pull(7, Duration::from_millis(200)), two.pull(7, Duration::from_millis(200)));
        let (left, right) = (left?, right?);
        for delivery in left.iter().chain(&right) {
            *seen.entry(delivery.envelope.id.to_string()).or_default() += 1;
        }
        one.ack_all(&left).await?;
        two.ack_all(&right).await?;
    }
    let twice: Vec<_> = seen.iter().filter(|(_, n)| **n > 1).collect();
    ensure!(twice.is_empty(), "came to both: {twice:?}");
    Ok(())
}

async fn batches_answer_item_by_item<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send_many(&queue, 9).await?;
    let reader = connection.reader(&queue).await?;
    let taken = reader.take(9).await?;
    let (mut batch, mut acked, mut retried) = (Vec::new(), Vec::new(), Vec::new());
    for (i, delivery) in taken.iter().enumerate() {
        match i % 3 {
            0 => {
                acked.push(delivery.envelope.id.clone());
                batch.push((delivery, Settlement::Ack));
            }
            1 => {
                retried.push(delivery.envelope.id.clone());
                batch.push((delivery, crate::support::again(delivery, Duration::ZERO)));
            }
            _ => batch.push((delivery, Settlement::Release)),
        }
    }
    let answers = reader.settle_all(&batch).await?;
    ensure!(
        answers.iter().all(|answer| matches!(answer, Settled::Done | Settled::Written)),
        "the batch answered {answers:?}"
    );
    for delivery in reader.take(6).await? {
        let id = &delivery.envelope.id;
        ensure!(!acked.contains(id), "{id} was acked in a batch and came again");
        let attempts = u32::from(retried.contains(id));
        ensure!(delivery.envelope.attempts() == attempts, "{id} counts {}", delivery.envelope.attempts());
        reader.ack(&delivery).await?;
    }
    Ok(())
}

async fn one_bad_message_in_a_batch<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let nowhere: Place = world.queue("nowhere")?;
    let good = [Envelope::new("first"), Envelope::new("last")].map(|e| Outgoing::new(queue.clone(), e));
    let [first, last] = good;
    let batch = [first, Outgoing::new(nowhere, Envelope::new("bad")), last];
    let answers = connection.broker.publish(&batch).await;
    ensure!(answers.len() == 3, "{} answers to 3 messages", answers.len());
    for (i, (outgoing, answer)) in batch.iter().zip(answers).enumerate() {
        match (i, answer) {
            (1, Ok(_)) => return Err(Stop::failed("a message for a place that was never declared was confirmed")),
            (1, Err(_)) => {}
            (_, Ok(id)) => world.ledger.borrow_mut().sent(&outgoing.to, &id),
            (_, Err(error)) => return Err(Stop::failed(format_args!("its neighbour's error was its own: {error:?}"))),
        }
    }
    let reader = connection.reader(&queue).await?;
    let taken = reader.take(2).await?;
    reader.ack_all(&taken).await
}

async fn empty_batches_are_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let answers = connection.broker.publish(&[]).await;
    ensure!(answers.is_empty(), "{} answers to no message", answers.len());
    let reader = connection.reader(&queue).await?;
    let answers = reader.settle_all(&[]).await?;
    ensure!(answers.is_empty(), "{} answers to no settlement", answers.len());
    Ok(())
}

async fn survives_reconnecting<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (first, queue) = world.with_queue().await?;
    first.send_many(&queue, 10).await?;
    first.close().await?;
    let second = world.connect().await?;
    let reader = second.reader(&queue).await?;
    let taken = reader.take(10).await?;
    reader.ack_all(&taken).await
}
