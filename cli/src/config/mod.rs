//! The config file: TOML with spans in, a typed config or every error at once out. Nothing is connected here.
//!
//! - [`reader`]: a table's keys with their lines, expanded, typed, and the unknown ones;
//! - [`expand`]: `${VAR}` and `${VAR:-default}`;
//! - [`node`], [`transports`], [`handlers`]: the sections;
//! - this file: what they become.

mod expand;
mod handlers;
mod load;
mod node;
mod reader;
mod transports;

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf, time::Duration};

use postroom_core::{Name, Order, RetryPolicy, Unhandled};

pub(crate) use load::{load, locate};

/// A whole config.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The folder of the file: relative paths start here.
    pub(crate) folder: PathBuf,
    /// `[node]`.
    pub(crate) node: NodeConfig,
    /// `[transports.*]` by name.
    pub(crate) transports: BTreeMap<Name, TransportConfig>,
    /// `[[handlers]]`, as written.
    pub(crate) handlers: Vec<HandlerConfig>,
}

/// `[node]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeConfig {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<Name>,
    pub(crate) grace: Option<Duration>,
    pub(crate) http: Option<SocketAddr>,
}

/// An address that may hold a password: its `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// `[transports.NAME]`; what is `None` keeps the DSN's word or the default.
#[derive(Clone, Debug)]
pub(crate) struct TransportConfig {
    pub(crate) dsn: Secret,
    pub(crate) failure: FailureConfig,
    pub(crate) lease: Option<Duration>,
    pub(crate) prefetch: Option<PrefetchConfig>,
    pub(crate) order: Option<Order>,
    pub(crate) unhandled: Option<Unhandled>,
    pub(crate) retry: RetryPolicy,
    pub(crate) crashes: Option<u32>,
    pub(crate) delay: Option<Name>,
    pub(crate) setup: Option<bool>,
    /// Another transport names it as its failure transport.
    pub(crate) store: bool,
}

impl TransportConfig {
    /// A transport with nothing but an address.
    pub(crate) fn of_dsn(dsn: &str) -> Self {
        Self {
            dsn: Secret(dsn.into()),
            failure: FailureConfig::Default,
            lease: None,
            prefetch: None,
            order: None,
            unhandled: None,
            retry: RetryPolicy::default(),
            crashes: None,
            delay: None,
            setup: None,
            store: false,
        }
    }
}

/// Where failed messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailureConfig {
    /// `<queue or topic>.failed` on the same DSN.
    Default,
    /// `"none"`: the first message that can't be handled pauses the consumer.
    None,
    /// A transport.
    Transport(Name),
}

/// How many messages are taken ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrefetchConfig {
    /// As many as the pools finish in about 100 ms.
    Auto,
    /// So many.
    Fixed(u32),
}

/// `[[handlers]]`.
#[derive(Clone, Debug)]
pub(crate) struct HandlerConfig {
    pub(crate) from: Name,
    pub(crate) pattern: String,
    pub(crate) name: Option<String>,
    pub(crate) concurrency: u32,
    pub(crate) timeout: Option<Duration>,
    pub(crate) action: Action,
}

/// What a handler does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A process a message.
    Exec(Vec<String>),
    /// A long-lived process a slot, with at most `window` messages at a time.
    Lines { command: Vec<String>, window: u32 },
    /// A POST.
    Http(Secret),
    /// A publish to another transport.
    Relay(Name),
}

/// One mistake, with the line it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    pub(crate) message: String,
}

#[cfg(test)]
mod tests;
