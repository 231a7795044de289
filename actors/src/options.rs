//! What a user says of a transport.

use std::time::Duration;

use postroom_core::{
    Place, RetryPolicy, Text, TypeName,
    policy::{Order, Unhandled},
    protocol::Prefetch,
};

/// Where the failed messages of a transport go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FailureRef {
    /// A store `<queue or topic>.failed` on the same broker.
    #[default]
    Default,
    /// Another transport of the node.
    Transport(Text),
    /// Nowhere: the first message that can't be handled pauses its consumer, which is then degraded.
    None,
}

/// The options of one transport. [`TransportOptions::new`] gives the defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TransportOptions {
    /// Its name in the application.
    pub name: Text,
    /// The queue, topic, group or store.
    pub place: Place,
    /// Where failed messages go.
    pub failure: FailureRef,
    /// How long a delivery is ours without a renewal; at least 1 s, default 30 s. Renewed at a third of it.
    pub lease: Duration,
    /// How many deliveries are held at once.
    pub prefetch: Prefetch,
    /// Which deliveries wait for each other.
    pub order: Order,
    /// What happens to a type that no handler takes: by default it fails in a queue, and is acked in a group.
    pub unhandled: Option<Unhandled>,
    /// How often and when an errored message runs again.
    pub retry: RetryPolicy,
    /// Starts that may end with the worker's death before a message fails as `crashed`; at least 3, default 4.
    pub crashes: u32,
    /// Whether missing places are created.
    pub setup: bool,
    /// Whether a publish to a topic without groups is an error.
    pub require_group: bool,
    /// The type of messages sent here without one.
    pub message_type: Option<TypeName>,
    /// How long a publish may take, connecting included; default 30 s.
    pub publish_timeout: Duration,
}

/// The shortest lease.
pub const MIN_LEASE: Duration = Duration::from_secs(1);

impl TransportOptions {
    /// The defaults.
    #[must_use]
    pub fn new(name: impl Into<Text>, place: Place) -> Self {
        Self {
            name: name.into(),
            place,
            failure: FailureRef::Default,
            lease: Duration::from_secs(30),
            prefetch: Prefetch::Auto,
            order: Order::None,
            unhandled: None,
            retry: RetryPolicy::default(),
            crashes: 4,
            setup: true,
            require_group: false,
            message_type: None,
            publish_timeout: Duration::from_secs(30),
        }
    }

    pub(crate) fn unhandled(&self) -> Unhandled {
        match (&self.unhandled, &self.place) {
            (Some(unhandled), _) => *unhandled,
            (None, Place::Group { .. }) => Unhandled::Ack,
            (None, _) => Unhandled::Fail,
        }
    }

    /// Where messages sent to this transport go: the topic of a group, else the place itself.
    #[must_use]
    pub fn send_place(&self) -> Place {
        match &self.place {
            Place::Group { topic, .. } => Place::Topic(topic.clone()),
            place => place.clone(),
        }
    }
}
