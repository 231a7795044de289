//! The in-flight registry of a transport: the only settle state there is.
//!
//! An entry is open (waiting, with a handler, held) → copying (a copy for the failure transport or the suspects' lane is
//! not confirmed yet) → settling → gone, and leaves only when the broker has answered or its connection ended. A second
//! end of a delivery finds nothing open and does nothing. There is never a set of settled ids.

use std::{sync::Arc, time::Duration};

use slotmap::SlotMap;

use crate::{
    DeliveryCount, Envelope, Incoming, MessageId, Settled, Settlement, Text,
    envelope::Timestamp,
    policy::{Order, Outcome, RetryPolicy, Unhandled, Verdict, verdict},
    protocol::{lanes::Lanes, replace},
    track::{Origin, Reason},
};

slotmap::new_key_type! {
    /// A delivery in the ledger; a key is never used twice.
    pub struct Key;
}

/// A subscription of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// What is decided for the deliveries of one subscription.
#[derive(Clone, Debug)]
pub struct SourceRules {
    /// Where failed and suspected messages belong: the transport and the place.
    pub origin: Origin,
    /// The retry policy.
    pub retry: RetryPolicy,
    /// What happens to a type without a handler.
    pub unhandled: Unhandled,
    /// Starts that may end with the worker's death, at least 3.
    pub crashes: u32,
    /// The order.
    pub order: Order,
    /// Whether this is a suspects' lane.
    pub lane: bool,
    /// How the broker counts deliveries.
    pub count: DeliveryCount,
    /// Whether there is a failure transport. Without one the first message that would fail pauses the subscription.
    pub failure: bool,
}

impl SourceRules {
    /// The hand-over at which a delivery of an ordinary subscription is a suspect: two ordinary starts had no recorded
    /// end. Where only a flag is known, the second hand-over is already suspect.
    fn suspect_from(&self) -> u32 {
        if self.count == DeliveryCount::Flag { 2 } else { 3 }
    }

    /// The starts that a suspect may have in the lane: all but the ordinary ones.
    fn lane_starts(&self) -> u32 {
        self.crashes.max(3).saturating_sub(self.suspect_from() - 1)
    }

    /// Whether this hand-over says that a worker died with it in the lane.
    fn died(&self, delivered: Option<u32>) -> bool {
        self.lane && delivered.is_some_and(|count| count >= 2)
    }
}

/// What happens to a delivery.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The run of a delivery ended well, with no marks to keep. Ignored where it is not open.
    Done(Key),
    /// The run of a delivery ended. Ignored where it is not open.
    Ended(Key, Box<End>),
    /// The copy for the failure transport or the suspects' lane was confirmed.
    Copied(Key),
    /// The copy can never be stored (refused for good): the message goes back and its subscription pauses.
    CopyRefused(Key, Text),
    /// The broker answered a settle.
    Settled(Key, Settled),
    /// A renewal found that the lease is another's.
    Lost(Key),
    /// A held delivery's time has come.
    Due(Key),
    /// The connection (epoch) that these deliveries came from is gone, and every token with it.
    Disconnected,
    /// Intake has ended: what waits goes back; from now on retryable errors release.
    Drain,
    /// The grace is over: what is still open goes back.
    Abandon,
}

/// How one run of a delivery ended.
#[derive(Clone, Debug)]
pub struct End {
    /// The outcome.
    pub outcome: Outcome,
    /// Named handlers that are done, where a type has several.
    pub done: Vec<Text>,
    /// When, by the clock of this process.
    pub at: Timestamp,
    /// In `0.0..1.0`, for the jitter.
    pub random: f64,
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyTo {
    /// The failure transport.
    Failure,
    /// The suspects' lane of the delivery's place.
    Suspects,
}

/// What the transport is to do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Hand it to the handlers.
    Deliver {
        /// The delivery.
        key: Key,
        /// The subscription.
        source: SourceId,
        /// The envelope, with the attempts that were counted in this process.
        envelope: Arc<Envelope>,
    },
    /// Settle it at the broker; failed calls are tried again while the connection lasts.
    Settle(Key, SourceId, Settlement),
    /// Publish a copy, tried again for ever; then say [`Event::Copied`].
    Copy {
        /// The delivery.
        key: Key,
        /// Where to.
        to: CopyTo,
        /// The copy.
        envelope: Arc<Envelope>,
    },
    /// Say [`Event::Due`] after this time.
    Hold(Key, Duration),
    /// It left the ledger: its permit is free.
    Gone(SourceId, Tally, Arc<Envelope>),
    /// Pause this subscription: it has no failure transport and met a message that can't be handled.
    Pause(SourceId, Text),
}

