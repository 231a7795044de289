//! Publishing: a batch as few calls, all on their way at once.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use postroom_core::{ErrorKind, MessageId, Outgoing, Place, TransportError};
use redis::{Cmd, Pipeline, Value};

use crate::{
    broker::millis,
    entry,
    link::{Link, Script, item},
};

/// One call's bodies at most, far below what the server buffers for a client.
const CALL_BYTES: usize = 16 << 20;

pub(crate) async fn publish(
    link: &Link,
    max_body: usize,
    batch: &[Outgoing],
) -> Vec<Result<MessageId, TransportError>> {
    let mut known: Vec<Option<TransportError>> = Vec::with_capacity(batch.len());
    let mut open: BTreeMap<(&Place, bool), (Vec<usize>, usize)> = BTreeMap::new();
    let mut full = Vec::new();
    for (index, outgoing) in batch.iter().enumerate() {
        known.push(entry::check(&outgoing.envelope, max_body).err());
        if matches!(known.last(), Some(Some(_))) {
            continue;
        }
        let plain = outgoing.to.is_readable() && outgoing.delay.is_none();
        let call = (&outgoing.to, plain);
        let (items, bytes) = open.entry(call).or_default();
        items.push(index);
        *bytes += outgoing.envelope.body.len();
        if *bytes >= CALL_BYTES
            && let Some((items, _)) = open.remove(&call)
        {
            full.push((call, items));
        }
    }
    full.extend(open.into_iter().map(|(call, (items, _))| (call, items)));
    let calls = full.iter().map(|((place, plain), items)| call(link, place, *plain, batch, items));
    for (((place, _), items), answers) in full.iter().zip(join_all(calls).await) {
        let mut answers = answers.map(Vec::into_iter);
        for index in items {
            let answer = match &mut answers {
                Ok(answers) => answers.next().unwrap_or_default(),
                Err(error) => {
                    known.get_mut(*index).into_iter().for_each(|known| *known = Some(error.clone()));
                    continue;
                }
            };
            let unroutable = |why| Some(TransportError::new(ErrorKind::Unroutable, format!("{place} {why}")));
            let error = match answer.as_str() {
                "D" => None,
                "U" => unroutable("was never declared"),
                "G" => unroutable("has no group"),
                other => Some(item(&link.at, other)),
            };
            if error.is_none() {
                link.tends(place);
            }
            known.get_mut(*index).into_iter().for_each(|known| *known = error.clone());
        }
    }
    let ids = batch.iter().map(|outgoing| outgoing.envelope.id.clone());
    ids.zip(known).map(|(id, error)| error.map_or(Ok(id), Err)).collect()
}

/// Messages for one place; one text each: D (done), U (undeclared), G (no group) or an error's.
async fn call(
    link: &Link,
    place: &Place,
    plain: bool,
    batch: &[Outgoing],
    items: &[usize],
) -> Result<Vec<String>, TransportError> {
    let lane = link.lane(place)?;
    let messages = items.iter().filter_map(|index| batch.get(*index));
    if plain {
        // No script is needed: NOMKSTREAM tells what was never declared.
        let stream = lane.streams().last().unwrap_or_default();
        let mut add = Pipeline::with_capacity(items.len());
        for outgoing in messages {
            let mut one = Cmd::new();
            one.arg("XADD").arg(stream).arg("NOMKSTREAM").arg("*");
            entry::write(&mut one, &outgoing.envelope, false);
            add.add_command(one);
        }
        let answers = link.pipe(&add, items.len()).await?;
        let word = |answer| match answer {
            Value::Nil => "U".to_owned(),
            Value::ServerError(error) => format!("{} {}", error.code(), error.details().unwrap_or_default()),
            _ => "D".to_owned(),
        };
        return Ok(answers.into_iter().map(word).collect());
    }
    let script = match place {
        Place::Topic(_) => Script::Topic,
        Place::Store(_) => Script::Store,
        _ => Script::Publish,
    };
    let mut command = link.call(script, &lane);
    command.arg(items.len());
    for outgoing in messages {
        let delay = outgoing.delay.map_or(0, millis);
        match place {
            Place::Topic(_) => command.arg(delay).arg(u8::from(outgoing.require_group)),
            // A store has no consumers, so nothing there is ever due.
            Place::Store(_) => {
                let track = outgoing.envelope.track.as_ref();
                let record = track.and_then(|track| track.failure.as_ref()).map(|failure| &*failure.record);
                command.arg(record.unwrap_or_default())
            }
            _ => command.arg(delay),
        };
        entry::write(&mut command, &outgoing.envelope, true);
    }
    link.answers(&command, items.len()).await
}
