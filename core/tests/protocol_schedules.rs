//! The ledger and a small simulated broker under random schedules, checked against the promises at every step.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use postroom_core::{
    AttemptKind, DeliveryCount, Envelope, Incoming, MessageId, Order, Origin, Outcome, Place, Position, Reason,
    RetryPolicy, Settled, Settlement, Text, Unhandled,
    protocol::{Action, CopyTo, End, Event, Key, Ledger, SourceId, SourceRules},
};
use proptest::prelude::*;

const LEASE: u64 = 1_000;
const MAIN: usize = 0;
const LANE: usize = 1;

#[derive(Clone, Debug, PartialEq)]
enum At {
    Waiting,
    InFlight { owner: u64, generation: u64, expires: u64 },
    Delayed(u64),
}

#[derive(Clone, Debug)]
struct Stored {
    place: usize,
    envelope: Arc<Envelope>,
    delivered: u32,
    at: At,
}

#[derive(Clone, Debug, PartialEq)]
struct Token {
    number: u64,
    generation: u64,
}

/// A broker: what lies in the queue and in its lane, and the failure store.
struct SimBroker {
    count: DeliveryCount,
    now: u64,
    lease: u64,
    next: u64,
    messages: BTreeMap<u64, Stored>,
    failed: BTreeMap<Text, Arc<Envelope>>,
}

impl SimBroker {
    fn publish(&mut self, place: usize, envelope: Arc<Envelope>, after: u64) {
        let at = if after == 0 { At::Waiting } else { At::Delayed(self.now + after) };
        self.next += 1;
        self.messages.insert(self.next, Stored { place, envelope, delivered: 0, at });
    }

    fn pull(&mut self, place: usize, owner: u64, max: usize) -> Vec<Incoming<Token>> {
        let mut taken = Vec::new();
        for (number, message) in &mut self.messages {
            if taken.len() < max && message.place == place && message.at == At::Waiting {
                message.delivered += 1;
                self.next += 1;
                let generation = self.next;
                message.at = At::InFlight { owner, generation, expires: self.now + self.lease };
                let mut incoming = Incoming::new(Token { number: *number, generation }, message.envelope.clone());
                incoming.position = Position::Number(*number);
                incoming.delivered = match self.count {
                    DeliveryCount::Exact | DeliveryCount::Raw => Some(message.delivered),
                    DeliveryCount::Flag => Some(message.delivered.min(2)),
                    _ => None,
                };
                taken.push(incoming);
            }
        }
        taken
    }

    fn owns(&self, token: &Token) -> bool {
        let at = self.messages.get(&token.number).map(|message| &message.at);
        matches!(at, Some(At::InFlight { generation, .. }) if *generation == token.generation)
    }

    fn settle(&mut self, token: &Token, settlement: &Settlement) -> Settled {
        if !self.messages.contains_key(&token.number) {
            return Settled::Already;
        }
        if !self.owns(token) {
            return Settled::LeaseLost;
        }
        match settlement {
            Settlement::Ack => drop(self.messages.remove(&token.number)),
            Settlement::Retry { replacement, after } => {
                let old = self.messages.remove(&token.number).unwrap();
                assert_eq!(replacement.body, old.envelope.body);
                self.publish(old.place, replacement.clone(), u64::try_from(after.as_millis()).unwrap());
            }
            Settlement::Release => {
                let exact = self.count == DeliveryCount::Exact;
                let message = self.messages.get_mut(&token.number).unwrap();
                message.delivered -= u32::from(exact);
                message.at = At::Waiting;
            }
        }
        Settled::Done
    }

    fn copy(&mut self, to: CopyTo, envelope: &Arc<Envelope>) {
        match to {
            CopyTo::Suspects => self.publish(LANE, envelope.clone(), 0),
            CopyTo::Failure => {
                let record = envelope.track.as_ref().unwrap().failure.as_ref().unwrap().record.clone();
                self.failed.entry(record).or_insert_with(|| envelope.clone());
            }
        }
    }

    /// What this owner holds comes back: its connection or process ended.
    fn orphan(&mut self, owner: u64) {
        for message in self.messages.values_mut() {
            if matches!(message.at, At::InFlight { owner: other, .. } if other == owner) {
                message.at = At::Waiting;
            }
        }
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        for message in self.messages.values_mut() {
            match message.at {
                At::InFlight { expires, .. } if expires <= self.now => message.at = At::Waiting,
                At::Delayed(due) if due <= self.now => message.at = At::Waiting,
                _ => {}
            }
        }
    }

