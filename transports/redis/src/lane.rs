//! The keys of a place.
//!
//! A queue's stream has the queue's name, so that other programs find it; a topic's begins with `topic:`, a store's
//! with `store:`. No name may hold a `:`, so no two places share a key. A namespace comes first in the name, joined by
//! `--`. The side keys begin with the stream's key in braces: one hash slot.

use postroom_core::{ErrorKind, Name, Place, TransportError};

/// The group of a queue's consumers.
const QUEUE_GROUP: &str = "postroom";

/// The keys of a queue or a group; a topic or a store has its stream only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane {
    /// The stream that is read, then the side keys in the order of `lua/common.lua`.
    pub(crate) keys: [String; 7],
    pub(crate) group: String,
    /// `q`, `g`, `t` or `s`.
    pub(crate) kind: &'static str,
}

impl Lane {
    pub(crate) fn of(place: &Place, namespace: Option<&Name>) -> Result<Self, TransportError> {
        let name = place.name().in_namespace(namespace);
        let (stream, group, kind) = match place {
            Place::Queue(_) => (name, QUEUE_GROUP, "q"),
            Place::Topic(_) => (format!("topic:{name}"), "", "t"),
            Place::Group { group, .. } => (format!("topic:{name}"), group.as_str(), "g"),
            Place::Store(_) => (format!("store:{name}"), "", "s"),
            _ => {
                let refused = format!("redis knows no such kind of place as {place}");
                return Err(TransportError::new(ErrorKind::Refused, refused));
            }
        };
        let base = if kind == "g" { format!("{{{stream}}}:group:{group}") } else { format!("{{{stream}}}") };
        let side = |part: &str| format!("{base}:{part}");
        let last = format!("{{{stream}}}:{}", if kind == "s" { "records" } else { "groups" });
        Ok(Self {
            keys: [stream, side("own"), side("bell"), side("owners"), side("delayed"), side("bodies"), last],
            group: group.to_owned(),
            kind,
        })
    }

    /// The streams that are read with their consumer group, in the order of the scripts.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().take(if self.kind == "g" { 2 } else { 1 }).map(String::as_str)
    }

    pub(crate) fn bell(&self) -> &str {
        let [_, _, bell, ..] = &self.keys;
        bell
    }

    /// The set of a topic's groups.
    pub(crate) fn groups(&self) -> &str {
        let [.., groups] = &self.keys;
        groups
    }
}
