//! Failures from the field, each a test named after its case, on every broker that this build has.
#![allow(missing_docs, unreachable_pub, reason = "tests")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic,
    reason = "tests"
)]

mod c35_several_handlers;
mod c37_bad_bytes;
mod c38_runs;
mod c39_panics;
mod c40_backpressure;
mod c42_stop;
mod harness;
mod order;
mod runtime;
