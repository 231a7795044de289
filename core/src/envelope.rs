//! A message on its way: bytes and metadata.

use std::{fmt, ops::Deref};

use bytes::Bytes;

use crate::{Text, TypeName, track::Track};

/// Milliseconds since 1970-01-01 UTC.
pub type Timestamp = i64;

/// The id of a message: chosen by the sender, kept over retries, failure and replay. Any non-empty text up to 512
/// bytes; Postroom itself makes UUIDs of version 7.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct MessageId(Text);

impl MessageId {
    /// The longest id, in bytes.
    pub const MAX: usize = 512;

    /// A new, unique id (UUID version 7, so ids sort by time).
    #[must_use]
    pub fn unique() -> Self {
        let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
        Self(Text::from(&*uuid::Uuid::now_v7().hyphenated().encode_lower(&mut buffer)))
    }

    /// An id chosen by the sender; `None` when it is empty or longer than [`MessageId::MAX`].
    #[must_use]
    pub fn new(id: impl Into<Text>) -> Option<Self> {
        let id = id.into();
        (!id.is_empty() && id.len() <= Self::MAX).then_some(Self(id))
    }

    /// The id as text.
    #[must_use]
    pub fn as_text(&self) -> &Text {
        &self.0
    }
}

impl Deref for MessageId {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// User headers: plain headers on every broker, kept as they came, over every hop. Values are bytes, because foreign
/// ones need not be UTF-8. Order is kept; a name may repeat.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Stamps(Vec<(Text, Bytes)>);

impl Stamps {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds one, keeping others of that name.
    pub fn push(&mut self, name: impl Into<Text>, value: impl Into<Bytes>) {
        self.0.push((name.into(), value.into()));
    }

    /// The first of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The first of that name, where it is UTF-8.
    #[must_use]
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Text, &Bytes)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Stamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, value)| (&**name, String::from_utf8_lossy(value)))).finish()
    }
}

/// A message's bytes and metadata, as a broker keeps it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Envelope {
    /// The message's id, kept over retries, failure and replay.
    pub id: MessageId,
    /// What the body is; a foreign message may have none.
    pub message_type: Option<TypeName>,
    /// The body's content type, as `application/json`; decides the codec.
    pub content_type: Option<Text>,
    /// The ordering or partition key.
    pub key: Option<Text>,
    /// When it was made, by its sender's clock.
    pub time: Option<Timestamp>,
    /// Who made it (CloudEvents `source`).
    pub source: Option<Text>,
    /// W3C trace context of the sender.
    pub traceparent: Option<Text>,
    /// The body, as it travels.
    pub body: Bytes,
    /// User headers.
    pub stamps: Stamps,
    /// What Postroom remembers of earlier deliveries; `None` for a message never retried nor failed.
    pub track: Option<Box<Track>>,
}

impl Envelope {
    /// An envelope with a unique id and nothing but a body.
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self::with_id(MessageId::unique(), body)
    }

    /// An envelope with an id and a body.
    #[must_use]
    pub fn with_id(id: MessageId, body: impl Into<Bytes>) -> Self {
        Self {
            id,
            message_type: None,
            content_type: None,
            key: None,
            time: None,
            source: None,
            traceparent: None,
            body: body.into(),
            stamps: Stamps::new(),
            track: None,
        }
    }

    /// Errored attempts so far: 0 for a fresh message.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.track.as_ref().map_or(0, |track| track.attempts)
    }

    /// The number of the run that a delivery of this envelope is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempts().saturating_add(1)
    }

    /// The track, made when there is none yet.
    pub fn track_mut(&mut self) -> &mut Track {
        self.track.get_or_insert_with(Box::default)
    }
}

/// Neither the body nor header values are shown: they may hold a user's secrets.
impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("id", &self.id)
            .field("type", &self.message_type)
            .field("key", &self.key)
            .field("attempts", &self.attempts())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}
