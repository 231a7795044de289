//! An actor as a handler: one instance a slot, under a guardian.

use std::{cell::RefCell, marker::PhantomData, rc::Rc, sync::Arc};

use actix::{Actor, Addr, Context, Handler, MailboxError, Supervised};
use postroom_core::{AttemptKind, Envelope, Message, Outcome, codec::Body};

use crate::{
    gate::Gate,
    guardian::{Life, RestartPolicy, guard},
    handler::Received,
    slot::Run,
};

/// Sends each message to an actor and waits for its result.
pub(crate) struct Acting<A: Actor, M> {
    address: Addr<A>,
    panic: Rc<RefCell<Option<String>>>,
    message: PhantomData<fn(M)>,
}

impl<A, M> Acting<A, M>
where
    A: Actor<Context = Context<A>> + Supervised,
{
    pub(crate) fn start(create: impl FnOnce() -> A) -> Self {
        let panic = Rc::new(RefCell::new(None));
        let heard = panic.clone();
        let address = guard(
            RestartPolicy::default(),
            |_| create(),
            move |life| {
                if let Life::Restarting { why, .. } = life {
                    *heard.borrow_mut() = Some(why);
                }
            },
        );
        Self { address, panic, message: PhantomData }
    }
}

impl<A, M> Run for Acting<A, M>
where
    A: Actor<Context = Context<A>> + Supervised + Handler<Received<M>>,
    M: Message + Body + Send,
{
    async fn run(&mut self, envelope: Arc<Envelope>, gate: Arc<Gate>) -> Outcome {
        let message = match M::decode(envelope.content_type.as_deref(), &envelope.body) {
            Ok(message) => message,
            Err(error) => return Outcome::Undecodable { error: error.to_string().into() },
        };
        match self.address.send(Received { message, envelope, gate }).await {
            Ok(Ok(_)) => Outcome::Done,
            Ok(Err(error)) => error.outcome(),
            Err(MailboxError::Closed | MailboxError::Timeout) => match self.panic.borrow_mut().take() {
                Some(why) => Outcome::errored(AttemptKind::Panicked, why),
                None => Outcome::errored(AttemptKind::Dropped, "the handler actor stopped before it answered"),
            },
        }
    }

    /// A guardian restarts it with its mailbox; only one that stopped itself is made anew.
    fn survives(&self) -> bool {
        self.address.connected()
    }
}
