//! The conformance suite that every Postroom broker must pass, ours or a stranger's.
//!
//! A broker under test is a [`Subject`]: a constructor, its shortest lease, and a few optional hooks. What it can do is
//! discovered, so a scenario that needs an absent power is reported as not applicable, with that power named. Every
//! scenario gets fresh names and a time limit of its own, and ends with a proof of the first promise: all it opened is
//! closed, every place is read to its end, and the ledger of what was sent, settled and found again must balance.
//!
//! The README shows how a broker runs it.
//!
//! In reading order:
//! - [`subject`]: what a broker hands in;
//! - [`scenario`]: what a scenario is, and the powers that it may need;
//! - [`report`]: what came of each;
//! - [`mod@run`]: runs them, side by side, each bounded;
//! - `support`: the world of one scenario: names, connections, readers, the ledger;
//! - `bare`: the scenarios of the bare contract, a file a subject;
//! - `actors`: the scenarios through the transport actor.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod actors;
mod bare;
pub mod report;
pub mod run;
pub mod scenario;
pub mod subject;
mod support;

pub use report::{Entry, Report, Verdict};
pub use run::{run, run_here};
pub use scenario::{Group, Level, Need};
pub use subject::{Foreign, Subject, Unreachable};