    fn extend(&mut self, token: &Token) -> bool {
        let until = self.now + self.lease;
        let owned = self.owns(token);
        if let Some(Stored { at: At::InFlight { expires, .. }, .. }) = self.messages.get_mut(&token.number)
            && owned
        {
            *expires = until;
        }
        owned
    }
}

/// What the test knows of one delivery.
struct Known {
    source: usize,
    token: Token,
    id: MessageId,
    line: Option<Text>,
    seq: u64,
    handled: bool,
    copied: bool,
}

struct Copying {
    key: Key,
    to: CopyTo,
    envelope: Arc<Envelope>,
    stored: bool,
}

/// One process with one transport.
struct Process {
    owner: u64,
    ledger: Ledger<Token>,
    sources: [SourceId; 2],
    known: BTreeMap<Key, Known>,
    running: BTreeMap<Key, Arc<Envelope>>,
    settles: Vec<(Key, Token, Settlement)>,
    copies: Vec<Copying>,
    holds: Vec<(u64, Key)>,
    ended: Vec<Key>,
    paused: bool,
    draining: bool,
    taken: [usize; 2],
    arrived: usize,
    tallies: BTreeMap<String, usize>,
}

#[derive(Clone, Debug)]
struct Rules {
    count: DeliveryCount,
    crashes: u32,
    order: Order,
    max: u32,
    unhandled: Unhandled,
    failure: bool,
    /// Whether what is handed out under an order must be the oldest that is left of its line at the broker.
    strict: bool,
}

struct World {
    rules: Rules,
    broker: SimBroker,
    processes: Vec<Process>,
    owners: u64,
    seq: u64,
    sent: BTreeMap<MessageId, (Text, bytes::Bytes)>,
    handled: BTreeSet<MessageId>,
    starts: BTreeMap<MessageId, u32>,
}

impl World {
    fn new(rules: Rules, processes: usize) -> Self {
        let count = rules.count;
        // An order is promised while leases are renewed.
        let lease = if rules.strict { u64::MAX / 2 } else { LEASE };
        let broker = SimBroker { count, now: 0, lease, next: 0, messages: BTreeMap::new(), failed: BTreeMap::new() };
        let (sent, handled, starts) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let mut world = Self { rules, broker, processes: Vec::new(), owners: 0, seq: 0, sent, handled, starts };
        for _ in 0..processes {
            let process = world.process();
            world.processes.push(process);
        }
        world
    }

    fn process(&mut self) -> Process {
        self.owners += 1;
        let mut ledger = Ledger::default();
        let origin = Origin::new("main", Place::queue("q").unwrap());
        let rules = |lane| SourceRules {
            origin: origin.clone(),
            retry: RetryPolicy { max: self.rules.max, ..RetryPolicy::default() },
            unhandled: self.rules.unhandled,
            crashes: self.rules.crashes,
            order: self.rules.order,
            lane,
            count: self.rules.count,
            failure: self.rules.failure,
        };
        let sources = [ledger.add_source(rules(false)), ledger.add_source(rules(true))];
        Process {
            owner: self.owners,
            ledger,
            sources,
            known: BTreeMap::new(),
            running: BTreeMap::new(),
            settles: Vec::new(),
            copies: Vec::new(),
            holds: Vec::new(),
            ended: Vec::new(),
            paused: false,
            draining: false,
            taken: [0; 2],
            arrived: 0,
            tallies: BTreeMap::new(),
        }
    }

    fn send(&mut self, key: u8) -> MessageId {
        let id = MessageId::new(format!("m{:03}", self.sent.len())).unwrap();
        let mut envelope = Envelope::with_id(id.clone(), format!("body of {id}"));
        envelope.stamps.push("user", format!("stamp of {id}"));
        // Key 0 is none.
        envelope.key = (key > 0).then(|| format!("k{key}").into());
        self.sent.insert(id.clone(), (format!("stamp of {id}").into(), envelope.body.clone()));
        self.broker.publish(MAIN, Arc::new(envelope), 0);
        id
    }

    fn line(&self, place: usize, envelope: &Envelope) -> Option<Text> {
        match self.rules.order {
            _ if place == LANE => None,
            Order::None => None,
            Order::Broker => Some("all".into()),
            Order::Key => envelope.key.clone(),
        }
    }

