//! A node with one transport and one scripted handler, and what its handlers saw.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use postroom_actors::{
    HandlerError, HandlerOptions, Node, Receipt, Received, TransportHandle, TransportOptions, TransportSpec, launcher,
};
use postroom_core::{Envelope, Place, Raw, RetryPolicy, Text};

use super::mortal::{Fate, Mortal, MortalConfig};
use crate::{
    Subject,
    support::{Stop, World, ensure},
};

/// The transport's name in the nodes of the scenarios.
pub(crate) const MAIN: &str = "main";

/// What a scripted handler answers.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Result<(), HandlerError>>>>;
/// What a handler does.
pub(crate) type Script = Arc<dyn Fn(Received<Raw>) -> Answer + Send + Sync>;

/// A script from an async closure.
pub(crate) fn script<F>(act: impl Fn(Received<Raw>) -> F + Send + Sync + 'static) -> Script
where
    F: Future<Output = Result<(), HandlerError>> + 'static,
{
    Arc::new(move |received| Box::pin(act(received)))
}

/// A handler that is done at once.
pub(crate) fn done() -> Script {
    script(|_| async { Ok(()) })
}

/// One run of a handler.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) envelope: Envelope,
    pub(crate) transport: Text,
    pub(crate) started: Instant,
    /// `None` while it runs, or when it was cut.
    pub(crate) well: Option<bool>,
}

type Runs = Arc<Mutex<Vec<Run>>>;

/// How a worker is set up.
pub(crate) struct Setup {
    pub(crate) options: TransportOptions,
    pub(crate) handler: HandlerOptions,
    pub(crate) grace: Duration,
    pub(crate) fate: Arc<Fate>,
}

/// A node with one transport and one scripted handler.
pub(crate) struct Worker<S: Subject> {
    pub(crate) node: Node,
    pub(crate) fate: Arc<Fate>,
    runs: Runs,
    place: Place,
    world: World<S>,
}

/// The leases of a transport are a second at least.
pub(crate) fn lease<S: Subject>(world: &World<S>) -> Duration {
    world.lease().max(Duration::from_secs(1))
}

impl<S: Subject> World<S> {
    /// A worker of a place with the usual setup: four handlers at once, retries at once.
    pub(crate) async fn worker(&self, place: &Place, script: Script) -> Result<Worker<S>, Stop> {
        self.worker_with(place, script, |_| {}).await
    }

    pub(crate) async fn worker_with(
        &self,
        place: &Place,
        script: Script,
        tune: impl FnOnce(&mut Setup),
    ) -> Result<Worker<S>, Stop> {
        let mut options = TransportOptions::new(MAIN, place.clone());
        options.lease = lease(self);
        options.retry = RetryPolicy { max: 3, delay: Duration::ZERO, ..RetryPolicy::default() };
        let handler = HandlerOptions::new(MAIN, "*")?.concurrency(4).threads(1);
        let mut setup = Setup { options, handler, grace: Duration::from_secs(10), fate: Fate::new() };
        tune(&mut setup);
        let Setup { options, handler, grace, fate } = setup;
        let runs = Runs::default();
        let config = MortalConfig { inner: self.subject.config(), fate: fate.clone() };
        let seen = runs.clone();
        let make = move || {
            let (script, seen) = (script.clone(), seen.clone());
            move |received: Received<Raw>| handle(script.clone(), seen.clone(), received)
        };
        let spec = TransportSpec::new(options, launcher::<Mortal<S::Broker>>(config));
        let builder = Node::builder().name("conformance").grace(grace).fail_fast(true).transport(spec);
        let node = builder.handle_with::<Raw, _, _, _, _>(handler, make).start().await?;
        self.ledger.borrow_mut().worked(place);
        Ok(Worker { node, fate, runs, place: place.clone(), world: self.clone() })
    }
}

async fn handle(script: Script, seen: Runs, received: Received<Raw>) -> Result<(), HandlerError> {
    let run = Run {
        envelope: received.envelope().clone(),
        transport: received.transport().into(),
        started: Instant::now(),
        well: None,
    };
    let index = {
        let mut runs = lock(&seen);
        runs.push(run);
        runs.len() - 1
    };
    let ended = script(received).await;
    if let Some(run) = lock(&seen).get_mut(index) {
        run.well = Some(ended.is_ok());
    }
    ended
}

