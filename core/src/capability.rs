//! What a connected broker can do; the server's version and settings count.

/// How a broker counts the deliveries of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryCount {
    /// Exactly, from 1, and a release leaves it as it was.
    Exact,
    /// Every hand-over counts, also of a message that was only prefetched or released.
    Raw,
    /// Only "delivered before" is known.
    Flag,
    /// Nothing is known.
    None,
}

/// Whether a stale owner can still settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fencing {
    /// The broker refuses it.
    Refused,
    /// The end of the connection ends the ownership.
    Connection,
}

/// What survives, after `publish` said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing outlives the process.
    Process,
    /// A crash of the broker's process is survived, a power cut perhaps not.
    Crash,
    /// A power cut is survived.
    Power,
}

/// The powers of a connected broker beyond the optional traits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The broker, as `sqlite`.
    pub broker: &'static str,
    /// The server's version, where there is one.
    pub server: Option<String>,
    /// Delays of any length are kept by the broker.
    pub delay: bool,
    /// Deliveries have a lease that expires and can be extended.
    pub lease: bool,
    /// Topics with groups.
    pub topics: bool,
    /// Retry is one atomic step on the broker.
    pub atomic_retry: bool,
    /// How it counts deliveries.
    pub delivery_count: DeliveryCount,
    /// How a stale owner is kept out.
    pub fencing: Fencing,
    /// Several processes can share it.
    pub shared: bool,
    /// What a confirmed publish survives, by the settings found.
    pub durability: Durability,
    /// The setting behind [`Capabilities::durability`], as `synchronous=FULL`.
    pub durability_setting: String,
    /// The largest body in bytes, where the broker has a limit.
    pub max_body: Option<usize>,
    /// What an operator should know, a sentence each.
    pub warnings: Vec<String>,
}

impl Capabilities {
    /// A broker that can do nothing beyond the contract.
    #[must_use]
    pub fn none(broker: &'static str) -> Self {
        Self {
            broker,
            server: None,
            delay: false,
            lease: false,
            topics: false,
            atomic_retry: false,
            delivery_count: DeliveryCount::None,
            fencing: Fencing::Connection,
            shared: false,
            durability: Durability::Process,
            durability_setting: String::new(),
            max_body: None,
            warnings: Vec::new(),
        }
    }
}