/// How a delivery is counted in the receipt: exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tally {
    /// Done.
    Acked,
    /// Runs again, or moved to the suspects' lane.
    Retried,
    /// Given up and kept.
    Failed,
    /// Given back untouched.
    Released,
    /// The lease was taken by another, or the connection ended.
    Lost,
    /// Still running at the grace; given back.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In its line, not handed out yet.
    Waiting,
    /// With the handlers.
    Open,
    /// Waiting in this process for its retry, under an order.
    Held,
    /// Its copy is not confirmed.
    Copying(Tally),
    /// The broker was asked.
    Settling(Tally),
    /// Another's by now; the handler still runs.
    Lost,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    source: SourceId,
    token: T,
    envelope: Arc<Envelope>,
    position: crate::broker::Position,
    phase: Phase,
    line: Option<Line>,
    /// In the lane: the start before had no recorded end, and that is not recorded yet either.
    died: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Line {
    Source(SourceId),
    Key(SourceId, Text),
}

/// The in-flight registry of one transport.
#[derive(Clone, Debug)]
pub struct Ledger<T> {
    entries: SlotMap<Key, Entry<T>>,
    lanes: Lanes<Line, Key>,
    rules: Vec<SourceRules>,
    /// The suspect of a lane whose connection ended under its run: coming back does not mean that this process died.
    survived: Vec<(SourceId, MessageId)>,
    draining: bool,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self {
            entries: SlotMap::with_key(),
            lanes: Lanes::default(),
            rules: Vec::new(),
            survived: Vec::new(),
            draining: false,
        }
    }
}

impl<T: Clone> Ledger<T> {
    /// Adds a subscription.
    pub fn add_source(&mut self, rules: SourceRules) -> SourceId {
        self.rules.push(rules);
        SourceId(u32::try_from(self.rules.len() - 1).unwrap_or(u32::MAX))
    }

    /// A subscription's rules.
    #[must_use]
    pub fn rules(&self, source: SourceId) -> Option<&SourceRules> {
        self.rules.get(source.0 as usize)
    }

    /// Changes a subscription's rules, for instance once the broker's way to count is known.
    pub fn rules_mut(&mut self, source: SourceId) -> Option<&mut SourceRules> {
        self.rules.get_mut(source.0 as usize)
    }

    /// How many deliveries are in flight.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The token and the subscription of a delivery.
    #[must_use]
    pub fn token(&self, key: Key) -> Option<(SourceId, T)> {
        self.entries.get(key).map(|entry| (entry.source, entry.token.clone()))
    }

    /// The subscription of a delivery.
    #[must_use]
    pub fn source(&self, key: Key) -> Option<SourceId> {
        self.entries.get(key).map(|entry| entry.source)
    }

    /// Whether a delivery has not begun to settle.
    #[must_use]
    pub fn is_open(&self, key: Key) -> bool {
        let open = |entry: &Entry<T>| matches!(entry.phase, Phase::Waiting | Phase::Open | Phase::Held);
        self.entries.get(key).is_some_and(open)
    }

    /// The envelope of a delivery.
    #[must_use]
    pub fn envelope(&self, key: Key) -> Option<&Arc<Envelope>> {
        self.entries.get(key).map(|entry| &entry.envelope)
    }

    /// What holds a lease of this subscription, to be renewed; also while it is being settled.
    pub fn leased(&self, source: SourceId) -> impl Iterator<Item = (Key, &T)> {
        self.entries
            .iter()
            .filter(move |(_, entry)| entry.source == source && entry.phase != Phase::Lost)
            .map(|(key, entry)| (key, &entry.token))
    }

