//! The state of a transport, and the one place where the ledger's actions become calls.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    panic::AssertUnwindSafe,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use postroom_core::{
    Broker, DeliveryCount, Envelope, Outcome, Place, Source, Text,
    envelope::Timestamp,
    policy::{Order, Unhandled},
    protocol::{Action, End, Event, Key, Ledger, SourceId, SourceRules, Tally},
    track::Origin,
};
use tokio::sync::{Notify, mpsc, watch};

use super::{Launch, copy::Copies, publish::Publishes, settle::Settles};
use crate::{
    board::{Board, Counters, Health, Kind},
    clock,
    consumer::{Budget, Told},
    gate::{Delivery, Ended, Gate, How, now_ms},
    guardian::panic_text,
    layer::{Layers, Observed, Observer},
    options::{FailureRef, TransportOptions},
    receipt::Tallies,
    transport::Directory,
};

pub(super) type Token<B> = <<B as Broker>::Source as Source>::Token;

/// One subscription.
pub(super) struct Sub {
    pub(super) place: Place,
    pub(super) gate: Arc<Gate>,
    pub(super) inbox: RefCell<Option<mpsc::UnboundedSender<Told>>>,
    pub(super) pulls: Cell<usize>,
}

/// A live connection.
pub(super) struct Link<B: Broker> {
    pub(super) broker: Rc<B>,
    pub(super) sources: Rc<[Rc<B::Source>]>,
    pub(super) epoch: u32,
}

impl<B: Broker> Clone for Link<B> {
    fn clone(&self) -> Self {
        Self { broker: self.broker.clone(), sources: self.sources.clone(), epoch: self.epoch }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Running,
    Draining,
    Closing,
    Closed,
}

/// No longer list of actions is kept for its room.
const SPARE: usize = 4_096;

/// Lives on its transport's arbiter; no `RefCell` is borrowed across an await.
pub(super) struct Engine<B: Broker> {
    pub(super) weak: Weak<Self>,
    pub(super) options: TransportOptions,
    pub(super) config: B::Config,
    pub(super) owner: Text,
    pub(super) subs: Vec<Sub>,
    pub(super) ledger: RefCell<Ledger<Token<B>>>,
    pub(super) link: RefCell<Option<Link<B>>>,
    pub(super) epoch: Cell<u32>,
    /// The epoch of the live connection; 0 while there is none.
    pub(super) live: watch::Sender<u32>,
    pub(super) broken: Notify,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) settles: Settles,
    pub(super) publishes: Publishes,
    pub(super) copies: Copies,
    pub(super) tend_now: Notify,
    pub(super) tend_at: Cell<Option<tokio::time::Instant>>,
    pub(super) emptied: Notify,
    pub(super) board: Arc<Board>,
    pub(super) counters: Arc<Counters>,
    pub(super) budget: Option<Arc<Budget>>,
    pub(super) directory: Directory,
    pub(super) layers: Layers,
    observers: Arc<[Arc<dyn Observer>]>,
    tallies: Arc<Tallies>,
    /// Locked by the one task that hears; a panic in it unlocks, and the next goes on.
    ends: tokio::sync::Mutex<mpsc::UnboundedReceiver<Vec<Ended>>>,
    pub(super) first: RefCell<Option<tokio::sync::oneshot::Sender<Result<(), postroom_core::TransportError>>>>,
    shown: Cell<Option<Health>>,
    /// An empty list of actions, kept for its room.
    pub(super) spare: Cell<Vec<Action>>,
}

/// The gates of a transport's subscriptions, and the inboxes of their consumers.
pub(super) type Gates = Vec<(Arc<Gate>, mpsc::UnboundedReceiver<Told>)>;

/// Bounds a call in time. The timer is made only once the call waits for something.
pub(super) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = T>,
) -> Result<T, tokio::time::error::Elapsed> {
    let mut call = std::pin::pin!(call);
    let first = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx))).await;
    match first {
        std::task::Poll::Ready(answer) => Ok(answer),
        std::task::Poll::Pending => tokio::time::timeout(limit, call).await,
    }
}

