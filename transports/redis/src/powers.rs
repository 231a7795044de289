//! Counting, browsing, and the power over groups.

use postroom_core::{
    Browse, Browsed, Count, Counts, ErrorKind, Groups, Name, Page, Place, State, Text, TransportError,
};
use redis::Value;

use crate::{
    broker::{Powers, missing},
    entry,
    link::{Script, array, exactly, number, text},
};

impl Powers {
    /// The groups of a topic.
    pub(crate) async fn names(&self, topic: &Name) -> Result<Vec<Name>, TransportError> {
        let lane = self.link.lane(&Place::Topic(topic.clone()))?;
        let names: Vec<String> = self.link.query(redis::cmd("SMEMBERS").arg(lane.groups())).await?;
        // Only declared ones are in the set; what another program put there is not ours.
        let mut names: Vec<Name> = names.iter().filter_map(|name| Name::new(name).ok()).collect();
        names.sort_unstable();
        Ok(names)
    }
}

fn refuse_topic(place: &Place) -> Result<(), TransportError> {
    match place {
        Place::Topic(_) => {
            Err(TransportError::new(ErrorKind::Refused, format!("{place} holds no messages, its groups do")))
        }
        _ => Ok(()),
    }
}

impl Count for Powers {
    async fn count(&self, place: &Place) -> Result<Counts, TransportError> {
        let lane = self.link.lane(place)?;
        refuse_topic(place)?;
        let answer = self.link.run(&self.link.call(Script::Count, &lane)).await?;
        if matches!(answer, Value::BulkString(_)) {
            return Err(missing(place));
        }
        let Some([now, waiting, flying, delayed, oldest]) = exactly::<5>(answer) else { return Err(self.link.odd()) };
        let figure = |value: &Value| number(value).and_then(|n| u64::try_from(n).ok());
        let since = text(oldest).and_then(|id| id.split_once('-')?.0.parse::<u64>().ok());
        let mut counts = Counts::default();
        counts.waiting = figure(&waiting);
        counts.in_flight = figure(&flying);
        counts.delayed = figure(&delayed);
        counts.oldest_waiting_ms = since.and_then(|since| Some(figure(&now)?.saturating_sub(since)));
        counts.exact = counts.waiting.is_some();
        Ok(counts)
    }
}

/// Where a message lies: its phase (1, 2: the streams, 3: the delayed) and its id there.
fn handle(text: &str) -> Option<(u8, &str)> {
    let (phase, id) = text.split_once(':')?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let valid = match phase {
        "1" | "2" => id.split_once('-').is_some_and(|(ms, nth)| number(ms) && number(nth)),
        "3" => number(id),
        _ => false,
    };
    valid.then_some((phase.parse().ok()?, id))
}

impl Powers {
    async fn look(&self, place: &Place, state: &str, after: &str, max: usize) -> Result<Page, TransportError> {
        let lane = self.link.lane(place)?;
        refuse_topic(place)?;
        let begin = after.split_once(':').or(after.is_empty().then_some(("1", "")));
        let valid = |id: &str| id.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'/'));
        let Some((phase, id)) = begin.filter(|(phase, id)| matches!(*phase, "1" | "2" | "3") && valid(id)) else {
            let message = format!("{after:?} is not where a page of {place} begins");
            return Err(TransportError::new(ErrorKind::Config, message));
        };
        let mut call = self.link.call(Script::Page, &lane);
        call.arg(state).arg(phase).arg(id).arg(max);
        let answer = self.link.run(&call).await?;
        if matches!(answer, Value::BulkString(_)) {
            return Err(missing(place));
        }
        let odd = || self.link.odd();
        let [items, phase, id] = exactly::<3>(answer).ok_or_else(odd)?;
        let mut page = Page::default();
        for one in array(items).ok_or_else(odd)? {
            page.items.push(browsed(one).ok_or_else(odd)?);
        }
        let (phase, id) = (number(&phase).ok_or_else(odd)?, text(id).ok_or_else(odd)?);
        page.next = (phase > 0).then(|| format!("{phase}:{id}").into());
        Ok(page)
    }
}

