//! The world of one scenario. Everything a scenario sends and settles goes through it, so that the ledger knows.
//!
//! - [`World`]: fresh names, connections, and the proof at the end;
//! - [`Connection`]: one connection, tended in the background;
//! - [`Reader`]: one open subscription, whose pulls are bounded without being dropped;
//! - [`ledger`]: what was sent, settled and found again;
//! - [`drain`]: reads a place to its end;
//! - [`stop`]: how a scenario ends early.

mod connection;
mod drain;
pub(crate) mod ledger;
mod reader;
mod stop;
mod world;

pub(crate) use connection::Connection;
pub(crate) use reader::{Reader, again};
pub(crate) use stop::{Stop, ensure};
pub(crate) use world::World;

use std::time::Duration;

/// A lease that never ends within a scenario.
pub(crate) const LONG: Duration = Duration::from_secs(300);
