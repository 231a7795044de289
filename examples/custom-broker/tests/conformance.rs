//! The suite, at both levels.

use std::{path::PathBuf, time::Duration};

use postroom_conformance::{Level, Subject, Unreachable, run};
use postroom_directory::{Config, Directory};

struct InADirectory(PathBuf);

impl Subject for InADirectory {
    type Broker = Directory;

    fn config(&self) -> Config {
        Config { root: self.0.clone() }
    }

    /// Without leases it is never asked for.
    fn lease(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// All scenarios share this thread, and files are read and written on it: a busy machine is given time.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn unreachable(&self) -> Option<Unreachable<Config>> {
        let named = "/dev/null/nowhere";
        Some(Unreachable { config: Config { root: named.into() }, named, secret: None })
    }
}

fn conforms(level: Level) {
    let folder = tempfile::tempdir().unwrap();
    let report = run(InADirectory(folder.path().join("mail")), level, "");
    println!("{report}");
    report.assert();
}

#[test]
fn at_the_bare_level() {
    conforms(Level::Bare);
}

#[test]
fn through_the_actors() {
    conforms(Level::Actors);
}
