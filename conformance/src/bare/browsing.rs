//! Looking at messages without taking them, and removing them.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use postroom_core::{
    Broker, Browse, Browsed, Envelope, Failure, MessageId, Origin, Outgoing, Place, Reason, Settled, Settlement, State,
    track::record_id,
};

use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Operations;
    browsing_is_true_in_every_state [Browse] "a page shows each message in the state that it is in";
    browsing_delayed_ones_is_true [Browse, Delay] "a delayed message is shown as delayed, with the time it is due";
    browsing_changes_nothing [Browse] "looking changes nothing: all come afterwards, counted as if never looked at";
    paging_goes_past_a_thousand [Browse] "1,050 records are paged through, each once, oldest first";
    removing_a_browsed_one_removes_it [Browse] "removing a browsed message removes it, and removing it again says that it was not there";
    removing_one_in_flight_fences_its_owner [Browse] "a message in flight can be removed; its owner's ack answers Already or LeaseLost";
    replaying_leaves_no_stale_original [Browse] "a replay (send the copy, remove the original) leaves one message and no record";
    found_by_id [Browse] "messages are found by their message id, all of them, and nothing by an unknown id";
    found_in_every_state [Browse] "a message is found while it waits, while it is held, and no more once it is acked";
    paging_goes_on_while_records_are_removed [Browse] "a purge page by page meets every record, though each page is removed before the next is read";
    found_by_record_id [Browse] "failed records are found by their record id, and by their message id";
    two_groups_leave_two_records [Browse] "two groups that fail the same message leave two records";
    a_record_is_stored_once [Browse] "storing the same failed record twice leaves one";
}

fn ids(browsed: &[Browsed]) -> BTreeSet<MessageId> {
    browsed.iter().map(|browsed| browsed.envelope.id.clone()).collect()
}

async fn browsing_is_true_in_every_state<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let sent: BTreeSet<_> = connection.send_many(&queue, 6).await?.into_iter().collect();
    let reader = connection.reader(&queue).await?;
    let held = reader.take(2).await?;
    let flying: BTreeSet<_> = held.iter().map(|delivery| delivery.envelope.id.clone()).collect();
    let resting: BTreeSet<_> = sent.difference(&flying).cloned().collect();
    for (state, wanted) in [
        (Some(State::InFlight), &flying),
        (Some(State::Waiting), &resting),
        (Some(State::Delayed), &BTreeSet::new()),
        (None, &sent),
    ] {
        let found = connection.pages(&queue, state, 4).await?;
        ensure!(ids(&found) == *wanted, "in state {state:?} are {wanted:?}, shown are {found:?}");
        ensure!(found.len() == wanted.len(), "in state {state:?} one is shown twice: {found:?}");
        for browsed in &found {
            let truth = if flying.contains(&browsed.envelope.id) { State::InFlight } else { State::Waiting };
            ensure!(browsed.state == truth, "{browsed:?} is {truth:?}");
        }
    }
    reader.ack_all(&held).await
}

async fn browsing_delayed_ones_is_true<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let soon = connection.send_after(&queue, Duration::from_secs(3600)).await?;
    let later = connection.send_after(&queue, Duration::from_secs(7200)).await?;
    let found = connection.pages(&queue, Some(State::Delayed), 10).await?;
    ensure!(ids(&found) == BTreeSet::from([soon.clone(), later.clone()]), "two are delayed, shown are {found:?}");
    let due =
        |id: &MessageId| found.iter().find(|browsed| browsed.envelope.id == *id).and_then(|browsed| browsed.due_at);
    if let (Some(soon), Some(later)) = (due(&soon), due(&later)) {
        let apart = later.saturating_sub(soon);
        ensure!((apart - 3_600_000).abs() < 60_000, "an hour lies between them, shown are {apart} ms");
    }
    connection.remove(&queue, &found).await
}

async fn browsing_changes_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let batch: Vec<_> = (0..5).map(|i| Outgoing::new(queue.clone(), Envelope::new(format!("body {i}")))).collect();
    connection.publish(&batch).await?;
    for _ in 0..3 {
        let found = connection.pages(&queue, None, 2).await?;
        for (outgoing, browsed) in batch.iter().zip(&found) {
            ensure!(
                browsed.envelope == outgoing.envelope,
                "sent {:?}, shown {:?}",
                outgoing.envelope,
                browsed.envelope
            );
        }
        ensure!(found.len() == 5, "5 were sent, {} are shown", found.len());
    }
    let reader = connection.reader(&queue).await?;
    let taken = reader.take(5).await?;
    let counted = taken.iter().find(|delivery| delivery.delivered.is_some_and(|n| n != 1));
    ensure!(counted.is_none(), "looking counted as a hand-over: {:?}", counted.map(|delivery| delivery.delivered));
    reader.ack_all(&taken).await
}