    /// The deliveries that are still open (running or held).
    pub fn open(&self) -> impl Iterator<Item = (Key, &Arc<Envelope>)> {
        self.entries
            .iter()
            .filter(|(_, entry)| matches!(entry.phase, Phase::Open | Phase::Held))
            .map(|(key, entry)| (key, &entry.envelope))
    }

    /// A delivery has come from the broker.
    pub fn arrive(&mut self, source: SourceId, incoming: Incoming<T>, at: Timestamp, actions: &mut Vec<Action>) {
        let Some(rules) = self.rules.get(source.0 as usize) else { return };
        let Incoming { token, envelope, delivered, position, .. } = incoming;
        let line = match rules.order {
            Order::None => None,
            _ if rules.lane => None,
            Order::Broker => Some(Line::Source(source)),
            Order::Key => envelope.key.clone().map(|key| Line::Key(source, key)),
        };
        let handover = delivered.unwrap_or(1);
        let suspect = !rules.lane && handover >= rules.suspect_from();
        let survived = |(of, id): &(SourceId, MessageId)| *of == source && *id == envelope.id;
        let died = rules.died(delivered) && !self.survived.iter().any(survived);
        let draining = self.draining;
        let crashed = died && envelope.track.as_ref().map_or(1, |track| track.starts) >= rules.lane_starts();
        let entry = Entry { source, token, envelope, position, phase: Phase::Open, line: None, died };
        let key = self.entries.insert(entry);
        let Some(entry) = self.entries.get_mut(key) else { return };
        if draining {
            // A pull that was on its way when the stop came.
            self.release(key, Tally::Released, actions);
        } else if suspect {
            let Some(rules) = self.rules.get(source.0 as usize) else { return };
            let envelope = Arc::new(replace::suspected(&entry.envelope, &rules.origin));
            entry.phase = Phase::Copying(Tally::Retried);
            actions.push(Action::Copy { key, to: CopyTo::Suspects, envelope });
        } else if crashed {
            let error = Text::from_static("its worker's process ended during each start");
            let outcome = Outcome::Final { error, handler: None };
            self.fail(key, &outcome, &[], Reason::Crashed, at, actions);
        } else if died {
            let replacement = Arc::new(replace::raised(&entry.envelope));
            self.settle(key, Settlement::Retry { replacement, after: Duration::ZERO }, Tally::Retried, actions);
        } else {
            let envelope = entry.envelope.clone();
            let first = match line {
                None => true,
                Some(line) => {
                    entry.line = Some(line.clone());
                    self.lanes.join(line, key)
                }
            };
            if first {
                actions.push(Action::Deliver { key, source, envelope });
            } else if let Some(entry) = self.entries.get_mut(key) {
                entry.phase = Phase::Waiting;
            }
        }
    }

    /// A delivery has come that nobody wants to start: it goes back untouched.
    pub fn turn_away(&mut self, source: SourceId, incoming: Incoming<T>, actions: &mut Vec<Action>) {
        let Incoming { token, envelope, delivered, position, .. } = incoming;
        let died = self.rules(source).is_some_and(|rules| rules.died(delivered));
        let entry = Entry { source, token, envelope, position, phase: Phase::Open, line: None, died };
        let key = self.entries.insert(entry);
        self.release(key, Tally::Released, actions);
    }

