//! The queue of a pool: filled by consumers, emptied by the slots of several threads.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use crate::gate::Delivery;

/// Bounded by the permits of the subscriptions that feed it, never by itself: nothing is refused, nothing dropped.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<Delivery>>,
    closed: AtomicBool,
    more: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Delivery>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds deliveries; on a closed queue they are dropped, which gives them back.
    pub(crate) fn push(&self, deliveries: impl IntoIterator<Item = Delivery>) {
        let mut waiting = self.lock();
        if self.closed.load(Ordering::SeqCst) {
            drop(waiting);
            return deliveries.into_iter().for_each(drop);
        }
        waiting.extend(deliveries);
        drop(waiting);
        self.more.notify_one();
    }

    pub(crate) fn try_pop(&self) -> Option<Delivery> {
        let mut waiting = self.lock();
        let delivery = waiting.pop_front()?;
        let more = !waiting.is_empty();
        drop(waiting);
        if more {
            // A push wakes one slot; each that found more wakes the next.
            self.more.notify_one();
        }
        Some(delivery)
    }

    /// The next delivery; `None` once the queue is closed.
    pub(crate) async fn pop(&self) -> Option<Delivery> {
        loop {
            if let Some(delivery) = self.try_pop() {
                return Some(delivery);
            }
            if self.closed.load(Ordering::SeqCst) {
                // Others wait too.
                self.more.notify_one();
                return None;
            }
            self.more.notified().await;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Takes out what no handler has started, which gives it back. What waits for its next handler stays.
    pub(crate) fn clear_unstarted(&self) {
        let mut waiting = self.lock();
        let (started, unstarted): (VecDeque<_>, VecDeque<_>) = waiting.drain(..).partition(|delivery| delivery.started);
        *waiting = started;
        drop(waiting);
        drop(unstarted);
    }

    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        self.closed.store(true, Ordering::SeqCst);
        let taken = std::mem::take(&mut *waiting);
        drop(waiting);
        drop(taken);
        self.more.notify_one();
    }
}
