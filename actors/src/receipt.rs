//! The answer of a stop.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postroom_core::{MessageId, protocol::Tally};

use crate::board::Counters;

/// What became of every delivery since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// All deliveries: the sum of the others.
    pub deliveries: u64,
    /// Done.
    pub acked: u64,
    /// Run again, or moved to a suspects' lane.
    pub retried: u64,
    /// Given up and kept.
    pub failed: u64,
    /// Given back untouched.
    pub released: u64,
    /// Their lease was taken by another, or their connection ended.
    pub lost: u64,
    /// Still running at the grace, and given back: their handlers were cut.
    pub abandoned: Vec<MessageId>,
    /// How long the stop took.
    pub stopped_in: Duration,
}

impl Receipt {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.deliveries += other.deliveries;
        self.acked += other.acked;
        self.retried += other.retried;
        self.failed += other.failed;
        self.released += other.released;
        self.lost += other.lost;
        self.abandoned.extend(other.abandoned.iter().cloned());
    }

    /// Whether it stopped within the grace.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.abandoned.is_empty()
    }
}

/// The tallies of one transport, readable while its arbiter is busy.
#[derive(Debug)]
pub(crate) struct Tallies {
    counters: Arc<Counters>,
    abandoned: Mutex<Vec<MessageId>>,
}

impl Tallies {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { counters, abandoned: Mutex::default() }
    }

    pub(crate) fn abandon(&self, id: MessageId) {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    pub(crate) fn receipt(&self) -> Receipt {
        let of = |tally| self.counters.of(tally);
        let abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut receipt = Receipt {
            deliveries: 0,
            acked: of(Tally::Acked),
            retried: of(Tally::Retried),
            failed: of(Tally::Failed),
            released: of(Tally::Released),
            lost: of(Tally::Lost),
            abandoned,
            stopped_in: Duration::ZERO,
        };
        receipt.deliveries = receipt.acked
            + receipt.retried
            + receipt.failed
            + receipt.released
            + receipt.lost
            + receipt.abandoned.len() as u64;
        receipt
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} deliveries: {} acked, {} retried, {} failed, {} released, {} lost, {} abandoned; stopped in {} ms",
            self.deliveries,
            self.acked,
            self.retried,
            self.failed,
            self.released,
            self.lost,
            self.abandoned.len(),
            self.stopped_in.as_millis()
        )
    }
}
