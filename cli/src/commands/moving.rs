//! `postroom failed retry` and `remove`.

use std::collections::HashMap;

use postroom::{
    TransportHandle,
    ops::{self, FailedRecord, OpsError, Pace, Scan, Store},
};
use postroom_core::{MessageId, Place};
use serde_json::json;

use super::failed::{agreed, filter, find, missing, report, stores};
use crate::{
    args::Which,
    exit::{Exit, Failure},
    output::{Output, progress::Progress},
    session::Session,
    text::{count, cut, shown},
};

/// What is done to records.
enum Work {
    Retry { origins: Vec<TransportHandle>, pace: Pace },
    Remove,
}

impl Work {
    fn word(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retried",
            Self::Remove => "removed",
        }
    }

    fn batch(&self) -> usize {
        match self {
            Self::Retry { pace, .. } => pace.batch(),
            Self::Remove => ops::PAGE,
        }
    }

    async fn apply(&mut self, records: &[FailedRecord]) -> Vec<Result<bool, OpsError>> {
        match self {
            Self::Retry { origins, pace } => {
                pace.wait(records.len()).await;
                ops::retry(records, |record, place| origin(origins, record, place)).await
            }
            Self::Remove => ops::remove(records).await,
        }
    }
}

/// The transport that a record came from: by its name, else one that reads the place on the record's own broker.
fn origin(origins: &[TransportHandle], record: &FailedRecord, place: &Place) -> Option<TransportHandle> {
    let reads = |handle: &&TransportHandle| handle.place() == place || handle.options().send_place() == *place;
    let named = origins.iter().find(|handle| record.from().is_some_and(|from| *from == **handle.name()));
    let own = std::slice::from_ref(record.store.transport()).iter().find(reads);
    named.filter(reads).or(own).or_else(|| origins.iter().find(reads)).or(named).cloned()
}

/// Sends records back to where they came from, then removes them.
pub(super) async fn retry(
    session: &mut Session,
    output: Output,
    which: &Which,
    rate: Option<f64>,
) -> Result<Exit, Failure> {
    let mut origins = Vec::new();
    let mut exit = Exit::Done;
    let names = which.filter.from.clone().map_or_else(|| session.names(), |from| vec![from]);
    for name in names {
        match session.transport(&name).await {
            Ok(handle) if !matches!(handle.place(), Place::Store(_)) => origins.push(handle),
            Ok(_) => {}
            // Its store's error is reported below; records of other transports are still moved.
            Err(failure) => exit = exit.and(failure.exit),
        }
    }
    let work = Work::Retry { origins, pace: Pace::new(rate) };
    Ok(exit.and(carry_out(session, output, which, work).await?))
}

/// Removes records for good.
pub(super) async fn remove(session: &mut Session, output: Output, which: &Which, yes: bool) -> Result<Exit, Failure> {
    if which.all && !yes && !agreed(output, "remove all these failed messages for good?")? {
        return Ok(Exit::Done);
    }
    carry_out(session, output, which, Work::Remove).await
}

async fn carry_out(session: &mut Session, output: Output, which: &Which, mut work: Work) -> Result<Exit, Failure> {
    let chosen = filter(session, &which.filter).await?;
    let (stores, mut errors) = stores(session, which.filter.from.as_deref()).await;
    let mut tally = Tally::default();
    if which.all {
        let mut progress = Progress::new(output, work.word(), None);
        for store in &stores {
            if let Err(failure) = all_of(store, chosen.clone(), output, &mut work, &mut tally, &mut progress).await {
                errors.push(failure);
            }
        }
        progress.finish();
    } else {
        for id in &which.records {
            let before = errors.len();
            let found = find(&stores, id, &mut errors).await;
            if found.is_empty() && errors.len() == before {
                errors.push(missing(id));
            }
            for batch in found.chunks(work.batch()) {
                let results = work.apply(batch).await;
                tally.add(output, &work, batch, results)?;
            }
        }
    }
    let exit = report(output, &errors).and(tally.exit);
    if !output.json {
        let not =
            if tally.failed == 0 { String::new() } else { format!("; {} could not be", count(tally.failed, "record")) };
        output.line(&format!("{} {}{not}", work.word(), count(tally.done, "record")))?;
    }
    Ok(exit)
}

/// All records of a store that match, as it stands now: one that was sent back and fails again meanwhile is left there.
async fn all_of(
    store: &Store,
    chosen: ops::Filter,
    output: Output,
    work: &mut Work,
    tally: &mut Tally,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut scan = Scan::new(store.clone(), chosen);
    let mut rounds: HashMap<(MessageId, Option<Place>), u32> = HashMap::new();
    while let Some(mut page) = scan.next().await? {
        page.retain(|record| {
            let round = record.envelope().track.as_ref().map_or(0, |track| track.round);
            let first = rounds.entry((record.envelope().id.clone(), record.origin().cloned())).or_insert(round);
            round <= *first
        });
        for batch in page.chunks(work.batch()) {
            let results = work.apply(batch).await;
            tally.add(output, work, batch, results)?;
            progress.add(batch.len() as u64);
        }
    }
    Ok(())
}

/// What came of the records.
struct Tally {
    done: u64,
    failed: u64,
    exit: Exit,
}

impl Default for Tally {
    fn default() -> Self {
        Self { done: 0, failed: 0, exit: Exit::Done }
    }
}

impl Tally {
    fn add(
        &mut self,
        output: Output,
        work: &Work,
        records: &[FailedRecord],
        results: Vec<Result<bool, OpsError>>,
    ) -> Result<(), Failure> {
        for (record, result) in records.iter().zip(results) {
            let (id, message) = (record.id(), &record.envelope().id);
            let result = match (result, work) {
                // Another was faster: nothing was there to remove.
                (Ok(false), Work::Remove) => Err(missing(&id)),
                (Ok(_), _) => Ok(()),
                (Err(error), _) => Err(Failure::from(error)),
            };
            match result {
                Ok(()) => {
                    self.done += 1;
                    if output.json {
                        output.object(&json!({"record": &*id, "id": &**message, work.word(): true}))?;
                    }
                }
                Err(failure) => {
                    self.failed += 1;
                    self.exit = self.exit.and(if failure.exit == Exit::Usage { Exit::Failed } else { failure.exit });
                    if output.json {
                        let error = json!({"kind": failure.kind, "message": failure.message});
                        output
                            .object(&json!({"record": &*id, "id": &**message, work.word(): false, "error": error}))?;
                    } else {
                        output.line(&format!(
                            "{} was not {}: {}",
                            cut(&id, 40),
                            work.word(),
                            shown(&failure.message)
                        ))?;
                    }
                }
            }
        }
        Ok(())
    }
}
