//! The ledger against a naive model of the registry: any events in any order, true or not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::{collections::BTreeMap, time::Duration};

use postroom_core::{
    AttemptKind, DeliveryCount, Envelope, Incoming, MessageId, Order, Origin, Outcome, Place, RetryPolicy, Settled,
    Settlement, Text, Unhandled,
    protocol::{Action, CopyTo, End, Event, Key, Ledger, SourceId, SourceRules, Tally},
};
use proptest::prelude::*;

/// What the model knows of a delivery. It has no lines: the order is checked by the schedules.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    Open,
    Lost,
    Copying(Tally),
    Settling(Tally),
}

/// Events; numbers pick a delivery among all that ever were, so old keys come too.
#[derive(Clone, Debug)]
enum Op {
    Arrive { lane: bool, delivered: Option<u32>, starts: u32 },
    TurnAway { lane: bool },
    Ended(usize, u8),
    Copied(usize),
    CopyRefused(usize),
    Settled(usize, u8),
    Lost(usize),
    Due(usize),
    Disconnected,
    Drain,
    Abandon,
}

fn op() -> impl Strategy<Value = Op> {
    let any_key = || 0..1000usize;
    prop_oneof![
        8 => (any::<bool>(), proptest::option::of(1..5u32), 0..4u32)
            .prop_map(|(lane, delivered, starts)| Op::Arrive { lane, delivered, starts }),
        1 => any::<bool>().prop_map(|lane| Op::TurnAway { lane }),
        8 => (any_key(), 0..6u8).prop_map(|(key, how)| Op::Ended(key, how)),
        5 => any_key().prop_map(Op::Copied),
        1 => any_key().prop_map(Op::CopyRefused),
        8 => (any_key(), 0..4u8).prop_map(|(key, answer)| Op::Settled(key, answer)),
        2 => any_key().prop_map(Op::Lost),
        2 => any_key().prop_map(Op::Due),
        1 => Just(Op::Disconnected),
        1 => Just(Op::Drain),
        1 => Just(Op::Abandon),
    ]
}

fn outcome(how: u8) -> Outcome {
    match how {
        0 => Outcome::Done,
        1 => Outcome::errored(AttemptKind::Error, "e"),
        2 => Outcome::Final { error: "f".into(), handler: None },
        3 => Outcome::Undecodable { error: "u".into() },
        4 => Outcome::Unhandled,
        _ => Outcome::NotStarted,
    }
}

struct Model {
    ledger: Ledger<u32>,
    sources: [SourceId; 2],
    lane_starts: u32,
    count: DeliveryCount,
    max: u32,
    draining: bool,
    all: Vec<Key>,
    is: BTreeMap<Key, (SourceId, Is, u32)>,
    tokens: u32,
    arrived: usize,
    gone: usize,
}

/// What the model wants of one event, in the words of the actions.
#[derive(Debug, PartialEq)]
enum Want {
    Deliver(Key),
    Copy(Key, CopyTo),
    Ack(Key),
    Release(Key),
    Retry(Key, u32, u32),
    Gone(Tally),
    Pause,
}

impl Model {
    fn new(count: DeliveryCount, crashes: u32, max: u32) -> Self {
        let mut ledger = Ledger::default();
        let origin = Origin::new("main", Place::queue("q").unwrap());
        let rules = |lane| SourceRules {
            origin: origin.clone(),
            retry: RetryPolicy { max, ..RetryPolicy::default() },
            unhandled: Unhandled::Fail,
            crashes,
            order: Order::None,
            lane,
            count,
            failure: true,
        };
        let sources = [ledger.add_source(rules(false)), ledger.add_source(rules(true))];
        let ordinary = if count == DeliveryCount::Flag { 1 } else { 2 };
        let (all, is) = (Vec::new(), BTreeMap::new());
        let lane_starts = crashes - ordinary;
        Self { ledger, sources, lane_starts, count, max, draining: false, all, is, tokens: 0, arrived: 0, gone: 0 }
    }

    /// A release: in the lane of a broker that counts releases it is a replacement, unless a death would be forgotten.
    fn back(&self, key: Key, lane: bool, died: bool) -> Want {
        if lane && !died && self.count != DeliveryCount::Exact {
            let track = self.ledger.envelope(key).unwrap().track.as_ref().unwrap();
            Want::Retry(key, track.attempts, track.starts)
        } else {
            Want::Release(key)
        }
    }