impl<B: Broker> Engine<B> {
    pub(super) fn new(config: B::Config, launch: Launch) -> (Rc<Self>, Gates) {
        let Launch { options, places, owner, board, quiet, budget, directory, layers, observers, first } = launch;
        let (ends, hear_ends) = mpsc::unbounded_channel();
        let mut ledger = Ledger::default();
        let (mut subs, mut gates) = (Vec::new(), Vec::new());
        for (place, lane) in places {
            let source = ledger.add_source(SourceRules {
                origin: Origin::new(options.name.clone(), options.place.clone()),
                retry: options.retry,
                unhandled: options.unhandled(),
                crashes: options.crashes,
                order: if lane { Order::None } else { options.order },
                lane,
                count: DeliveryCount::None,
                failure: options.failure != FailureRef::None,
            });
            let gate = Gate::new(options.name.clone(), source, lane, options.lease, ends.clone(), quiet.clone());
            let gate = Arc::new(gate);
            let (inbox, hear) = mpsc::unbounded_channel();
            subs.push(Sub { place, gate: gate.clone(), inbox: RefCell::new(Some(inbox)), pulls: Cell::new(0) });
            gates.push((gate, hear));
        }
        let counters = board.counters_of(&options.name);
        let engine = Rc::new_cyclic(|weak| Self {
            weak: weak.clone(),
            settles: Settles::new(subs.len()),
            publishes: Publishes::default(),
            copies: Copies::default(),
            options,
            config,
            owner,
            subs,
            ledger: RefCell::new(ledger),
            link: RefCell::new(None),
            epoch: Cell::new(0),
            live: watch::Sender::new(0),
            broken: Notify::new(),
            phase: watch::Sender::new(Phase::Running),
            tend_now: Notify::new(),
            tend_at: Cell::new(None),
            emptied: Notify::new(),
            board,
            tallies: Arc::new(Tallies::new(counters.clone())),
            counters,
            budget,
            directory,
            layers,
            observers,
            ends: tokio::sync::Mutex::new(hear_ends),
            first: RefCell::new(Some(first)),
            shown: Cell::new(None),
            spare: Cell::default(),
        });
        (engine, gates)
    }

    pub(super) fn start(&self) {
        self.run("link", |engine| async move { engine.keep_linked().await });
        self.run("ends", |engine| async move { engine.hear_ends().await });
    }

