//! The node: the root of the actors. It owns transports, consumers and pools, and stops them in order.

use std::{fmt, sync::Arc, time::Duration};

use actix::{Actor, Addr, Arbiter, Context, Handler, Message, Recipient, ResponseFuture};
use postroom_core::{
    Envelope, ErrorKind, Message as TypedMessage, MessageId, Outgoing, Text, TransportError, TypeName, codec::Body,
    protocol::Prefetch,
};
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use crate::{
    board::Board,
    builder::NodeBuilder,
    consumer::{Budget, Consumer, Tune},
    gate::now_ms,
    pool::Pool,
    queue::Queue,
    receipt::{Receipt, Tallies},
    stop::stop,
    transport::{Directory, StopPhase, TransportHandle},
};

/// A transport as the node holds it.
pub(crate) struct TransportPart {
    pub(crate) phases: Recipient<StopPhase>,
    pub(crate) tallies: Arc<Tallies>,
    pub(crate) arbiter: Arbiter,
}

/// What a node owns.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) transports: Vec<TransportPart>,
    pub(crate) consumers: Vec<Addr<Consumer>>,
    /// The consumers' transports, in the same order.
    pub(crate) consumes: Vec<Text>,
    pub(crate) pools: Vec<Addr<Pool>>,
    pub(crate) queues: Vec<Arc<Queue>>,
}

/// The actor at the root.
pub(crate) struct NodeActor {
    pub(crate) parts: Arc<Parts>,
    pub(crate) deadline: watch::Receiver<Instant>,
    /// Filled by the first stop; the others wait for it.
    pub(crate) receipt: Arc<Mutex<Option<Receipt>>>,
    pub(crate) ended: watch::Sender<bool>,
}

impl Actor for NodeActor {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "Receipt")]
pub(crate) struct Stop;

impl Handler<Stop> for NodeActor {
    type Result = ResponseFuture<Receipt>;
    fn handle(&mut self, _: Stop, _: &mut Self::Context) -> Self::Result {
        let (parts, deadline) = (self.parts.clone(), self.deadline.clone());
        let (receipt, ended) = (self.receipt.clone(), self.ended.clone());
        Box::pin(async move {
            let mut receipt = receipt.lock().await;
            if receipt.is_none() {
                *receipt = Some(stop(&parts, deadline).await);
                ended.send_replace(true);
            }
            receipt.clone().unwrap_or_default()
        })
    }
}

#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct TuneAll {
    pub(crate) transport: Text,
    pub(crate) tune: Tune,
}

impl Handler<TuneAll> for NodeActor {
    type Result = ResponseFuture<()>;
    fn handle(&mut self, all: TuneAll, _: &mut Self::Context) -> Self::Result {
        let parts = self.parts.clone();
        Box::pin(async move {
            for (consumer, of) in parts.consumers.iter().zip(&parts.consumes) {
                if *of == all.transport {
                    // One that is gone has nothing to tune.
                    let _ = consumer.send(all.tune.clone()).await;
                }
            }
        })
    }
}

