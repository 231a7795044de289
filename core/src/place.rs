//! Where messages stay.

use std::fmt;

use crate::name::{Name, NameError, shown};

/// The last part of a lane's name; no group has it.
const SUSPECTS: &str = "suspects";

/// A place on a broker that messages are sent to or read from.
///
/// A queue has competing consumers. A topic gives every declared group its own copy. A group is one such copy of a
/// topic. A store keeps failed records: it can be browsed and has no consumers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Place {
    /// A queue: its consumers compete.
    Queue(Name),
    /// A topic: send here and each of its groups gets a copy. It cannot be subscribed to.
    Topic(Name),
    /// One group of a topic. Sending here reaches this group alone, as a retry must.
    Group {
        /// The topic.
        topic: Name,
        /// The group.
        group: Name,
    },
    /// A failure transport's store, in the broker's browsable form. It cannot be subscribed to.
    Store(Name),
}

impl Place {
    /// A queue by name.
    ///
    /// # Errors
    /// When the name breaks a rule of [`Name`].
    pub fn queue(name: &str) -> Result<Self, NameError> {
        Name::new(name).map(Self::Queue)
    }

    /// A topic by name.
    ///
    /// # Errors
    /// When the name breaks a rule of [`Name`].
    pub fn topic(name: &str) -> Result<Self, NameError> {
        Name::new(name).map(Self::Topic)
    }

    /// A group of a topic. No group is named `suspects`: joined by `--`, it would be the lane of the queue that is named
    /// as the topic.
    ///
    /// # Errors
    /// When either name breaks a rule of [`Name`], or the group's is reserved.
    pub fn group(topic: &str, group: &str) -> Result<Self, NameError> {
        if group == SUSPECTS {
            return Err(NameError::Reserved { name: shown(group) });
        }
        Ok(Self::Group { topic: Name::new(topic)?, group: Name::new(group)? })
    }

    /// A failure transport's store by name.
    ///
    /// # Errors
    /// When the name breaks a rule of [`Name`].
    pub fn store(name: &str) -> Result<Self, NameError> {
        Name::new(name).map(Self::Store)
    }

    /// The suspects' lane of a queue or group: `<queue>--suspects` or `<topic>--<group>--suspects`, itself a queue.
    /// A topic and a store have no consumers, hence no lane.
    #[must_use]
    pub fn suspects(&self) -> Option<Self> {
        match self {
            Self::Queue(name) => Some(Self::Queue(Name::derived(&[name, SUSPECTS]))),
            Self::Group { topic, group } => Some(Self::Queue(Name::derived(&[topic, group, SUSPECTS]))),
            Self::Topic(_) | Self::Store(_) => None,
        }
    }

    /// The name that a user gave: of the queue, the topic or the store.
    #[must_use]
    pub fn name(&self) -> &Name {
        match self {
            Self::Queue(name) | Self::Topic(name) | Self::Store(name) | Self::Group { topic: name, .. } => name,
        }
    }

    /// The group's name, where the place is a group.
    #[must_use]
    pub fn group_name(&self) -> Option<&Name> {
        match self {
            Self::Group { group, .. } => Some(group),
            _ => None,
        }
    }

    /// The default name of the failure store: `<queue or topic>.failed`.
    #[must_use]
    pub fn default_failure(&self) -> Self {
        Self::Store(Name::suffixed(self.name(), ".failed"))
    }

    /// Whether consumers can subscribe here.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        matches!(self, Self::Queue(_) | Self::Group { .. })
    }
}

/// `queue orders`, `topic events`, `group billing of topic events`, `store failed`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => write!(f, "queue {name}"),
            Self::Topic(name) => write!(f, "topic {name}"),
            Self::Group { topic, group } => write!(f, "group {group} of topic {topic}"),
            Self::Store(name) => write!(f, "store {name}"),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