    fn pull(&mut self, p: usize, place: usize, max: usize) {
        let process = &self.processes[p];
        if process.paused && place == MAIN {
            return;
        }
        let back = |(_, _, settlement): &(Key, Token, Settlement)| matches!(settlement, Settlement::Release);
        if self.rules.strict && process.settles.iter().any(back) {
            return;
        }
        let arrived = self.broker.pull(place, process.owner, max);
        self.arrive(p, place, arrived);
    }

    fn arrive(&mut self, p: usize, place: usize, arrived: Vec<Incoming<Token>>) {
        for incoming in arrived {
            let (token, envelope) = (incoming.token.clone(), incoming.envelope.clone());
            let from = if self.rules.count == DeliveryCount::Flag { 2 } else { 3 };
            // A suspect leaves the order.
            let line = self.line(place, &envelope).filter(|_| incoming.delivered.unwrap_or(1) < from);
            self.seq += 1;
            let seq = self.seq;
            let now = i64::try_from(self.broker.now).unwrap();
            let process = &mut self.processes[p];
            let source = process.sources[place];
            let mut actions = Vec::new();
            process.ledger.arrive(source, incoming, now, &mut actions);
            let key = process.ledger.leased(source).find(|(_, other)| **other == token).expect("it is registered").0;
            process.taken[place] += 1;
            process.arrived += 1;
            let id = envelope.id.clone();
            let known = Known { source: place, token, id, line, seq, handled: false, copied: false };
            assert!(process.known.insert(key, known).is_none(), "a key was used twice");
            self.apply(p, actions);
        }
    }

    fn step(&mut self, p: usize, event: Event) {
        let mut actions = Vec::new();
        let process = &mut self.processes[p];
        process.draining |= matches!(event, Event::Drain | Event::Abandon);
        process.ledger.step(event, &mut actions);
        self.apply(p, actions);
    }

    fn apply(&mut self, p: usize, actions: Vec<Action>) {
        let process = &mut self.processes[p];
        let mut gone = [0usize; 2];
        for action in &actions {
            if let Action::Gone(source, tally, _) = action {
                gone[source.0 as usize] += 1;
                process.taken[source.0 as usize] -= 1;
                *process.tallies.entry(format!("{tally:?}")).or_default() += 1;
            }
        }
        // Each delivery that left said so once, to its own subscription, and nothing else did.
        let mut left = [0usize; 2];
        let before: BTreeSet<Key> = process.known.keys().copied().collect();
        process.known.retain(|key, known| {
            let here = process.ledger.source(*key).is_some();
            left[known.source] += usize::from(!here);
            here
        });
        assert_eq!(gone, left, "one Gone for each delivery that left");
        assert_eq!(process.taken.iter().sum::<usize>(), process.ledger.len(), "permits are what is in flight");
        assert_eq!(process.tallies.values().sum::<usize>() + process.ledger.len(), process.arrived);
        process.settles.retain(|(key, ..)| process.known.contains_key(key));
        for action in actions {
            let process = &mut self.processes[p];
            match action {
                Action::Deliver { key, source, envelope } => {
                    assert!(!process.draining, "delivered while draining");
                    assert!(process.running.insert(key, envelope.clone()).is_none(), "it runs already");
                    let known = process.known.get(&key).expect("a delivery in the ledger is handed out");
                    assert_eq!(process.sources[known.source], source);
                    assert!(self.broker.owns(&known.token) || !self.rules.strict, "a dead token is handed out");
                    *self.starts.entry(known.id.clone()).or_default() += 1;
                    if known.line.is_some() {
                        let earlier =
                            process.known.values().find(|other| other.line == known.line && other.seq < known.seq);
                        assert!(earlier.is_none(), "{} overtook {}", known.id, earlier.unwrap().id);
                        let (number, place, line) = (known.token.number, known.source, known.line.clone());
                        if self.rules.strict {
                            let mut others = self.broker.messages.range(..number).map(|(_, message)| message);
                            let older = others.find(|m| m.place == place && self.line(place, &m.envelope) == line);
                            assert!(
                                older.is_none(),
                                "{} overtook {} at the broker",
                                envelope.id,
                                older.unwrap().envelope.id
                            );
                        }
                    }
                }
                Action::Settle(key, _, settlement) => {
                    assert!(before.contains(&key) && process.settles.iter().all(|(other, ..)| *other != key));
                    let known = &process.known[&key];
                    if matches!(settlement, Settlement::Ack) {
                        assert!(known.handled || known.copied, "{} is acked before it is done or kept", known.id);
                    }
                    process.copies.retain(|copy| copy.key != key || copy.stored);
                    process.settles.push((key, known.token.clone(), settlement));
                }
                Action::Copy { key, to, envelope } => {
                    let known = &process.known[&key];
                    assert!(!known.copied && process.copies.iter().all(|copy| copy.key != key), "copied twice");
                    assert!(process.settles.iter().all(|(other, ..)| *other != key), "copied while it settles");
                    process.copies.push(Copying { key, to, envelope, stored: false });
                }
                Action::Hold(key, after) => {
                    assert!(!process.draining, "held while draining");
                    let due = self.broker.now + u64::try_from(after.as_millis()).unwrap();
                    process.holds.push((due, key));
                }
                Action::Gone(..) => {}
                Action::Pause(source, _) => {
                    assert_eq!(process.sources[MAIN].0.max(source.0), source.0);
                    process.paused = true;
                }
                other => panic!("{other:?}"),
            }
        }
        self.conserved();
    }

