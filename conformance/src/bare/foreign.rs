//! Messages that other programs wrote.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use postroom_core::{Envelope, Place, Text};

use crate::{
    Foreign, Subject,
    scenario::scenarios,
    support::{Connection, Reader, Stop, World, ensure},
};

scenarios! { Bytes;
    a_foreign_message_arrives [Injection] "a message without any of our metadata arrives with its body, its plain headers and a non-empty id";
    a_foreign_message_keeps_its_id [Injection] "a foreign message has the same id at each delivery, and keeps it over a retry";
    undecodable_ones_are_kept_as_they_came [Injection] "foreign bodies that are no JSON, no text or nothing come through a retry byte for byte (C37)";
    undecodable_ones_are_stored_as_they_came [Injection, Browse] "and they lie in a failure store byte for byte";
}

/// Injects messages, and lets the ledger know them by the ids that the broker gives them.
async fn injected<S: Subject>(
    world: &World<S>,
    connection: &Connection<S::Broker>,
    queue: &Place,
    messages: Vec<Foreign>,
) -> Result<Reader<<S::Broker as postroom_core::Broker>::Source>, Stop> {
    let n = messages.len();
    for message in messages {
        world.subject.inject(queue, message).await.map_err(Stop::failed)?;
    }
    let reader = connection.reader(queue).await?;
    let mut found = 0;
    let mut held = Vec::new();
    while found < n {
        // Their ids are not known before they came: this look is not the ledger's.
        let pulled = reader.unbooked(n - found, world.patience()).await?;
        ensure!(!pulled.is_empty(), "{found} of {n} injected messages came");
        found += pulled.len();
        held.extend(pulled);
    }
    for delivery in &held {
        world.ledger.borrow_mut().sent(queue, &delivery.envelope.id);
    }
    for delivery in &held {
        reader.release(delivery).await?;
    }
    Ok(reader)
}

fn plain(body: impl Into<Bytes>, headers: &[(&str, &[u8])]) -> Foreign {
    let headers = headers.iter().map(|(name, value)| (Text::from(*name), Bytes::copy_from_slice(value)));
    Foreign { body: body.into(), headers: headers.collect() }
}

async fn a_foreign_message_arrives<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let message = plain("{\"hello\": 1}", &[("x-tenant", b"north"), ("x-trace", b"abc")]);
    let reader = injected(&world, &connection, &queue, vec![message]).await?;
    let delivery = reader.one().await?;
    let Envelope { id, body, stamps, track, .. } = &*delivery.envelope;
    ensure!(!id.is_empty(), "a foreign message has an empty id");
    ensure!(body == "{\"hello\": 1}", "its body became {body:?}");
    ensure!(stamps.get_str("x-tenant") == Some("north"), "a plain header became {:?}", stamps.get_str("x-tenant"));
    ensure!(stamps.get_str("x-trace") == Some("abc"), "a plain header became {:?}", stamps.get_str("x-trace"));
    ensure!(track.is_none(), "it was never tried, and has a track: {track:?}");
    reader.ack(&delivery).await
}

async fn a_foreign_message_keeps_its_id<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let messages = vec![plain("one", &[]), plain("two", &[])];
    let reader = injected(&world, &connection, &queue, messages).await?;
    let taken = reader.take(2).await?;
    let ids: BTreeMap<_, _> = taken.iter().map(|d| (d.envelope.body.clone(), d.envelope.id.clone())).collect();
    ensure!(
        taken.iter().all(|d| taken.iter().filter(|e| e.envelope.id == d.envelope.id).count() == 1),
        "one id: {ids:?}"
    );
    for delivery in &taken {
        reader.retry(delivery, Duration::ZERO).await?;
    }
    for delivery in reader.take(2).await? {
        let found = &delivery.envelope;
        ensure!(ids.get(&found.body) == Some(&found.id), "its id became {:?}", found.id);
        reader.ack(&delivery).await?;
    }
    Ok(())
}

fn undecodable() -> Vec<Foreign> {
    let garbage = [0xff_u8; 1024];
    vec![
        plain("", &[]),
        plain("{\"truncated\": ", &[("content-type", b"application/json")]),
        plain(vec![0xff, 0, 0xfe], &[]),
        plain("garbage header", &[("x-garbage", &garbage)]),
        plain("a broken header of ours", &[("postroom-attempts", b"-1"), ("postroom-history", b"{")]),
    ]
}

async fn undecodable_ones_are_kept_as_they_came<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let mut bodies: Vec<_> = undecodable().into_iter().map(|foreign| foreign.body).collect();
    let n = bodies.len();
    let reader = injected(&world, &connection, &queue, undecodable()).await?;
    for delivery in reader.take(n).await? {
        reader.retry(&delivery, Duration::ZERO).await?;
    }
    let taken = reader.take(n).await?;
    let mut found: Vec<_> = taken.iter().map(|delivery| delivery.envelope.body.clone()).collect();
    bodies.sort();
    found.sort();
    ensure!(bodies == found, "bodies became {found:?}");
    let attempts: Vec<_> = taken.iter().map(|delivery| delivery.envelope.attempts()).collect();
    ensure!(attempts.iter().all(|n| *n == 1), "after one retry they count {attempts:?}");
    reader.ack_all(&taken).await
}

async fn undecodable_ones_are_stored_as_they_came<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (connection, queue) = world.with_queue().await?;
    let store = world.store("failed")?;
    connection.declare(&[&store]).await?;
    let n = undecodable().len();
    let reader = injected(&world, &connection, &queue, undecodable()).await?;
    let mut kept: Vec<Arc<Envelope>> = Vec::new();
    for delivery in reader.take(n).await? {
        kept.push(connection.send(&store, Envelope::clone(&delivery.envelope)).await?);
        reader.ack(&delivery).await?;
    }
    let mut found: Vec<_> = connection.pages(&store, None, 2).await?.into_iter().map(|b| b.envelope).collect();
    kept.sort_by(|a, b| a.id.cmp(&b.id));
    found.sort_by(|a, b| a.id.cmp(&b.id));
    ensure!(kept == found, "stored {kept:?}, found {found:?}");
    Ok(())
}
