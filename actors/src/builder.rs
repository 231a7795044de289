//! Describes a node, checks the description, and starts it.

use std::{collections::HashMap, fmt, future::Future, sync::Arc, time::Duration};

use actix::{Actor, Addr, Arbiter, Context, Handler, Supervised, System};
use postroom_core::{
    Envelope, ErrorKind, Message as TypedMessage, Name, Outgoing, Place, Raw, Text, TransportError,
    codec::Body,
    protocol::{Permits, Prefetch},
};
use tokio::{
    sync::{Mutex, oneshot, watch},
    time::Instant,
};

use crate::{
    actor::Acting,
    board::{Board, Kind},
    consumer::{Budget, Consumer},
    function::Function,
    gate::Quiet,
    guardian::{Life, RestartPolicy, guard},
    handler::{HandlerError, HandlerOptions, Received, TypePattern},
    layer::{Layer, Observer},
    node::{Node, NodeActor, Parts, TransportPart},
    options::{FailureRef, MIN_LEASE, TransportOptions},
    pool::{Pool, Serve},
    queue::Queue,
    route::{Route, Router, Stage},
    slot::serve,
    transport::{Directory, Launch, Launched, Launcher},
};

/// A transport to be started: its options, and the broker behind it.
pub struct TransportSpec {
    /// Its options.
    pub options: TransportOptions,
    launcher: Launcher,
}

impl TransportSpec {
    /// Options and a launcher; see [`launcher`](crate::launcher).
    #[must_use]
    pub fn new(options: TransportOptions, launcher: Launcher) -> Self {
        Self { options, launcher }
    }
}

impl fmt::Debug for TransportSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportSpec").field("options", &self.options).finish_non_exhaustive()
    }
}

struct HandlerSpec {
    options: HandlerOptions,
    serve: Serve,
}

/// Describes a node.
pub struct NodeBuilder {
    name: Text,
    namespace: Option<Name>,
    grace: Duration,
    fail_fast: bool,
    limit: Option<u64>,
    transports: Vec<TransportSpec>,
    handlers: Vec<HandlerSpec>,
    layers: Vec<Arc<dyn Layer>>,
    observers: Vec<Arc<dyn Observer>>,
    directory: Directory,
}

impl Default for NodeBuilder {
    fn default() -> Self {
        Self {
            name: Text::from_static("postroom"),
            namespace: None,
            grace: Duration::from_secs(30),
            fail_fast: false,
            limit: None,
            transports: Vec::new(),
            handlers: Vec::new(),
            layers: Vec::new(),
            observers: Vec::new(),
            directory: Directory::default(),
        }
    }
}

impl fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeBuilder")
            .field("name", &self.name)
            .field("transports", &self.transports)
            .field("handlers", &self.handlers.len())
            .finish_non_exhaustive()
    }
}

fn config(text: String) -> TransportError {
    TransportError::new(ErrorKind::Config, text)
}

impl NodeBuilder {
    /// The node's name, for people. A consumer's identity is this plus a random part, new at each start.
    #[must_use]
    pub fn name(mut self, name: impl Into<Text>) -> Self {
        self.name = name.into();
        self
    }

    /// The namespace that the node's messages name as their source.
    #[must_use]
    pub fn namespace(mut self, namespace: Option<Name>) -> Self {
        self.namespace = namespace;
        self
    }

    /// The one deadline of a stop; default 30 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Whether [`NodeBuilder::start`] waits for each transport's first try to connect, and fails where one fails.
    #[must_use]
    pub fn fail_fast(mut self, fail_fast: bool) -> Self {
        self.fail_fast = fail_fast;
        self
    }

    /// Handles at most this many deliveries; see [`Node::limit_reached`].
    #[must_use]
    pub fn limit(mut self, limit: Option<u64>) -> Self {
        self.limit = limit;
        self
    }

    /// Adds a transport.
    #[must_use]
    pub fn transport(mut self, transport: TransportSpec) -> Self {
        self.transports.push(transport);
        self
    }

