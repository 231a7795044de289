//! The embedded broker: queues, topics and failure stores in one SQLite file, shared by threads and processes.
//!
//! In reading order:
//! - `config`: which file, and how durable;
//! - `schema`: the documented tables, and how a file gets them;
//! - `file`, `open`: one file in this process — its single writer, its readers, who waits for it;
//! - `work`, `writer`: every change is a work item; the writer runs them, several in one transaction where that saves a
//!   wait for the disk, and tries again where the file is busy;
//! - `readers`, `arrivals`: questions beside the writer, and who is told that messages came;
//! - `headers`, `row`, `pack`: an envelope as a row, and back;
//! - `places`, `publish`, `claim`, `settle`, `upkeep`: the work;
//! - `broker`, `source`, `powers`: the contract.

mod arrivals;
mod broker;
mod claim;
mod clock;
mod config;
mod error;
mod file;
mod headers;
mod open;
mod pack;
mod places;
#[cfg(test)]
mod plans;
mod powers;
mod publish;
mod readers;
mod row;
mod schema;
mod settle;
mod source;
mod upkeep;
mod work;
mod writer;

pub use broker::{Powers, Sqlite};
pub use config::{SqliteConfig, Sync};
pub use source::{SqliteSource, Token};