    /// One event of a delivery's life.
    pub fn step(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Done(key) => {
                if self.ends(key, actions) {
                    self.settle(key, Settlement::Ack, Tally::Acked, actions);
                }
            }
            Event::Ended(key, end) => self.ended(key, &end, actions),
            Event::Copied(key) => {
                if let Some(Entry { phase: Phase::Copying(tally), .. }) = self.entries.get(key) {
                    let tally = *tally;
                    self.settle(key, Settlement::Ack, tally, actions);
                }
            }
            Event::CopyRefused(key, why) => {
                if let Some(Entry { phase: Phase::Copying(_), source, .. }) = self.entries.get(key) {
                    actions.push(Action::Pause(*source, why));
                    self.release(key, Tally::Released, actions);
                }
            }
            Event::Settled(key, settled) => {
                if let Some(Entry { phase: Phase::Settling(tally), .. }) = self.entries.get(key) {
                    let tally = match settled {
                        // `Already`: an earlier try of this very settle was done, its answer lost.
                        Settled::Done | Settled::Written | Settled::Already => *tally,
                        Settled::LeaseLost => Tally::Lost,
                    };
                    self.gone(key, tally, actions);
                }
            }
            Event::Lost(key) => {
                if self.is_open(key) {
                    self.recall(key, actions);
                }
                self.lost(key, actions);
            }
            Event::Due(key) => {
                if let Some(entry) = self.entries.get_mut(key)
                    && entry.phase == Phase::Held
                {
                    entry.phase = Phase::Open;
                    let (source, envelope) = (entry.source, entry.envelope.clone());
                    actions.push(Action::Deliver { key, source, envelope });
                }
            }
            Event::Disconnected => {
                // Those that wait go first: else the head of their line, as it leaves, would start them.
                let goes_after = |entry: &Entry<T>| entry.phase != Phase::Waiting;
                let mut keys: Vec<(bool, Key)> = self.entries.iter().map(|(key, e)| (goes_after(e), key)).collect();
                keys.sort_by_key(|(after, _)| *after);
                for (_, key) in keys {
                    self.lost(key, actions);
                }
            }
            Event::Drain => {
                self.draining = true;
                let waits = |entry: &Entry<T>| matches!(entry.phase, Phase::Held | Phase::Waiting);
                let waiting: Vec<Key> = self.entries.iter().filter(|(_, e)| waits(e)).map(|(key, _)| key).collect();
                for key in waiting {
                    self.give_back(key, Tally::Released, actions);
                }
            }
            Event::Abandon => {
                self.draining = true;
                let keys: Vec<Key> = self.entries.keys().collect();
                for key in keys {
                    let tally = match self.entries.get(key).map(|entry| entry.phase) {
                        Some(Phase::Open) => Tally::Abandoned,
                        Some(Phase::Held | Phase::Waiting | Phase::Copying(_)) => Tally::Released,
                        Some(Phase::Settling(_)) | None => continue,
                        Some(Phase::Lost) => {
                            self.gone(key, Tally::Lost, actions);
                            continue;
                        }
                    };
                    self.give_back(key, tally, actions);
                }
            }
        }
    }

    /// Whether the end of a run decides over this delivery.
    fn ends(&mut self, key: Key, actions: &mut Vec<Action>) -> bool {
        match self.entries.get(key).map(|entry| entry.phase) {
            Some(Phase::Open) => true,
            Some(Phase::Lost) => {
                self.gone(key, Tally::Lost, actions);
                false
            }
            Some(Phase::Held | Phase::Waiting | Phase::Copying(_) | Phase::Settling(_)) | None => false,
        }
    }

    fn ended(&mut self, key: Key, end: &End, actions: &mut Vec<Action>) {
        if !self.ends(key, actions) {
            return;
        }
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(rules) = self.rules.get(entry.source.0 as usize) else { return };
        let attempts = entry.envelope.attempts();
        let judged = verdict(&end.outcome, &rules.retry, rules.unhandled, attempts, self.draining, end.random);
        match judged {
            Verdict::Ack => self.settle(key, Settlement::Ack, Tally::Acked, actions),
            Verdict::Release if end.done.is_empty() => self.release(key, Tally::Released, actions),
            Verdict::Release => {
                // Uncounted, but its done-marks must survive.
                let replacement = Arc::new(replace::marked(&entry.envelope, &end.done));
                self.settle(key, Settlement::Retry { replacement, after: Duration::ZERO }, Tally::Released, actions);
                self.recall(key, actions);
            }
            Verdict::Retry { after } => {
                let unhandled = Outcome::errored(crate::AttemptKind::Error, "no handler takes its type");
                let outcome = if end.outcome == Outcome::Unhandled { &unhandled } else { &end.outcome };
                let replacement = Arc::new(replace::retried(&entry.envelope, outcome, &end.done, end.at));
                if entry.line.is_some() {
                    // Putting it back would let the next of its line overtake it.
                    entry.envelope = replacement;
                    entry.phase = Phase::Held;
                    actions.push(Action::Hold(key, after));
                } else {
                    self.settle(key, Settlement::Retry { replacement, after }, Tally::Retried, actions);
                }
            }
            Verdict::Fail { reason } => self.fail(key, &end.outcome, &end.done, reason, end.at, actions),
        }
    }

    fn fail(
        &mut self,
        key: Key,
        outcome: &Outcome,
        done: &[Text],
        reason: Reason,
        at: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(rules) = self.rules.get(entry.source.0 as usize) else { return };
        if !rules.failure {
            let why = format!(
                "message `{}` can't be handled ({}) and there is no failure transport",
                entry.envelope.id,
                reason.as_str()
            );
            actions.push(Action::Pause(entry.source, why.into()));
            return self.release(key, Tally::Released, actions);
        }
        let position = entry.position.to_string();
        let record = replace::failed(&entry.envelope, outcome, done, reason, &rules.origin, &position, at);
        entry.phase = Phase::Copying(Tally::Failed);
        actions.push(Action::Copy { key, to: CopyTo::Failure, envelope: Arc::new(record) });
    }

    fn release(&mut self, key: Key, tally: Tally, actions: &mut Vec<Action>) {
        self.give_back(key, tally, actions);
        self.recall(key, actions);
    }

    /// A delivery is another's again and not done: those that wait behind it go back too, so none overtakes it.
    fn recall(&mut self, key: Key, actions: &mut Vec<Action>) {
        let Some(line) = self.entries.get(key).and_then(|entry| entry.line.as_ref()) else { return };
        let behind: Vec<Key> = self.lanes.behind(line, key).collect();
        for key in behind {
            if self.entries.get(key).is_some_and(|entry| entry.phase == Phase::Waiting) {
                self.give_back(key, Tally::Released, actions);
            }
        }
    }

    fn give_back(&mut self, key: Key, tally: Tally, actions: &mut Vec<Action>) {
        let Some(entry) = self.entries.get(key) else { return };
        let fresh = match self.rules.get(entry.source.0 as usize) {
            // In the lane a second hand-over means that the worker died. Where the broker counts a release as one, a
            // replacement with the same starts begins its own count.
            // A death that no replacement has recorded stays in the broker's count.
            Some(rules) => rules.lane && rules.count != DeliveryCount::Exact && !entry.died,
            None => false,
        };
        let settlement = if fresh {
            Settlement::Retry { replacement: entry.envelope.clone(), after: Duration::ZERO }
        } else {
            Settlement::Release
        };
        self.settle(key, settlement, tally, actions);
    }

    fn settle(&mut self, key: Key, settlement: Settlement, tally: Tally, actions: &mut Vec<Action>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.phase = Phase::Settling(tally);
            actions.push(Action::Settle(key, entry.source, settlement));
        }
    }

    fn lost(&mut self, key: Key, actions: &mut Vec<Action>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        match entry.phase {
            // Its end is still to come.
            Phase::Open => {
                entry.phase = Phase::Lost;
                let (source, id) = (entry.source, entry.envelope.id.clone());
                if self.rules.get(source.0 as usize).is_some_and(|rules| rules.lane) {
                    self.survived.retain(|(of, _)| *of != source);
                    self.survived.push((source, id));
                }
            }
            Phase::Lost => {}
            // Its handler was still running at the grace, whatever the broker would have said.
            Phase::Settling(Tally::Abandoned) => self.gone(key, Tally::Abandoned, actions),
            Phase::Waiting | Phase::Held | Phase::Copying(_) | Phase::Settling(_) => {
                self.gone(key, Tally::Lost, actions)
            }
        }
    }

    fn gone(&mut self, key: Key, tally: Tally, actions: &mut Vec<Action>) {
        let Some(entry) = self.entries.remove(key) else { return };
        actions.push(Action::Gone(entry.source, tally, entry.envelope));
        let Some(next) = entry.line.and_then(|line| self.lanes.leave(&line, key)) else { return };
        let draining = self.draining;
        let Some(waiting) = self.entries.get_mut(next) else { return };
        if waiting.phase != Phase::Waiting {
            return;
        }
        if draining {
            return self.give_back(next, Tally::Released, actions);
        }
        waiting.phase = Phase::Open;
        let (source, envelope) = (waiting.source, waiting.envelope.clone());
        actions.push(Action::Deliver { key: next, source, envelope });
    }
}
