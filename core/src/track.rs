//! What Postroom remembers of a message's earlier deliveries; it travels with the envelope.

use crate::{Place, Text, envelope::Timestamp};

/// How many past attempts an envelope carries at most; the oldest go first.
pub const MAX_HISTORY: usize = 16;
/// The longest error text kept for one attempt, in bytes.
pub const MAX_ERROR: usize = 8 * 1024;

/// Attempts, starts, done-marks, history and, once failed, why and from where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Track {
    /// Errored attempts so far (`postroom-attempts`).
    pub attempts: u32,
    /// Recorded starts in the suspects' lane (`postroom-starts`); 0 outside of it.
    pub starts: u32,
    /// How often it was replayed from a failure transport (`postroom-round`).
    pub round: u32,
    /// Names of the handlers that are done with it (`postroom-done`).
    pub done: Vec<Text>,
    /// The last errored attempts, oldest first, at most [`MAX_HISTORY`] (`postroom-history`).
    pub history: Vec<Attempt>,
    /// Set while it lies in a failure transport or in a suspects' lane: where it belongs (`postroom-origin`).
    pub origin: Option<Origin>,
    /// Set once it was given up (`postroom-failure`).
    pub failure: Option<Failure>,
}

/// Where a message belongs: a transport of the application, and the place that the transport reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Origin {
    /// The transport's name in the application that read it.
    pub transport: Text,
    /// The queue or group.
    pub place: Place,
}

impl Origin {
    /// A place of a transport.
    #[must_use]
    pub fn new(transport: impl Into<Text>, place: Place) -> Self {
        Self { transport: transport.into(), place }
    }
}

/// One errored attempt.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// When it ended.
    pub at: Timestamp,
    /// How it ended.
    pub kind: AttemptKind,
    /// The error's text, at most [`MAX_ERROR`] bytes.
    pub error: Text,
    /// The named handler that errored, where the type has several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub handler: Option<Text>,
}

impl Attempt {
    /// An attempt that ended at `at`; the text is cut at [`MAX_ERROR`] bytes.
    #[must_use]
    pub fn new(at: Timestamp, kind: AttemptKind, error: &str, handler: Option<Text>) -> Self {
        let mut end = error.len().min(MAX_ERROR);
        while !error.is_char_boundary(end) {
            end -= 1;
        }
        Self { at, kind, error: error.get(..end).unwrap_or_default().into(), handler }
    }
}

/// How an errored attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AttemptKind {
    /// The handler returned an error.
    Error,
    /// The handler took longer than its timeout.
    Timeout,
    /// The handler panicked.
    Panicked,
    /// The handler dropped the delivery without a result, for instance because its actor stopped.
    Dropped,
}

/// Why a message was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Reason {
    /// A handler said that no retry can help.
    Final,
    /// The retry budget is spent.
    Attempts,
    /// The body could not be decoded.
    Undecodable,
    /// No handler takes its type.
    Unhandled,
    /// It ended its worker's process again and again.
    Crashed,
    /// Its target is gone.
    Unroutable,
}

impl Reason {
    /// The reason's word, as in `failed list --reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::Attempts => "attempts",
            Self::Undecodable => "undecodable",
            Self::Unhandled => "unhandled",
            Self::Crashed => "crashed",
            Self::Unroutable => "unroutable",
        }
    }
}

/// A failed record's own metadata.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// The record's id: a hash of origin, group, message id, broker position and replay round, so storing it twice is
    /// idempotent and no two groups or sources overwrite each other.
    pub record: Text,
    /// Why it was given up.
    pub reason: Reason,
    /// The last error's kind, where a handler erred.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error_kind: Option<AttemptKind>,
    /// The last error's text.
    pub error: Text,
    /// When it was given up.
    pub at: Timestamp,
}

impl Failure {
    /// The record of a message given up at `at`.
    #[must_use]
    pub fn new(record: Text, reason: Reason, error: impl Into<Text>, at: Timestamp) -> Self {
        Self { record, reason, error_kind: None, error: error.into(), at }
    }
}

/// The id of a failed record; see [`Failure::record`]. `position` is the broker's own, empty where it has none.
#[must_use]
pub fn record_id(origin: &Origin, message_id: &str, position: &str, round: u32) -> Text {
    let mut hash = blake3::Hasher::new();
    let place = origin.place.to_string();
    for part in [
        origin.transport.as_bytes(),
        place.as_bytes(),
        message_id.as_bytes(),
        position.as_bytes(),
        &round.to_be_bytes(),
    ] {
        // Lengths keep ("ab", "c") and ("a", "bc") apart.
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut hex = hash.finalize().to_hex().to_string();
    hex.truncate(24);
    hex.into()
}
