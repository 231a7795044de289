//! The delivery protocol as pure state machines: no clock, no I/O, no randomness of their own.
//!
//! - [`ledger`]: the in-flight registry of a transport; every event of a delivery's life goes through its `step`;
//! - [`replace`]: the envelopes that a retry, a failure, the suspects' lane and a replay write;
//! - [`lanes`]: who waits for whom under `key` and `broker` order;
//! - [`prefetch`]: how many deliveries a subscription may hold.

pub mod lanes;
pub mod ledger;
pub mod prefetch;
pub mod replace;

pub use ledger::{Action, CopyTo, End, Event, Key, Ledger, SourceId, SourceRules, Tally};
pub use prefetch::{Permits, Prefetch};
