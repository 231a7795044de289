//! The settle buffer: many settles in one call, some calls at once.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    time::Duration,
};

use postroom_core::{
    Broker, ErrorKind, Settlement, Source, TransportError,
    protocol::{Event, Key, SourceId},
};

use super::engine::{Engine, Link, within};
use crate::board::Health;

/// Settles in one call at most.
pub(super) const BATCH: usize = 256;
/// Settles that are worth a call beside another.
const BESIDE: usize = 64;
/// Calls under way at once for one subscription.
pub(super) const CALLS: usize = 4;
/// A call that takes longer is a silent peer.
const CALL: Duration = Duration::from_secs(15);
/// The pause before a refused settle is tried again.
const AGAIN: Duration = Duration::from_millis(200);

struct Buffer {
    waiting: RefCell<VecDeque<(Key, Settlement)>>,
    calls: Cell<usize>,
}

impl Buffer {
    /// Whether a call is to be made: at once where none is under way; beside others only for a good many, since the end
    /// of each looks again.
    fn is_due(&self) -> bool {
        let (calls, waiting) = (self.calls.get(), self.waiting.borrow().len());
        waiting > 0 && (calls == 0 || (calls < CALLS && waiting >= BESIDE))
    }
}

pub(super) struct Settles(Vec<Buffer>);

impl Settles {
    pub(super) fn new(sources: usize) -> Self {
        Self((0..sources).map(|_| Buffer { waiting: RefCell::default(), calls: Cell::new(0) }).collect())
    }

    pub(super) fn push(&self, source: SourceId, key: Key, settlement: Settlement) {
        if let Some(buffer) = self.0.get(source.0 as usize) {
            buffer.waiting.borrow_mut().push_back((key, settlement));
        }
    }

    /// Forgets what waits: its connection is gone.
    pub(super) fn clear(&self) {
        self.0.iter().for_each(|buffer| buffer.waiting.borrow_mut().clear());
    }
}

impl<B: Broker> Engine<B> {
    pub(super) fn flush_settles(&self) {
        if self.settles.0.iter().all(|buffer| buffer.waiting.borrow().is_empty()) {
            return;
        }
        let Some(link) = self.link() else { return };
        for (index, buffer) in self.settles.0.iter().enumerate() {
            while buffer.is_due() {
                let mut waiting = buffer.waiting.borrow_mut();
                let size = waiting.len().min(BATCH);
                let batch: Vec<_> = waiting.drain(..size).collect();
                drop(waiting);
                buffer.calls.set(buffer.calls.get() + 1);
                let (Some(engine), link) = (self.weak.upgrade(), link.clone()) else { return };
                self.call("settle", async move {
                    let calling = Calling(&engine, index);
                    engine.settle(&link, index, batch).await;
                    drop(calling);
                    engine.flush_settles();
                });
            }
        }
    }

    async fn settle(&self, link: &Link<B>, index: usize, batch: Vec<(Key, Settlement)>) {
        let Some(source) = link.sources.get(index) else { return };
        let (mut held, mut settlements) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        {
            let ledger = self.ledger.borrow();
            for (key, settlement) in batch {
                if let Some((_, token)) = ledger.token(key) {
                    held.push((key, token));
                    settlements.push(settlement);
                }
            }
        }
        let items: Vec<_> = held.iter().map(|(_, token)| token).zip(settlements).collect();
        if items.is_empty() {
            return;
        }
        let answer = within(CALL, source.settle(&items)).await;
        let Ok(results) = answer else {
            let silent = TransportError::new(ErrorKind::Connection, format!("no answer to a settle within {CALL:?}"));
            return self.broke(link.epoch, &silent);
        };
        let (mut actions, mut again, mut broken) = (self.spare.take(), Vec::new(), None);
        let mut soonest: Option<Duration> = None;
        {
            let mut ledger = self.ledger.borrow_mut();
            for ((&(key, _), (_, settlement)), result) in held.iter().zip(items).zip(results) {
                match result {
                    Ok(settled) => {
                        if let Settlement::Retry { after, .. } = &settlement {
                            soonest = Some(soonest.map_or(*after, |soonest| soonest.min(*after)));
                        }
                        ledger.step(Event::Settled(key, settled), &mut actions);
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::Connection | ErrorKind::Stopped) => {
                        broken = Some(error)
                    }
                    Err(error) => again.push((key, settlement, error)),
                }
            }
        }
        if let Some(after) = soonest {
            self.tend_within(after);
        }
        self.apply(actions);
        if let Some(error) = broken {
            return self.broke(link.epoch, &error);
        }
        self.settle_again(index, again);
    }

    /// A refused settle is tried again while its connection lasts: only the copy is never made twice.
    fn settle_again(&self, index: usize, again: Vec<(Key, Settlement, TransportError)>) {
        let Some((_, _, error)) = again.first() else { return };
        tracing::warn!(transport = %self.options.name, count = again.len(), error = ?error, "settles failed; trying again");
        self.show(Health::Degraded, &error.to_string());
        let Some(engine) = self.weak.upgrade() else { return };
        actix::spawn(async move {
            tokio::time::sleep(AGAIN).await;
            if let Some(buffer) = engine.settles.0.get(index) {
                buffer.waiting.borrow_mut().extend(again.into_iter().map(|(key, settlement, _)| (key, settlement)));
            }
            engine.flush_settles();
        });
    }
}

struct Calling<'a, B: Broker>(&'a Engine<B>, usize);

impl<B: Broker> Drop for Calling<'_, B> {
    fn drop(&mut self) {
        if let Some(buffer) = self.0.settles.0.get(self.1) {
            buffer.calls.set(buffer.calls.get().saturating_sub(1));
        }
    }
}
