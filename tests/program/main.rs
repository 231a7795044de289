//! The `postroom` program from outside: what PROGRAM.md promises, each as a user or a script would see it.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod config;
mod demo;
mod exec;
mod failed;
mod http;
mod kill;
mod lines;
mod run;
mod send;
mod stop;
mod support;
