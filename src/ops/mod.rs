//! Operations: what is there, what failed, and what to do with it. The `postroom` program's commands are these calls.
//!
//! - [`stats()`]: how many messages wait, are in flight, are delayed, have failed;
//! - [`peek()`]: looking at messages without taking them;
//! - [`store`]: where the failed messages of a transport lie, and one such record;
//! - [`failed`]: finding records: filters come before limits, and every record is known, page by page;
//! - [`replay`]: sending records back to where they came from, and removing them;
//! - [`groups`]: the groups of a topic.

pub mod failed;
pub mod groups;
pub mod peek;
pub mod replay;
pub mod stats;
pub mod store;

pub use failed::{Filter, Scan, find};
pub use peek::{Peek, peek};
pub use replay::{Pace, remove, retry};
pub use stats::{Stats, stats};
pub use store::{FailedRecord, Store};

use postroom_core::{Text, TransportError};

/// So many messages are read at once.
pub const PAGE: usize = 1_000;

/// Why an operation could not be done.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpsError {
    /// The transport, or its broker, said no.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The broker does not have the power that this takes.
    #[error("the broker of transport `{transport}` cannot {power}")]
    Capability {
        /// The transport.
        transport: Text,
        /// What it cannot do, as `list messages`.
        power: &'static str,
    },
    /// The transport has no failure transport.
    #[error("transport `{transport}` has `failure = \"none\"`: it keeps no failed messages")]
    NoStore {
        /// The transport.
        transport: Text,
    },
    /// A record's origin is no transport of this application.
    #[error("record `{record}` came from {origin}, which is no transport here; add it to the config, then retry")]
    NoOrigin {
        /// The record.
        record: Text,
        /// Where it says that it came from.
        origin: String,
    },
}

#[cfg(all(test, feature = "memory"))]
mod tests;
