//! What the rest of the program holds of a transport: cheap to clone, usable from any thread and executor.

use std::{fmt, sync::Arc};

use actix::{Message, Recipient};
use dashmap::DashMap;
use postroom_core::{
    Broker, Browse, Browsed, Capabilities, Count, Counts, DeclareMode, ErrorKind, Groups, MessageId, Name, Outgoing,
    Page, Place, State, Text, TransportError,
};
use tokio::sync::oneshot;

use super::{
    Publish,
    engine::{Engine, Link, Phase},
};
use crate::options::TransportOptions;

/// The transports of a node, by name.
pub(crate) type Directory = Arc<DashMap<Text, TransportHandle>>;

type Reply<T> = oneshot::Sender<Result<T, TransportError>>;
/// `None`: the broker does not have this power.
type Power<T> = Reply<Option<T>>;

/// A question to a transport.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum Command {
    Capabilities(Reply<Capabilities>),
    Declare(DeclareMode, Reply<()>),
    Count(Place, Power<Counts>),
    Page { place: Place, state: Option<State>, after: Option<Text>, max: usize, reply: Power<Page> },
    Find { place: Place, id: Text, reply: Power<Vec<Browsed>> },
    Remove { place: Place, handles: Vec<Text>, reply: Power<Vec<bool>> },
    Groups(Name, Power<Vec<(Name, Option<u64>)>>),
    RemoveGroup { topic: Name, group: Name, reply: Power<bool> },
}

/// A running transport.
#[derive(Clone)]
pub struct TransportHandle {
    options: Arc<TransportOptions>,
    publish: Recipient<Publish>,
    command: Recipient<Command>,
}

impl fmt::Debug for TransportHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportHandle").field("name", &self.options.name).field("place", &self.options.place).finish()
    }
}

impl TransportHandle {
    pub(super) fn new(
        options: Arc<TransportOptions>,
        publish: Recipient<Publish>,
        command: Recipient<Command>,
    ) -> Self {
        Self { options, publish, command }
    }

    /// Its name in the application.
    #[must_use]
    pub fn name(&self) -> &Text {
        &self.options.name
    }

    /// What it reads: a queue, a group, a topic or a store.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.options.place
    }

    /// Its options.
    #[must_use]
    pub fn options(&self) -> &TransportOptions {
        &self.options
    }

    /// Publishes; each answer says that the message is durable, or why it is not. One item's error is not another's.
    pub async fn publish(&self, outgoing: Vec<Outgoing>) -> Vec<Result<MessageId, TransportError>> {
        let count = outgoing.len();
        if count == 0 {
            return Vec::new();
        }
        self.publish.send(Publish(outgoing)).await.unwrap_or_else(|_| vec![Err(TransportError::stopped()); count])
    }

    async fn ask<T>(&self, question: impl FnOnce(Reply<T>) -> Command) -> Result<T, TransportError> {
        let (reply, answer) = oneshot::channel();
        let stopped = |_| TransportError::stopped();
        self.command.send(question(reply)).await.map_err(stopped)?;
        answer.await.map_err(|_| TransportError::stopped())?
    }

    /// What the connected broker can do.
    ///
    /// # Errors
    /// When there is no connection in time, or the transport is stopped.
    pub async fn capabilities(&self) -> Result<Capabilities, TransportError> {
        self.ask(Command::Capabilities).await
    }

    /// Declares what the transport needs, or with [`DeclareMode::Verify`] checks it.
    ///
    /// # Errors
    /// What is missing or differs; or the connection.
    pub async fn declare(&self, how: DeclareMode) -> Result<(), TransportError> {
        self.ask(|reply| Command::Declare(how, reply)).await
    }

    /// The figures of a place; `None` where the broker cannot count.
    ///
    /// # Errors
    /// When the place does not exist; or the connection.
    pub async fn count(&self, place: &Place) -> Result<Option<Counts>, TransportError> {
        self.ask(|reply| Command::Count(place.clone(), reply)).await
    }

    /// A page of a place's messages; `None` where the broker cannot browse. See [`Browse::page`].
    ///
    /// # Errors
    /// When the place does not exist; or the connection.
    pub async fn page(
        &self,
        place: &Place,
        state: Option<State>,
        after: Option<Text>,
        max: usize,
    ) -> Result<Option<Page>, TransportError> {
        self.ask(|reply| Command::Page { place: place.clone(), state, after, max, reply }).await
    }

    /// The messages with this message id or record id; `None` where the broker cannot browse.
    ///
    /// # Errors
    /// When the place does not exist; or the connection.
    pub async fn find(&self, place: &Place, id: &str) -> Result<Option<Vec<Browsed>>, TransportError> {
        self.ask(|reply| Command::Find { place: place.clone(), id: id.into(), reply }).await
    }

    /// Removes messages; answers for each whether it was there, or `None` where the broker cannot browse.
    ///
    /// # Errors
    /// When the place does not exist; or the connection.
    pub async fn remove(&self, place: &Place, handles: Vec<Text>) -> Result<Option<Vec<bool>>, TransportError> {
        self.ask(|reply| Command::Remove { place: place.clone(), handles, reply }).await
    }

    /// The groups of a topic with what waits in each; `None` where the broker has no groups to list.
    ///
    /// # Errors
    /// When the topic does not exist; or the connection.
    pub async fn groups(&self, topic: &Name) -> Result<Option<Vec<(Name, Option<u64>)>>, TransportError> {
        self.ask(|reply| Command::Groups(topic.clone(), reply)).await
    }

    /// Removes a group with its messages; answers whether it was there, or `None` where the broker has no groups.
    ///
    /// # Errors
    /// When the topic does not exist; or the connection.
    pub async fn remove_group(&self, topic: &Name, group: &Name) -> Result<Option<bool>, TransportError> {
        self.ask(|reply| Command::RemoveGroup { topic: topic.clone(), group: group.clone(), reply }).await
    }
}

