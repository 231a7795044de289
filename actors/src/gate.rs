//! What the threads of the pools and the transport's arbiter share about one subscription, and a delivery on its way.

use std::{
    collections::HashSet,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use coarsetime::Instant;
use postroom_core::{
    AttemptKind, Envelope, Outcome, Text,
    protocol::{Key, SourceId},
};
use tokio::sync::{Notify, mpsc, watch};

use crate::route::Route;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds of this process's monotonic clock, from 1.
pub(crate) fn now_ms() -> u64 {
    Tick::now().ms()
}

/// A reading of this process's monotonic clock, in nanoseconds. It is read once for each message, so it is the coarse
/// one, a few milliseconds behind at most: leases and timeouts are far longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(u64);

impl Tick {
    pub(crate) fn now() -> Self {
        Self(Instant::now().duration_since(*START).as_nanos())
    }

    /// As [`now_ms`].
    pub(crate) fn ms(self) -> u64 {
        self.0 / 1_000_000 + 1
    }

    /// Whether this is more than some time after another reading.
    pub(crate) fn is_past(self, other: Self, nanoseconds: u64) -> bool {
        self.0.saturating_sub(other.0) > nanoseconds
    }
}

/// One run of a delivery has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) key: Key,
    /// `None`: well, with no marks to keep. Most are that, and travel light.
    pub(crate) how: Option<Box<How>>,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct How {
    pub(crate) outcome: Outcome,
    pub(crate) done: Vec<Text>,
}

impl Ended {
    fn new(key: Key, outcome: Outcome, done: Vec<Text>) -> Self {
        // Marks of a message that is done are of no use to anybody.
        let how = (!matches!(outcome, Outcome::Done)).then(|| Box::new(How { outcome, done }));
        Self { key, how }
    }
}

/// Shared by a subscription's transport and its pools' threads.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) transport: Text,
    pub(crate) source: SourceId,
    /// The suspects' lane: its deliveries run alone in the process.
    pub(crate) lane: bool,
    /// Bounded by the permits: each delivery ends once.
    pub(crate) ends: mpsc::UnboundedSender<Vec<Ended>>,
    epoch: AtomicU32,
    renewed_ms: AtomicU64,
    lease_ms: u64,
    draining: watch::Sender<bool>,
    /// The same, for those who ask before each message.
    drained: AtomicBool,
    any_lost: AtomicBool,
    lost: Mutex<HashSet<Key>>,
    pub(crate) quiet: Arc<Quiet>,
}

impl Gate {
    pub(crate) fn new(
        transport: Text,
        source: SourceId,
        lane: bool,
        lease: Duration,
        ends: mpsc::UnboundedSender<Vec<Ended>>,
        quiet: Arc<Quiet>,
    ) -> Self {
        Self {
            transport,
            source,
            lane,
            ends,
            epoch: AtomicU32::new(0),
            renewed_ms: AtomicU64::new(0),
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            draining: watch::Sender::new(false),
            drained: AtomicBool::new(false),
            any_lost: AtomicBool::new(false),
            lost: Mutex::default(),
            quiet,
        }
    }

    /// From now on only deliveries of this epoch may start.
    pub(crate) fn set_epoch(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::SeqCst);
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.any_lost.store(false, Ordering::SeqCst);
    }

    /// All leases were renewed by a call that began at this time.
    pub(crate) fn renewed(&self, at_ms: u64) {
        self.renewed_ms.fetch_max(at_ms, Ordering::SeqCst);
    }

    pub(crate) fn lost(&self, key: Key) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.any_lost.store(true, Ordering::SeqCst);
    }

    pub(crate) fn drain(&self) {
        self.drained.store(true, Ordering::SeqCst);
        self.draining.send_replace(true);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.drained.load(Ordering::SeqCst)
    }

    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }
}

/// One delivery on its way through the pools. Dropped without an end it ends itself: as not started before its handler
/// started, as an errored attempt after.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) key: Key,
    pub(crate) epoch: u32,
    pub(crate) envelope: Arc<Envelope>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) leased_ms: u64,
    pub(crate) route: Option<Arc<Route>>,
    pub(crate) stage: usize,
    pub(crate) parts: Vec<(Text, Outcome)>,
    pub(crate) started: bool,
    ended: bool,
}

impl Delivery {
    /// A delivery that was taken at this time, in [`now_ms`].
    pub(crate) fn new(key: Key, envelope: Arc<Envelope>, gate: Arc<Gate>, leased_ms: u64) -> Self {
        let epoch = gate.epoch.load(Ordering::SeqCst);
        Self {
            key,
            epoch,
            envelope,
            gate,
            leased_ms,
            route: None,
            stage: 0,
            parts: Vec::new(),
            started: false,
            ended: false,
        }
    }