fn browsed(one: Value) -> Option<Browsed> {
    let [phase, id, state, count, due, fields] = exactly::<6>(one)?;
    let (phase, id) = (number(&phase)?, text(id)?);
    let state = match text(state)?.as_str() {
        "w" => State::Waiting,
        "f" => State::InFlight,
        _ => State::Delayed,
    };
    let envelope = entry::read(&id, fields)?.envelope;
    let mut browsed = Browsed::new(format!("{phase}:{id}"), state, envelope);
    browsed.delivered = number(&count).and_then(|n| u32::try_from(n).ok());
    browsed.due_at = number(&due).filter(|_| state == State::Delayed);
    Some(browsed)
}

impl Browse for Powers {
    async fn page(
        &self,
        place: &Place,
        state: Option<State>,
        after: Option<&Text>,
        max: usize,
    ) -> Result<Page, TransportError> {
        let state = match state {
            None => "",
            Some(State::Waiting) => "w",
            Some(State::InFlight) => "f",
            Some(State::Delayed) => "d",
        };
        self.look(place, state, after.map_or("", |after| after), max.max(1)).await
    }

    async fn find(&self, place: &Place, id: &str) -> Result<Vec<Browsed>, TransportError> {
        let mut found = Vec::new();
        let mut after = Text::new();
        loop {
            let page = self.look(place, "", &after, 500).await?;
            let wanted = |one: &Browsed| {
                let failure = one.envelope.track.as_ref().and_then(|track| track.failure.as_ref());
                *one.envelope.id == *id || failure.is_some_and(|failure| *failure.record == *id)
            };
            found.extend(page.items.into_iter().filter(wanted));
            match page.next {
                Some(next) => after = next,
                None => return Ok(found),
            }
        }
    }

    async fn remove(&self, place: &Place, handles: &[Text]) -> Result<Vec<bool>, TransportError> {
        let lane = self.link.lane(place)?;
        refuse_topic(place)?;
        let mut removed = Vec::with_capacity(handles.len());
        for handles in handles.chunks(1_000) {
            let valid: Vec<_> = handles.iter().filter_map(|text| handle(text)).collect();
            let mut call = self.link.call(Script::Remove, &lane);
            call.arg(valid.len());
            for (phase, id) in &valid {
                call.arg(*phase).arg(*id);
            }
            let answers: Vec<i64> =
                redis::from_redis_value(self.link.run(&call).await?).map_err(|_| self.link.odd())?;
            let mut answers = answers.into_iter();
            removed.extend(handles.iter().map(|text| handle(text).is_some() && answers.next() == Some(1)));
        }
        Ok(removed)
    }
}

impl Groups for Powers {
    async fn list(&self, topic: &Name) -> Result<Vec<(Name, Option<u64>)>, TransportError> {
        let place = Place::Topic(topic.clone());
        let lane = self.link.lane(&place)?;
        let [stream, ..] = &lane.keys;
        let there: bool = self.link.query(redis::cmd("EXISTS").arg(stream)).await?;
        if !there {
            return Err(missing(&place));
        }
        let mut listed = Vec::new();
        for group in self.names(topic).await? {
            let counts = self.count(&Place::Group { topic: topic.clone(), group: group.clone() }).await;
            listed.push((group, counts.ok().and_then(|counts| counts.waiting)));
        }
        Ok(listed)
    }

    async fn remove(&self, topic: &Name, group: &Name) -> Result<bool, TransportError> {
        let place = Place::Group { topic: topic.clone(), group: group.clone() };
        let lane = self.link.lane(&place)?;
        let there = self.link.run(&self.link.call(Script::Forget, &lane)).await?;
        self.link.places.borrow_mut().remove(&place);
        Ok(number(&there) == Some(1))
    }
}
