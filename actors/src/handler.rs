//! What a handler receives and answers.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use postroom_core::{AttemptKind, Envelope, Message, NameError, Outcome, Text, TypeName};

use crate::gate::Gate;

/// A message in a handler's hands: dereferences to the message, and knows its envelope.
#[derive(Debug)]
pub struct Received<M> {
    pub(crate) message: M,
    pub(crate) envelope: Arc<Envelope>,
    pub(crate) gate: Arc<Gate>,
}

impl<M> Received<M> {
    /// The message alone.
    #[must_use]
    pub fn into_inner(self) -> M {
        self.message
    }

    /// Its envelope.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// The number of this run, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.envelope.attempt()
    }

    /// The name of the transport that it came from.
    #[must_use]
    pub fn transport(&self) -> &str {
        &self.gate.transport
    }

    /// Resolves when the node stops. From then on a retryable error gives the message back uncounted.
    pub async fn cancelled(&self) {
        let mut draining = self.gate.draining();
        // The sender lives in the gate that we hold.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    /// Whether the node is stopping.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.gate.is_draining()
    }
}

impl<M> Deref for Received<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.message
    }
}

impl<M: Message + Send> actix::Message for Received<M> {
    type Result = Result<M::Reply, HandlerError>;
}

/// How a handler errs. Any `std::error::Error` becomes a retryable one by `?`.
#[derive(Debug, Clone)]
pub struct HandlerError {
    text: Text,
    last: bool,
    after: Option<Duration>,
}

impl HandlerError {
    /// An error that may go away: the message runs again by the retry policy.
    #[must_use]
    pub fn retry(text: impl fmt::Display) -> Self {
        Self { text: text.to_string().into(), last: false, after: None }
    }

    /// An error that no retry can help: the message fails.
    #[must_use]
    pub fn fail(text: impl fmt::Display) -> Self {
        Self { text: text.to_string().into(), last: true, after: None }
    }

    /// Asks for this delay before the retry, in place of the policy's.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// The error's text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn outcome(self) -> Outcome {
        if self.last {
            Outcome::Final { error: self.text, handler: None }
        } else {
            Outcome::Errored { kind: AttemptKind::Error, error: self.text, after: self.after, handler: None }
        }
    }
}

impl<E: std::error::Error> From<E> for HandlerError {
    /// Retryable; the causes are part of the text.
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        Self { text: text.into(), last: false, after: None }
    }
}

/// Which messages a handler takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TypePattern {
    /// This type.
    Exact(TypeName),
    /// Every type that begins so; the empty prefix takes all, also messages without a type.
    Prefix(Text),
}

impl TypePattern {
    /// An exact type, or a prefix with a final `*`.
    ///
    /// # Errors
    /// When what stands before the `*`, or the whole, is no valid type name.
    pub fn new(pattern: &str) -> Result<Self, NameError> {
        match pattern.strip_suffix('*') {
            Some("") => Ok(Self::Prefix(Text::new())),
            Some(prefix) => TypeName::new(prefix).map(|prefix| Self::Prefix(prefix.as_str().into())),
            None => TypeName::new(pattern).map(Self::Exact),
        }
    }

    /// Whether a type is taken.
    #[must_use]
    pub fn matches(&self, message_type: Option<&TypeName>) -> bool {
        match (self, message_type) {
            (Self::Exact(name), Some(other)) => name == other,
            (Self::Exact(_), None) => false,
            (Self::Prefix(prefix), Some(other)) => other.starts_with(&**prefix),
            (Self::Prefix(prefix), None) => prefix.is_empty(),
        }
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// Where a handler's messages come from, and how it runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerOptions {
    /// The transport.
    pub from: Text,
    /// The types.
    pub pattern: TypePattern,
    /// Its name; required where a type has several handlers, which then run in the order of registration.
    pub name: Option<Text>,
    /// How many run at once, at least 1.
    pub concurrency: usize,
    /// The threads that they run on; by default as many as run at once, up to the cores. A handler that blocks its
    /// thread holds up the others on it.
    pub threads: Option<usize>,
    /// How long one run may take.
    pub timeout: Duration,
}

impl HandlerOptions {
    /// One at a time, a minute each.
    ///
    /// # Errors
    /// When the pattern is none; see [`TypePattern::new`].
    pub fn new(from: impl Into<Text>, pattern: &str) -> Result<Self, NameError> {
        Ok(Self::matching(from, TypePattern::new(pattern)?))
    }

    /// For a message type.
    ///
    /// # Errors
    /// When the type's name breaks a rule of [`TypeName`].
    pub fn of<M: Message>(from: impl Into<Text>) -> Result<Self, NameError> {
        Ok(Self::matching(from, TypePattern::Exact(TypeName::from_static(M::TYPE)?)))
    }

    fn matching(from: impl Into<Text>, pattern: TypePattern) -> Self {
        Self { from: from.into(), pattern, name: None, concurrency: 1, threads: None, timeout: Duration::from_secs(60) }
    }

    /// Names it.
    #[must_use]
    pub fn name(mut self, name: impl Into<Text>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How many run at once; 0 counts as 1.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// On how many threads; 0 counts as 1.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// How long one run may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}
