//! One layer around every publish and every handler, and an observer of what happens, in batches.

use std::{cell::RefCell, future::Future, pin::Pin, sync::Arc};

use postroom_core::{Envelope, MessageId, Outcome, Outgoing, Text, TransportError, protocol::Tally};

/// A future that stays on its thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Wraps publishes and handlers of a node. The first registered is outermost. It runs inside the handler's timeout, and
/// a panic in it counts as the handler's.
pub trait Layer: Send + Sync + 'static {
    /// Before a message is handed to its broker: may change it, or refuse it.
    ///
    /// # Errors
    /// What the sender is told in place of a confirmation.
    fn publish(&self, transport: &str, outgoing: &mut Outgoing) -> Result<(), TransportError> {
        let _ = (transport, outgoing);
        Ok(())
    }

    /// Around a handler: `next.run()` runs it, and its outcome may be changed.
    fn handle<'a>(&'a self, next: Next<'a>) -> LocalFuture<'a, Outcome> {
        next.run()
    }
}

/// All layers of a node.
pub(crate) type Layers = Arc<[Arc<dyn Layer>]>;

/// The rest of the way to a handler.
pub struct Next<'a> {
    layers: &'a [Arc<dyn Layer>],
    envelope: &'a Envelope,
    transport: &'a Text,
    handler: RefCell<Option<LocalFuture<'a, Outcome>>>,
}

impl<'a> Next<'a> {
    pub(crate) fn new(
        layers: &'a [Arc<dyn Layer>],
        envelope: &'a Envelope,
        transport: &'a Text,
        handler: impl Future<Output = Outcome> + 'a,
    ) -> Self {
        Self { layers, envelope, transport, handler: RefCell::new(Some(Box::pin(handler))) }
    }

    /// The envelope that is handled.
    #[must_use]
    pub fn envelope(&self) -> &'a Envelope {
        self.envelope
    }

    /// The transport that it came from.
    #[must_use]
    pub fn transport(&self) -> &'a str {
        self.transport
    }

    /// Runs the rest.
    #[must_use]
    pub fn run(self) -> LocalFuture<'a, Outcome> {
        match self.layers.split_first() {
            Some((layer, rest)) => layer.handle(Next { layers: rest, ..self }),
            None => match self.handler.into_inner() {
                Some(handler) => handler,
                // A `Next` is consumed by `run`: it always holds its handler.
                None => Box::pin(std::future::ready(Outcome::NotStarted)),
            },
        }
    }
}

impl std::fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Next").field("id", &self.envelope.id).field("layers", &self.layers.len()).finish()
    }
}

/// Hears what happens on a node's transports, in batches; must not block.
pub trait Observer: Send + Sync + 'static {
    /// A batch of what happened on one transport, in order.
    fn observe(&self, transport: &str, events: &[Observed]);
}

/// One thing that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Observed {
    /// A message was published and confirmed.
    Published {
        /// The message.
        id: MessageId,
    },
    /// A publish was refused or failed.
    PublishFailed {
        /// The message.
        id: MessageId,
        /// The error's text.
        error: String,
    },
    /// A delivery ended; the broker has answered.
    Settled {
        /// The message.
        id: MessageId,
        /// How.
        tally: Tally,
    },
}
