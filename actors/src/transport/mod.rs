//! The transport: a supervised actor that owns one broker connection, its in-flight registry, and the settle and
//! publish buffers.
//!
//! - `engine`: the state, and the one place where the ledger's actions become calls;
//! - `link`: connects, and connects again;
//! - `settle`, `publish`, `copy`: the buffers, coalesced into batches;
//! - `pull`, `upkeep`: taking deliveries; renewals and `tend`;
//! - `handle`: what the rest of the program holds of a transport.

mod copy;
mod engine;
mod handle;
mod link;
mod publish;
mod pull;
mod settle;
mod upkeep;

use std::{rc::Rc, sync::Arc};

use actix::{Actor, Context, Handler, Message, Recipient, ResponseFuture, Supervised};
use postroom_core::{Broker, MessageId, Outgoing, Place, Text, TransportError, protocol::SourceId};
use tokio::sync::{mpsc, oneshot};

use self::engine::Engine;
pub use self::handle::TransportHandle;
pub(crate) use self::handle::{Command, Directory};
use crate::{
    board::{Board, Health, Kind},
    consumer::{Budget, Told},
    gate::{Gate, Quiet},
    guardian::{Life, RestartPolicy, guard},
    layer::{Layers, Observer},
    options::TransportOptions,
    receipt::Tallies,
};

/// Starts a transport on the arbiter that it is called on.
pub type Launcher = Box<dyn FnOnce(Launch) -> Launched + Send>;

/// Makes the launcher of a broker.
pub fn launcher<B: Broker>(config: B::Config) -> Launcher
where
    B::Config: Send,
{
    Box::new(move |launch| start::<B>(config, launch))
}

/// What a node gives a transport. Opaque: a [`Launcher`] passes it on.
pub struct Launch {
    pub(crate) options: TransportOptions,
    /// What it reads: its place and the suspects' lane; empty where nobody handles it.
    pub(crate) places: Vec<(Place, bool)>,
    pub(crate) owner: Text,
    pub(crate) board: Arc<Board>,
    pub(crate) quiet: Arc<Quiet>,
    pub(crate) budget: Option<Arc<Budget>>,
    pub(crate) directory: Directory,
    pub(crate) layers: Layers,
    pub(crate) observers: Arc<[Arc<dyn Observer>]>,
    /// Hears how the first try to connect went.
    pub(crate) first: oneshot::Sender<Result<(), TransportError>>,
}

/// A started transport. Opaque: a [`Launcher`] passes it on.
pub struct Launched {
    pub(crate) handle: TransportHandle,
    pub(crate) pull: Recipient<Pull>,
    pub(crate) phases: Recipient<StopPhase>,
    pub(crate) tallies: Arc<Tallies>,
    pub(crate) gates: Vec<(Arc<Gate>, mpsc::UnboundedReceiver<Told>)>,
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launch").field("transport", &self.options.name).finish_non_exhaustive()
    }
}
impl std::fmt::Debug for Launched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launched").field("handle", &self.handle).finish_non_exhaustive()
    }
}

/// Publish these; each is answered once it is durable.
#[derive(Message, Debug)]
#[rtype(result = "Vec<Result<MessageId, TransportError>>")]
pub(crate) struct Publish(pub(crate) Vec<Outgoing>);

/// Pull at most `max` deliveries of a subscription; they go to its consumer's inbox.
#[derive(Message, Debug)]
#[rtype(result = "Pulled")]
pub(crate) struct Pull {
    pub(crate) source: SourceId,
    pub(crate) max: usize,
    pub(crate) how: How,
}

/// What a pull is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Waits for deliveries, and hands them out.
    Wait,
    /// Waits for deliveries, and gives them back: somebody wants to know whether there are any.
    Probe,
    /// Hands out what is there now.
    Now,
}

/// What came of a pull.
#[derive(Debug)]
pub(crate) enum Pulled {
    /// So many; 0: the broker was asked and has none.
    Took(usize),
    /// Intake has ended.
    Stopped,
}

/// One phase of a stop; see `stop.rs` for their order.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub(crate) enum StopPhase {
    /// End intake; answered at once.
    Intake,
    /// Answered when no delivery is in flight.
    Settled,
    /// Give back what still runs; answered when the broker has answered.
    Abandon,
    /// Flush the publishes and close; answered when closed.
    Close,
}

/// The actor of a transport.
pub(crate) struct Transport<B: Broker> {
    engine: Rc<Engine<B>>,
}

fn start<B: Broker>(config: B::Config, launch: Launch) -> Launched {
    let (options, board) = (launch.options.clone(), launch.board.clone());
    let (engine, gates) = Engine::<B>::new(config, launch);
    let name = options.name.clone();
    let actor = engine.clone();
    let heard = name.clone();
    let address = guard(
        RestartPolicy::default(),
        |_| Transport { engine: actor },
        move |life| match life {
            Life::Restarting { why, degraded, .. } => {
                let health = if degraded { Health::Degraded } else { Health::Reconnecting };
                board.set(Kind::Transport, &heard, health, format!("restarted after a panic: {why}"));
            }
            Life::Stopped => board.set(Kind::Transport, &heard, Health::Stopped, ""),
        },
    );
    engine.start();
    let tallies = engine.tallies();
    Launched {
        tallies,
        handle: TransportHandle::new(Arc::new(options), address.clone().recipient(), address.clone().recipient()),
        pull: address.clone().recipient(),
        phases: address.recipient(),
        gates,
    }
}

impl<B: Broker> Actor for Transport<B> {
    type Context = Context<Self>;
}

impl<B: Broker> Supervised for Transport<B> {
    fn restarting(&mut self, _: &mut Self::Context) {
        // What the panic left half done is given up with the connection: the broker hands it out again.
        self.engine.break_link("the transport actor was restarted after a panic");
    }
}

impl<B: Broker> Handler<Publish> for Transport<B> {
    type Result = ResponseFuture<Vec<Result<MessageId, TransportError>>>;
    fn handle(&mut self, publish: Publish, _: &mut Self::Context) -> Self::Result {
        let (count, answer) = (publish.0.len(), self.engine.publish(publish.0));
        Box::pin(async move { answer.await.unwrap_or_else(|_| vec![Err(TransportError::stopped()); count]) })
    }
}

impl<B: Broker> Handler<Pull> for Transport<B> {
    type Result = ResponseFuture<Pulled>;
    fn handle(&mut self, pull: Pull, _: &mut Self::Context) -> Self::Result {
        let engine = self.engine.clone();
        Box::pin(async move { engine.pull(pull.source, pull.max, pull.how).await })
    }
}

impl<B: Broker> Handler<Command> for Transport<B> {
    type Result = ();
    fn handle(&mut self, command: Command, _: &mut Self::Context) {
        let engine = self.engine.clone();
        actix::spawn(async move { engine.obey(command).await });
    }
}

impl<B: Broker> Handler<StopPhase> for Transport<B> {
    // Not atomic: while a phase waits, settles, publishes and timers go on.
    type Result = ResponseFuture<()>;
    fn handle(&mut self, phase: StopPhase, _: &mut Self::Context) -> Self::Result {
        let engine = self.engine.clone();
        Box::pin(async move {
            match phase {
                StopPhase::Intake => engine.end_intake(),
                StopPhase::Settled => engine.settled().await,
                StopPhase::Abandon => engine.abandon().await,
                // The actor stays while somebody holds a handle, and tells him `Stopped`.
                StopPhase::Close => engine.close().await,
            }
        })
    }
}
