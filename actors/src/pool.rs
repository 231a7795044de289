//! A pool: the slots of one handler, on threads of their own, so that a handler that blocks cannot stop a settle.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix::{Actor, ActorContext, Arbiter, AsyncContext, Context, Handler, Message, Supervised};
use postroom_core::Text;

use crate::{
    board::{Board, Health, Part},
    gate::Quiet,
    handler::HandlerOptions,
    layer::{Layers, LocalFuture},
    queue::Queue,
    slot::{Outbox, Seat, SlotState, advance, timed_out},
};

/// How many threads of a pool may be blocked at once and still be replaced.
pub(crate) const MAX_BLOCKED: usize = 8;
/// How often the pool looks for blocked threads.
const WATCH: Duration = Duration::from_millis(100);
/// A slot's own timer is this much late before its thread counts as blocked.
const LATE: Duration = Duration::from_millis(500);

/// Runs one slot to its end, on the thread that it is called on.
pub(crate) type Serve = Arc<dyn Fn(Seat) -> LocalFuture<'static, ()> + Send + Sync>;

struct Worker {
    arbiter: Arbiter,
    slots: Vec<Arc<SlotState>>,
    retired: Arc<AtomicBool>,
    /// All of its slots have left.
    ended: Arc<AtomicBool>,
}

/// The actor of a pool: starts its threads, and replaces those that a handler blocks.
pub(crate) struct Pool {
    name: Text,
    options: HandlerOptions,
    serve: Serve,
    layers: Layers,
    queue: Arc<Queue>,
    quiet: Arc<Quiet>,
    board: Arc<Board>,
    workers: Vec<Worker>,
    panics: Arc<AtomicUsize>,
}

impl Pool {
    pub(crate) fn new(
        name: Text,
        options: HandlerOptions,
        serve: Serve,
        layers: Layers,
        queue: Arc<Queue>,
        quiet: Arc<Quiet>,
        board: Arc<Board>,
    ) -> Self {
        Self { name, options, serve, layers, queue, quiet, board, workers: Vec::new(), panics: Arc::default() }
    }

    fn hire(&mut self, slots: usize) {
        let arbiter = Arbiter::new();
        let retired = Arc::new(AtomicBool::new(false));
        let states: Vec<Arc<SlotState>> = (0..slots).map(|_| Arc::default()).collect();
        let (serve, layers, queue) = (self.serve.clone(), self.layers.clone(), self.queue.clone());
        let quiet = self.quiet.clone();
        let (timeout, panics) = (self.options.timeout, self.panics.clone());
        let (seats, gone, ended) = (states.clone(), retired.clone(), Arc::new(AtomicBool::new(false)));
        let over = ended.clone();
        arbiter.spawn_fn(move || {
            let outbox = Rc::new(Outbox::default());
            let left = Rc::new(std::cell::Cell::new(seats.len()));
            for state in seats {
                let panics = panics.clone();
                let slot = serve(Seat {
                    queue: queue.clone(),
                    quiet: quiet.clone(),
                    state,
                    retired: gone.clone(),
                    timeout,
                    layers: layers.clone(),
                    outbox: outbox.clone(),
                    panicked: Rc::new(move |_| {
                        panics.fetch_add(1, Ordering::SeqCst);
                    }),
                });
                let (left, over) = (left.clone(), over.clone());
                actix::spawn(async move {
                    slot.await;
                    left.set(left.get() - 1);
                    if left.get() == 0 {
                        over.store(true, Ordering::SeqCst);
                        Arbiter::current().stop();
                    }
                });
            }
        });
        self.workers.push(Worker { arbiter, slots: states, retired, ended });
    }

    /// Ends the runs of blocked threads as timed out, and replaces the threads up to the cap.
    fn watch(&mut self) {
        let timeout = self.options.timeout;
        for worker in &self.workers {
            let stuck =
                |state: &&Arc<SlotState>| state.running_for().is_some_and(|ran| ran > timeout.saturating_add(LATE));
            let mut blocked = false;
            for state in worker.slots.iter().filter(stuck) {
                let Some((delivery, turn)) = state.take() else { continue };
                drop(turn);
                blocked = true;
                tracing::warn!(pool = %self.name, id = %delivery.envelope.id, "a handler blocks its thread past its timeout; its next run may overlap this one");
                let gate = delivery.gate.clone();
                if let Some(ended) = advance(delivery, timed_out(timeout)) {
                    let _ = gate.ends.send(vec![ended]);
                }
            }
            if blocked {
                worker.retired.store(true, Ordering::SeqCst);
            }
        }
        // A blocked thread's slots leave when it comes back.
        self.workers.retain(|worker| !worker.ended.load(Ordering::SeqCst));
        let blocked = self.workers.iter().filter(|worker| worker.retired.load(Ordering::SeqCst)).count();
        let live = |worker: &&Worker| !worker.retired.load(Ordering::SeqCst);
        let slots: usize = self.workers.iter().filter(live).map(|worker| worker.slots.len()).sum();
        let missing = self.options.concurrency.max(1).saturating_sub(slots);
        if missing > 0 && blocked <= MAX_BLOCKED {
            self.hire(missing);
        }
        let running =
            self.workers.iter().flat_map(|worker| &worker.slots).filter(|state| state.running_for().is_some()).count();
        let waiting = self.queue.len();
        let (health, why) = if blocked > MAX_BLOCKED {
            (Health::Degraded, format!("{blocked} threads are blocked by handlers; no more are replaced"))
        } else if running > 0 || waiting > 0 {
            (Health::Active, String::new())
        } else {
            (Health::Idle, String::new())
        };
        let panics = self.panics.load(Ordering::SeqCst);
        self.board.pool(&self.name, health, why, Part { running, waiting, panics, blocked });
    }
}

impl Actor for Pool {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let concurrency = self.options.concurrency.max(1);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.options.threads.unwrap_or_else(|| concurrency.min(cores)).clamp(1, concurrency);
        for thread in 0..threads {
            // The first threads take the remainder.
            self.hire(concurrency / threads + usize::from(thread < concurrency % threads));
        }
        context.run_interval(WATCH, |pool, _| pool.watch());
    }
}

impl Supervised for Pool {
    fn restarting(&mut self, context: &mut Self::Context) {
        context.run_interval(WATCH, |pool, _| pool.watch());
    }
}

/// Ends the pool: its threads go once their handlers have ended; with `abort`, at once.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ClosePool {
    pub(crate) abort: bool,
}

impl Handler<ClosePool> for Pool {
    type Result = ();
    fn handle(&mut self, close: ClosePool, context: &mut Self::Context) {
        self.queue.close();
        if close.abort {
            for worker in &self.workers {
                worker.retired.store(true, Ordering::SeqCst);
                worker.arbiter.stop();
            }
            self.board.pool(&self.name, Health::Stopped, String::new(), Part::default());
            context.stop();
        }
    }
}