async fn paging_goes_past_a_thousand<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let store = world.store("failed")?;
    connection.declare(&[&store]).await?;
    let sent = connection.send_many(&store, 1050).await?;
    let found = connection.pages(&store, None, 137).await?;
    let found: Vec<_> = found.into_iter().map(|browsed| browsed.envelope.id.clone()).collect();
    ensure!(found.len() == 1050, "1050 were stored, {} are shown", found.len());
    let wrong = sent.iter().zip(&found).position(|(a, b)| a != b);
    ensure!(wrong.is_none(), "not the oldest first: at {wrong:?}");
    Ok(())
}

async fn removing_a_browsed_one_removes_it<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send_many(&queue, 6).await?;
    let found = connection.pages(&queue, None, 10).await?;
    let (gone, _stays) = found.split_at(found.len().min(2));
    connection.remove(&queue, gone).await?;
    let mut handles: Vec<_> = gone.iter().map(|browsed| browsed.handle.clone()).collect();
    handles.push("no such handle".into());
    let again = connection.browse()?.remove(&queue, &handles).await?;
    ensure!(again == [false, false, false], "removed and unknown ones were there to be removed: {again:?}");
    ensure!(connection.pages(&queue, None, 10).await?.len() == 4, "2 of 6 were removed");
    let reader = connection.reader(&queue).await?;
    let taken = reader.take(4).await?;
    reader.ack_all(&taken).await
}

async fn removing_one_in_flight_fences_its_owner<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send_many(&queue, 2).await?;
    let reader = connection.reader(&queue).await?;
    let held = reader.take(2).await?;
    let found = connection.pages(&queue, Some(State::InFlight), 10).await?;
    connection.remove(&queue, &found).await?;
    let hows =
        [Settlement::Ack, crate::support::again(held.first().ok_or_else(|| Stop::failed("none"))?, Duration::ZERO)];
    for (delivery, how) in held.iter().zip(hows) {
        let replaced = match how {
            Settlement::Retry { .. } => crate::support::again(delivery, Duration::ZERO),
            other => other,
        };
        // Past the ledger: it was removed, so nothing may end here.
        let answers = postroom_core::Source::settle(&*reader.source, &[(&delivery.token, replaced)]).await;
        for answer in answers {
            let answer = answer?;
            ensure!(
                matches!(answer, Settled::Already | Settled::LeaseLost),
                "a removed one's settle answers {answer:?}"
            );
        }
    }
    Ok(())
}

fn failed(place: &Place, envelope: &Envelope) -> Envelope {
    let origin = Origin::new("main", place.clone());
    let record = record_id(&origin, &envelope.id, "", 0);
    let mut failed = envelope.clone();
    let track = failed.track_mut();
    track.origin = Some(origin);
    track.failure = Some(Failure::new(record, Reason::Final, "no such region", 1_793_500_000_000));
    failed
}

async fn replaying_leaves_no_stale_original<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let store = world.store("failed")?;
    connection.declare(&[&store]).await?;
    let sent = connection.send(&queue, Envelope::new("bad, then good")).await?;
    let reader = connection.reader(&queue).await?;
    let delivery = reader.one().await?;
    connection.send(&store, failed(&queue, &delivery.envelope)).await?;
    reader.ack(&delivery).await?;
    let found = connection.browse()?.find(&store, &sent.id).await?;
    ensure!(found.len() == 1, "one record was stored, found are {found:?}");
    for record in &found {
        let mut copy = Envelope::clone(&record.envelope);
        copy.track_mut().failure = None;
        copy.track_mut().round = 1;
        connection.send(&queue, copy).await?;
    }
    connection.remove(&store, &found).await?;
    let left = connection.pages(&store, None, 10).await?;
    ensure!(left.is_empty(), "a stale original stays: {left:?}");
    let back = reader.one().await?;
    ensure!(back.envelope.id == sent.id && back.envelope.body == sent.body, "came back {:?}", back.envelope);
    reader.ack(&back).await
}