    fn arrive(&mut self, lane: bool, delivered: Option<u32>, starts: u32, turned: bool) {
        let source = self.sources[usize::from(lane)];
        let mut envelope = Envelope::with_id(MessageId::new(format!("m{}", self.tokens)).unwrap(), "b");
        envelope.track_mut().starts = starts;
        let mut incoming = Incoming::new(self.tokens, envelope);
        incoming.delivered = delivered;
        let mut actions = Vec::new();
        if turned {
            self.ledger.turn_away(source, incoming, &mut actions);
        } else {
            self.ledger.arrive(source, incoming, 1, &mut actions);
        }
        let key = self.ledger.leased(source).find(|(_, token)| **token == self.tokens).expect("it is registered").0;
        self.tokens += 1;
        self.arrived += 1;
        assert!(!self.all.contains(&key), "a key was used twice");
        let handover = delivered.unwrap_or(1);
        let died = lane && handover >= 2;
        let suspect = !lane && handover >= if self.count == DeliveryCount::Flag { 2 } else { 3 };
        let (is, want) = if self.draining || turned {
            (Is::Settling(Tally::Released), self.back(key, lane, died))
        } else if suspect {
            (Is::Copying(Tally::Retried), Want::Copy(key, CopyTo::Suspects))
        } else if died && starts >= self.lane_starts {
            (Is::Copying(Tally::Failed), Want::Copy(key, CopyTo::Failure))
        } else if died {
            (Is::Settling(Tally::Retried), Want::Retry(key, 0, starts + 1))
        } else {
            (Is::Open, Want::Deliver(key))
        };
        self.all.push(key);
        self.is.insert(key, (source, is, handover));
        assert_eq!(said(&actions), [want]);
    }

    fn event(&mut self, op: &Op) {
        let pick = |n: usize| (!self.all.is_empty()).then(|| self.all[n % self.all.len()]);
        let mut want = Vec::new();
        let lane_of = |source: SourceId| source == self.sources[1];
        let event = match *op {
            Op::Arrive { lane, delivered, starts } => return self.arrive(lane, delivered, starts, false),
            Op::TurnAway { lane } => return self.arrive(lane, None, 1, true),
            Op::Disconnected => {
                for (_, is, _) in self.is.values_mut() {
                    match *is {
                        Is::Open | Is::Lost => *is = Is::Lost,
                        Is::Settling(Tally::Abandoned) => want.push(Want::Gone(Tally::Abandoned)),
                        Is::Copying(_) | Is::Settling(_) => want.push(Want::Gone(Tally::Lost)),
                    }
                }
                self.is.retain(|_, (_, is, _)| *is == Is::Lost);
                Event::Disconnected
            }
            Op::Drain => {
                self.draining = true;
                Event::Drain
            }
            Op::Abandon => {
                self.draining = true;
                for (key, (source, is, handover)) in self.is.clone() {
                    let tally = match is {
                        Is::Open => Tally::Abandoned,
                        Is::Copying(_) => Tally::Released,
                        Is::Settling(_) => continue,
                        Is::Lost => {
                            self.is.remove(&key);
                            want.push(Want::Gone(Tally::Lost));
                            continue;
                        }
                    };
                    want.push(self.back(key, lane_of(source), lane_of(source) && handover >= 2));
                    self.is.get_mut(&key).unwrap().1 = Is::Settling(tally);
                }
                Event::Abandon
            }
            Op::Ended(n, how) => {
                let Some(key) = pick(n) else { return };
                let entry = self.is.get(&key).copied();
                if let Some((source, Is::Open, _)) = entry {
                    let track = self.ledger.envelope(key).unwrap().track.clone().unwrap();
                    let (is, wants) = match how {
                        0 => (Is::Settling(Tally::Acked), Want::Ack(key)),
                        1 if self.draining => (Is::Settling(Tally::Released), self.back(key, lane_of(source), false)),
                        1 if track.attempts < self.max => {
                            (Is::Settling(Tally::Retried), Want::Retry(key, track.attempts + 1, track.starts))
                        }
                        1..=4 => (Is::Copying(Tally::Failed), Want::Copy(key, CopyTo::Failure)),
                        _ => (Is::Settling(Tally::Released), self.back(key, lane_of(source), false)),
                    };
                    self.is.get_mut(&key).unwrap().1 = is;
                    want.push(wants);
                } else if let Some((_, Is::Lost, _)) = entry {
                    self.is.remove(&key);
                    want.push(Want::Gone(Tally::Lost));
                }
                Event::Ended(key, Box::new(End { outcome: outcome(how), done: Vec::new(), at: 2, random: 0.5 }))
            }
            Op::Copied(n) => {
                let Some(key) = pick(n) else { return };
                if let Some((_, is, _)) = self.is.get_mut(&key)
                    && let Is::Copying(tally) = *is
                {
                    *is = Is::Settling(tally);
                    want.push(Want::Ack(key));
                }
                Event::Copied(key)
            }
            Op::CopyRefused(n) => {
                let Some(key) = pick(n) else { return };
                if let Some((source, Is::Copying(_), handover)) = self.is.get(&key).copied() {
                    let died = lane_of(source) && handover >= 2;
                    want.extend([Want::Pause, self.back(key, lane_of(source), died)]);
                    self.is.get_mut(&key).unwrap().1 = Is::Settling(Tally::Released);
                }
                Event::CopyRefused(key, Text::from_static("no"))
            }
            Op::Settled(n, answer) => {
                let Some(key) = pick(n) else { return };
                let settled =
                    [Settled::Done, Settled::Written, Settled::Already, Settled::LeaseLost][usize::from(answer)];
                if let Some((_, Is::Settling(tally), _)) = self.is.get(&key).copied() {
                    want.push(Want::Gone(if settled == Settled::LeaseLost { Tally::Lost } else { tally }));
                    self.is.remove(&key);
                }
                Event::Settled(key, settled)
            }
            Op::Lost(n) => {
                let Some(key) = pick(n) else { return };
                match self.is.get_mut(&key) {
                    Some((_, is @ Is::Open, _)) => *is = Is::Lost,
                    Some((_, Is::Lost, _)) | None => {}
                    Some((_, is, _)) => {
                        let abandoned = *is == Is::Settling(Tally::Abandoned);
                        want.push(Want::Gone(if abandoned { Tally::Abandoned } else { Tally::Lost }));
                        self.is.remove(&key);
                    }
                }
                Event::Lost(key)
            }
            Op::Due(n) => {
                let Some(key) = pick(n) else { return };
                Event::Due(key)
            }
        };
        let mut actions = Vec::new();
        self.ledger.step(event, &mut actions);
        let mut said = said(&actions);
        // The order among deliveries of one event is nobody's business.
        let by_text = |want: &Want| format!("{want:?}");
        said.sort_by_key(by_text);
        want.sort_by_key(by_text);
        assert_eq!(said, want, "{op:?}");
        self.gone += said.iter().filter(|want| matches!(want, Want::Gone(_))).count();
    }

