//! The suite on the memory broker.

use std::time::Duration;

use postroom_conformance::{Level, Subject, run};
use postroom_memory::{Memory, MemoryConfig};

struct InMemory(&'static str);

impl Subject for InMemory {
    type Broker = Memory;

    fn config(&self) -> MemoryConfig {
        MemoryConfig::new(self.0)
    }
    fn lease(&self) -> Duration {
        Duration::from_millis(300)
    }
}

#[test]
fn memory_conforms_at_the_bare_level() {
    let report = run(InMemory("conformance-bare"), Level::Bare, "");
    println!("{report}");
    report.assert();
}
