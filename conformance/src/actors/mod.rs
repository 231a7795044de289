//! The scenarios through the transport actor: real nodes, real pools, real handlers.
//!
//! - [`worker`]: a node with one transport and one scripted handler, and what its handlers saw;
//! - [`mortal`]: a broker whose process can die, whose connection can be cut, and whose answers can be lost;
//! - the scenarios, a file a subject.

mod failing;
mod leases;
mod mortal;
mod operating;
mod registry;
mod settling;
mod stopping;
mod suspects;
mod topics;
mod twice;
mod worker;

use crate::{Subject, scenario::Scenario};

/// All of them.
pub(crate) fn all<S: Subject>() -> Vec<Scenario<S>> {
    let mut all = settling::all();
    all.extend(twice::all());
    all.extend(registry::all());
    all.extend(stopping::all());
    all.extend(leases::all());
    all.extend(suspects::all());
    all.extend(topics::all());
    all.extend(failing::all());
    all.extend(operating::all());
    all
}