    /// Promises 1 and 2 at every point, not only the quiet ones; 6: what is kept is as it came.
    fn conserved(&self) {
        let lying: BTreeSet<&MessageId> = self.broker.messages.values().map(|message| &message.envelope.id).collect();
        let kept: BTreeSet<&MessageId> = self.broker.failed.values().map(|envelope| &envelope.id).collect();
        for id in self.sent.keys() {
            assert!(lying.contains(id) || kept.contains(id) || self.handled.contains(id), "{id} is lost");
        }
        for envelope in
            self.broker.messages.values().map(|message| &message.envelope).chain(self.broker.failed.values())
        {
            let (stamp, body) = self.sent.get(&envelope.id).expect("nothing is invented");
            assert!(
                envelope.body == *body && envelope.stamps.get_str("user") == Some(stamp) && envelope.stamps.len() == 1
            );
        }
    }

    fn end(&mut self, p: usize, key: Key, outcome: Outcome) {
        let process = &mut self.processes[p];
        if let Some(envelope) = process.running.remove(&key) {
            let done =
                outcome == Outcome::Done || outcome == Outcome::Unhandled && self.rules.unhandled == Unhandled::Ack;
            if done {
                self.handled.insert(envelope.id.clone());
            }
            if let Some(known) = process.known.get_mut(&key) {
                known.handled |= done;
            }
        }
        process.ended.push(key);
        let at = i64::try_from(self.broker.now).unwrap();
        let event = match outcome {
            Outcome::Done => Event::Done(key),
            outcome => Event::Ended(key, Box::new(End { outcome, done: Vec::new(), at, random: 0.5 })),
        };
        self.step(p, event);
    }

    /// The broker answers a settle: done, or done and the answer lost (it is asked again), or not heard at all.
    fn answer(&mut self, p: usize, n: usize, how: u8) {
        let process = &self.processes[p];
        if process.settles.is_empty() {
            return;
        }
        let n = n % process.settles.len();
        let (key, token, settlement) = process.settles[n].clone();
        if how == 0 {
            return;
        }
        let settled = self.broker.settle(&token, &settlement);
        self.conserved();
        if how == 1 {
            return;
        }
        self.processes[p].settles.remove(n);
        self.step(p, Event::Settled(key, settled));
    }

    /// A copy is stored, stored and confirmed, or refused for good.
    fn copy(&mut self, p: usize, n: usize, how: u8) {
        let process = &mut self.processes[p];
        if process.copies.is_empty() {
            return;
        }
        let n = n % process.copies.len();
        let Copying { key, to, envelope, stored } = &mut process.copies[n];
        let key = *key;
        if how == 0 && !*stored {
            process.copies.remove(n);
            self.step(p, Event::CopyRefused(key, "too large".into()));
            return;
        }
        if !*stored {
            *stored = true;
            self.broker.copy(*to, envelope);
        }
        if how > 1 {
            process.copies.remove(n);
            if let Some(known) = process.known.get_mut(&key) {
                known.copied = true;
            }
            self.step(p, Event::Copied(key));
        }
    }

    fn due(&mut self, p: usize) {
        let now = self.broker.now;
        let mut due = Vec::new();
        self.processes[p].holds.retain(|(at, key)| {
            if *at <= now {
                due.push(*key);
            }
            *at > now
        });
        for key in due {
            self.step(p, Event::Due(key));
        }
    }

