//! Counting, browsing, and the power over groups.

use std::time::{SystemTime, UNIX_EPOCH};

use postroom_core::{
    Browse, Browsed, Count, Counts, ErrorKind, Groups, Name, Page, Place, State, Text, Timestamp, TransportError,
};
use tokio::time::Instant;

use crate::{
    broker::Powers,
    lane::{Entry, Lane, record},
    store::missing,
};

impl Count for Powers {
    async fn count(&self, place: &Place) -> Result<Counts, TransportError> {
        let store = self.open()?;
        let lane = store.lanes.get(store.lane(place)?).ok_or_else(|| missing(place))?;
        let mut counts = Counts::default();
        counts.waiting = Some(lane.ready.len() as u64);
        counts.in_flight = Some(lane.flying.len() as u64);
        counts.delayed = Some(lane.delayed.len() as u64);
        // The first in line need not have waited longest: a delayed one joins by its age.
        let oldest = lane.ready.iter().map(|entry| entry.since).min();
        counts.oldest_waiting_ms = oldest.map(|since| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX));
        counts.exact = true;
        Ok(counts)
    }
}

impl Browse for Powers {
    async fn page(
        &self,
        place: &Place,
        state: Option<State>,
        after: Option<&Text>,
        max: usize,
    ) -> Result<Page, TransportError> {
        let after = match after {
            None => 0,
            Some(text) => text.parse::<u64>().map_err(|error| {
                let message = format!("{:?} is not where a page of {place} begins", &**text);
                TransportError::new(ErrorKind::Config, message).caused_by(error)
            })?,
        };
        let store = self.open()?;
        let lane = store.lanes.get(store.lane(place)?).ok_or_else(|| missing(place))?;
        let (clock, max) = (Clock::now(), max.max(1));
        let mut items = shown(lane, state, after, max.saturating_add(1), clock);
        let more = items.len() > max;
        items.truncate(max);
        let next = items.last().filter(|_| more).map(|(number, _)| number.to_string().into());
        Ok(Page::new(items.into_iter().map(|(_, browsed)| browsed).collect(), next))
    }

    async fn find(&self, place: &Place, id: &str) -> Result<Vec<Browsed>, TransportError> {
        let store = self.open()?;
        let lane = store.lanes.get(store.lane(place)?).ok_or_else(|| missing(place))?;
        let wanted =
            |entry: &Entry| *entry.envelope.id == *id || record(&entry.envelope).is_some_and(|record| *record == *id);
        let clock = Clock::now();
        let mut found: Vec<_> = all(lane).filter(|(_, entry, _)| wanted(entry)).collect();
        found.sort_unstable_by_key(|(_, entry, _)| entry.number);
        Ok(found.into_iter().map(|(state, entry, due)| browsed(state, entry, due, clock)).collect())
    }

    async fn remove(&self, place: &Place, handles: &[Text]) -> Result<Vec<bool>, TransportError> {
        let mut store = self.open()?;
        let lane = store.lane(place)?;
        let lane = store.lanes.get_mut(lane).ok_or_else(|| missing(place))?;
        Ok(handles.iter().map(|handle| handle.parse().is_ok_and(|number| lane.remove(number))).collect())
    }
}

impl Groups for Powers {
    async fn list(&self, topic: &Name) -> Result<Vec<(Name, Option<u64>)>, TransportError> {
        let store = self.open()?;
        let groups = store.groups(topic).ok_or_else(|| missing(&Place::Topic(topic.clone())))?;
        let waiting = |lane| store.lanes.get(lane).map(|lane| lane.ready.len() as u64);
        Ok(groups.iter().map(|(group, lane)| (group.clone(), waiting(*lane))).collect())
    }

    async fn remove(&self, topic: &Name, group: &Name) -> Result<bool, TransportError> {
        Ok(self.open()?.remove_group(topic, group))
    }
}

/// One moment by both clocks.
#[derive(Clone, Copy)]
struct Clock {
    instant: Instant,
    unix: Timestamp,
}

impl Clock {
    fn now() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Self { instant: Instant::now(), unix: Timestamp::try_from(unix).unwrap_or(Timestamp::MAX) }
    }

    fn at(self, due: Instant) -> Timestamp {
        let left = due.saturating_duration_since(self.instant).as_millis();
        self.unix.saturating_add(Timestamp::try_from(left).unwrap_or(Timestamp::MAX))
    }
}

type Seen<'a> = (State, &'a Entry, Option<Instant>);

fn all(lane: &Lane) -> impl Iterator<Item = Seen<'_>> {
    let ready = lane.ready.iter().map(|entry| (State::Waiting, entry, None));
    let flying = lane.flying.values().map(|flight| (State::InFlight, &flight.entry, None));
    let delayed = lane.delayed.iter().map(|((due, _), entry)| (State::Delayed, entry, Some(*due)));
    ready.chain(flying).chain(delayed)
}

/// At most `max` messages with a number above `after`, in order.
fn shown(lane: &Lane, state: Option<State>, after: u64, max: usize, clock: Clock) -> Vec<(u64, Browsed)> {
    let wants = |other| state.is_none_or(|state| state == other);
    let mut seen: Vec<Seen<'_>> = Vec::new();
    if wants(State::Waiting) {
        let from = lane.ready.partition_point(|entry| entry.number <= after);
        seen.extend(lane.ready.range(from..).take(max).map(|entry| (State::Waiting, entry, None)));
    }
    if wants(State::InFlight) {
        let later = lane.flying.values().filter(|flight| flight.entry.number > after);
        seen.extend(later.map(|flight| (State::InFlight, &flight.entry, None)));
    }
    if wants(State::Delayed) {
        let later = lane.delayed.iter().filter(|((_, number), _)| *number > after);
        seen.extend(later.map(|((due, _), entry)| (State::Delayed, entry, Some(*due))));
    }
    seen.sort_unstable_by_key(|(_, entry, _)| entry.number);
    seen.truncate(max);
    seen.into_iter().map(|(state, entry, due)| (entry.number, browsed(state, entry, due, clock))).collect()
}

fn browsed(state: State, entry: &Entry, due: Option<Instant>, clock: Clock) -> Browsed {
    let mut browsed = Browsed::new(entry.number.to_string(), state, entry.envelope.clone());
    browsed.due_at = due.map(|due| clock.at(due));
    browsed.delivered = Some(entry.delivered);
    browsed
}
