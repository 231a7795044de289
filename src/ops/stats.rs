//! How many messages there are.

use postroom_core::{Counts, ErrorKind, Place, Text, TransportError};

use super::{OpsError, PAGE, Store, groups};
use crate::TransportHandle;

/// The figures of a transport, or of one group of it. What the broker cannot say is `None`, never 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The transport.
    pub transport: Text,
    /// The group, where the transport reads a topic.
    pub group: Option<Text>,
    /// Ready to be delivered; on a failure transport, its contents.
    pub waiting: Option<u64>,
    /// Delivered and not settled.
    pub in_flight: Option<u64>,
    /// Not due yet.
    pub delayed: Option<u64>,
    /// In the failure transport, and from here; `None` also where there is no failure transport.
    pub failed: Option<u64>,
    /// The age of the oldest waiting message.
    pub oldest_waiting_ms: Option<u64>,
    /// Whether the figures are exact.
    pub exact: bool,
}

impl Stats {
    /// Waiting, in flight and delayed together, as far as the broker can say; and the names of what it cannot say.
    #[must_use]
    pub fn backlog(&self) -> (u64, Vec<&'static str>) {
        let parts = [("waiting", self.waiting), ("in_flight", self.in_flight), ("delayed", self.delayed)];
        let sum = parts.iter().filter_map(|(_, figure)| *figure).sum();
        (sum, parts.iter().filter(|(_, figure)| figure.is_none()).map(|(name, _)| *name).collect())
    }
}

/// The figures of a transport: one line, or for a topic one for each group. `store` is where its failed messages lie;
/// `None` leaves `failed` out.
///
/// # Errors
/// When the broker cannot be reached, or refuses.
pub async fn stats(transport: &TransportHandle, store: Option<&Store>) -> Result<Vec<Stats>, OpsError> {
    let places = match transport.place() {
        Place::Topic(topic) => {
            let groups = groups::list(transport).await?;
            groups.into_iter().map(|(group, _)| Place::Group { topic: topic.clone(), group }).collect()
        }
        place => vec![place.clone()],
    };
    let mut all = Vec::new();
    for place in places {
        let counts = counts(transport, &place).await?;
        let failed = match store {
            Some(store) => failed(store, transport.name(), &place).await?,
            None => None,
        };
        all.push(Stats {
            transport: transport.name().clone(),
            group: place.group_name().map(|group| Text::from(group.as_str())),
            waiting: counts.waiting,
            in_flight: counts.in_flight,
            delayed: counts.delayed,
            failed,
            oldest_waiting_ms: counts.oldest_waiting_ms,
            exact: counts.exact,
        });
    }
    Ok(all)
}

/// The figures of a place and of its suspects' lane together.
pub(super) async fn counts(transport: &TransportHandle, place: &Place) -> Result<Counts, TransportError> {
    let mut sum = transport.count(place).await?.unwrap_or_default();
    let Some(lane) = place.suspects() else { return Ok(sum) };
    let more = match transport.count(&lane).await {
        Ok(Some(more)) => more,
        Ok(None) => return Ok(sum),
        // Nobody runs here yet.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unroutable) => return Ok(sum),
        Err(error) => return Err(error),
    };
    let add = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
    sum.waiting = add(sum.waiting, more.waiting);
    sum.in_flight = add(sum.in_flight, more.in_flight);
    sum.delayed = add(sum.delayed, more.delayed);
    sum.oldest_waiting_ms = sum.oldest_waiting_ms.max(more.oldest_waiting_ms);
    sum.exact &= more.exact;
    Ok(sum)
}

/// What a store holds that came from a place. All of it is read, unless it is empty.
async fn failed(store: &Store, transport: &str, place: &Place) -> Result<Option<u64>, OpsError> {
    let total = match store.handle.count(&store.place).await {
        Ok(counts) => counts.and_then(|counts| counts.waiting),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(0)),
        Err(error) => return Err(error.into()),
    };
    if total == Some(0) {
        return Ok(Some(0));
    }
    let (mut found, mut after) = (0, None);
    loop {
        let Some(page) = store.handle.page(&store.place, None, after.clone(), PAGE).await? else { return Ok(None) };
        found += page.items.iter().filter(|item| store.is_from(item, transport, place)).count() as u64;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(Some(found)),
        }
    }
}
