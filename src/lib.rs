//! Postroom: an actor-based message runtime on actix. Supervised actors own broker connections, hand messages to pools
//! of handlers, and settle every delivery once. The same application runs over every broker by changing one DSN.
//!
//! ```
//! use postroom::{HandlerOptions, Node, Received, open};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct OrderPlaced { id: u64 }
//! postroom::message!(OrderPlaced = "order.placed");
//!
//! # #[cfg(feature = "memory")]
//! #[actix::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let node = Node::builder()
//!         .transport(open("orders", "memory:?queue=orders")?)
//!         .handle(HandlerOptions::of::<OrderPlaced>("orders")?, |order: Received<OrderPlaced>| async move {
//!             println!("order {}", order.id);
//!             Ok::<(), std::io::Error>(())
//!         })
//!         .start()
//!         .await?;
//!     node.send("orders", &OrderPlaced { id: 7 }).await?;
//!     println!("{}", node.stop().await);
//!     Ok(())
//! }
//! # #[cfg(not(feature = "memory"))]
//! # fn main() {}
//! ```
//!
//! In reading order:
//! - [`Node`] and [`NodeBuilder`]: describe a node, start it, send, stop it;
//! - [`registry`]: from a DSN to a transport;
//! - [`TransportOptions`], [`HandlerOptions`], [`Received`], [`HandlerError`]: transports and handlers;
//! - [`ops`]: what operators ask: figures, failed records, groups;
//! - [`testing`]: a node for tests, which says when it is idle and what was sent, retried and failed;
//! - [`core`]: envelope, contract and protocol, for those who write a broker.

#[cfg(all(doctest, feature = "memory"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod ops;
pub mod registry;
#[cfg(feature = "memory")]
pub mod testing;

pub use postroom_actors::{
    Board, Counters, Draft, FailureRef, HandlerError, HandlerOptions, Health, Kind, Layer, Life, LocalFuture, Next,
    Node, NodeBuilder, Observed, Observer, Receipt, Received, RestartPolicy, Status, TransportHandle, TransportOptions,
    TransportSpec, TypePattern, guard, launcher,
};
pub use postroom_core::{
    self as core, Body, Capabilities, Counts, DeclareMode, Dsn, Envelope, ErrorKind, Message, MessageId, Name, Order,
    Outcome, Outgoing, Place, Raw, RetryPolicy, Stamps, Text, TransportError, TypeName, Unhandled, message,
    protocol::{Prefetch, Tally},
};
pub use registry::{Registry, open, open_store};
