//! The contract that a broker driver implements.
//!
//! A driver moves bytes and nothing else. It has no say in policy: no retry arithmetic, no budgets, no reconnecting, no
//! timers but the pause between two polls where the outside system has no way to wait. Everything that systems usually
//! repeat in each transport (in-flight registry, settle gating, idempotency, drain, poison handling, key order) stands
//! once, above this contract.
//!
//! Futures stay on the arbiter of their transport: they need not be `Send`. Rules that hold for all of them:
//! - Batches come first. A method that takes a batch answers one result an item, in order; one item's error is not
//!   another's.
//! - An error of kind [`Connection`](crate::ErrorKind::Connection) means: this value is broken for good. The transport
//!   actor drops it and calls [`Broker::connect`] again. A hidden recovery inside a driver is a bug.
//! - After `close` every call answers [`Stopped`](crate::ErrorKind::Stopped).

use std::{future::Future, time::Duration};

use bytes::Bytes;

use crate::{Capabilities, Envelope, MessageId, Name, Place, Text, TransportError, envelope::Timestamp};

/// A connected broker.
pub trait Broker: Sized + 'static {
    /// How to reach it. Its `Debug` must not show a credential.
    type Config: Clone + 'static;
    /// One open subscription.
    type Source: Source;
    /// The power to count; [`Absent`] where there is none.
    type Count: Count;
    /// The power to look at messages without taking them; [`Absent`] where there is none.
    type Browse: Browse;
    /// The power to list and remove groups; [`Absent`] where there is none.
    type Groups: Groups;

    /// Connects, once; no retries.
    fn connect(config: &Self::Config) -> impl Future<Output = Result<Self, TransportError>>;

    /// What this broker can do, by the server that was found.
    fn capabilities(&self) -> Capabilities;

    /// Creates places, or with [`DeclareMode::Verify`] only checks them. Idempotent. Declaring a group declares its
    /// topic. A place that exists with other settings is an error that names the setting, the wanted and the found value.
    fn declare(&self, what: &[Declaration], how: DeclareMode) -> impl Future<Output = Result<(), TransportError>>;

    /// Publishes; each item's result comes once it is as durable as [`Capabilities::durability`] says. An item for a
    /// place that was never declared answers `Unroutable`. A topic without groups takes a message and drops it. In a
    /// [`Place::Store`] an envelope whose [`Failure::record`](crate::Failure::record) is already there is not stored twice.
    fn publish(&self, batch: &[Outgoing]) -> impl Future<Output = Vec<Result<MessageId, TransportError>>>;

    /// Opens a subscription. Several may be open on one place; they compete.
    fn subscribe(&self, to: Subscription) -> impl Future<Output = Result<Self::Source, TransportError>>;

    /// Work that nobody asks for: makes due delayed messages ready, takes back expired deliveries, trims; at most about
    /// `max` messages a call. Idempotent and safe in all replicas at once. Says when it wants to be called next.
    fn tend(&self, max: usize) -> impl Future<Output = Result<Tended, TransportError>>;

    /// Closes. Open sources answer `Stopped` from now on, and what they hold unsettled comes back to others at once.
    fn close(&self) -> impl Future<Output = Result<(), TransportError>>;

    /// The power to count.
    fn count(&self) -> Option<&Self::Count>;
    /// The power to browse.
    fn browse(&self) -> Option<&Self::Browse>;
    /// The power over groups.
    fn groups(&self) -> Option<&Self::Groups>;
}

/// One open subscription of a broker.
pub trait Source: 'static {
    /// What the broker needs to settle one delivery: fenced by owner and generation where the broker can.
    type Token: Clone + 'static;
    /// The power to renew leases; [`Absent`] where there are none.
    type Lease: Lease<Self::Token>;

    /// Takes at most `max` deliveries (at least 1 is asked for). Waits for at least one, or for [`Source::wake`]. May
    /// answer an empty list after it has asked the broker and waited a while (at most 5 s): that proves that the
    /// subscription is alive. The runtime never drops this future; it calls `wake`.
    fn pull(&self, max: usize) -> impl Future<Output = Result<Vec<Incoming<Self::Token>>, TransportError>>;

    /// Ends a waiting pull, which answers what it holds (perhaps nothing). Without a waiting pull, the next one
    /// answers at once. Strands nothing.
    fn wake(&self);

    /// Settles deliveries of this source. One result an item; a failed item is tried again by the caller.
    fn settle(
        &self,
        batch: &[(&Self::Token, Settlement)],
    ) -> impl Future<Output = Vec<Result<Settled, TransportError>>>;

    /// The power to renew leases.
    fn lease(&self) -> Option<&Self::Lease>;

    /// Closes. What is unsettled comes back to others at once.
    fn close(&self) -> impl Future<Output = Result<(), TransportError>>;
}

