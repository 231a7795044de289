//! Who waits for messages, and how they are told.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{Notify, watch};

/// Who is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bell {
    /// One source of a place: messages are ready.
    Place(i64),
    /// One source of each group of a topic.
    Topic(i64),
    /// All, to look for themselves: something changed, and what is not known.
    All,
}

struct Known {
    topic: Option<i64>,
    arrived: Weak<Notify>,
}

/// The waiting sources of one file in this process.
pub(crate) struct Arrivals {
    places: Mutex<HashMap<i64, Known>>,
    /// Counts the changes that other processes made.
    foreign: watch::Sender<u64>,
    waiting: AtomicUsize,
    /// Called when the first one begins to wait.
    pub(crate) begun: Notify,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        let places = Mutex::default();
        Self { places, foreign: watch::Sender::new(0), waiting: AtomicUsize::new(0), begun: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Known>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bell of a place; all its sources share one. Who takes a full load rings it again, so one ring is enough for
    /// many messages.
    pub(crate) fn bell(&self, place: i64, topic: Option<i64>) -> Arc<Notify> {
        let mut places = self.lock();
        if let Some(bell) = places.get(&place).and_then(|known| known.arrived.upgrade()) {
            return bell;
        }
        places.retain(|_, known| known.arrived.strong_count() > 0);
        let bell = Arc::<Notify>::default();
        places.insert(place, Known { topic, arrived: Arc::downgrade(&bell) });
        bell
    }

    pub(crate) fn ring(&self, bell: Bell) {
        let ring = |known: &Known| known.arrived.upgrade().iter().for_each(|bell| bell.notify_one());
        match bell {
            Bell::Place(place) => self.lock().get(&place).iter().for_each(|known| ring(known)),
            Bell::Topic(topic) => self.lock().values().filter(|known| known.topic == Some(topic)).for_each(ring),
            Bell::All => self.foreign.send_modify(|changes| *changes = changes.wrapping_add(1)),
        }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.foreign.subscribe()
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Counts one that waits, until the answer is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        if self.waiting.fetch_add(1, Ordering::AcqRel) == 0 {
            self.begun.notify_one();
        }
        Waiting(self)
    }
}

pub(crate) struct Waiting<'a>(&'a Arrivals);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
