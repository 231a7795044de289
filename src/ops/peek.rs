//! Looking at messages without taking them.

use postroom_core::{Browsed, ErrorKind, Place, State, Text};

use super::{OpsError, PAGE};
use crate::TransportHandle;

/// A walk through the messages of a transport, oldest first; its suspects' lane comes last.
#[derive(Debug)]
pub struct Peek {
    transport: TransportHandle,
    places: Vec<(Place, bool)>,
    state: Option<State>,
    after: Option<Text>,
}

/// Begins a walk, through one state or all.
///
/// # Errors
/// When the broker cannot list the groups of a topic.
pub async fn peek(transport: &TransportHandle, state: Option<State>) -> Result<Peek, OpsError> {
    let read = match transport.place() {
        Place::Topic(topic) => {
            let groups = super::groups::list(transport).await?;
            groups.into_iter().map(|(group, _)| Place::Group { topic: topic.clone(), group }).collect()
        }
        place => vec![place.clone()],
    };
    let lanes = read.iter().filter_map(Place::suspects).map(|lane| (lane, true));
    // Taken from the end.
    let mut places: Vec<(Place, bool)> = read.iter().cloned().map(|place| (place, false)).chain(lanes).collect();
    places.reverse();
    Ok(Peek { transport: transport.clone(), places, state, after: None })
}

impl Peek {
    /// The next messages, at most `max`, and the place where they lie; `None` after the last.
    ///
    /// # Errors
    /// When the broker cannot list messages, cannot be reached, or refuses.
    pub async fn next(&mut self, max: usize) -> Result<Option<(Place, Vec<Browsed>)>, OpsError> {
        loop {
            let Some((place, lane)) = self.places.last() else { return Ok(None) };
            let page = match self.transport.page(place, self.state, self.after.clone(), max.clamp(1, PAGE)).await {
                Err(error) if *lane && error.kind() == ErrorKind::NotFound => Some(postroom_core::Page::default()),
                page => page?,
            };
            let page = page.ok_or_else(|| OpsError::Capability {
                transport: self.transport.name().clone(),
                power: "list messages",
            })?;
            let place = place.clone();
            self.after = page.next;
            if self.after.is_none() {
                self.places.pop();
            }
            if !page.items.is_empty() {
                return Ok(Some((place, page.items)));
            }
        }
    }
}