/// The power to renew leases.
pub trait Lease<T> {
    /// Renews each delivery for the subscription's whole lease from now, by the broker's clock. Fenced: a delivery that
    /// went to another owner answers [`Extended::Lost`] and stays his.
    fn extend(&self, batch: &[&T]) -> impl Future<Output = Vec<Result<Extended, TransportError>>>;
}

/// The power to count.
pub trait Count {
    /// The figures of a queue, group or store. A figure that the broker cannot give is `None`, never 0.
    fn count(&self, place: &Place) -> impl Future<Output = Result<Counts, TransportError>>;
}

/// The power to look at messages without taking them, and to remove them.
pub trait Browse {
    /// A page of at most `max` messages of a place in one state (or all), oldest first, after `after` (a
    /// [`Page::next`]). Changes nothing.
    fn page(
        &self,
        place: &Place,
        state: Option<State>,
        after: Option<&Text>,
        max: usize,
    ) -> impl Future<Output = Result<Page, TransportError>>;

    /// All messages of a place with this message id or record id.
    fn find(&self, place: &Place, id: &str) -> impl Future<Output = Result<Vec<Browsed>, TransportError>>;

    /// Removes messages by [`Browsed::handle`]; answers for each whether it was still there. A message in flight can
    /// be removed: its owner's settle then answers `Already` or `LeaseLost`.
    fn remove(&self, place: &Place, handles: &[Text]) -> impl Future<Output = Result<Vec<bool>, TransportError>>;
}

/// The power over groups.
pub trait Groups {
    /// The declared groups of a topic, with their waiting messages where the broker knows.
    fn list(&self, topic: &Name) -> impl Future<Output = Result<Vec<(Name, Option<u64>)>, TransportError>>;
    /// Removes a group and its messages; answers whether it was there.
    fn remove(&self, topic: &Name, group: &Name) -> impl Future<Output = Result<bool, TransportError>>;
}

/// A place to declare.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declaration {
    /// The place.
    pub place: Place,
}

impl Declaration {
    /// Declares a place.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self { place }
    }
}

/// Whether declaring may change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclareMode {
    /// Create what is missing; refuse what differs.
    Create,
    /// Create nothing: a missing place is `NotFound`, one that differs is `Refused`.
    Verify,
}

/// One message to publish.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outgoing {
    /// Where to.
    pub to: Place,
    /// What.
    pub envelope: std::sync::Arc<Envelope>,
    /// Not to be delivered earlier than this from now, by the broker's clock.
    pub delay: Option<Duration>,
    /// A topic without groups is an error (`Unroutable`).
    pub require_group: bool,
}

impl Outgoing {
    /// A message for a place, now.
    #[must_use]
    pub fn new(to: Place, envelope: impl Into<std::sync::Arc<Envelope>>) -> Self {
        Self { to, envelope: envelope.into(), delay: None, require_group: false }
    }

    /// Delayed; zero is no delay.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = (!delay.is_zero()).then_some(delay);
        self
    }
}

/// What to read, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Subscription {
    /// A queue or a group.
    pub place: Place,
    /// Who reads: the node's name plus a random part, new at each start.
    pub owner: Text,
    /// How long a delivery is this owner's without a renewal; brokers without leases ignore it.
    pub lease: Duration,
}

impl Subscription {
    /// Reads a place as `owner`, with a lease.
    #[must_use]
    pub fn new(place: Place, owner: impl Into<Text>, lease: Duration) -> Self {
        Self { place, owner: owner.into(), lease }
    }
}

/// One delivery as it came from the broker.
#[derive(Debug)]
#[non_exhaustive]
pub struct Incoming<T> {
    /// Settles it.
    pub token: T,
    /// The envelope.
    pub envelope: std::sync::Arc<Envelope>,
    /// The how-many-eth hand-over this is, from 1, as [`Capabilities::delivery_count`] counts; where only a flag is
    /// known, 1 or 2; where nothing is, `None`.
    pub delivered: Option<u32>,
    /// The broker's own position of the message, the same at each redelivery.
    pub position: Position,
    /// Metadata from outside that was out of range and counts as absent.
    pub oddities: u32,
}

impl<T> Incoming<T> {
    /// A delivery of which the broker knows no count and no position.
    #[must_use]
    pub fn new(token: T, envelope: impl Into<std::sync::Arc<Envelope>>) -> Self {
        Self { token, envelope: envelope.into(), delivered: None, position: Position::None, oddities: 0 }
    }
}

/// The broker's own position of a message: row, entry, offset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Position {
    /// The broker has none.
    #[default]
    None,
    /// A row or sequence number.
    Number(u64),
    /// Anything else, as text.
    Text(Text),
}

