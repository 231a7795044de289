//! Sending failed records back, and removing them.

use std::time::Duration;

use postroom_core::{ErrorKind, Outgoing, Place, Text, TransportError, protocol::replace::replayed};

use super::{FailedRecord, OpsError, failed::unlisted};
use crate::TransportHandle;

/// Sends records back to the places that they came from, each with a fresh budget and the same message id, confirmed;
/// only then it is removed. One result a record, in order: whether it was still there to be removed.
///
/// `transport` finds the transport of a place: by the name that the record bears, or by the place alone.
pub async fn retry(
    records: &[FailedRecord],
    transport: impl Fn(&FailedRecord, &Place) -> Option<TransportHandle>,
) -> Vec<Result<bool, OpsError>> {
    let mut results: Vec<Option<Result<bool, OpsError>>> = records.iter().map(|_| None).collect();
    // A batch for each transport.
    let mut batches: Vec<(TransportHandle, Vec<(usize, Outgoing)>)> = Vec::new();
    for (at, (record, result)) in records.iter().zip(&mut results).enumerate() {
        let target = record.origin().and_then(|place| Some((transport(record, place)?, place.clone())));
        let Some((handle, place)) = target else {
            *result = Some(Err(no_origin(record)));
            continue;
        };
        let outgoing = Outgoing::new(place, replayed(record.envelope()));
        match batches.iter_mut().find(|(other, _)| other.name() == handle.name()) {
            Some((_, batch)) => batch.push((at, outgoing)),
            None => batches.push((handle, vec![(at, outgoing)])),
        }
    }
    let mut sent = Vec::new();
    for (handle, batch) in batches {
        let (places, batch): (Vec<usize>, Vec<Outgoing>) = batch.into_iter().unzip();
        let answers = handle.publish(batch).await;
        for (at, answer) in places.into_iter().zip(answers) {
            match answer {
                Ok(_) => sent.push(at),
                Err(error) => put(&mut results, at, Err(error.into())),
            }
        }
    }
    let chosen: Vec<&FailedRecord> = sent.iter().filter_map(|at| records.get(*at)).collect();
    for (at, removed) in sent.iter().zip(remove_all(&chosen).await) {
        put(&mut results, *at, removed);
    }
    let lost = || Err(TransportError::new(ErrorKind::Timeout, "the transport gave no answer for this record").into());
    results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
}

/// Removes records for good. One result a record, in order: whether it was still there.
pub async fn remove(records: &[FailedRecord]) -> Vec<Result<bool, OpsError>> {
    remove_all(&records.iter().collect::<Vec<_>>()).await
}

async fn remove_all(records: &[&FailedRecord]) -> Vec<Result<bool, OpsError>> {
    let mut results = Vec::with_capacity(records.len());
    // Neighbours of one store go in one call, so the order of the answers is that of the records.
    for batch in records.chunk_by(|a, b| a.store.is(&b.store)) {
        let Some(first) = batch.first() else { continue };
        let handles: Vec<Text> = batch.iter().map(|record| record.item.handle.clone()).collect();
        match first.store.handle.remove(&first.store.place, handles).await {
            Ok(Some(removed)) if removed.len() == batch.len() => results.extend(removed.into_iter().map(Ok)),
            Ok(Some(_)) => {
                let short = || TransportError::new(ErrorKind::Timeout, "the broker gave no answer for this record");
                results.extend(batch.iter().map(|_| Err(short().into())));
            }
            Ok(None) => results.extend(batch.iter().map(|record| Err(unlisted(&record.store)))),
            Err(error) => results.extend(batch.iter().map(|_| Err(error.clone().into()))),
        }
    }
    results
}

fn put<T>(results: &mut [Option<T>], at: usize, result: T) {
    if let Some(place) = results.get_mut(at) {
        *place = Some(result);
    }
}

fn no_origin(record: &FailedRecord) -> OpsError {
    let origin = match (record.from(), record.origin()) {
        (Some(transport), Some(place)) => format!("transport `{transport}` ({place})"),
        (_, Some(place)) => place.to_string(),
        _ => "an unknown place".to_string(),
    };
    OpsError::NoOrigin { record: record.id(), origin }
}

/// Keeps a rate: batches of at most [`Pace::batch`], with pauses between them.
#[derive(Debug)]
pub struct Pace {
    per_second: Option<f64>,
    begun: tokio::time::Instant,
    done: u64,
}

impl Pace {
    /// So many a second; `None`: as fast as it goes.
    #[must_use]
    pub fn new(per_second: Option<f64>) -> Self {
        Self { per_second, begun: tokio::time::Instant::now(), done: 0 }
    }

    /// How many to do at once: a tenth of a second's worth.
    #[must_use]
    pub fn batch(&self) -> usize {
        match self.per_second {
            // The cast saturates, and the clamp holds both ends.
            Some(rate) => ((rate / 10.0) as usize).clamp(1, 500),
            None => 500,
        }
    }

    /// Waits until `more` are due.
    pub async fn wait(&mut self, more: usize) {
        if let Some(rate) = self.per_second {
            let due = Duration::try_from_secs_f64(self.done as f64 / rate).unwrap_or(Duration::MAX);
            if let Some(at) = self.begun.checked_add(due) {
                tokio::time::sleep_until(at).await;
            }
        }
        self.done += more as u64;
    }
}