    /// Runs a task of this transport. A panic in it is a broken connection, never a silent end; it starts again.
    pub(super) fn run<F, Fut>(&self, what: &'static str, task: F)
    where
        F: Fn(Rc<Self>) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let Some(engine) = self.weak.upgrade() else { return };
        actix::spawn(async move {
            while let Err(panic) = AssertUnwindSafe(task(engine.clone())).catch_unwind().await {
                engine.break_link(&format!("the {what} task panicked: {}", panic_text(&*panic)));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }

    /// One call on the broker: made at once, and a task only where it waits. A panic in the driver is a broken
    /// connection.
    pub(super) fn call(&self, what: &'static str, call: impl Future<Output = ()> + 'static) {
        let Some(engine) = self.weak.upgrade() else { return };
        let mut call = Box::pin(AssertUnwindSafe(call).catch_unwind());
        let ended = move |ended: std::thread::Result<()>| {
            if let Err(panic) = ended {
                engine.break_link(&format!("a {what} call panicked: {}", panic_text(&*panic)));
            }
        };
        // The task polls it again, and only that waker counts.
        match call.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(answer) => ended(answer),
            std::task::Poll::Pending => drop(actix::spawn(async move { ended(call.await) })),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(super) fn link(&self) -> Option<Link<B>> {
        self.link.borrow().clone()
    }

    pub(super) fn show(&self, health: Health, why: &str) {
        // The why of a green state is empty: nothing to write again.
        if self.shown.get() == Some(health) && health.is_green() {
            return;
        }
        self.shown.set(Some(health));
        self.board.set(Kind::Transport, &self.options.name, health, why);
    }

    async fn hear_ends(&self) {
        let mut ends = self.ends.lock().await;
        let mut batches = Vec::new();
        loop {
            // `close` sends an empty batch, so that this wakes.
            if ends.recv_many(&mut batches, 64).await == 0 || self.phase() == Phase::Closed {
                return;
            }
            let at = clock::now();
            let mut actions = self.spare.take();
            for ended in batches.drain(..).flatten() {
                self.ended(ended, at, &mut actions);
            }
            self.apply(actions);
        }
    }

    fn ended(&self, ended: Ended, at: Timestamp, actions: &mut Vec<Action>) {
        let event = match ended.how {
            None => Event::Done(ended.key),
            Some(how) => {
                if matches!(how.outcome, Outcome::Unhandled) && self.options.unhandled() == Unhandled::Ack {
                    self.counters.ignored();
                }
                let How { outcome, done } = *how;
                Event::Ended(ended.key, Box::new(End { outcome, done, at, random: fastrand::f64() }))
            }
        };
        self.ledger.borrow_mut().step(event, actions);
    }

    /// Makes the task that hears of ends look at the phase.
    pub(super) fn wake_ends(&self) {
        if let Some(sub) = self.subs.first() {
            // It holds the other end itself.
            let _ = sub.gate.ends.send(Vec::new());
        }
    }

    /// One event of one delivery.
    pub(super) fn step(&self, event: Event) {
        let mut actions = self.spare.take();
        self.ledger.borrow_mut().step(event, &mut actions);
        self.apply(actions);
    }

    /// Turns what the ledger decided into calls and tells.
    pub(super) fn apply(&self, mut actions: Vec<Action>) {
        let total = actions.len();
        // One reading of the clock for all.
        let mut now = None;
        let mut deliver: Vec<(SourceId, Vec<Delivery>)> = Vec::new();
        let mut freed: Vec<(SourceId, usize, usize)> = Vec::new();
        let mut observed = Vec::new();
        for action in actions.drain(..) {
            match action {
                Action::Deliver { key, source, envelope } => {
                    let Some(sub) = self.subs.get(source.0 as usize) else { continue };
                    let delivery = Delivery::new(key, envelope, sub.gate.clone(), *now.get_or_insert_with(now_ms));
                    match deliver.iter_mut().find(|(other, _)| *other == source) {
                        Some((_, batch)) => batch.push(delivery),
                        None => {
                            let mut batch = Vec::with_capacity(total);
                            batch.push(delivery);
                            deliver.push((source, batch));
                        }
                    }
                }
                Action::Settle(key, source, settlement) => self.settles.push(source, key, settlement),
                Action::Copy { key, to, envelope } => self.copies.push(key, to, envelope),
                Action::Hold(key, after) => self.hold(key, after),
                Action::Gone(source, tally, envelope) => {
                    let ended = !matches!(tally, Tally::Released | Tally::Lost | Tally::Abandoned);
                    match freed.iter_mut().find(|(other, ..)| *other == source) {
                        Some((_, done, unused)) => *(if ended { done } else { unused }) += 1,
                        None => freed.push((source, usize::from(ended), usize::from(!ended))),
                    }
                    self.count(tally, &envelope);
                    if !self.observers.is_empty() {
                        observed.push(Observed::Settled { id: envelope.id.clone(), tally });
                    }
                }
                Action::Pause(source, why) => {
                    self.show(Health::Degraded, &why);
                    self.tell(source, Told::Pause(why));
                }
                _ => {}
            }
        }
        if actions.capacity() <= SPARE {
            self.spare.set(actions);
        }
        for (source, batch) in deliver {
            self.tell(source, Told::Deliver(batch));
        }
        for (source, ended, unused) in freed {
            self.tell(source, Told::Freed { ended, unused });
        }
        self.observe(&observed);
        self.flush_settles();
        self.flush_copies();
        if self.ledger.borrow().is_empty() {
            self.emptied.notify_waiters();
        }
    }

    fn hold(&self, key: Key, after: Duration) {
        let Some(engine) = self.weak.upgrade() else { return };
        actix::spawn(async move {
            tokio::time::sleep(after).await;
            engine.step(Event::Due(key));
        });
    }

    fn count(&self, tally: Tally, envelope: &Envelope) {
        self.counters.tally(tally);
        if tally == Tally::Abandoned {
            self.tallies.abandon(envelope.id.clone());
        }
    }

    pub(super) fn tallies(&self) -> Arc<Tallies> {
        self.tallies.clone()
    }

    pub(super) fn tell(&self, source: SourceId, told: Told) {
        if let Some(inbox) = self.subs.get(source.0 as usize).and_then(|sub| sub.inbox.borrow().clone()) {
            // A consumer that is gone drops its deliveries, which gives them back.
            let _ = inbox.send(told);
        }
    }

    pub(super) fn observe(&self, events: &[Observed]) {
        if !events.is_empty() {
            for observer in self.observers.iter() {
                observer.observe(&self.options.name, events);
            }
        }
    }

    pub(super) fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// The live connection, waited for; `None` once this phase is over.
    pub(super) async fn linked(&self, while_in: Phase) -> Option<Link<B>> {
        loop {
            if self.phase() > while_in {
                return None;
            }
            if let Some(link) = self.link() {
                return Some(link);
            }
            let (mut live, mut phase) = (self.live.subscribe(), self.phase.subscribe());
            if self.phase() > while_in || self.link.borrow().is_some() {
                continue;
            }
            tokio::select! {
                _ = live.changed() => {}
                _ = phase.changed() => {}
            }
        }
    }

    /// Intake ends: what has not started goes back, waiting pulls end.
    pub(super) fn end_intake(&self) {
        self.phase.send_if_modified(|phase| {
            let running = *phase == Phase::Running;
            if running {
                *phase = Phase::Draining;
            }
            running
        });
        for sub in &self.subs {
            sub.gate.drain();
        }
        if let Some(link) = self.link() {
            link.sources.iter().for_each(|source| source.wake());
        }
        self.step(Event::Drain);
    }

    /// Waits until no delivery is in flight and no pull is on its way.
    pub(super) async fn settled(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            let pulls: usize = self.subs.iter().map(|sub| sub.pulls.get()).sum();
            if self.ledger.borrow().is_empty() && pulls == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Gives back what still runs, and waits until the broker has answered.
    pub(super) async fn abandon(&self) {
        self.step(Event::Abandon);
        self.settled().await;
    }
}
