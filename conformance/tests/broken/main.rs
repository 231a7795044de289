//! The suite itself is tested: a broker with one planted fault fails where it should, and nowhere else.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod broker;
mod expected;
mod fault;
mod powers;
mod source;

use std::{sync::Mutex, time::Duration};

use broker::{Broken, BrokenConfig};
use expected::{ACTORS, BARE};
use fault::Fault;
use postroom_conformance::{Level, Report, Subject, Unreachable, Verdict, run};
use postroom_memory::{Memory, MemoryConfig};

struct Planted {
    fault: Fault,
    store: MemoryConfig,
}

impl Planted {
    fn broken(&self, nowhere: bool) -> BrokenConfig<MemoryConfig> {
        BrokenConfig { inner: self.store.clone(), fault: self.fault, nowhere }
    }
}

impl Subject for Planted {
    type Broker = Broken<Memory>;

    fn config(&self) -> BrokenConfig<MemoryConfig> {
        self.broken(false)
    }
    fn lease(&self) -> Duration {
        Duration::from_millis(500)
    }
    fn patience(&self) -> Duration {
        Duration::from_secs(4)
    }
    fn backlog(&self) -> usize {
        1_000
    }
    fn limit(&self) -> Duration {
        Duration::from_secs(if self.fault == Fault::Hangs { 1 } else { 30 })
    }
    fn unreachable(&self) -> Option<Unreachable<BrokenConfig<MemoryConfig>>> {
        Some(Unreachable { config: self.broken(true), named: "nowhere.example:1", secret: Some("hunter2") })
    }
}

fn with(fault: Fault, level: Level) -> Report {
    run(Planted { fault, store: MemoryConfig::private() }, level, "")
}

/// A fault, the scenarios that must find it, and what else may: groups or scenarios.
type Expected = (Fault, &'static [&'static str], &'static [&'static str]);

/// Every one of `must` fails, and nothing outside of `must` and `may`.
fn judge(level: Level, (fault, must, may): Expected) -> Result<(), String> {
    let report = with(fault, level);
    let failed: Vec<String> = report.failed().map(|entry| format!("{}::{}", entry.group, entry.name)).collect();
    let unnoticed: Vec<_> = must.iter().filter(|name| !failed.iter().any(|failed| failed == *name)).collect();
    let allowed =
        |failed: &str| must.iter().chain(may).any(|name| failed == *name || failed.split("::").next() == Some(*name));
    let astray: Vec<_> = failed.iter().filter(|failed| !allowed(failed)).collect();
    if unnoticed.is_empty() && astray.is_empty() {
        return Ok(());
    }
    Err(format!("{fault:?} went unnoticed by {unnoticed:?} and failed elsewhere {astray:?}\n{report}"))
}

/// They mostly wait, so many run at once.
const SIDE_BY_SIDE: usize = 5;

#[test]
fn each_fault_fails_where_it_should_and_nowhere_else() {
    all_of(Level::Bare, BARE);
}

#[test]
fn each_fault_fails_where_it_should_through_the_actors() {
    all_of(Level::Actors, ACTORS);
}

fn all_of(level: Level, expected: &[Expected]) {
    let left = Mutex::new(expected.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    let Some(expected) = left.lock().unwrap().next() else { return };
                    if let Err(why) = judge(level, *expected) {
                        wrong.lock().unwrap().push(why);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_wrapper_itself_conforms() {
    with(Fault::None, Level::Bare).assert();
    with(Fault::None, Level::Actors).assert();
}

#[test]
fn what_hangs_or_panics_is_bounded() {
    for (fault, why) in [(Fault::Hangs, "timed out after 1s"), (Fault::Panics, "panicked: a bug in a driver")] {
        let report = run(Planted { fault, store: MemoryConfig::private() }, Level::Bare, "settling::acked");
        assert_eq!(report.failed().count(), 1);
        for entry in report.failed() {
            assert_eq!(entry.verdict, Verdict::Failed(why.to_owned()));
        }
    }
}