fn lock(runs: &Runs) -> std::sync::MutexGuard<'_, Vec<Run>> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Subject> Worker<S> {
    pub(crate) fn runs(&self) -> Vec<Run> {
        lock(&self.runs).clone()
    }

    pub(crate) fn handle(&self) -> Result<TransportHandle, Stop> {
        self.node.transport(MAIN).ok_or_else(|| Stop::failed("the node does not know its transport"))
    }

    /// Sends envelopes, each of which must be confirmed.
    pub(crate) async fn send(&self, envelopes: Vec<Envelope>) -> Result<(), Stop> {
        self.send_after(envelopes, Duration::ZERO).await
    }

    pub(crate) async fn send_after(&self, envelopes: Vec<Envelope>, after: Duration) -> Result<(), Stop> {
        let to = self.handle()?.options().send_place();
        let batch = envelopes.into_iter().map(|envelope| (envelope, after)).collect();
        for answer in self.node.send_all(MAIN, batch).await? {
            self.world.ledger.borrow_mut().sent(&to, &answer?);
        }
        Ok(())
    }

    pub(crate) async fn send_many(&self, n: usize) -> Result<(), Stop> {
        self.send((0..n).map(|i| Envelope::new(format!("message {i}"))).collect()).await
    }

    /// Waits until the runs are as wanted.
    pub(crate) async fn until(&self, what: &str, enough: impl Fn(&[Run]) -> bool) -> Result<(), Stop> {
        let started = Instant::now();
        while !enough(&lock(&self.runs)) {
            let late = started.elapsed() > self.world.patience();
            ensure!(!late, "{what} did not come about; {}", self.summary());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    pub(crate) fn summary(&self) -> String {
        let runs = lock(&self.runs);
        let well = runs.iter().filter(|run| run.well == Some(true)).count();
        let badly = runs.iter().filter(|run| run.well == Some(false)).count();
        let lines: Vec<_> = self
            .node
            .board()
            .lines()
            .iter()
            .map(|s| format!("{} {}: {:?} {}", s.kind.as_str(), s.name, s.health, s.why))
            .collect();
        format!("{} runs, {well} well, {badly} badly; {}", runs.len(), lines.join("; "))
    }

    /// Waits until `n` runs ended well.
    pub(crate) async fn until_done(&self, n: usize) -> Result<(), Stop> {
        let well = |runs: &[Run]| runs.iter().filter(|run| run.well == Some(true)).count() >= n;
        self.until(&format!("{n} handled messages"), well).await
    }

    /// Stops within its grace. Whatever its handlers did well is done with: it must not come again.
    pub(crate) async fn stop(self) -> Result<(Receipt, Vec<Run>), Stop> {
        let receipt = self.node.stop().await;
        let runs = self.runs();
        for run in runs.iter().filter(|run| run.well == Some(true)) {
            self.world.ledger.borrow_mut().handled(&self.place, &run.envelope.id);
        }
        Ok((receipt, runs))
    }

    /// Stops as [`Worker::stop`] does, and proves that each message was handled once, and by a clean stop.
    pub(crate) async fn stop_clean(self) -> Result<(Receipt, Vec<Run>), Stop> {
        let (receipt, runs) = self.stop().await?;
        ensure!(receipt.is_clean(), "the stop was not clean: {receipt}");
        ensure!(receipt.lost == 0, "deliveries were lost: {receipt}");
        let mut ids: Vec<_> = runs.iter().filter(|run| run.well == Some(true)).map(|run| &run.envelope.id).collect();
        ids.sort();
        let twice = ids.windows(2).find(|pair| pair.first() == pair.last());
        ensure!(twice.is_none(), "{twice:?} was handled twice; {receipt}");
        ensure!(receipt.acked == ids.len() as u64, "{} were handled; {receipt}", ids.len());
        Ok((receipt, runs))
    }

    /// The process dies: nothing more of it reaches the broker. What it did is perhaps acked.
    pub(crate) async fn kill(self) -> Vec<Run> {
        self.fate.kill();
        self.node.stop_within(Duration::ZERO).await;
        let runs = self.runs();
        for run in runs.iter().filter(|run| run.well == Some(true)) {
            self.world.ledger.borrow_mut().perhaps(&self.place, &run.envelope.id);
        }
        runs
    }
}
