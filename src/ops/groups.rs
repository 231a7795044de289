//! The groups of a topic.

use postroom_core::{ErrorKind, Name, Place, TransportError};

use super::OpsError;
use crate::TransportHandle;

/// The declared groups of a transport's topic, with their waiting messages where the broker knows.
///
/// # Errors
/// When the transport reads no topic, the broker has no groups, or cannot be reached.
pub async fn list(transport: &TransportHandle) -> Result<Vec<(Name, Option<u64>)>, OpsError> {
    transport.groups(topic(transport)?).await?.ok_or_else(|| none(transport))
}

/// Removes a group and its messages; answers whether it was there.
///
/// # Errors
/// As [`list`].
pub async fn remove(transport: &TransportHandle, group: &Name) -> Result<bool, OpsError> {
    transport.remove_group(topic(transport)?, group).await?.ok_or_else(|| none(transport))
}

fn topic(transport: &TransportHandle) -> Result<&Name, OpsError> {
    match transport.place() {
        Place::Topic(topic) | Place::Group { topic, .. } => Ok(topic),
        place => {
            let text = format!("transport `{}` is the {place}; only a topic has groups", transport.name());
            Err(TransportError::new(ErrorKind::Config, text).into())
        }
    }
}

fn none(transport: &TransportHandle) -> OpsError {
    OpsError::Capability { transport: transport.name().clone(), power: "list or remove groups" }
}
