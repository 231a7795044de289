//! Finding failed records.

use postroom_core::{ErrorKind, Place, Reason, Text, envelope::Timestamp};

use super::{FailedRecord, OpsError, PAGE, Store};
use crate::TransportHandle;

/// Which records; what is `None` takes all.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Filter {
    /// Only those that came from this transport and place.
    pub from: Option<(Text, Place)>,
    /// Only those of this type; a final `*` matches a prefix.
    pub message_type: Option<Text>,
    /// Only those given up for this reason.
    pub reason: Option<Reason>,
    /// Only those given up since then.
    pub since: Option<Timestamp>,
}

impl Filter {
    /// Only those that came from this transport; one of a topic stands for all of its groups.
    #[must_use]
    pub fn from(mut self, transport: &TransportHandle) -> Self {
        self.from = Some((transport.name().clone(), transport.place().clone()));
        self
    }

    /// Only those of this type; a final `*` matches a prefix.
    #[must_use]
    pub fn message_type(mut self, message_type: impl Into<Text>) -> Self {
        self.message_type = Some(message_type.into());
        self
    }

    /// Only those given up for this reason.
    #[must_use]
    pub fn reason(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Only those given up since then.
    #[must_use]
    pub fn since(mut self, since: Timestamp) -> Self {
        self.since = Some(since);
        self
    }

    /// Whether a record is taken.
    #[must_use]
    pub fn matches(&self, record: &FailedRecord) -> bool {
        let envelope = record.envelope();
        let type_matches = self.message_type.as_ref().is_none_or(|wanted| {
            let found = envelope.message_type.as_deref().unwrap_or_default();
            wanted.strip_suffix('*').map_or(found == &**wanted, |prefix| found.starts_with(prefix))
        });
        let failure = record.failure();
        type_matches
            && self.from.as_ref().is_none_or(|(name, place)| record.store.is_from(&record.item, name, place))
            && self.reason.is_none_or(|reason| failure.is_some_and(|failure| failure.reason == reason))
            && self.since.is_none_or(|since| failure.is_some_and(|failure| failure.at >= since))
    }
}

/// A walk through the records of a store, oldest first, a page at a time.
#[derive(Debug)]
pub struct Scan {
    store: Store,
    filter: Filter,
    after: Option<Text>,
    ended: bool,
}

impl Scan {
    /// Begins.
    #[must_use]
    pub fn new(store: Store, filter: Filter) -> Self {
        Self { store, filter, after: None, ended: false }
    }

    /// The records of the next page that match, perhaps none; `None` after the last page.
    ///
    /// # Errors
    /// When the broker cannot list messages, cannot be reached, or refuses.
    pub async fn next(&mut self) -> Result<Option<Vec<FailedRecord>>, OpsError> {
        if self.ended {
            return Ok(None);
        }
        let store = &self.store;
        let page = match store.handle.page(&store.place, None, self.after.clone(), PAGE).await {
            // Nothing has failed yet.
            Err(error) if error.kind() == ErrorKind::NotFound => Some(postroom_core::Page::default()),
            page => page?,
        };
        let page = page.ok_or_else(|| unlisted(store))?;
        self.ended = page.next.is_none();
        self.after = page.next;
        let records = page.items.into_iter().map(|item| FailedRecord { store: store.clone(), item });
        Ok(Some(records.filter(|record| self.filter.matches(record)).collect()))
    }
}

/// All records of a store with this record id, or of the message with this id.
///
/// # Errors
/// When the broker cannot list messages, cannot be reached, or refuses.
pub async fn find(store: &Store, id: &str) -> Result<Vec<FailedRecord>, OpsError> {
    let found = match store.handle.find(&store.place, id).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Some(Vec::new()),
        found => found?,
    };
    let found = found.ok_or_else(|| unlisted(store))?;
    Ok(found.into_iter().map(|item| FailedRecord { store: store.clone(), item }).collect())
}

pub(super) fn unlisted(store: &Store) -> OpsError {
    OpsError::Capability { transport: store.handle.name().clone(), power: "list messages" }
}
