//! Where failed messages lie, and one of them.

use postroom_core::{Browsed, Envelope, Failure, Place, Text};

use super::OpsError;
use crate::{FailureRef, TransportHandle};

/// Where the failed messages of a transport lie.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) handle: TransportHandle,
    pub(crate) place: Place,
    /// What it holds without an origin counts as this place's: it is the place's own store.
    own: Option<Place>,
}

impl Store {
    /// The store of a transport; `find` knows the other transports by name, as `|name| node.transport(name)`. A store is
    /// its own.
    ///
    /// # Errors
    /// When the transport keeps no failed messages, or names a failure transport that `find` does not know.
    pub fn of(
        transport: &TransportHandle,
        find: impl FnOnce(&str) -> Option<TransportHandle>,
    ) -> Result<Self, OpsError> {
        if let place @ Place::Store(_) = transport.place() {
            return Ok(Self { handle: transport.clone(), place: place.clone(), own: None });
        }
        let none = || OpsError::NoStore { transport: transport.name().clone() };
        match &transport.options().failure {
            FailureRef::None => Err(none()),
            FailureRef::Default => Ok(Self {
                handle: transport.clone(),
                place: transport.place().default_failure(),
                own: Some(transport.place().clone()),
            }),
            FailureRef::Transport(name) => {
                let handle = find(name).ok_or_else(none)?;
                let place = handle.place().clone();
                Ok(Self { handle, place, own: None })
            }
        }
    }

    /// Whether two are the same place of the same transport.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.place == other.place && self.handle.name() == other.handle.name()
    }

    /// The transport that it is reached through.
    #[must_use]
    pub fn transport(&self) -> &TransportHandle {
        &self.handle
    }

    /// The place.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether a record came from a place of a transport; a topic stands for all of its groups.
    pub(crate) fn is_from(&self, item: &Browsed, transport: &str, place: &Place) -> bool {
        let same = |origin: &Place| match (origin, place) {
            (Place::Group { topic, .. }, Place::Topic(all)) => topic == all,
            _ => origin == place,
        };
        match item.envelope.track.as_ref().and_then(|track| track.origin.as_ref()) {
            // The name may have changed since in the config; in a place's own store the place says enough.
            Some(origin) => same(&origin.place) && (origin.transport == transport || self.own.is_some()),
            None => self.own.as_ref().is_some_and(same),
        }
    }
}

/// A failed message as it is kept.
#[derive(Clone, Debug)]
pub struct FailedRecord {
    /// Where it lies.
    pub store: Store,
    /// As the broker shows it.
    pub item: Browsed,
}

impl FailedRecord {
    /// Its envelope.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.item.envelope
    }

    /// Why it was given up; `None` for what somebody else put into the store.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.envelope().track.as_ref().and_then(|track| track.failure.as_ref())
    }

    /// The record's id; for what somebody else put there, the message's.
    #[must_use]
    pub fn id(&self) -> Text {
        self.failure().map_or_else(|| self.envelope().id.as_text().clone(), |failure| failure.record.clone())
    }

    /// The transport that it came from.
    #[must_use]
    pub fn from(&self) -> Option<&Text> {
        self.envelope().track.as_ref().and_then(|track| track.origin.as_ref()).map(|origin| &origin.transport)
    }

    /// The place that it came from; for a record without one in a place's own store, that place.
    #[must_use]
    pub fn origin(&self) -> Option<&Place> {
        let written =
            self.envelope().track.as_ref().and_then(|track| track.origin.as_ref()).map(|origin| &origin.place);
        written.or(self.store.own.as_ref())
    }
}
