//! What is SQLite's own: several processes on one file, other programs, files that are none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod config;
mod crowd;
mod foreign;
mod locks;
mod opening;
mod places;
mod support;
