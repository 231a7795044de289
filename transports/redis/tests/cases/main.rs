//! Field cases on real servers, each test named after its case: see the contract's own scenarios in `conformance/`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic,
    reason = "tests"
)]

mod connections;
mod death;
mod harness;
mod logins;
mod streams;