    fn check(&self) {
        assert_eq!(self.ledger.len(), self.is.len());
        assert_eq!(self.arrived, self.ledger.len() + self.gone);
        for key in &self.all {
            let is = self.is.get(key);
            assert_eq!(self.ledger.source(*key), is.map(|(source, ..)| *source));
            assert_eq!(self.ledger.is_open(*key), matches!(is, Some((_, Is::Open, _))));
        }
        let leased: usize = self.sources.iter().map(|source| self.ledger.leased(*source).count()).sum();
        assert_eq!(leased, self.is.values().filter(|(_, is, _)| *is != Is::Lost).count());
    }
}

fn said(actions: &[Action]) -> Vec<Want> {
    let say = |action: &Action| match action {
        Action::Deliver { key, .. } => Want::Deliver(*key),
        Action::Copy { key, to, .. } => Want::Copy(*key, *to),
        Action::Settle(key, _, Settlement::Ack) => Want::Ack(*key),
        Action::Settle(key, _, Settlement::Release) => Want::Release(*key),
        Action::Settle(key, _, Settlement::Retry { replacement, after }) => {
            let track = replacement.track.as_ref().unwrap();
            assert!(*after <= Duration::from_secs(300));
            Want::Retry(*key, track.attempts, track.starts)
        }
        Action::Gone(_, tally, _) => Want::Gone(*tally),
        Action::Pause(..) => Want::Pause,
        other => panic!("{other:?}"),
    };
    actions.iter().map(say).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn the_ledger_is_the_naive_registry(
        count in prop_oneof![Just(DeliveryCount::Exact), Just(DeliveryCount::Raw), Just(DeliveryCount::Flag)],
        crashes in 3..6u32,
        max in 0..3u32,
        ops in proptest::collection::vec(op(), 1..80),
    ) {
        let mut model = Model::new(count, crashes, max);
        for op in &ops {
            model.event(op);
            model.check();
        }
        for op in [Op::Abandon, Op::Disconnected] {
            model.event(&op);
            model.check();
        }
        assert!(model.ledger.is_empty());
    }
}
