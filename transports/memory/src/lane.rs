//! What one queue, group or store holds, and every change of a message's state.

use std::{
    collections::{BTreeMap, HashSet, VecDeque, hash_map},
    sync::Arc,
    time::Duration,
};

use postroom_core::{Envelope, Settled, Settlement, Text};
use rustc_hash::FxHashMap;
use tokio::{sync::Notify, time::Instant};

use crate::{source::Token, store::SourceKey};

/// Far enough for any delay or lease, and near enough for an `Instant`.
const FOREVER: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);

pub(crate) fn after(now: Instant, delay: Duration) -> Instant {
    now + delay.min(FOREVER)
}

/// One message, in whatever state.
pub(crate) struct Entry {
    /// Its number in the instance: its position, its handle, and its place in the line.
    pub(crate) number: u64,
    pub(crate) envelope: Arc<Envelope>,
    /// The hand-overs that count.
    pub(crate) delivered: u32,
    /// All hand-overs, those that were released too: it fences, so it never goes down.
    generation: u32,
    /// Whether the last hand-over ended by a release; else its owner lost it.
    released: bool,
    /// Since when it can be delivered.
    pub(crate) since: Instant,
}

/// One message in its owner's hands.
pub(crate) struct Flight {
    pub(crate) entry: Entry,
    owner: SourceKey,
    deadline: Instant,
}

impl Flight {
    fn is(&self, owner: SourceKey, token: &Token) -> bool {
        self.owner == owner && self.entry.generation == token.generation
    }
}

/// The messages of one queue, group or store.
#[derive(Default)]
pub(crate) struct Lane {
    /// Always in order of the numbers, so that what comes back takes its old place, and a number is found by halving.
    pub(crate) ready: VecDeque<Entry>,
    /// By number. The numbers are ours, so nobody can make them collide.
    pub(crate) flying: FxHashMap<u64, Flight>,
    pub(crate) delayed: BTreeMap<(Instant, u64), Entry>,
    /// The record ids of a store.
    pub(crate) records: HashSet<Text>,
    /// Called where messages became ready. Who takes and leaves some calls the next, so one call for many is enough.
    pub(crate) arrived: Arc<Notify>,
}

impl Lane {
    pub(crate) fn add(&mut self, number: u64, envelope: Arc<Envelope>, delay: Option<Duration>, now: Instant) {
        let entry = Entry { number, envelope, delivered: 0, generation: 0, released: false, since: now };
        match delay {
            Some(delay) if !delay.is_zero() => {
                self.delayed.insert((after(now, delay), number), entry);
            }
            _ => {
                self.queue(entry);
                self.arrived.notify_one();
            }
        }
    }

    fn queue(&mut self, entry: Entry) {
        if self.ready.back().is_none_or(|last| last.number < entry.number) {
            self.ready.push_back(entry);
        } else {
            let at = self.ready.partition_point(|other| other.number < entry.number);
            self.ready.insert(at, entry);
        }
    }

    /// Hands over the oldest; `None` where nothing is ready.
    pub(crate) fn take(&mut self, owner: SourceKey, deadline: Instant) -> Option<(Token, Arc<Envelope>, u32)> {
        let mut entry = self.ready.pop_front()?;
        entry.generation = entry.generation.wrapping_add(1);
        entry.delivered = entry.delivered.saturating_add(1);
        let token = Token { number: entry.number, generation: entry.generation };
        let taken = (token, entry.envelope.clone(), entry.delivered);
        self.flying.insert(entry.number, Flight { entry, owner, deadline });
        Some(taken)
    }

    /// Ends a delivery. `number` makes the replacement's number.
    pub(crate) fn settle(
        &mut self,
        owner: SourceKey,
        token: &Token,
        how: &Settlement,
        now: Instant,
        number: impl FnOnce() -> u64,
    ) -> Settled {
        let hash_map::Entry::Occupied(flight) = self.flying.entry(token.number) else { return self.unowned(token) };
        if !flight.get().is(owner, token) {
            return Settled::LeaseLost;
        }
        let Flight { entry: mut message, .. } = flight.remove();
        match how {
            Settlement::Ack => {}
            Settlement::Retry { replacement, after } => self.add(number(), replacement.clone(), Some(*after), now),
            Settlement::Release => {
                message.delivered = message.delivered.saturating_sub(1);
                message.released = true;
                self.queue(message);
                self.arrived.notify_one();
            }
        }
        Settled::Done
    }

    /// What to answer for a delivery that is not this owner's.
    fn unowned(&self, token: &Token) -> Settled {
        match self.waiting(token.number) {
            Some(entry) if entry.generation != token.generation || !entry.released => Settled::LeaseLost,
            _ => Settled::Already,
        }
    }

    fn waiting(&self, number: u64) -> Option<&Entry> {
        self.ready.binary_search_by_key(&number, |entry| entry.number).ok().and_then(|at| self.ready.get(at))
    }

    /// Renews; false where it is not this owner's.
    pub(crate) fn extend(&mut self, owner: SourceKey, token: &Token, deadline: Instant) -> bool {
        let mine = self.flying.get_mut(&token.number).filter(|flight| flight.is(owner, token));
        mine.map(|flight| flight.deadline = deadline).is_some()
    }

    /// Takes back what an owner holds, with its counts as they are: nobody knows here what was begun.
    pub(crate) fn give_back(&mut self, owner: SourceKey) {
        self.take_back(usize::MAX, |flight| flight.owner == owner);
    }

    /// Takes back at most `max` expired deliveries.
    pub(crate) fn reclaim(&mut self, max: usize, now: Instant) -> usize {
        self.take_back(max, |flight| flight.deadline <= now)
    }

    fn take_back(&mut self, max: usize, which: impl Fn(&Flight) -> bool) -> usize {
        let numbers: Vec<u64> =
            self.flying.iter().filter(|(_, flight)| which(flight)).map(|(number, _)| *number).take(max).collect();
        for number in &numbers {
            if let Some(mut flight) = self.flying.remove(number) {
                flight.entry.released = false;
                self.queue(flight.entry);
            }
        }
        if !numbers.is_empty() {
            self.arrived.notify_one();
        }
        numbers.len()
    }

    /// Makes at most `max` due messages ready.
    pub(crate) fn promote(&mut self, max: usize, now: Instant) -> usize {
        let mut promoted = 0;
        while promoted < max {
            let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) else { break };
            let due = first.key().0;
            let mut entry = first.remove();
            entry.since = due;
            self.queue(entry);
            promoted += 1;
        }
        if promoted > 0 {
            self.arrived.notify_one();
        }
        promoted
    }

    /// When something falls due or expires.
    pub(crate) fn next(&self) -> Option<Instant> {
        let due = self.delayed.first_key_value().map(|((due, _), _)| *due);
        due.into_iter().chain(self.flying.values().map(|flight| flight.deadline)).min()
    }

    /// Removes a message in whatever state.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let entry = if let Ok(at) = self.ready.binary_search_by_key(&number, |entry| entry.number) {
            self.ready.remove(at)
        } else if let Some(flight) = self.flying.remove(&number) {
            Some(flight.entry)
        } else {
            let key = self.delayed.keys().find(|(_, delayed)| *delayed == number).copied();
            key.and_then(|key| self.delayed.remove(&key))
        };
        if let Some(record) = entry.as_ref().and_then(|entry| record(&entry.envelope)) {
            self.records.remove(record);
        }
        entry.is_some()
    }
}

/// The id of a failed record.
pub(crate) fn record(envelope: &Envelope) -> Option<&Text> {
    envelope.track.as_ref()?.failure.as_ref().map(|failure| &failure.record)
}
