//! What the benches share: the record, the handlers, and a run of a memory pipeline.

pub mod pipeline;
pub mod record;
