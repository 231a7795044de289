//! The optional powers, with one fault.

use std::{cell::Cell, rc::Rc};

use postroom_core::{Broker, Browse, Browsed, Count, Counts, Groups, Name, Page, Place, State, Text, TransportError};

use crate::{broker::mixed, fault::Fault};

/// Counts, with one fault.
pub struct BrokenCount<B: Broker> {
    /// Counts well.
    pub inner: Rc<B>,
    /// The fault.
    pub fault: Fault,
    /// The greatest age seen.
    pub oldest: Cell<Option<u64>>,
}

impl<B: Broker> Count for BrokenCount<B> {
    async fn count(&self, place: &Place) -> Result<Counts, TransportError> {
        let place = if self.fault == Fault::MixesNames { &mixed(place) } else { place };
        let mut counts = self.inner.count().unwrap().count(place).await?;
        match self.fault {
            Fault::CountsDelayedAsWaiting => {
                counts.waiting = Some(counts.waiting.unwrap_or(0) + counts.delayed.unwrap_or(0));
                counts.delayed = Some(0);
            }
            Fault::CountsNothingInFlight => counts.in_flight = Some(0),
            Fault::CountsAgeForEver => {
                self.oldest.set(self.oldest.get().max(counts.oldest_waiting_ms));
                counts.oldest_waiting_ms = self.oldest.get();
            }
            _ => {}
        }
        Ok(counts)
    }
}

/// Browses, with one fault.
pub struct BrokenBrowse<B: Broker> {
    /// Browses well.
    pub inner: Rc<B>,
    /// The fault.
    pub fault: Fault,
}

impl<B: Broker> Browse for BrokenBrowse<B> {
    async fn page(
        &self,
        place: &Place,
        state: Option<State>,
        after: Option<&Text>,
        max: usize,
    ) -> Result<Page, TransportError> {
        let place = if self.fault == Fault::MixesNames { &mixed(place) } else { place };
        let mut page = self.inner.browse().unwrap().page(place, state, after, max).await?;
        match self.fault {
            Fault::OnePage if page.next.is_some() && matches!(place, Place::Store(_)) && max > 100 => page.next = None,
            Fault::ShowsAllAsWaiting => page.items.iter_mut().for_each(|item| item.state = State::Waiting),
            _ => {}
        }
        Ok(page)
    }

    async fn find(&self, place: &Place, id: &str) -> Result<Vec<Browsed>, TransportError> {
        let mut found = self.inner.browse().unwrap().find(place, id).await?;
        if self.fault == Fault::FindsTheFirst {
            found.truncate(1);
        }
        Ok(found)
    }

    async fn remove(&self, place: &Place, handles: &[Text]) -> Result<Vec<bool>, TransportError> {
        if self.fault == Fault::RemovesNothing {
            return Ok(vec![true; handles.len()]);
        }
        self.inner.browse().unwrap().remove(place, handles).await
    }
}

/// Lists and removes groups, with one fault.
pub struct BrokenGroups<B: Broker> {
    /// Lists and removes well.
    pub inner: Rc<B>,
    /// The fault.
    pub fault: Fault,
}

impl<B: Broker> Groups for BrokenGroups<B> {
    async fn list(&self, topic: &Name) -> Result<Vec<(Name, Option<u64>)>, TransportError> {
        let mut groups = self.inner.groups().unwrap().list(topic).await?;
        if self.fault == Fault::ListsTooFew {
            groups.pop();
        }
        Ok(groups)
    }

    async fn remove(&self, topic: &Name, group: &Name) -> Result<bool, TransportError> {
        if self.fault == Fault::KeepsTheGroup {
            return Ok(true);
        }
        self.inner.groups().unwrap().remove(topic, group).await
    }
}