/// A running node: cheap to clone, usable from any thread and executor.
#[derive(Clone)]
pub struct Node {
    pub(crate) name: Text,
    pub(crate) source: Text,
    pub(crate) grace: Duration,
    pub(crate) actor: Addr<NodeActor>,
    pub(crate) directory: Directory,
    pub(crate) board: Arc<Board>,
    pub(crate) budget: Option<Arc<Budget>>,
    pub(crate) deadline: watch::Sender<Instant>,
    pub(crate) ended: watch::Receiver<bool>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Node {
    /// Begins to describe a node.
    #[must_use]
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Text {
        &self.name
    }

    /// A transport by name.
    #[must_use]
    pub fn transport(&self, name: &str) -> Option<TransportHandle> {
        self.directory.get(name).map(|handle| handle.value().clone())
    }

    /// All transports, by name.
    #[must_use]
    pub fn transports(&self) -> Vec<TransportHandle> {
        let mut all: Vec<_> = self.directory.iter().map(|handle| handle.value().clone()).collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// The live status board.
    #[must_use]
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Sends a message to a transport: to its queue, or to its topic. Answers once it is durable.
    ///
    /// # Errors
    /// When there is no such transport, the message can't be encoded, or the broker did not confirm it.
    pub async fn send<M: TypedMessage + Body>(
        &self,
        transport: &str,
        message: &M,
    ) -> Result<MessageId, TransportError> {
        self.draft(message)?.send(transport).await
    }

    /// A message to be sent with a key, headers or a delay.
    ///
    /// # Errors
    /// When it can't be encoded, or its type's name breaks a rule.
    pub fn draft<M: TypedMessage + Body>(&self, message: &M) -> Result<Draft<'_>, TransportError> {
        let (content_type, body) =
            message.encode().map_err(|error| TransportError::new(ErrorKind::Codec, format!("{}: {error}", M::TYPE)))?;
        let mut envelope = Envelope::new(body);
        envelope.message_type = Some(TypeName::from_static(M::TYPE)?);
        envelope.content_type = content_type;
        Ok(Draft { node: self, envelope, delay: Duration::ZERO })
    }

    /// Sends envelopes as they are; see [`TransportHandle::publish`]. Where they say no time, source or type, the
    /// node's are set.
    ///
    /// # Errors
    /// When there is no such transport; each envelope has its own answer.
    pub async fn send_all(
        &self,
        transport: &str,
        envelopes: Vec<(Envelope, Duration)>,
    ) -> Result<Vec<Result<MessageId, TransportError>>, TransportError> {
        let Some(handle) = self.transport(transport) else {
            return Err(TransportError::new(ErrorKind::NotFound, format!("no transport `{transport}`")));
        };
        let (options, to) = (handle.options(), handle.options().send_place());
        let mut batch = Vec::with_capacity(envelopes.len());
        for (mut envelope, delay) in envelopes {
            envelope.time.get_or_insert_with(crate::clock::now);
            envelope.source.get_or_insert_with(|| self.source.clone());
            if envelope.message_type.is_none() {
                envelope.message_type.clone_from(&options.message_type);
            }
            let mut outgoing = Outgoing::new(to.clone(), envelope).after(delay);
            outgoing.require_group = options.require_group;
            batch.push(outgoing);
        }
        Ok(handle.publish(batch).await)
    }

    /// Pauses the consumers of a transport; what they hold is still handled.
    pub async fn pause(&self, transport: &str, why: &str) {
        self.tune(transport, Tune::Pause(why.into())).await;
    }

    /// Lets the consumers of a transport go on.
    pub async fn resume(&self, transport: &str) {
        self.tune(transport, Tune::Resume).await;
    }

    /// Changes how many deliveries the consumers of a transport hold.
    pub async fn set_prefetch(&self, transport: &str, prefetch: Prefetch) {
        self.tune(transport, Tune::Prefetch(prefetch)).await;
    }

    async fn tune(&self, transport: &str, tune: Tune) {
        // A node that is gone has nothing to tune.
        let _ = self.actor.send(TuneAll { transport: transport.into(), tune }).await;
    }

    /// Resolves once as many deliveries were handled as the builder's limit said; never without a limit.
    pub async fn limit_reached(&self) {
        match &self.budget {
            Some(budget) => budget.reached().await,
            None => std::future::pending().await,
        }
    }

    /// Stops within the node's own grace.
    pub async fn stop(&self) -> Receipt {
        self.stop_within(self.grace).await
    }

    /// Stops: intake ends, what has not started goes back, running handlers finish, everything is settled and closed,
    /// within one grace for all of it. Also a second call answers the receipt.
    pub async fn stop_within(&self, grace: Duration) -> Receipt {
        self.hurry(grace);
        self.actor.send(Stop).await.unwrap_or_default()
    }

    /// Moves the end of a running stop to this time from now, where that is nearer.
    pub fn hurry(&self, grace: Duration) {
        let at = Instant::now() + grace;
        self.deadline.send_if_modified(|deadline| {
            let nearer = at < *deadline;
            if nearer {
                *deadline = at;
            }
            nearer
        });
    }

    /// Resolves when the node has stopped.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// How long the process's clock of the node has run, in milliseconds.
    #[must_use]
    pub fn uptime_ms(&self) -> u64 {
        now_ms()
    }
}

/// A message about to be sent.
#[derive(Debug)]
#[must_use = "a draft does nothing until it is sent"]
pub struct Draft<'a> {
    node: &'a Node,
    envelope: Envelope,
    delay: Duration,
}

impl Draft<'_> {
    /// Sets the id; a receiver can tell repeats by it.
    pub fn id(mut self, id: MessageId) -> Self {
        self.envelope.id = id;
        self
    }

    /// Sets the ordering or partition key.
    pub fn key(mut self, key: impl Into<Text>) -> Self {
        self.envelope.key = Some(key.into());
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<Text>, value: impl Into<Vec<u8>>) -> Self {
        self.envelope.stamps.push(name, value.into());
        self
    }

    /// Not to be delivered earlier than this from now.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sends it; answers once it is durable.
    ///
    /// # Errors
    /// When there is no such transport, or the broker did not confirm it.
    pub async fn send(self, transport: &str) -> Result<MessageId, TransportError> {
        let answers = self.node.send_all(transport, vec![(self.envelope, self.delay)]).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(TransportError::stopped()))
    }
}
