//! How the program ends: exit codes, their precedence, and errors with a kind.

use std::fmt;

use postroom_core::{ErrorKind, TransportError};

/// An exit code with its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The work failed, or a part of it.
    Failed = 1,
    /// Usage or configuration: nothing was touched.
    Usage = 2,
    /// A broker could not be reached, or refused.
    Broker = 3,
    /// Stopped past the grace.
    Abandoned = 4,
    /// An id or a transport that does not exist.
    NotFound = 5,
}

impl Exit {
    /// The code.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// Where two apply, the earlier in 2, 3, 4, 1, 5 wins.
    pub(crate) fn and(self, other: Self) -> Self {
        let rank = |exit: Self| match exit {
            Self::Usage => 0,
            Self::Broker => 1,
            Self::Abandoned => 2,
            Self::Failed => 3,
            Self::NotFound => 4,
            Self::Done => 5,
        };
        if rank(other) < rank(self) { other } else { self }
    }
}

/// The exit that an error of a transport leads to.
pub(crate) fn of_kind(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::Connection | ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::Refused => Exit::Broker,
        ErrorKind::Config => Exit::Usage,
        ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::Failed,
    }
}

/// An error that ends a command, or one item of it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The kind's word in `{"error":{"kind"}}`.
    pub(crate) kind: &'static str,
    /// What happened, to what, what to do next.
    pub(crate) message: String,
    /// Its exit code.
    pub(crate) exit: Exit,
}

impl Failure {
    /// An error with its exit code.
    pub(crate) fn new(kind: &'static str, exit: Exit, message: impl Into<String>) -> Self {
        Self { kind, exit, message: message.into() }
    }

    /// A mistake in the command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("usage", Exit::Usage, message)
    }

    /// A mistake in the configuration.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new("config", Exit::Usage, message)
    }

    /// A power that the broker does not have.
    pub(crate) fn capability(message: impl Into<String>) -> Self {
        Self::new("capability", Exit::Usage, message)
    }

    /// Something that does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new("not_found", Exit::NotFound, message)
    }

    /// Work that failed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new("failed", Exit::Failed, message)
    }

    /// A file that could not be read or written.
    pub(crate) fn file(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::new("file", Exit::Usage, format!("could not {what} {}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The message of an error with its causes, joined by `: `; a cause that the text already holds is left out.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = next.source();
    }
    text
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        Self::new(error.kind().as_str(), of_kind(error.kind()), with_causes(&error))
    }
}

impl From<std::io::Error> for Failure {
    /// Answers could not be written: the reader of a pipe went away, or the disk is full.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new("closed", Exit::Done, "the reader of the answer went away");
        }
        Self::new("output", Exit::Failed, format!("could not write the answer: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_in_2_3_4_1_5_wins() {
        let order = [Exit::Usage, Exit::Broker, Exit::Abandoned, Exit::Failed, Exit::NotFound, Exit::Done];
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                assert_eq!(a.and(*b), order[i.min(j)]);
            }
        }
    }
}
