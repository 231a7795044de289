//! The commands, one a file.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod failed;
pub(crate) mod group;
pub(crate) mod init;
pub(crate) mod input;
pub(crate) mod moving;
pub(crate) mod peek;
pub(crate) mod records;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod setup;
pub(crate) mod signals;
pub(crate) mod stats;
pub(crate) mod until;
