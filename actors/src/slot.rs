//! One slot of a pool: takes a delivery, runs its handler, says how it ended, takes the next.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::pin,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt;
use postroom_core::{AttemptKind, Envelope, Outcome, Text};

use crate::{
    gate::{Delivery, Ended, Gate, Quiet, Tick, Turn, now_ms},
    guardian::{RestartPolicy, Restarts, panic_text},
    layer::{Layers, Next},
    queue::Queue,
    route::next_queue,
};

/// Ends are sent in batches of at most this many.
const BATCH: usize = 32;
/// A handler that took longer, in nanoseconds, has its end sent at once.
const QUICK: u64 = 1_000_000;
/// No end waits longer for others to join it than this, in nanoseconds, and one quick handler.
const JOIN: u64 = 5_000_000;

/// What a slot runs: the one way in for functions and actors.
pub(crate) trait Run: 'static {
    /// Decodes and handles.
    fn run(&mut self, envelope: Arc<Envelope>, gate: Arc<Gate>) -> impl Future<Output = Outcome>;

    /// Whether it can go on after a panic; else it is made anew.
    fn survives(&self) -> bool {
        false
    }
}

/// What the watcher of the pool can see of a slot, and take away from it when its thread is blocked.
#[derive(Debug, Default)]
pub(crate) struct SlotState {
    current: Mutex<Option<(Delivery, Turn)>>,
    /// When the current run began, in [`now_ms`]; 0: none.
    since_ms: AtomicU64,
}

impl SlotState {
    fn put(&self, delivery: Delivery, turn: Turn, now_ms: u64) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some((delivery, turn));
        self.since_ms.store(now_ms, Ordering::SeqCst);
    }

    pub(crate) fn take(&self) -> Option<(Delivery, Turn)> {
        self.since_ms.store(0, Ordering::SeqCst);
        self.current.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How long the current run has lasted.
    pub(crate) fn running_for(&self) -> Option<Duration> {
        match self.since_ms.load(Ordering::SeqCst) {
            0 => None,
            since => Some(Duration::from_millis(now_ms().saturating_sub(since))),
        }
    }
}

/// What a slot needs to work; made on its own thread.
pub(crate) struct Seat {
    pub(crate) queue: Arc<Queue>,
    pub(crate) quiet: Arc<Quiet>,
    pub(crate) state: Arc<SlotState>,
    pub(crate) retired: Arc<AtomicBool>,
    pub(crate) timeout: Duration,
    pub(crate) layers: Layers,
    pub(crate) outbox: Rc<Outbox>,
    /// Hears of each panic.
    pub(crate) panicked: Rc<dyn Fn(&str)>,
}

/// Runs a slot until its queue is closed or its thread is retired. Whatever panics in it costs its current message one
/// attempt; the handler is then made anew.
pub(crate) async fn serve<R: Run>(seat: Seat, mut make: impl FnMut() -> R) {
    let mut restarts = Restarts::new(RestartPolicy::default());
    loop {
        let made = std::panic::catch_unwind(AssertUnwindSafe(&mut make));
        let why = match made {
            Ok(mut run) => match AssertUnwindSafe(work(&seat, &mut run)).catch_unwind().await {
                Ok(Leave::Closed) => break,
                Ok(Leave::Broken(why)) => {
                    // Its message waits for its retry; the next one is innocent and need not wait.
                    (seat.panicked)(&why);
                    continue;
                }
                // Outside of the handler's own future: in a drop, or in ours.
                Err(panic) => panic_text(&*panic),
            },
            Err(panic) => panic_text(&*panic),
        };
        if let Some((delivery, turn)) = seat.state.take() {
            drop(turn);
            let gate = delivery.gate.clone();
            let ended = delivery.end(Outcome::errored(AttemptKind::Panicked, why.clone()));
            seat.outbox.push(&gate, ended, Tick::now());
        }
        seat.outbox.flush();
        (seat.panicked)(&why);
        // A handler that can't be made must not spin.
        let (pause, ..) = restarts.next(tokio::time::Instant::now(), fastrand::f64());
        tokio::time::sleep(pause).await;
    }
    seat.outbox.flush();
}

enum Leave {
    Closed,
    Broken(String),
}