    /// Adds a layer around every publish and every handler; the first is outermost.
    #[must_use]
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layers.push(Arc::new(layer));
        self
    }

    /// Adds an observer.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Handles messages by an async function.
    #[must_use]
    pub fn handle<M, F, Fut, E>(self, options: HandlerOptions, function: F) -> Self
    where
        M: TypedMessage + Body,
        F: Fn(Received<M>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Reply, E>> + 'static,
        E: Into<HandlerError>,
    {
        self.handle_with(options, move || function.clone())
    }

    /// Handles messages by functions that `make` makes, one a slot, on the slot's own thread; made anew after a panic.
    /// `M` is a message type, or [`Raw`] for bodies as they are.
    #[must_use]
    pub fn handle_with<M, F, Fut, T, E>(
        mut self,
        options: HandlerOptions,
        make: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        M: Body + 'static,
        F: FnMut(Received<M>) -> Fut + 'static,
        Fut: Future<Output = Result<T, E>> + 'static,
        T: 'static,
        E: Into<HandlerError>,
    {
        let make = Arc::new(make);
        let serve: Serve = Arc::new(move |seat| {
            let make = make.clone();
            Box::pin(serve(seat, move || Function::<M, F>::new(make())))
        });
        self.handlers.push(HandlerSpec { options, serve });
        self
    }

    /// Handles messages by actors that `create` creates, one a slot, on the slot's own thread. An actor that panics is
    /// restarted (see [`Supervised`]), its message counts as one errored attempt, and its mailbox is kept.
    #[must_use]
    pub fn actor<A, M>(mut self, options: HandlerOptions, create: impl Fn() -> A + Send + Sync + 'static) -> Self
    where
        A: Actor<Context = Context<A>> + Supervised + Handler<Received<M>>,
        M: TypedMessage + Body + Send,
    {
        let create = Arc::new(create);
        let serve: Serve = Arc::new(move |seat| {
            let create = create.clone();
            Box::pin(serve(seat, move || Acting::<A, M>::start(|| create())))
        });
        self.handlers.push(HandlerSpec { options, serve });
        self
    }

    /// Publishes messages to another transport, confirmed, then acks them: headers, id, type and key survive. While the
    /// target is down the originals stay and are tried again with back-off, with no budget.
    #[must_use]
    pub fn relay(self, mut options: HandlerOptions, to: impl Into<Text>) -> Self {
        let (directory, to) = (self.directory.clone(), to.into());
        // Waiting for a target that is down is no fault of the message.
        options.timeout = Duration::MAX;
        self.handle_with(options, move || {
            let (directory, to) = (directory.clone(), to.clone());
            move |received: Received<Raw>| relay(directory.clone(), to.clone(), received)
        })
    }

    /// Checks the description and starts the node: on arbiters of the current actix system, or without one on a system
    /// thread of its own.
    ///
    /// # Errors
    /// When the description is wrong (kind `Config`; all faults at once), or with [`NodeBuilder::fail_fast`] when a
    /// transport can't connect.
    pub async fn start(self) -> Result<Node, TransportError> {
        self.check()?;
        let (reply, started) = oneshot::channel();
        if System::try_current().is_some() {
            Arbiter::new().spawn_fn(move || {
                actix::spawn(async move {
                    let _ = reply.send(self.build().await);
                });
            });
        } else {
            let thread = std::thread::Builder::new().name("postroom".into());
            let body = move || {
                System::new().block_on(async move {
                    let built = self.build().await;
                    let node = built.as_ref().ok().cloned();
                    let _ = reply.send(built);
                    if let Some(node) = node {
                        node.ended().await;
                    }
                });
            };
            thread.spawn(body).map_err(|error| {
                TransportError::new(ErrorKind::Busy, "the node's thread could not be started").caused_by(error)
            })?;
        }
        started.await.map_err(|_| TransportError::new(ErrorKind::Stopped, "the node ended while it started"))?
    }

    /// All faults of the description at once, a line each.
    fn check(&self) -> Result<(), TransportError> {
        let mut faults = Vec::new();
        let mut known: HashMap<&Text, &TransportOptions> = HashMap::new();
        for TransportSpec { options, .. } in &self.transports {
            if known.insert(&options.name, options).is_some() {
                faults.push(format!("transport `{}` is described twice", options.name));
            }
            if options.lease < MIN_LEASE {
                faults.push(format!(
                    "transport `{}`: lease {:?} is below its minimum of {MIN_LEASE:?}",
                    options.name, options.lease
                ));
            }
            if options.crashes < 3 {
                faults.push(format!(
                    "transport `{}`: crashes = {} is below its minimum of 3",
                    options.name, options.crashes
                ));
            }
            if options.prefetch == Prefetch::Fixed(0) {
                faults.push(format!("transport `{}`: prefetch must be at least 1", options.name));
            }
        }
        for TransportSpec { options, .. } in &self.transports {
            if let FailureRef::Transport(failure) = &options.failure {
                match known.get(failure) {
                    None => faults.push(format!(
                        "transport `{}`: its failure transport `{failure}` is not described",
                        options.name
                    )),
                    Some(store) if !matches!(store.place, Place::Store(_)) => {
                        faults.push(format!(
                            "transport `{}`: its failure transport `{failure}` is {}, not a store",
                            options.name, store.place
                        ));
                    }
                    Some(_) => {}
                }
            }
        }
        let mut taken: HashMap<(&Text, &TypePattern), Vec<Option<&Text>>> = HashMap::new();
        for HandlerSpec { options, .. } in &self.handlers {
            match known.get(&options.from) {
                None => faults.push(format!(
                    "a handler takes `{}` from transport `{}`, which is not described",
                    options.pattern, options.from
                )),
                Some(from) if !from.place.is_readable() => {
                    faults.push(format!(
                        "a handler takes `{}` from transport `{}`, which is {} and has no consumers",
                        options.pattern, options.from, from.place
                    ));
                }
                Some(_) => {}
            }
            taken.entry((&options.from, &options.pattern)).or_default().push(options.name.as_ref());
        }
        for ((from, pattern), names) in taken {
            let mut distinct: Vec<_> = names.clone();
            distinct.sort();
            distinct.dedup();
            if names.len() > 1 && (distinct.len() < names.len() || names.contains(&None)) {
                faults.push(format!(
                    "transport `{from}` has {} handlers for `{pattern}`: each needs a name of its own",
                    names.len()
                ));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(config(faults.join("\n"))) }
    }

    async fn build(self) -> Result<Node, TransportError> {
        let board = Arc::new(Board::default());
        let quiet = Arc::new(Quiet::default());
        let budget = self.limit.map(|limit| Arc::new(Budget::new(limit)));
        let owner: Text = format!("{}-{:012x}", self.name, fastrand::u64(..) & 0xffff_ffff_ffff).into();
        let layers: Arc<[Arc<dyn Layer>]> = self.layers.into();
        let observers: Arc<[Arc<dyn Observer>]> = self.observers.into();
        let mut parts = Parts::default();
        let mut routers: HashMap<Text, (Arc<Router>, usize)> = HashMap::new();
        let mut routes: HashMap<Text, Vec<(TypePattern, Vec<Stage>)>> = HashMap::new();
        let mut concurrency: HashMap<Text, usize> = HashMap::new();
        for HandlerSpec { options, serve } in self.handlers {
            let queue = Arc::new(Queue::default());
            parts.queues.push(queue.clone());
            *concurrency.entry(options.from.clone()).or_default() += options.concurrency;
            let of = routes.entry(options.from.clone()).or_default();
            let stage = Stage { name: options.name.clone(), queue: queue.clone() };
            match of.iter_mut().find(|(pattern, _)| *pattern == options.pattern) {
                Some((_, stages)) => stages.push(stage),
                None => of.push((options.pattern.clone(), vec![stage])),
            }
            let name: Text = match &options.name {
                Some(name) => format!("{}/{}/{name}", options.from, options.pattern).into(),
                None => format!("{}/{}", options.from, options.pattern).into(),
            };
            let (shown, lines) = (name.clone(), board.clone());
            let pool = Pool::new(name, options, serve, layers.clone(), queue, quiet.clone(), board.clone());
            parts.pools.push(guard(
                RestartPolicy::default(),
                |_| pool,
                move |life| {
                    if let Life::Restarting { why, .. } = life {
                        lines.set(
                            Kind::Pool,
                            &shown,
                            crate::board::Health::Degraded,
                            format!("restarted after a panic: {why}"),
                        );
                    }
                },
            ));
        }
        for (from, of) in routes {
            let of = of.into_iter().map(|(pattern, stages)| (pattern, Arc::new(Route { stages }))).collect();
            let running = concurrency.get(&from).copied().unwrap_or(1);
            routers.insert(from, (Arc::new(Router::new(of)), running));
        }
        let mut firsts = Vec::new();
        for TransportSpec { options, launcher } in self.transports {
            let read = routers.get(&options.name).cloned();
            let mut places = Vec::new();
            if read.is_some() {
                places.push((options.place.clone(), false));
                places.extend(options.place.suspects().map(|lane| (lane, true)));
            }
            let (first, hear_first) = oneshot::channel();
            firsts.push((options.name.clone(), hear_first));
            let name = options.name.clone();
            let prefetch = options.prefetch;
            let launch = Launch {
                options,
                places,
                owner: owner.clone(),
                board: board.clone(),
                quiet: quiet.clone(),
                budget: budget.clone(),
                directory: self.directory.clone(),
                layers: layers.clone(),
                observers: observers.clone(),
                first,
            };
            let arbiter = Arbiter::new();
            let launched: Launched = on(&arbiter, move || launcher(launch)).await?;
            self.directory.insert(name.clone(), launched.handle.clone());
            for (gate, inbox) in launched.gates {
                let Some((router, running)) = read.clone() else { continue };
                // A suspect runs alone: one is enough.
                let permits =
                    if gate.lane { Permits::new(Prefetch::Fixed(1), 1) } else { Permits::new(prefetch, running) };
                let shown: Text = if gate.lane { format!("{name}--suspects").into() } else { name.clone() };
                let (pull, budget, lines) = (launched.pull.clone(), budget.clone(), board.clone());
                let consumer: Addr<Consumer> = on(&arbiter, move || {
                    let heard = (lines.clone(), shown.clone());
                    let consumer = move |_: &mut Context<Consumer>| {
                        Consumer::new(shown, gate, pull, inbox, router, permits, budget, lines)
                    };
                    guard(RestartPolicy::default(), consumer, move |life| {
                        if let Life::Restarting { why, .. } = life {
                            heard.0.set(
                                Kind::Consumer,
                                &heard.1,
                                crate::board::Health::Degraded,
                                format!("restarted after a panic: {why}"),
                            );
                        }
                    })
                })
                .await?;
                parts.consumers.push(consumer);
                parts.consumes.push(name.clone());
            }
            parts.transports.push(TransportPart { phases: launched.phases, tallies: launched.tallies, arbiter });
        }
        let far = Instant::now() + Duration::from_secs(365 * 24 * 3600);
        let (deadline, hear_deadline) = watch::channel(far);
        let (ended, hear_ended) = watch::channel(false);
        let actor =
            NodeActor { parts: Arc::new(parts), deadline: hear_deadline, receipt: Arc::new(Mutex::new(None)), ended };
        let source = match &self.namespace {
            Some(namespace) => format!("postroom:{namespace}/{}", self.name),
            None => format!("postroom:/{}", self.name),
        };
        let node = Node {
            name: self.name,
            source: source.into(),
            grace: self.grace,
            actor: actor.start(),
            directory: self.directory,
            board,
            budget,
            deadline,
            ended: hear_ended,
        };
        if self.fail_fast {
            for (name, first) in firsts {
                let tried = first.await.unwrap_or_else(|_| Err(TransportError::stopped()));
                if let Err(error) = tried {
                    node.stop_within(Duration::ZERO).await;
                    let text = format!("transport `{name}`: {error}");
                    return Err(TransportError::new(error.kind(), text).caused_by(error));
                }
            }
        }
        Ok(node)
    }
}

/// Runs a function on an arbiter and waits for its answer.
async fn on<T: Send + 'static>(
    arbiter: &Arbiter,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TransportError> {
    let (reply, answer) = oneshot::channel();
    arbiter.spawn_fn(move || {
        let _ = reply.send(run());
    });
    answer.await.map_err(|_| TransportError::new(ErrorKind::Stopped, "an arbiter ended while the node started"))
}

/// The pause before a relay tries its target again, doubling up to 30 s.
const RELAY_AGAIN: Duration = Duration::from_millis(1_100);

async fn relay(directory: Directory, to: Text, received: Received<Raw>) -> Result<(), HandlerError> {
    let mut pause = RELAY_AGAIN;
    loop {
        let Some(handle) = directory.get(&to).map(|handle| handle.value().clone()) else {
            return Err(HandlerError::retry(format!("relay: no transport `{to}`")));
        };
        let mut envelope: Envelope = received.envelope().clone();
        // Its attempts, starts and marks belong to the place that it leaves.
        envelope.track = None;
        let mut outgoing = Outgoing::new(handle.options().send_place(), envelope);
        outgoing.require_group = handle.options().require_group;
        match handle.publish(vec![outgoing]).await.pop() {
            Some(Ok(_)) => return Ok(()),
            Some(Err(error)) if error.kind().may_retry() => {
                tracing::warn!(relay = %to, error = ?error, "the target is down; the original stays");
                tokio::select! {
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(30)),
                    () = received.cancelled() => return Err(HandlerError::retry(format!("relay to `{to}`: {error}"))),
                }
            }
            Some(Err(error)) => return Err(HandlerError::fail(format!("relay to `{to}`: {error}"))),
            None => return Err(HandlerError::retry(format!("relay to `{to}`: no answer"))),
        }
    }
}
