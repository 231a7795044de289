//! An async function as a handler.

use std::{future::Future, marker::PhantomData, sync::Arc};

use postroom_core::{Envelope, Outcome, codec::Body};

use crate::{
    gate::Gate,
    handler::{HandlerError, Received},
    slot::Run,
};

/// Runs a function on each message.
pub(crate) struct Function<M, F> {
    function: F,
    message: PhantomData<fn(M)>,
}

impl<M, F> Function<M, F> {
    pub(crate) fn new(function: F) -> Self {
        Self { function, message: PhantomData }
    }
}

impl<M, F, Fut, T, E> Run for Function<M, F>
where
    M: Body + 'static,
    F: FnMut(Received<M>) -> Fut + 'static,
    Fut: Future<Output = Result<T, E>>,
    E: Into<HandlerError>,
{
    async fn run(&mut self, envelope: Arc<Envelope>, gate: Arc<Gate>) -> Outcome {
        let message = match M::decode(envelope.content_type.as_deref(), &envelope.body) {
            Ok(message) => message,
            Err(error) => return Outcome::Undecodable { error: error.to_string().into() },
        };
        match (self.function)(Received { message, envelope, gate }).await {
            Ok(_) => Outcome::Done,
            Err(error) => error.into().outcome(),
        }
    }
}
