//! The places of one instance, and the way from a place to its lanes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use postroom_core::{Declaration, DeclareMode, ErrorKind, MessageId, Name, Outgoing, Place, TransportError};
use slotmap::{SlotMap, new_key_type};
use tokio::{sync::Notify, time::Instant};

use crate::lane::{Lane, record};

new_key_type! {
    pub(crate) struct LaneKey;
    pub(crate) struct SourceKey;
}

/// A store, shared among threads.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Store>);

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Store> {
        // No code of a user runs under the lock, so a poisoned store is a whole one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a waiting pull is ended.
#[derive(Default)]
pub(crate) struct Signal {
    woken: AtomicBool,
    pub(crate) notify: Notify,
}

impl Signal {
    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    pub(crate) fn consume(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }
}

struct Open {
    connection: u64,
    lane: LaneKey,
    signal: Arc<Signal>,
}

/// The places of one instance in one namespace.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) lanes: SlotMap<LaneKey, Lane>,
    places: HashMap<Place, LaneKey>,
    topics: HashMap<Name, BTreeMap<Name, LaneKey>>,
    sources: SlotMap<SourceKey, Open>,
    connections: u64,
    number: u64,
}

impl Store {
    pub(crate) fn connection(&mut self) -> u64 {
        self.connections += 1;
        self.connections
    }

    pub(crate) fn declare(&mut self, what: &[Declaration], how: DeclareMode) -> Result<(), TransportError> {
        for Declaration { place, .. } in what {
            match how {
                DeclareMode::Verify if self.has(place) => {}
                DeclareMode::Verify => return Err(missing(place)),
                DeclareMode::Create => self.create(place)?,
            }
        }
        Ok(())
    }

    fn has(&self, place: &Place) -> bool {
        match place {
            Place::Topic(topic) => self.topics.contains_key(topic),
            _ => self.places.contains_key(place),
        }
    }

    fn create(&mut self, place: &Place) -> Result<(), TransportError> {
        if self.has(place) {
            return Ok(());
        }
        match place {
            Place::Topic(topic) => {
                self.topics.insert(topic.clone(), BTreeMap::new());
            }
            Place::Group { topic, group } => {
                let lane = self.lanes.insert(Lane::default());
                self.topics.entry(topic.clone()).or_default().insert(group.clone(), lane);
                self.places.insert(place.clone(), lane);
            }
            Place::Queue(_) | Place::Store(_) => {
                let lane = self.lanes.insert(Lane::default());
                self.places.insert(place.clone(), lane);
            }
            _ => {
                let refused = format!("the memory broker knows no such kind of place as {place}");
                return Err(TransportError::new(ErrorKind::Refused, refused));
            }
        }
        Ok(())
    }

    /// The lane of a place that holds messages.
    pub(crate) fn lane(&self, place: &Place) -> Result<LaneKey, TransportError> {
        if matches!(place, Place::Topic(_)) {
            let refused = format!("{place} holds no messages, its groups do");
            return Err(TransportError::new(ErrorKind::Refused, refused));
        }
        self.places.get(place).copied().ok_or_else(|| missing(place))
    }

    pub(crate) fn publish(&mut self, batch: &[Outgoing]) -> Vec<Result<MessageId, TransportError>> {
        let now = Instant::now();
        // Most batches go to one place: its name is then hashed once.
        let mut last: Option<(&Place, LaneKey)> = None;
        let mut answers = Vec::with_capacity(batch.len());
        for outgoing in batch {
            answers.push(match (&outgoing.to, last) {
                (to, Some((place, lane))) if to == place => Ok(self.put(lane, outgoing, now)),
                (Place::Topic(topic), _) => self.fan_out(topic, outgoing, now),
                (to, _) => match self.places.get(to).copied() {
                    Some(lane) => {
                        last = Some((to, lane));
                        Ok(self.put(lane, outgoing, now))
                    }
                    None => Err(unroutable(format!("{to} was never declared"))),
                },
            });
        }
        answers
    }

    fn put(&mut self, lane: LaneKey, outgoing: &Outgoing, now: Instant) -> MessageId {
        let id = outgoing.envelope.id.clone();
        let Some(lane) = self.lanes.get_mut(lane) else { return id };
        if let (Place::Store(_), Some(record)) = (&outgoing.to, record(&outgoing.envelope))
            && !lane.records.insert(record.clone())
        {
            return id;
        }
        self.number += 1;
        lane.add(self.number, outgoing.envelope.clone(), outgoing.delay, now);
        id
    }

    fn fan_out(&mut self, topic: &Name, outgoing: &Outgoing, now: Instant) -> Result<MessageId, TransportError> {
        let Some(groups) = self.topics.get(topic) else {
            return Err(unroutable(format!("{} was never declared", outgoing.to)));
        };
        if groups.is_empty() && outgoing.require_group {
            return Err(unroutable(format!("{} has no group", outgoing.to)));
        }
        for lane in groups.values() {
            if let Some(lane) = self.lanes.get_mut(*lane) {
                self.number += 1;
                lane.add(self.number, outgoing.envelope.clone(), outgoing.delay, now);
            }
        }
        Ok(outgoing.envelope.id.clone())
    }

    pub(crate) fn open(
        &mut self,
        connection: u64,
        place: &Place,
        signal: Arc<Signal>,
    ) -> Result<(SourceKey, Arc<Notify>), TransportError> {
        if !place.is_readable() {
            return Err(TransportError::new(ErrorKind::Refused, format!("{place} cannot be subscribed to")));
        }
        let lane = self.lane(place)?;
        let arrived = self.lanes.get(lane).ok_or_else(|| missing(place))?.arrived.clone();
        Ok((self.sources.insert(Open { connection, lane, signal }), arrived))
    }

    /// The lane of an open source: `Stopped` once it is closed, `None` once its group was removed.
    pub(crate) fn reading(&mut self, source: SourceKey) -> Result<Option<(&mut Lane, &mut u64)>, TransportError> {
        let open = self.sources.get(source).ok_or_else(TransportError::stopped)?;
        Ok(self.lanes.get_mut(open.lane).map(|lane| (lane, &mut self.number)))
    }

    pub(crate) fn close_source(&mut self, source: SourceKey) {
        let Some(open) = self.sources.remove(source) else { return };
        if let Some(lane) = self.lanes.get_mut(open.lane) {
            lane.give_back(source);
        }
        open.signal.wake();
    }

    pub(crate) fn close_connection(&mut self, connection: u64) {
        let of_it = self.sources.iter().filter(|(_, open)| open.connection == connection);
        let sources: Vec<SourceKey> = of_it.map(|(source, _)| source).collect();
        for source in sources {
            self.close_source(source);
        }
    }

    pub(crate) fn groups(&self, topic: &Name) -> Option<&BTreeMap<Name, LaneKey>> {
        self.topics.get(topic)
    }

    pub(crate) fn remove_group(&mut self, topic: &Name, group: &Name) -> bool {
        let Some(lane) = self.topics.get_mut(topic).and_then(|groups| groups.remove(group)) else { return false };
        self.places.remove(&Place::Group { topic: topic.clone(), group: group.clone() });
        self.lanes.remove(lane);
        for open in self.sources.values().filter(|open| open.lane == lane) {
            open.signal.wake();
        }
        true
    }
}

pub(crate) fn missing(place: &Place) -> TransportError {
    TransportError::new(ErrorKind::NotFound, format!("{place} does not exist"))
}

fn unroutable(message: String) -> TransportError {
    TransportError::new(ErrorKind::Unroutable, message)
}
