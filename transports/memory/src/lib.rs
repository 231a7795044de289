//! The in-process broker: the executable reference of the contract, and the fastest.
//!
//! In reading order:
//! - `config`: which store a connection means, and how long that store lives;
//! - `lane`: what one queue, group or store holds, and every change of a message's state;
//! - `store`: the places of one instance, and the way from a place to its lanes;
//! - `broker`, `source`, `powers`: the contract, each call one lock.

mod broker;
mod config;
mod lane;
mod powers;
mod source;
mod store;

pub use broker::{Memory, Powers};
pub use config::MemoryConfig;
pub use source::{MemorySource, Token};