    fn renew(&mut self, p: usize) {
        let process = &self.processes[p];
        let leased: Vec<(Key, Token)> = process
            .sources
            .iter()
            .flat_map(|source| process.ledger.leased(*source).map(|(key, token)| (key, token.clone())))
            .collect();
        for (key, token) in leased {
            // As the engine does: an answer to a settle on its way says more.
            if !self.broker.extend(&token) && self.processes[p].ledger.is_open(key) {
                self.step(p, Event::Lost(key));
            }
        }
    }

    fn disconnect(&mut self, p: usize) {
        let process = &mut self.processes[p];
        process.settles.clear();
        process.copies.clear();
        self.owners += 1;
        let old = std::mem::replace(&mut process.owner, self.owners);
        self.broker.orphan(old);
        self.step(p, Event::Disconnected);
        let process = &self.processes[p];
        // Only what still runs is left, until its end; nothing of it holds a lease.
        assert!(process.known.keys().all(|key| process.running.contains_key(key)));
        assert!(process.sources.iter().all(|source| process.ledger.leased(*source).next().is_none()));
    }

    /// The process dies, or is replaced.
    fn kill(&mut self, p: usize) {
        self.broker.orphan(self.processes[p].owner);
        let fresh = self.process();
        self.processes[p] = fresh;
    }

    /// A stop in order: drain, every end and answer; then nothing may be left.
    fn stop(&mut self, p: usize) {
        self.step(p, Event::Drain);
        let running: Vec<Key> = self.processes[p].running.keys().copied().collect();
        for key in running {
            self.end(p, key, Outcome::errored(AttemptKind::Dropped, "stopped"));
        }
        self.flush(p);
        let process = &self.processes[p];
        assert!(process.ledger.is_empty() && process.taken == [0; 2] && process.running.is_empty());
    }

    fn flush(&mut self, p: usize) {
        while !self.processes[p].copies.is_empty() {
            self.copy(p, 0, 2);
        }
        while !self.processes[p].settles.is_empty() {
            self.answer(p, 0, 2);
        }
    }

    /// Runs until nothing is left to do, in a healthy world. A process that was told to stop is replaced; any other must
    /// get there with what it holds.
    fn finish(&mut self) {
        if self.processes[0].draining {
            self.kill(0);
        }
        self.processes[0].paused = false;
        for _ in 0..400 {
            self.pull(0, MAIN, 64);
            self.pull(0, LANE, 1);
            let running: Vec<Key> = self.processes[0].running.keys().copied().collect();
            for key in running {
                self.end(0, key, Outcome::Done);
            }
            self.flush(0);
            self.broker.advance(LEASE / 2);
            self.due(0);
            self.renew(0);
            if self.broker.messages.is_empty() {
                return;
            }
        }
        panic!("{} messages never ended", self.broker.messages.len());
    }

