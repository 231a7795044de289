//! What can go wrong, as few kinds that a caller can act on.

use std::{error::Error as StdError, fmt, sync::Arc};

type Cause = Arc<dyn StdError + Send + Sync>;

/// What a caller can do about a [`TransportError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The connection is broken or could not be made: reconnect, then try again.
    Connection,
    /// The broker answered, and cannot do it just now (busy, overloaded): try again later.
    Busy,
    /// The broker refused for good: rights, limits, a topology that differs.
    Refused,
    /// The message can reach no place: no such queue, or a topic without groups where one is required.
    Unroutable,
    /// The message is larger than the broker takes.
    TooLarge,
    /// No such place, record or group.
    NotFound,
    /// A DSN, name or option is wrong.
    Config,
    /// Bytes could not be encoded or decoded.
    Codec,
    /// The lease went to another owner, or its connection ended.
    LeaseLost,
    /// It did not end within its time; what came of it is unknown.
    Timeout,
    /// The transport was closed or stopped.
    Stopped,
}

impl ErrorKind {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn may_retry(self) -> bool {
        match self {
            Self::Connection | Self::Busy | Self::Timeout => true,
            Self::Refused
            | Self::Unroutable
            | Self::TooLarge
            | Self::NotFound
            | Self::Config
            | Self::Codec
            | Self::LeaseLost
            | Self::Stopped => false,
        }
    }

    /// The kind's word, as in the program's JSON errors.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::Unroutable => "unroutable",
            Self::TooLarge => "too_large",
            Self::NotFound => "not_found",
            Self::Config => "config",
            Self::Codec => "codec",
            Self::LeaseLost => "lease_lost",
            Self::Timeout => "timeout",
            Self::Stopped => "stopped",
        }
    }
}

/// An error of a broker or a transport: what happened, to what. The cause is kept as `source()` and not printed by
/// `Display`. Never holds a credential.
#[derive(Clone)]
pub struct TransportError {
    kind: ErrorKind,
    message: String,
    cause: Option<Cause>,
}

impl TransportError {
    /// An error of a kind; the message is lower case, names the value, has no full stop and no credential.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cause: None }
    }

    /// With its cause. The caller makes sure that the cause's text holds no credential.
    #[must_use]
    pub fn caused_by(mut self, cause: impl StdError + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Use after close.
    #[must_use]
    pub fn stopped() -> Self {
        Self::new(ErrorKind::Stopped, "the transport is stopped")
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.message)?;
        let mut cause = self.source();
        while let Some(e) = cause {
            write!(f, ": {e}")?;
            cause = e.source();
        }
        Ok(())
    }
}

impl StdError for TransportError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn StdError + 'static))
    }
}

impl From<crate::NameError> for TransportError {
    fn from(error: crate::NameError) -> Self {
        Self::new(ErrorKind::Config, error.to_string())
    }
}

/// Bytes that are not what their content type or their message type says.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(pub String);
