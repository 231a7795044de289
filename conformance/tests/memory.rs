//! The suite on the memory broker.

#![allow(clippy::print_stdout, reason = "the report is what the test is for")]

use std::time::Duration;

use postroom_conformance::{Level, Subject, run};
use postroom_memory::{Memory, MemoryConfig};

/// It holds its config: with the last of config and connections a store of this broker is gone.
struct InMemory(MemoryConfig);

impl Subject for InMemory {
    type Broker = Memory;

    fn config(&self) -> MemoryConfig {
        self.0.clone()
    }
    fn lease(&self) -> Duration {
        Duration::from_millis(300)
    }
}

#[test]
fn memory_conforms_at_the_bare_level() {
    let report = run(InMemory(MemoryConfig::private()), Level::Bare, "");
    println!("{report}");
    report.assert();
}

#[test]
fn memory_conforms_through_the_actors() {
    let report = run(InMemory(MemoryConfig::private()), Level::Actors, "");
    println!("{report}");
    report.assert();
}
