//! The queue of a pool: filled by consumers, emptied by the slots of several threads.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use crate::gate::{Delivery, Quiet};

#[derive(Debug, Default)]
struct Waiting {
    suspects: VecDeque<Delivery>,
    ordinary: VecDeque<Delivery>,
}

impl Waiting {
    fn len(&self) -> usize {
        self.suspects.len() + self.ordinary.len()
    }
}

/// Bounded by the permits of the subscriptions that feed it, never by itself: nothing is refused, nothing dropped.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    closed: AtomicBool,
    more: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds deliveries; on a closed queue they are dropped, which gives them back.
    pub(crate) fn push(&self, deliveries: impl IntoIterator<Item = Delivery>) {
        let mut waiting = self.lock();
        if self.closed.load(Ordering::SeqCst) {
            drop(waiting);
            return deliveries.into_iter().for_each(drop);
        }
        for delivery in deliveries {
            if delivery.gate.lane {
                waiting.suspects.push_back(delivery);
            } else {
                waiting.ordinary.push_back(delivery);
            }
        }
        drop(waiting);
        self.more.notify_one();
    }

    /// Puts an ordinary delivery back where it was: a suspect came first.
    pub(crate) fn put_back(&self, delivery: Delivery) {
        let mut waiting = self.lock();
        if self.closed.load(Ordering::SeqCst) {
            drop(waiting);
            return drop(delivery);
        }
        waiting.ordinary.push_front(delivery);
        drop(waiting);
        self.more.notify_one();
    }

    /// The next delivery: a suspect first, and nothing else while this process is kept quiet for one.
    pub(crate) fn try_pop(&self, quiet: &Quiet) -> Option<Delivery> {
        let mut waiting = self.lock();
        let delivery = match waiting.suspects.pop_front() {
            Some(suspect) => suspect,
            None if quiet.is_wanted() => return None,
            None => waiting.ordinary.pop_front()?,
        };
        let more = waiting.len() > 0;
        drop(waiting);
        if more {
            // A push wakes one slot; each that found more wakes the next.
            self.more.notify_one();
        }
        Some(delivery)
    }

    /// The next delivery; `None` once the queue is closed.
    pub(crate) async fn pop(&self, quiet: &Quiet) -> Option<Delivery> {
        loop {
            let wanted = quiet.is_wanted();
            if let Some(delivery) = self.try_pop(quiet) {
                return Some(delivery);
            }
            if self.closed.load(Ordering::SeqCst) {
                // Others wait too.
                self.more.notify_one();
                return None;
            }
            if wanted {
                tokio::select! {
                    () = self.more.notified() => {}
                    () = quiet.over() => {}
                }
            } else {
                self.more.notified().await;
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Takes out what no handler has started, which gives it back. What waits for its next handler stays.
    pub(crate) fn clear_unstarted(&self) {
        let mut waiting = self.lock();
        let Waiting { suspects, ordinary } = &mut *waiting;
        let mut unstarted = Vec::new();
        for line in [suspects, ordinary] {
            let (stay, go): (VecDeque<_>, VecDeque<_>) = line.drain(..).partition(|delivery| delivery.started);
            *line = stay;
            unstarted.extend(go);
        }
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