    fn failed_as(&self, id: &MessageId) -> Vec<Reason> {
        let of = |envelope: &&Arc<Envelope>| envelope.id == *id;
        let reason = |envelope: &Arc<Envelope>| envelope.track.as_ref().unwrap().failure.as_ref().unwrap().reason;
        self.broker.failed.values().filter(of).map(reason).collect()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Send(u8),
    Pull(usize, usize, usize),
    /// An arrival that was on its way when a stop came.
    LatePull(usize, usize),
    End(usize, usize, u8),
    EndAgain(usize, usize),
    Answer(usize, usize, u8),
    Copy(usize, usize, u8),
    OldKey(usize, usize, u8),
    Advance(u64),
    Renew(usize),
    Disconnect(usize),
    Drain(usize),
    Abandon(usize),
    Stop(usize),
    Kill(usize),
    Resume(usize),
}

fn outcome(how: u8) -> Outcome {
    match how {
        0..=5 => Outcome::Done,
        6..=8 => Outcome::errored(AttemptKind::Error, "e"),
        9 => Outcome::Final { error: "f".into(), handler: None },
        10 => Outcome::Undecodable { error: "u".into() },
        11 => Outcome::Unhandled,
        _ => Outcome::NotStarted,
    }
}

fn op() -> impl Strategy<Value = Op> {
    let (p, n) = (|| 0..2usize, || 0..100usize);
    prop_oneof![
        10 => (0..4u8).prop_map(Op::Send),
        12 => (p(), prop_oneof![3 => Just(MAIN), 1 => Just(LANE)], 1..6usize).prop_map(|(p, l, n)| Op::Pull(p, l, n)),
        1 => (p(), 0..2usize).prop_map(|(p, l)| Op::LatePull(p, l)),
        16 => (p(), n(), 0..13u8).prop_map(|(p, n, how)| Op::End(p, n, how)),
        2 => (p(), n()).prop_map(|(p, n)| Op::EndAgain(p, n)),
        14 => (p(), n(), prop_oneof![1 => Just(0u8), 1 => Just(1), 8 => Just(2)]).prop_map(|(p, n, h)| Op::Answer(p, n, h)),
        8 => (p(), n(), prop_oneof![1 => Just(0u8), 2 => Just(1), 8 => Just(2)]).prop_map(|(p, n, h)| Op::Copy(p, n, h)),
        2 => (p(), n(), 0..5u8).prop_map(|(p, n, how)| Op::OldKey(p, n, how)),
        4 => prop_oneof![Just(10), Just(400), Just(1_100), Just(5_000)].prop_map(Op::Advance),
        4 => p().prop_map(Op::Renew),
        2 => p().prop_map(Op::Disconnect),
        1 => p().prop_map(Op::Drain),
        1 => p().prop_map(Op::Abandon),
        1 => p().prop_map(Op::Stop),
        2 => p().prop_map(Op::Kill),
        2 => p().prop_map(Op::Resume),
    ]
}

fn run(world: &mut World, op: Op) {
    let processes = world.processes.len();
    match op {
        Op::Send(key) => drop(world.send(key)),
        Op::Pull(p, place, max) if !world.processes[p % processes].draining => world.pull(p % processes, place, max),
        Op::LatePull(p, place) => world.pull(p % processes, place, 3),
        Op::End(p, n, how) => {
            let p = p % processes;
            let keys: Vec<Key> = world.processes[p].running.keys().copied().collect();
            if !keys.is_empty() {
                world.end(p, keys[n % keys.len()], outcome(how));
            }
        }
        Op::EndAgain(p, n) => {
            let p = p % processes;
            let keys = world.processes[p].ended.clone();
            let running = &world.processes[p].running;
            if let Some(key) = (!keys.is_empty()).then(|| keys[n % keys.len()]).filter(|key| !running.contains_key(key))
            {
                let before = world.processes[p].settles.len();
                world.end(p, key, Outcome::Done);
                assert_eq!(world.processes[p].settles.len(), before, "a second end did something");
            }
        }
        Op::Answer(p, n, how) => world.answer(p % processes, n, how),
        Op::Copy(p, n, how) => world.copy(p % processes, n, how),
        Op::OldKey(p, n, how) => {
            let p = p % processes;
            let old: Vec<Key> = world.processes[p]
                .ended
                .iter()
                .filter(|key| !world.processes[p].known.contains_key(key))
                .copied()
                .collect();
            if !old.is_empty() {
                let (key, before) = (old[n % old.len()], world.processes[p].ledger.len());
                let event = match how {
                    0 => Event::Copied(key),
                    1 => Event::CopyRefused(key, "no".into()),
                    2 => Event::Settled(key, Settled::Done),
                    3 => Event::Lost(key),
                    _ => Event::Due(key),
                };
                let mut actions = Vec::new();
                world.processes[p].ledger.step(event, &mut actions);
                assert!(actions.is_empty() && world.processes[p].ledger.len() == before);
            }
        }
        Op::Advance(by) => {
            world.broker.advance(by);
            (0..processes).for_each(|p| world.due(p));
        }
        Op::Renew(p) => world.renew(p % processes),
        Op::Disconnect(p) => world.disconnect(p % processes),
        Op::Drain(p) => world.step(p % processes, Event::Drain),
        Op::Abandon(p) => {
            let p = p % processes;
            world.step(p, Event::Abandon);
            // Handlers are not waited for any more.
            world.processes[p].running.clear();
            world.flush(p);
            assert!(world.processes[p].ledger.is_empty());
        }
        Op::Stop(p) => {
            world.stop(p % processes);
            world.kill(p % processes);
        }
        Op::Kill(p) => world.kill(p % processes),
        Op::Resume(p) => world.processes[p % processes].paused = false,
        Op::Pull(..) => {}
    }
}

fn counts() -> impl Strategy<Value = DeliveryCount> {
    prop_oneof![Just(DeliveryCount::Exact), Just(DeliveryCount::Raw), Just(DeliveryCount::Flag)]
}

fn rules() -> impl Strategy<Value = Rules> {
    let orders = prop_oneof![Just(Order::None), Just(Order::Key), Just(Order::Broker)];
    let unhandled = prop_oneof![Just(Unhandled::Fail), Just(Unhandled::Ack), Just(Unhandled::Retry)];
    (counts(), 3..6u32, orders, 0..3u32, unhandled).prop_map(|(count, crashes, order, max, unhandled)| Rules {
        count,
        crashes,
        order,
        max,
        unhandled,
        failure: true,
        strict: false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Promises 1, 2, 3, 6 and 8 of one or two processes on one broker.
    #[test]
    fn nothing_is_lost_invented_or_settled_twice(
        rules in rules(),
        processes in 1..=2usize,
        ops in proptest::collection::vec(op(), 1..150),
    ) {
        let mut world = World::new(rules, processes);
        for op in ops {
            run(&mut world, op);
        }
        for p in 1..processes {
            world.stop(p);
        }
        world.finish();
        world.stop(0);
        for id in world.sent.keys() {
            assert!(world.handled.contains(id) || !world.failed_as(id).is_empty());
        }
    }

    /// One process: under an order no message starts before every older one of its line has left the queue, through
    /// retries, failures, releases, pauses and lost connections.
    #[test]
    fn an_order_holds(
        key in any::<bool>(),
        failure in any::<bool>(),
        ops in proptest::collection::vec(op(), 1..150),
    ) {
        let order = if key { Order::Key } else { Order::Broker };
        // A broker that counts nothing makes no suspects, which would leave the order.
        let (count, unhandled) = (DeliveryCount::None, Unhandled::Retry);
        let mut world = World::new(Rules { count, crashes: 4, order, max: 2, unhandled, failure, strict: true }, 1);
        for op in ops {
            run(&mut world, op);
        }
        world.finish();
        world.stop(0);
        // Without a failure transport nothing fails.
        assert!(failure || world.broker.failed.is_empty());
    }
}

/// A reproducible choice.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

/// Runs a world with killers, whose start ends its process and gives back all that it held, until nothing is left.
/// Keeps what a process owes a suspect: nothing else starts from its hand-over until the broker has answered its settle.
/// Answers how often each message was started.
fn drive(
    world: &mut World,
    killers: &[MessageId],
    prefetch: usize,
    tidy: bool,
    dice: &mut Dice,
) -> BTreeMap<MessageId, u32> {
    let mut started: BTreeMap<MessageId, u32> = BTreeMap::new();
    for _ in 0..5_000 {
        let p = dice.below(world.processes.len());
        match dice.below(8) {
            0..=1 => {
                let free = prefetch.saturating_sub(world.processes[p].taken[MAIN]);
                world.pull(p, MAIN, free);
            }
            2..=4 => start(world, p, killers, tidy, dice, &mut started),
            5 => {
                world.pull(p, LANE, 1);
                if world.processes[p].taken[LANE] > 0 {
                    let of_lane = |known: &Known| known.source == LANE;
                    let process = &world.processes[p];
                    let key = process.running.keys().find(|key| of_lane(&process.known[key])).copied();
                    match (key, dice.below(4)) {
                        // A stop before its start.
                        (Some(_), 0) => {
                            world.stop(p);
                            world.kill(p);
                        }
                        (Some(key), 1) => world.end(p, key, Outcome::NotStarted),
                        (Some(key), _) => run_one(world, p, key, killers, &mut started),
                        // Raised, or failed.
                        (None, _) => {}
                    }
                    world.flush(p);
                }
            }
            6 if !tidy && dice.below(8) == 0 => {
                world.stop(p);
                world.kill(p);
            }
            _ => world.flush(p),
        }
        if world.broker.messages.is_empty() {
            return started;
        }
    }
    panic!("{} messages never ended", world.broker.messages.len());
}

fn start(
    world: &mut World,
    p: usize,
    killers: &[MessageId],
    tidy: bool,
    dice: &mut Dice,
    started: &mut BTreeMap<MessageId, u32>,
) {
    let keys: Vec<Key> = world.processes[p].running.keys().copied().collect();
    if keys.is_empty() {
        return;
    }
    if tidy {
        world.flush(p);
    }
    run_one(world, p, keys[dice.below(keys.len())], killers, started);
}

fn run_one(world: &mut World, p: usize, key: Key, killers: &[MessageId], started: &mut BTreeMap<MessageId, u32>) {
    let id = world.processes[p].running[&key].id.clone();
    *started.entry(id.clone()).or_default() += 1;
    if killers.contains(&id) {
        world.kill(p);
    } else {
        world.end(p, key, Outcome::Done);
    }
}

fn suspects(count: DeliveryCount, crashes: u32, order: Order, processes: usize) -> World {
    let unhandled = Unhandled::Fail;
    World::new(Rules { count, crashes, order, max: 3, unhandled, failure: true, strict: false }, processes)
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::None), Just(Order::Key), Just(Order::Broker)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    /// Promise 5, exactly: one killer starts as often as it may, and only it fails.
    #[test]
    fn a_killer_starts_as_often_as_it_may(
        count in counts(),
        crashes in prop_oneof![Just(3u32), Just(4), Just(7)],
        order in orders(),
        innocents in 0..12usize,
        at in 0..12usize,
        prefetch in 1..8usize,
        seed in any::<u64>(),
    ) {
        let mut world = suspects(count, crashes, order, 1);
        let ids: Vec<MessageId> = (0..=innocents).map(|n| world.send(u8::try_from(n % 3).unwrap())).collect();
        let killer = ids[at % ids.len()].clone();
        let started = drive(&mut world, std::slice::from_ref(&killer), prefetch, true, &mut Dice(seed));
        prop_assert_eq!(started[&killer], crashes);
        prop_assert_eq!(world.failed_as(&killer), [Reason::Crashed]);
        for id in ids.iter().filter(|id| **id != killer) {
            prop_assert!(world.handled.contains(id) && world.failed_as(id).is_empty(), "{} failed", id);
        }
        let record = world.broker.failed.values().next().unwrap().track.clone().unwrap();
        prop_assert_eq!(record.origin.unwrap().place, Place::queue("q").unwrap());
        prop_assert_eq!((record.starts, record.attempts), (0, 0));
    }

    /// Several killers, processes that die with answers on their way, and stops between: each killer fails, no innocent.
    #[test]
    fn no_innocent_fails_beside_killers(
        count in counts(),
        crashes in prop_oneof![Just(3u32), Just(4), Just(7)],
        order in orders(),
        processes in 1..=2usize,
        sent in 4..16usize,
        killers in 1..4usize,
        prefetch in 1..8usize,
        seed in any::<u64>(),
    ) {
        let mut world = suspects(count, crashes, order, processes);
        let mut dice = Dice(seed);
        let ids: Vec<MessageId> = (0..sent).map(|n| world.send(u8::try_from(n % 3).unwrap())).collect();
        let killers: Vec<MessageId> = (0..killers).map(|_| ids[dice.below(ids.len())].clone()).collect();
        drive(&mut world, &killers, prefetch, false, &mut dice);
        for id in &ids {
            let failed = world.failed_as(id);
            if killers.contains(id) {
                prop_assert!(!failed.is_empty() && failed.iter().all(|reason| *reason == Reason::Crashed));
            } else {
                prop_assert!(world.handled.contains(id) && failed.is_empty(), "{} failed", id);
            }
        }
    }

    /// Ten restarts, in order or killed, never fail anybody.
    #[test]
    fn rolling_restarts_fail_nobody(
        count in counts(),
        crashes in prop_oneof![Just(3u32), Just(4), Just(7)],
        order in orders(),
        restarts in proptest::collection::vec((0..4u8, 0..4usize, 0..4usize), 10..14),
        prefetch in 1..8usize,
    ) {
        let mut world = suspects(count, crashes, order, 1);
        for n in 0..8 {
            world.send(n % 3);
        }
        for (how, done, confirmed) in restarts {
            world.pull(0, MAIN, prefetch);
            for _ in 0..done {
                let key = world.processes[0].running.keys().next_back().copied();
                // Half of them are only told to stop.
                if let Some(key) = key.filter(|_| how != 2) {
                    world.end(0, key, Outcome::Done);
                }
            }
            (0..confirmed).for_each(|n| world.copy(0, n, 2));
            match how {
                0 => {
                    world.pull(0, LANE, 1);
                    world.stop(0);
                }
                1 => {
                    world.pull(0, LANE, 1);
                    world.step(0, Event::Abandon);
                    world.flush(0);
                }
                2 => {
                    world.step(0, Event::Drain);
                    // On its way when the stop came.
                    world.pull(0, LANE, 1);
                    world.flush(0);
                }
                // Killed, while no suspect runs.
                _ => {}
            }
            world.kill(0);
        }
        world.finish();
        prop_assert!(world.broker.failed.is_empty(), "an innocent failed");
        prop_assert_eq!(world.handled.len(), world.sent.len());
    }
}
