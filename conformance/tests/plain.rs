//! The suite on a broker without a single optional power: what it lacks is not applicable, the rest holds.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use postroom_conformance::{Level, Need, Subject, Verdict, run};
use postroom_core::{
    Absent, Broker, Capabilities, Declaration, DeclareMode, Envelope, ErrorKind, Incoming, MessageId, Outgoing, Place,
    Settled, Settlement, Source, Subscription, Tended, TransportError,
};
use tokio::sync::Notify;

/// The largest body.
const LIMIT: usize = 2 << 20;

/// Queues in this process; nothing else.
#[derive(Default)]
struct Queues {
    ready: Mutex<BTreeMap<Place, VecDeque<Arc<Envelope>>>>,
    changed: Notify,
}

impl Queues {
    fn put(&self, place: &Place, envelope: Arc<Envelope>) -> Option<MessageId> {
        let id = envelope.id.clone();
        self.ready.lock().unwrap().get_mut(place)?.push_back(envelope);
        self.changed.notify_waiters();
        Some(id)
    }
}

struct Plain {
    queues: Arc<Queues>,
    closed: Rc<Cell<bool>>,
    sources: RefCell<Vec<Rc<Open>>>,
}

struct Open {
    place: Place,
    queues: Arc<Queues>,
    closed: Cell<bool>,
    woken: Cell<bool>,
    held: RefCell<BTreeMap<u64, Arc<Envelope>>>,
    next: Cell<u64>,
}

struct PlainSource(Rc<Open>);

fn nowhere(place: &Place) -> TransportError {
    TransportError::new(ErrorKind::Unroutable, format!("no {place}"))
}

impl Plain {
    fn open(&self) -> Result<(), TransportError> {
        if self.closed.get() { Err(TransportError::stopped()) } else { Ok(()) }
    }
}

impl Broker for Plain {
    type Config = Arc<Queues>;
    type Source = PlainSource;
    type Count = Absent;
    type Browse = Absent;
    type Groups = Absent;

    async fn connect(config: &Self::Config) -> Result<Self, TransportError> {
        Ok(Self { queues: config.clone(), closed: Rc::default(), sources: RefCell::default() })
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::none("plain");
        can.max_body = Some(LIMIT);
        can
    }

    async fn declare(&self, what: &[Declaration], how: DeclareMode) -> Result<(), TransportError> {
        self.open()?;
        let mut ready = self.queues.ready.lock().unwrap();
        for Declaration { place, .. } in what {
            match (how, ready.contains_key(place)) {
                (DeclareMode::Verify, false) => {
                    return Err(TransportError::new(ErrorKind::NotFound, format!("no {place}")));
                }
                _ => ready.entry(place.clone()).or_default(),
            };
        }
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<MessageId, TransportError>> {
        let one = |outgoing: &Outgoing| {
            self.open()?;
            if outgoing.envelope.body.len() > LIMIT {
                return Err(TransportError::new(ErrorKind::TooLarge, format!("more than {LIMIT} bytes")));
            }
            self.queues.put(&outgoing.to, outgoing.envelope.clone()).ok_or_else(|| nowhere(&outgoing.to))
        };
        batch.iter().map(one).collect()
    }

    async fn subscribe(&self, to: Subscription) -> Result<PlainSource, TransportError> {
        self.open()?;
        let open = Rc::new(Open {
            place: to.place,
            queues: self.queues.clone(),
            closed: Cell::default(),
            woken: Cell::default(),
            held: RefCell::default(),
            next: Cell::default(),
        });
        self.sources.borrow_mut().push(open.clone());
        Ok(PlainSource(open))
    }

    async fn tend(&self, _: usize) -> Result<Tended, TransportError> {
        self.open().map(|()| Tended::default())
    }

    async fn close(&self) -> Result<(), TransportError> {
        self.closed.set(true);
        self.sources.take().iter().for_each(|open| open.close());
        Ok(())
    }

    fn count(&self) -> Option<&Absent> {
        None
    }
    fn browse(&self) -> Option<&Absent> {
        None
    }
    fn groups(&self) -> Option<&Absent> {
        None
    }
}

impl Open {
    fn close(&self) {
        self.closed.set(true);
        for envelope in self.held.take().into_values() {
            self.queues.put(&self.place, envelope);
        }
        self.queues.changed.notify_waiters();
    }

    fn take(&self, max: usize) -> Vec<Incoming<u64>> {
        let mut ready = self.queues.ready.lock().unwrap();
        let Some(queue) = ready.get_mut(&self.place) else { return Vec::new() };
        let n = max.min(queue.len());
        let taken = queue.drain(..n).map(|envelope| {
            let token = self.next.get();
            self.next.set(token + 1);
            self.held.borrow_mut().insert(token, envelope.clone());
            Incoming::new(token, envelope)
        });
        taken.collect()
    }
}

impl Source for PlainSource {
    type Token = u64;
    type Lease = Absent;

    async fn pull(&self, max: usize) -> Result<Vec<Incoming<u64>>, TransportError> {
        loop {
            let changed = self.0.queues.changed.notified();
            if self.0.closed.get() {
                return Err(TransportError::stopped());
            }
            let taken = self.0.take(max);
            if self.0.woken.take() || !taken.is_empty() {
                return Ok(taken);
            }
            changed.await;
        }
    }

    fn wake(&self) {
        self.0.woken.set(true);
        self.0.queues.changed.notify_waiters();
    }

    async fn settle(&self, batch: &[(&u64, Settlement)]) -> Vec<Result<Settled, TransportError>> {
        let one = |(token, how): &(&u64, Settlement)| {
            if self.0.closed.get() {
                return Err(TransportError::stopped());
            }
            let Some(envelope) = self.0.held.borrow_mut().remove(token) else { return Ok(Settled::Already) };
            match how {
                Settlement::Ack => {}
                Settlement::Retry { replacement, .. } => {
                    self.0.queues.put(&self.0.place, replacement.clone());
                }
                Settlement::Release => {
                    self.0.queues.put(&self.0.place, envelope);
                }
            }
            Ok(Settled::Done)
        };
        batch.iter().map(one).collect()
    }

    fn lease(&self) -> Option<&Absent> {
        None
    }

    async fn close(&self) -> Result<(), TransportError> {
        self.0.close();
        Ok(())
    }
}

struct OfThisProcess(Arc<Queues>);

impl Subject for OfThisProcess {
    type Broker = Plain;

    fn config(&self) -> Arc<Queues> {
        self.0.clone()
    }
    fn lease(&self) -> Duration {
        Duration::from_millis(200)
    }
}

#[test]
fn a_broker_without_powers_conforms() {
    let report = run(OfThisProcess(Arc::default()), Level::Bare, "");
    println!("{report}");
    report.assert();
    for (scenario, need) in [("delay_is_honoured", Need::Delay), ("two_groups_get_all", Need::Topics)] {
        let entry = report.entries.iter().find(|entry| entry.name == scenario).unwrap();
        assert_eq!(entry.verdict, Verdict::NotApplicable(need));
    }
}

#[test]
fn a_broker_without_powers_conforms_through_the_actors() {
    let report = run(OfThisProcess(Arc::default()), Level::Actors, "");
    println!("{report}");
    report.assert();
}

#[test]
fn a_filter_chooses() {
    let report = run(OfThisProcess(Arc::default()), Level::Bare, "pull::wake");
    assert_eq!(report.entries.len(), 3, "{report}");
    report.assert();
}

#[test]
#[should_panic(expected = "no scenario ran")]
fn nothing_chosen_is_nothing_proved() {
    run(OfThisProcess(Arc::default()), Level::Bare, "no such scenario").assert();
}
