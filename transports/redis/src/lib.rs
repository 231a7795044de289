//! Redis Streams as a broker of Postroom: a stream a queue or topic, a consumer group a group.
//!
//! In reading order:
//! - `config`: DSN and addresses;
//! - `lane`: the keys of a place, and the rule by which names map to them;
//! - `entry`: an envelope as a stream entry, and back;
//! - `link`: one connection: scripts, replies, errors;
//! - `broker`, `publish`, `source`, `powers`: the contract; what changes more than one thing is one script (`lua/`),
//!   batched and atomic.

mod broker;
mod config;
mod entry;
mod lane;
mod link;
mod powers;
mod publish;
mod source;

pub use broker::{Powers, Redis};
pub use config::RedisConfig;
pub use source::{RedisSource, Token};
