//! The delivery protocol.
