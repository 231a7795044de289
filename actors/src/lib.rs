//! The actix half of Postroom: supervised actors that run the delivery protocol of `postroom-core`. Knows no broker.
//!
//! In reading order:
//! - [`guardian`]: real supervision, under everything else;
//! - [`options`], [`handler`]: what a user says of a transport and of a handler;
//! - [`builder`], [`node`]: describe a node, start it, hold it;
//! - [`transport`]: the actor that owns a broker connection, its registry and its buffers;
//! - `consumer`, `route`, `queue`: permit, pull, hand to the pools;
//! - `pool`, `slot`, `function`, `actor`: threads, slots, and what runs in them;
//! - `gate`: what these threads share, and a delivery on its way;
//! - `stop`, [`receipt`]: the one shutdown path, and its answer;
//! - [`board`], [`layer`]: what can be seen, and hooked into.

mod actor;
pub mod board;
pub mod builder;
mod clock;
mod consumer;
mod function;
mod gate;
pub mod guardian;
pub mod handler;
pub mod layer;
pub mod node;
pub mod options;
mod pool;
mod queue;
pub mod receipt;
mod route;
mod slot;
mod stop;
pub mod transport;

pub use board::{Board, Counters, Health, Kind, Status};
pub use builder::{NodeBuilder, TransportSpec};
pub use guardian::{Life, RestartPolicy, guard};
pub use handler::{HandlerError, HandlerOptions, Received, TypePattern};
pub use layer::{Layer, LocalFuture, Next, Observed, Observer};
pub use node::{Draft, Node};
pub use options::{FailureRef, TransportOptions};
pub use receipt::Receipt;
pub use transport::{Launch, Launched, Launcher, TransportHandle, launcher};