async fn work<R: Run>(seat: &Seat, run: &mut R) -> Leave {
    let mut streak = 0_u32;
    // One reading of the clock a message: the end of one is the start of the next, unless something was waited for.
    let mut clock = None;
    loop {
        if seat.retired.load(Ordering::Relaxed) {
            return Leave::Closed;
        }
        let mut delivery = match seat.queue.try_pop(&seat.quiet) {
            Some(delivery) => delivery,
            None => {
                seat.outbox.flush();
                clock = None;
                match seat.queue.pop(&seat.quiet).await {
                    Some(delivery) => delivery,
                    None => return Leave::Closed,
                }
            }
        };
        let began = clock.take().unwrap_or_else(Tick::now);
        if !delivery.may_start(began.ms()) {
            // Dropped, it is given back.
            continue;
        }
        let turn = if delivery.gate.lane {
            // Its consumer keeps the others out until the broker has answered.
            Turn::Suspect
        } else if let Some(running) = seat.quiet.try_enter() {
            Turn::Ordinary(running)
        } else {
            seat.queue.put_back(delivery);
            continue;
        };
        delivery.started = true;
        let (envelope, gate) = (delivery.envelope.clone(), delivery.gate.clone());
        seat.state.put(delivery, turn, began.ms());
        let outcome = attempt(seat, run, envelope, &gate).await;
        // Nothing there: the watcher found the thread blocked and ended the delivery.
        let Some((delivery, turn)) = seat.state.take() else { return Leave::Closed };
        drop(turn);
        let broken = match &outcome {
            Outcome::Errored { kind: AttemptKind::Panicked | AttemptKind::Dropped, error, .. } => {
                Some(error.to_string())
            }
            _ => None,
        };
        let now = Tick::now();
        if let Some(ended) = advance(delivery, outcome) {
            seat.outbox.push(&gate, ended, now);
        }
        if now.is_past(began, QUICK) || seat.outbox.is_late(now) {
            seat.outbox.flush();
        }
        if let Some(why) = broken {
            if !run.survives() {
                return Leave::Broken(why);
            }
            (seat.panicked)(&why);
        }
        streak = streak.wrapping_add(1);
        if streak.is_multiple_of(64) {
            // The other slots of this thread, and its timers, want their turn.
            tokio::task::yield_now().await;
        } else {
            clock = Some(now);
        }
    }
}

/// One run: under `catch_unwind` and the timeout. The timer is made only once the handler waits for something.
async fn attempt<R: Run>(seat: &Seat, run: &mut R, envelope: Arc<Envelope>, gate: &Arc<Gate>) -> Outcome {
    let inner = async {
        if seat.layers.is_empty() {
            run.run(envelope, gate.clone()).await
        } else {
            let handler = run.run(envelope.clone(), gate.clone());
            Next::new(&seat.layers, &envelope, &gate.transport, handler).run().await
        }
    };
    let mut inner = pin!(AssertUnwindSafe(inner).catch_unwind());
    // A handler actor of this thread answers in its next turn: neither a timer nor a flush is made for that.
    let mut again = true;
    let soon = poll_fn(|cx| {
        let polled = inner.as_mut().poll(cx);
        if polled.is_pending() && std::mem::take(&mut again) {
            // To the end of this thread's tasks: after the actor, which was woken before.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(polled)
    });
    let ended = match soon.await {
        Poll::Ready(ended) => ended,
        Poll::Pending => {
            seat.outbox.flush();
            match tokio::time::timeout(seat.timeout, inner).await {
                Ok(ended) => ended,
                Err(_) => return timed_out(seat.timeout),
            }
        }
    };
    ended.unwrap_or_else(|panic| Outcome::errored(AttemptKind::Panicked, panic_text(&*panic)))
}

pub(crate) fn timed_out(timeout: Duration) -> Outcome {
    Outcome::errored(AttemptKind::Timeout, format!("the handler took longer than its timeout of {timeout:?}"))
}

/// Sends a delivery on to the next handler of its type, or answers its end.
pub(crate) fn advance(mut delivery: Delivery, outcome: Outcome) -> Option<Ended> {
    let several = delivery.route.as_ref().is_some_and(|route| route.stages.len() > 1);
    if !several {
        return Some(delivery.end(outcome));
    }
    let name = delivery.route.as_ref().and_then(|route| route.stages.get(delivery.stage)?.name.clone());
    delivery.parts.push((name.unwrap_or_else(|| Text::from_static("")), outcome));
    delivery.stage += 1;
    match next_queue(&mut delivery).cloned() {
        Some(queue) => {
            queue.push([delivery]);
            None
        }
        None => Some(delivery.end(Outcome::Done)),
    }
}

/// Collects the ends of one thread, so that a transport hears of many at once.
#[derive(Default)]
pub(crate) struct Outbox {
    pending: RefCell<Vec<(Arc<Gate>, Vec<Ended>)>>,
    count: Cell<usize>,
    /// Since when the oldest of them waits.
    since: Cell<Option<Tick>>,
}

impl Outbox {
    pub(crate) fn push(&self, gate: &Arc<Gate>, ended: Ended, now: Tick) {
        let mut pending = self.pending.borrow_mut();
        match pending.iter_mut().find(|(other, _)| Arc::ptr_eq(other, gate)) {
            Some((_, batch)) => {
                if batch.is_empty() {
                    batch.reserve(BATCH);
                }
                batch.push(ended);
            }
            None => pending.push((gate.clone(), vec![ended])),
        }
        drop(pending);
        if self.count.get() == 0 {
            self.since.set(Some(now));
        }
        self.count.set(self.count.get() + 1);
        if self.count.get() >= BATCH {
            self.flush();
        }
    }

    /// Whether the oldest has waited too long by now.
    fn is_late(&self, now: Tick) -> bool {
        self.count.get() > 0 && self.since.get().is_some_and(|since| now.is_past(since, JOIN))
    }

    pub(crate) fn flush(&self) {
        if self.count.replace(0) == 0 {
            return;
        }
        for (gate, batch) in self.pending.borrow_mut().iter_mut() {
            if !batch.is_empty() {
                // Only a transport that is gone does not hear it, and its connection's end gives everything back.
                let _ = gate.ends.send(std::mem::take(batch));
            }
        }
    }
}
