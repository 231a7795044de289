//! The live status board: what each part of a node does, since when, and why.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use dashmap::DashMap;
use postroom_core::{Text, protocol::Tally};

/// The health of a part, proved by progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Health {
    /// Messages move.
    Active,
    /// The broker was asked, and said that there is nothing.
    Idle,
    /// Paused, or held back on purpose.
    Standby,
    /// Connecting, or the connection is lost and being made again.
    #[default]
    Reconnecting,
    /// Work waits, slots are free, and nothing moves.
    Stalled,
    /// It works on below its promise: a spent restart budget, a topology that differs, no failure transport.
    Degraded,
    /// Stopped.
    Stopped,
}

impl Health {
    /// The state's word, as in `/status`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Idle => "idle",
            Self::Standby => "standby",
            Self::Reconnecting => "reconnecting",
            Self::Stalled => "stalled",
            Self::Degraded => "degraded",
            Self::Stopped => "stopped",
        }
    }

    /// Whether it counts as ready.
    #[must_use]
    pub fn is_green(self) -> bool {
        matches!(self, Self::Active | Self::Idle | Self::Standby)
    }
}

/// Which kind of part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A transport.
    Transport,
    /// A consumer: one subscription.
    Consumer,
    /// A pool of handlers.
    Pool,
}

impl Kind {
    /// The kind's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transport => "transport",
            Self::Consumer => "consumer",
            Self::Pool => "pool",
        }
    }
}

/// The figures of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part {
    /// Handlers running.
    pub running: usize,
    /// Deliveries that wait for a slot.
    pub waiting: usize,
    /// Panics since the start.
    pub panics: usize,
    /// Threads that a handler blocked and that were replaced.
    pub blocked: usize,
}

/// One line of the board.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The part's kind.
    pub kind: Kind,
    /// The part's name.
    pub name: Text,
    /// Its health.
    pub health: Health,
    /// Since when.
    pub since: SystemTime,
    /// Why; empty where it is well.
    pub why: String,
    /// The figures of a pool.
    pub part: Part,
}

/// What became of the deliveries of a transport, and of its publishes, since the start.
#[derive(Debug, Default)]
pub struct Counters {
    tallies: [AtomicU64; 6],
    published: AtomicU64,
    ignored: AtomicU64,
    oddities: AtomicU64,
}

impl Counters {
    pub(crate) fn tally(&self, tally: Tally) {
        if let Some(counter) = self.tallies.get(tally as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
    pub(crate) fn published(&self, n: usize) {
        self.published.fetch_add(n as u64, Ordering::Relaxed);
    }
    pub(crate) fn ignored(&self) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn odd(&self, n: u32) {
        self.oddities.fetch_add(u64::from(n), Ordering::Relaxed);
    }

    /// Deliveries that ended so.
    #[must_use]
    pub fn of(&self, tally: Tally) -> u64 {
        self.tallies.get(tally as usize).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }
    /// Messages published and confirmed.
    #[must_use]
    pub fn published_count(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }
    /// Messages acked as unhandled.
    #[must_use]
    pub fn ignored_count(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }
    /// Metadata from outside that was out of range and counted as absent.
    #[must_use]
    pub fn oddity_count(&self) -> u64 {
        self.oddities.load(Ordering::Relaxed)
    }
}

/// The status board of a node; any thread may read it at any time.
#[derive(Debug, Default)]
pub struct Board {
    lines: DashMap<(Kind, Text), Status>,
    counters: DashMap<Text, Arc<Counters>>,
}

impl Board {
    pub(crate) fn set(&self, kind: Kind, name: &Text, health: Health, why: impl Into<String>) {
        self.write(kind, name, health, why.into(), Part::default());
    }

    pub(crate) fn pool(&self, name: &Text, health: Health, why: String, part: Part) {
        self.write(Kind::Pool, name, health, why, part);
    }

    fn write(&self, kind: Kind, name: &Text, health: Health, why: String, part: Part) {
        let fresh = || Status { kind, name: name.clone(), health, since: SystemTime::now(), why: String::new(), part };
        let mut line = self.lines.entry((kind, name.clone())).or_insert_with(fresh);
        if line.health != health {
            line.health = health;
            line.since = SystemTime::now();
        }
        line.why = why;
        line.part = part;
    }

    pub(crate) fn counters_of(&self, transport: &Text) -> Arc<Counters> {
        self.counters.entry(transport.clone()).or_default().clone()
    }

    /// All lines, by kind and name.
    #[must_use]
    pub fn lines(&self) -> Vec<Status> {
        let mut lines: Vec<Status> = self.lines.iter().map(|line| line.value().clone()).collect();
        lines.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        lines
    }

    /// One line.
    #[must_use]
    pub fn line(&self, kind: Kind, name: &str) -> Option<Status> {
        self.lines.get(&(kind, Text::from(name))).map(|line| line.value().clone())
    }

    /// The counters of a transport.
    #[must_use]
    pub fn counters(&self, transport: &str) -> Option<Arc<Counters>> {
        self.counters.get(transport).map(|counters| counters.value().clone())
    }

    /// Whether every part is green.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lines.iter().all(|line| line.health.is_green())
    }
}