    /// Whether a handler may start at this time: its connection lasts, its lease surely has not ended, and no stop was
    /// heard.
    pub(crate) fn may_start(&self, now_ms: u64) -> bool {
        let gate = &*self.gate;
        if gate.epoch.load(Ordering::SeqCst) != self.epoch || (gate.is_draining() && !self.started) {
            return false;
        }
        if gate.lease_ms != 0 {
            let since = self.leased_ms.max(gate.renewed_ms.load(Ordering::SeqCst));
            // A paused process wakes with leases that others hold by now.
            if now_ms.saturating_sub(since) >= gate.lease_ms {
                return false;
            }
        }
        !(gate.any_lost.load(Ordering::SeqCst)
            && gate.lost.lock().unwrap_or_else(PoisonError::into_inner).contains(&self.key))
    }

    pub(crate) fn end(mut self, outcome: Outcome) -> Ended {
        self.ended = true;
        if self.parts.is_empty() && matches!(outcome, Outcome::Done) {
            return Ended { key: self.key, how: None };
        }
        if self.parts.is_empty() {
            return Ended::new(self.key, outcome, Vec::new());
        }
        let (outcome, done) = Outcome::combine(std::mem::take(&mut self.parts));
        Ended::new(self.key, outcome, done)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let outcome = if self.started {
            Outcome::errored(AttemptKind::Dropped, "the delivery was dropped before its handler ended")
        } else {
            Outcome::NotStarted
        };
        // Those of its handlers that are done stay done.
        let (_, done) = Outcome::combine(std::mem::take(&mut self.parts));
        let ended = Ended::new(self.key, outcome, done);
        // Only a transport that is gone does not hear it, and its connection's end gives everything back.
        let _ = self.gate.ends.send(vec![ended]);
    }
}

/// Lets a suspect run alone in its process: intake paused, pools idle.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    wanted: AtomicUsize,
    running: AtomicUsize,
    changed: Notify,
    alone: Arc<tokio::sync::Mutex<()>>,
}

/// A handler is running.
#[derive(Debug)]
pub(crate) struct Running(Arc<Quiet>);

impl Drop for Running {
    fn drop(&mut self) {
        let before = self.0.running.fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.0.wanted.load(Ordering::SeqCst) > 0 {
            self.0.changed.notify_waiters();
        }
    }
}

/// A suspect runs, nothing else does.
#[derive(Debug)]
pub(crate) struct Alone {
    quiet: Arc<Quiet>,
    _turn: tokio::sync::OwnedMutexGuard<()>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.quiet.wanted.fetch_sub(1, Ordering::SeqCst);
        self.quiet.changed.notify_waiters();
    }
}

/// The right to run a handler now.
#[derive(Debug)]
pub(crate) enum Turn {
    Ordinary(#[allow(dead_code, reason = "held for its drop")] Running),
    /// A suspect's: its consumer holds the [`Alone`].
    Suspect,
}

impl Quiet {
    /// Whether a suspect runs or wants to.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    /// Waits until no suspect wants to run.
    pub(crate) async fn over(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !self.is_wanted() {
                return;
            }
            changed.await;
        }
    }

    /// Enters as an ordinary handler, unless a suspect runs or wants to.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Running> {
        // Counted before looking: a suspect either sees us running or we see it waiting.
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(self.clone());
        (!self.is_wanted()).then_some(running)
    }

    /// Enters as a suspect: waits until every running handler has ended, and keeps others out.
    pub(crate) async fn enter_alone(self: &Arc<Self>) -> Alone {
        let _turn = self.alone.clone().lock_owned().await;
        self.wanted.fetch_add(1, Ordering::SeqCst);
        let alone = Alone { quiet: self.clone(), _turn };
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.running.load(Ordering::SeqCst) == 0 {
                return alone;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_suspect_waits_for_the_running_and_keeps_others_out() {
        let quiet = Arc::new(Quiet::default());
        let running = quiet.try_enter().unwrap();
        let (started, mut hear) = mpsc::unbounded_channel();
        let (q, s) = (quiet.clone(), started.clone());
        let suspect = tokio::spawn(async move {
            let _alone = q.enter_alone().await;
            let _ = s.send("suspect");
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        let (q, s) = (quiet.clone(), started);
        let late = tokio::spawn(async move {
            q.over().await;
            let _running = q.try_enter().unwrap();
            let _ = s.send("late");
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(hear.try_recv().is_err());
        drop(running);
        assert_eq!(hear.recv().await, Some("suspect"));
        let at = tokio::time::Instant::now();
        assert_eq!(hear.recv().await, Some("late"));
        assert!(at.elapsed() >= Duration::from_millis(900));
        suspect.await.unwrap();
        late.await.unwrap();
    }
}
