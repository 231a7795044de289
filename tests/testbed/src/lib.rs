//! Private native brokers for tests: each in a temporary folder of its own on a free port, several at once, ended when
//! dropped, also after a panic. Nothing but a process that this crate started is ever signalled.
//!
//! A server that is not installed is a panic that names the package, never a test that passes unseen.
//!
//! - [`process`]: a server's process: start, signals, logs, end;
//! - [`redis`]: Redis. Further brokers are further modules.

#[cfg(not(unix))]
compile_error!("the testbed starts and signals native servers: it needs a Unix");

pub mod process;
pub mod redis;

pub use redis::{Appendfsync, Redis};