async fn found_by_id<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    connection.send_many(&queue, 20).await?;
    let twin = Arc::new(Envelope::new("twin"));
    let batch = [Outgoing::new(queue.clone(), twin.clone()), Outgoing::new(queue.clone(), twin.clone())];
    connection.publish(&batch).await?;
    let found = connection.browse()?.find(&queue, &twin.id).await?;
    ensure!(found.len() == 2, "two have this id, found are {found:?}");
    ensure!(found.iter().all(|browsed| browsed.envelope == twin), "found are {found:?}");
    for unknown in ["no-such-id", "", "%", "*", "' OR 1=1 --"] {
        let found = connection.browse()?.find(&queue, unknown).await?;
        ensure!(found.is_empty(), "by the id {unknown:?} are found {found:?}");
    }
    let one = found.split_at(1).0;
    connection.remove(&queue, one).await?;
    let left = connection.browse()?.find(&queue, &twin.id).await?;
    ensure!(left.len() == 1, "one of two was removed, found are {left:?}");
    Ok(())
}

async fn found_in_every_state<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let sent = connection.send(&queue, Envelope::new("where is it")).await?;
    let states = async || -> Result<Vec<State>, Stop> {
        Ok(connection.find(&queue, &sent.id).await?.into_iter().map(|browsed| browsed.state).collect())
    };
    let waiting = states().await?;
    ensure!(waiting == [State::Waiting], "it waits, found are {waiting:?}");
    let reader = connection.reader(&queue).await?;
    let held = reader.one().await?;
    let flying = states().await?;
    ensure!(flying == [State::InFlight], "it is held, found are {flying:?}");
    reader.ack(&held).await?;
    let gone = states().await?;
    ensure!(gone.is_empty(), "it is acked, found are {gone:?}");
    Ok(())
}

async fn paging_goes_on_while_records_are_removed<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let store = world.store("failed")?;
    connection.declare(&[&store]).await?;
    connection.send_many(&store, 95).await?;
    let (mut after, mut met) = (None, 0);
    loop {
        let page = connection.browse()?.page(&store, None, after.as_ref(), 10).await?;
        met += page.items.len();
        connection.remove(&store, &page.items).await?;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    ensure!(met == 95, "of 95 records a purge met {met}");
    Ok(())
}

async fn found_by_record_id<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let (store, queue) = (world.store("failed")?, world.queue("q")?);
    connection.declare(&[&store]).await?;
    let records: Vec<_> = (0..5).map(|i| failed(&queue, &Envelope::new(format!("record {i}")))).collect();
    connection.publish(&records.iter().map(|e| Outgoing::new(store.clone(), e.clone())).collect::<Vec<_>>()).await?;
    for wanted in &records {
        let record =
            wanted.track.as_ref().and_then(|track| track.failure.as_ref()).map(|failure| failure.record.clone());
        for id in [record.as_deref().unwrap_or_default(), &wanted.id] {
            let found = connection.browse()?.find(&store, id).await?;
            ensure!(found.len() == 1 && found.iter().all(|b| *b.envelope == *wanted), "by {id} are found {found:?}");
        }
    }
    Ok(())
}

async fn two_groups_leave_two_records<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let store = world.store("failed")?;
    connection.declare(&[&store]).await?;
    let message = Envelope::new("refused twice");
    for group in ["one", "two"] {
        connection.send(&store, failed(&world.group("t", group)?, &message)).await?;
    }
    let found = connection.browse()?.find(&store, &message.id).await?;
    ensure!(found.len() == 2, "two groups failed it, found are {found:?}");
    let handles: BTreeSet<_> = found.iter().map(|browsed| browsed.handle.clone()).collect();
    ensure!(handles.len() == 2, "two records have one handle");
    Ok(())
}

async fn a_record_is_stored_once<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let connection = world.connect().await?;
    let (store, queue) = (world.store("failed")?, world.queue("q")?);
    connection.declare(&[&store]).await?;
    let record = Arc::new(failed(&queue, &Envelope::new("failed once")));
    connection.publish(&[Outgoing::new(store.clone(), record.clone())]).await?;
    let started = Instant::now();
    // A death between store and ack: it is stored again, alone and twice in a batch; each answer is a confirmation.
    let twice = [Outgoing::new(store.clone(), record.clone()), Outgoing::new(store.clone(), record.clone())];
    for answer in connection.broker.publish(&twice).await {
        ensure!(answer? == record.id, "storing it again answered another id");
    }
    let found = connection.pages(&store, None, 10).await?;
    ensure!(
        found.len() == 1,
        "one record was stored three times; after {:?} there are {}",
        started.elapsed(),
        found.len()
    );
    Ok(())
}
