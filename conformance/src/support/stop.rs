//! How a scenario ends early.

use std::panic::Location;

use postroom_core::{NameError, TransportError};

/// Why a scenario ended before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The broker broke a rule.
    Failed(String),
}

impl Stop {
    #[track_caller]
    pub(crate) fn failed(why: impl std::fmt::Display) -> Self {
        let at = Location::caller();
        Self::Failed(format!("{why} ({}:{})", at.file(), at.line()))
    }
}

impl From<TransportError> for Stop {
    #[track_caller]
    fn from(error: TransportError) -> Self {
        Self::failed(format!("unexpected error: {error:?}"))
    }
}

impl From<NameError> for Stop {
    #[track_caller]
    fn from(error: NameError) -> Self {
        Self::failed(error)
    }
}

/// Ends the scenario with a failure unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::support::Stop::failed(format_args!($($why)+)));
        }
    };
}
pub(crate) use ensure;
