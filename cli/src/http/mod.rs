//! HTTP, both ways: [`handler`] posts messages, [`server`] tells how the node is.

pub(crate) mod handler;
pub(crate) mod server;
