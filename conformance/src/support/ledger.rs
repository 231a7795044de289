//! What was sent, settled and found again: the first promise, checked for every place and group.

use std::collections::{BTreeMap, BTreeSet};

use postroom_core::{Name, Place};

use super::{Stop, ensure};

/// One message in one place.
#[derive(Debug, Default, Clone, Copy)]
struct Line {
    /// Copies whose publish was confirmed, or that a scenario accounts for by hand.
    sent: usize,
    /// Copies that ended: acked, or removed by an operator.
    ended: usize,
    /// Copies that lay there at the end.
    left: usize,
    /// A process did it, and died: its ack may have reached the broker.
    perhaps: bool,
}

/// The books of one scenario.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    places: BTreeSet<Place>,
    worked: BTreeSet<Place>,
    lines: BTreeMap<(Place, String), Line>,
}

impl Ledger {
    /// A place was declared.
    pub(crate) fn declared(&mut self, place: &Place) {
        self.places.insert(place.clone());
    }

    /// A place and its messages were removed on purpose.
    pub(crate) fn forget(&mut self, place: &Place) {
        self.places.remove(place);
        self.lines.retain(|(at, _), _| at != place);
    }

    /// A group that a transport had read was removed on purpose.
    pub(crate) fn removed_group(&mut self, place: &Place) {
        self.forget(place);
        self.worked.remove(place);
    }

    /// The declared places where messages can lie.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.places.iter().filter(|place| !matches!(place, Place::Topic(_))).cloned().collect()
    }

    fn reached(&self, to: &Place) -> Vec<Place> {
        let of = |topic: &Name| {
            let groups =
                self.places.iter().filter(|place| matches!(place, Place::Group { topic: t, .. } if t == topic));
            groups.cloned().collect()
        };
        match to {
            Place::Topic(topic) => of(topic),
            other => vec![other.clone()],
        }
    }

    /// A publish was confirmed: a topic's message is owed to each of its groups.
    pub(crate) fn sent(&mut self, to: &Place, id: &str) {
        for place in self.reached(to) {
            self.line(&place, id).sent += 1;
        }
    }

    /// A transport read this place: it has a suspects' lane and a failure store.
    pub(crate) fn worked(&mut self, place: &Place) {
        self.places.insert(place.clone());
        self.worked.insert(place.clone());
    }

    /// The places that transports read.
    pub(crate) fn worked_places(&self) -> Vec<Place> {
        self.worked.iter().cloned().collect()
    }

    /// A handler was done with it, perhaps again after its connection had gone.
    pub(crate) fn handled(&mut self, place: &Place, id: &str) {
        let line = self.line(place, id);
        line.ended = (line.ended + 1).min(line.sent);
    }

    /// A handler was done with it in a process that died.
    pub(crate) fn perhaps(&mut self, place: &Place, id: &str) {
        self.line(place, id).perhaps = true;
    }

    /// A delivery came, perhaps before its sender heard the confirmation.
    pub(crate) fn came(&mut self, place: &Place, id: &str) {
        self.line(place, id);
    }

    /// A delivery was acked with success, or a message was removed.
    pub(crate) fn ended(&mut self, place: &Place, id: &str) {
        self.line(place, id).ended += 1;
    }

    /// A message lay in a place at the end.
    pub(crate) fn left(&mut self, place: &Place, id: &str) {
        self.line(place, id).left += 1;
    }

    fn line(&mut self, place: &Place, id: &str) -> &mut Line {
        self.lines.entry((place.clone(), id.to_owned())).or_default()
    }

    /// Everything sent is ended or left, once; nothing is invented.
    pub(crate) fn balance(&self) -> Result<(), Stop> {
        let stranger = self.lines.iter().find(|(_, line)| line.sent == 0);
        ensure!(stranger.is_none(), "one came from where it was never sent: {stranger:?}");
        let mut lost = Vec::new();
        let mut more = Vec::new();
        for ((place, id), line) in &self.lines {
            match (line.ended + line.left).cmp(&line.sent) {
                std::cmp::Ordering::Less if !line.perhaps => lost.push(format!("{id} in {place} {line:?}")),
                std::cmp::Ordering::Greater => more.push(format!("{id} in {place} {line:?}")),
                _ => {}
            }
        }
        ensure!(lost.is_empty(), "{} lost: {}", lost.len(), some(&lost));
        ensure!(more.is_empty(), "{} came again after their end: {}", more.len(), some(&more));
        Ok(())
    }
}

fn some(lines: &[String]) -> String {
    lines.iter().take(3).cloned().collect::<Vec<_>>().join("; ")
}
