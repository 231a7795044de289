//! A message that kills its process is failed after its budget, and no innocent neighbour with it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use postroom_core::{Envelope, MessageId, Reason};

use super::{
    mortal::Fate,
    worker::{Run, script},
};
use crate::{
    Subject,
    scenario::scenarios,
    support::{Stop, World, ensure},
};

scenarios! { Leases;
    a_killer_among_innocents_is_failed_alone [Lease, Browse] "a killer among 20 innocents fails as crashed after four starts; the 20 are all handled, none failed (C11)";
}

const KILLER: &[u8] = b"killer";
/// More lives than any schedule needs.
const LIVES: usize = 12;

async fn a_killer_among_innocents_is_failed_alone<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let queue = world.queue("q")?;
    let connection = world.connect().await?;
    connection.declare(&[&queue]).await?;
    let killer = Envelope::new(KILLER);
    let mut envelopes: Vec<_> = (0..20).map(|i| Envelope::new(format!("innocent {i}"))).collect();
    let innocents: BTreeSet<_> = envelopes.iter().map(|envelope| envelope.id.clone()).collect();
    envelopes.insert(7, killer.clone());
    for envelope in envelopes {
        connection.send(&queue, envelope).await?;
    }
    let store = queue.default_failure();
    let mut starts = 0;
    let mut handled = BTreeSet::new();
    for life in 1..=LIVES {
        let fate = Fate::new();
        let own = fate.clone();
        let act = script(move |received| {
            let own = own.clone();
            async move {
                if received.envelope().body == KILLER {
                    own.kill();
                    // A dead process answers nothing.
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok(())
            }
        });
        let Ok(worker) = world.worker_with(&queue, act, |setup| setup.fate = fate).await else {
            // It died while it started: the killer came at once.
            starts += 1;
            continue;
        };
        let born = Instant::now();
        let mut settled = false;
        while !worker.fate.is_dead() && !settled {
            if born.elapsed() > world.patience() {
                let lane = queue.suspects().unwrap_or_else(|| queue.clone());
                let (here, there) = (world.figures(&connection, &queue).await, world.figures(&connection, &lane).await);
                return Err(Stop::failed(format_args!(
                    "life {life}, neither a death nor an end after {starts} starts: queue {here}, lane {there}, {}",
                    worker.summary()
                )));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            // It was given up: whatever innocents are left are this life's.
            let failed = !connection.find(&store, &killer.id).await?.is_empty();
            settled = failed && world.rests(&connection, &queue).await?;
        }
        if settled {
            let (receipt, runs) = worker.stop().await?;
            ensure!(receipt.is_clean(), "{receipt}");
            handled.extend(done(&runs));
            break;
        }
        let runs = worker.kill().await;
        handled.extend(done(&runs));
        starts += runs.iter().filter(|run| run.envelope.body == KILLER).count();
    }
    ensure!(starts == 4, "the killer was started {starts} times");
    let found = connection.find(&store, &killer.id).await?;
    let reasons: Vec<_> = found.iter().filter_map(|b| b.envelope.track.as_ref()?.failure.as_ref()).collect();
    ensure!(
        reasons.len() == 1 && reasons.iter().all(|failure| failure.reason == Reason::Crashed),
        "it failed as {reasons:?}"
    );
    let missed: Vec<_> = innocents.difference(&handled).collect();
    ensure!(missed.is_empty(), "{} innocents were not handled: {missed:?}", missed.len());
    for id in &innocents {
        ensure!(connection.find(&store, id).await?.is_empty(), "an innocent failed: {id}");
    }
    Ok(())
}

fn done(runs: &[Run]) -> impl Iterator<Item = MessageId> {
    runs.iter().filter(|run| run.well == Some(true)).map(|run| run.envelope.id.clone())
}