/// Empty, the number, or the text.
impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// How a delivery ends.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// It is done: remove it (from this group alone).
    Ack,
    /// Replace it: the new envelope goes back to this queue or group alone, not earlier than `after` from now by the
    /// broker's clock, with a delivery count of its own from 1; the old one is removed. Where the broker can, in one
    /// atomic step; else the copy is confirmed first. The body of a replacement is the original's.
    Retry {
        /// What replaces it.
        replacement: std::sync::Arc<Envelope>,
        /// The delay; zero is none.
        after: Duration,
    },
    /// Give it back untouched, to others at once; nothing that we count has changed.
    Release,
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Done.
    Done,
    /// Written to the connection; the broker gives no answer. Certain after close.
    Written,
    /// This source had settled it before, or it was removed meanwhile.
    Already,
    /// It is another owner's by now; nothing was changed.
    LeaseLost,
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// Renewed.
    Done,
    /// It is another owner's by now, or gone.
    Lost,
}

/// What a call of [`Broker::tend`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tended {
    /// Delayed messages that became ready.
    pub promoted: usize,
    /// Expired deliveries that were taken back.
    pub reclaimed: usize,
    /// Whether there is more to do at once.
    pub more: bool,
    /// When it wants to be called next at the latest; `None`: nothing is known to be due.
    pub next: Option<Duration>,
}

/// The figures of a place; `None` where the broker cannot say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Ready to be delivered.
    pub waiting: Option<u64>,
    /// Delivered and not settled.
    pub in_flight: Option<u64>,
    /// Not due yet.
    pub delayed: Option<u64>,
    /// The age of the oldest waiting message in milliseconds; `None` also where nothing waits.
    pub oldest_waiting_ms: Option<u64>,
    /// Whether the figures are exact.
    pub exact: bool,
}

/// The state of a browsed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Ready to be delivered.
    Waiting,
    /// Delivered and not settled.
    InFlight,
    /// Not due yet.
    Delayed,
}

/// One message as it lies on the broker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Browsed {
    /// The broker's handle of it, for [`Browse::remove`].
    pub handle: Text,
    /// Its state.
    pub state: State,
    /// Its envelope.
    pub envelope: std::sync::Arc<Envelope>,
    /// When it is due, where it is delayed.
    pub due_at: Option<Timestamp>,
    /// The hand-overs so far, where the broker counts them.
    pub delivered: Option<u32>,
}

impl Browsed {
    /// A message as it lies on the broker.
    #[must_use]
    pub fn new(handle: impl Into<Text>, state: State, envelope: impl Into<std::sync::Arc<Envelope>>) -> Self {
        Self { handle: handle.into(), state, envelope: envelope.into(), due_at: None, delivered: None }
    }
}

/// A page of browsed messages.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// The messages, oldest first.
    pub items: Vec<Browsed>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Text>,
}

impl Page {
    /// A page and where the next begins.
    #[must_use]
    pub fn new(items: Vec<Browsed>, next: Option<Text>) -> Self {
        Self { items, next }
    }
}

/// A power that a broker does not have. It has no values, so code for it cannot be reached.
#[derive(Clone, Copy, Debug)]
pub enum Absent {}

impl<T> Lease<T> for Absent {
    async fn extend(&self, _: &[&T]) -> Vec<Result<Extended, TransportError>> {
        match *self {}
    }
}
impl Count for Absent {
    async fn count(&self, _: &Place) -> Result<Counts, TransportError> {
        match *self {}
    }
}
impl Browse for Absent {
    async fn page(&self, _: &Place, _: Option<State>, _: Option<&Text>, _: usize) -> Result<Page, TransportError> {
        match *self {}
    }
    async fn find(&self, _: &Place, _: &str) -> Result<Vec<Browsed>, TransportError> {
        match *self {}
    }
    async fn remove(&self, _: &Place, _: &[Text]) -> Result<Vec<bool>, TransportError> {
        match *self {}
    }
}
impl Groups for Absent {
    async fn list(&self, _: &Name) -> Result<Vec<(Name, Option<u64>)>, TransportError> {
        match *self {}
    }
    async fn remove(&self, _: &Name, _: &Name) -> Result<bool, TransportError> {
        match *self {}
    }
}

/// A user's message type, declared in two lines with [`message!`](crate::message):
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct OrderPlaced { id: u64 }
/// postroom_core::message!(OrderPlaced = "order.placed");
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Ask { sku: String }
/// postroom_core::message!(Ask = "price.ask" -> u64);
/// ```
pub trait Message: Sized + 'static {
    /// The type's name on the wire; the grammar is [`TypeName`](crate::TypeName)'s and is checked when it is declared.
    const TYPE: &'static str;
    /// How it is encoded. Decoding follows the content type that a message came with.
    const CODEC: crate::codec::Format = crate::codec::Format::Json;
    /// What a handler answers; `()` is no reply.
    type Reply: Send + 'static;
}

/// A body that is taken and given as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(pub Bytes);

/// Declares a message type: `message!(Type = "name")`, or with a reply `message!(Type = "name" -> Reply)`.
#[macro_export]
macro_rules! message {
    ($type:ty = $name:literal) => {
        $crate::message!($type = $name -> ());
    };
    ($type:ty = $name:literal -> $reply:ty) => {
        impl $crate::Message for $type {
            const TYPE: &'static str = $name;
            type Reply = $reply;
        }
    };
}