impl<B: Broker> Engine<B> {
    pub(super) async fn obey(&self, command: Command) {
        // A receiver that is gone has stopped waiting.
        match command {
            Command::Capabilities(reply) => {
                let _ = reply.send(self.with_link(async |link| Ok(link.broker.capabilities())).await);
            }
            Command::Declare(how, reply) => {
                let needs = self.needs();
                let _ = reply.send(self.with_link(async |link| link.broker.declare(&needs, how).await).await);
            }
            Command::Count(place, reply) => {
                let count = async |link: &Link<B>| match link.broker.count() {
                    Some(power) => power.count(&place).await.map(Some),
                    None => Ok(None),
                };
                let _ = reply.send(self.with_link(count).await);
            }
            Command::Page { place, state, after, max, reply } => {
                let page = async |link: &Link<B>| match link.broker.browse() {
                    Some(power) => power.page(&place, state, after.as_ref(), max).await.map(Some),
                    None => Ok(None),
                };
                let _ = reply.send(self.with_link(page).await);
            }
            Command::Find { place, id, reply } => {
                let find = async |link: &Link<B>| match link.broker.browse() {
                    Some(power) => power.find(&place, &id).await.map(Some),
                    None => Ok(None),
                };
                let _ = reply.send(self.with_link(find).await);
            }
            Command::Remove { place, handles, reply } => {
                let remove = async |link: &Link<B>| match link.broker.browse() {
                    Some(power) => power.remove(&place, &handles).await.map(Some),
                    None => Ok(None),
                };
                let _ = reply.send(self.with_link(remove).await);
            }
            Command::Groups(topic, reply) => {
                let list = async |link: &Link<B>| match link.broker.groups() {
                    Some(power) => power.list(&topic).await.map(Some),
                    None => Ok(None),
                };
                let _ = reply.send(self.with_link(list).await);
            }
            Command::RemoveGroup { topic, group, reply } => {
                let remove = async |link: &Link<B>| match link.broker.groups() {
                    Some(power) => power.remove(&topic, &group).await.map(Some),
                    None => Ok(None),
                };
                let _ = reply.send(self.with_link(remove).await);
            }
        }
    }

    /// Runs a question on the live connection, waited for as long as a publish may take.
    async fn with_link<T>(
        &self,
        ask: impl AsyncFnOnce(&Link<B>) -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        let limit = self.options.publish_timeout;
        let late = |what: &str| {
            TransportError::new(
                ErrorKind::Timeout,
                format!("transport `{}`: {what} within {limit:?}", self.options.name),
            )
        };
        let link =
            tokio::time::timeout(limit, self.linked(Phase::Draining)).await.map_err(|_| late("no connection"))?;
        let link = link.ok_or_else(TransportError::stopped)?;
        let answer = tokio::time::timeout(limit, ask(&link)).await.map_err(|_| late("no answer"))?;
        if let Err(error) = &answer
            && error.kind() == ErrorKind::Connection
        {
            self.broke(link.epoch, error);
        }
        answer
    }
}
