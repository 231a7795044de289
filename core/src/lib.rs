//! The words, the contract and the delivery protocol of Postroom.
//!
//! This crate opens no socket, reads no clock and starts no task: everything that *decides* lives here as plain values
//! and pure state machines, so that the same code runs in the actors, in property tests and in a model checker.
//!
//! In reading order:
//! - [`name`], [`place`]: what things are called, and where messages stay;
//! - [`envelope`], [`track`]: a message with its metadata, and what Postroom remembers of its earlier deliveries;
//! - [`broker`]: the contract that a broker driver implements, with its [`capability`] table and [`error`]s;
//! - [`codec`], [`wire`], [`dsn`], [`mod@duration`]: bytes, headers, addresses and times as text;
//! - [`policy`]: the one place that turns an outcome into a verdict, and the retry arithmetic;
//! - [`protocol`]: the delivery protocol as pure state machines.

pub mod broker;
pub mod capability;
pub mod codec;
pub mod dsn;
pub mod duration;
pub mod envelope;
pub mod error;
pub mod name;
pub mod place;
pub mod policy;
pub mod protocol;
pub mod track;
pub mod wire;

pub use broker::{
    Absent, Broker, Browse, Browsed, Count, Counts, Declaration, DeclareMode, Extended, Groups, Incoming, Lease,
    Message, Outgoing, Page, Position, Raw, Settled, Settlement, Source, State, Subscription, Tended,
};
pub use bytestring::ByteString as Text;
pub use capability::{Capabilities, DeliveryCount, Durability, Fencing};
pub use codec::{Body, Codec};
pub use dsn::{Dsn, DsnError, Secret};
pub use duration::{DurationError, duration};
pub use envelope::{Envelope, MessageId, Stamps, Timestamp};
pub use error::{CodecError, ErrorKind, TransportError};
pub use name::{Name, NameError, TypeName};
pub use place::Place;
pub use policy::{Order, Outcome, RetryPolicy, Unhandled, Verdict};
pub use track::{Attempt, AttemptKind, Failure, Origin, Reason, Track};
