//! What came of each scenario.

use std::{fmt, time::Duration};

use crate::{Group, Level, Need};

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The broker and its server's version.
    pub broker: String,
    /// The level.
    pub level: Level,
    /// A line a scenario, by group and name.
    pub entries: Vec<Entry>,
}

/// What came of one scenario.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its group.
    pub group: Group,
    /// Its name within the group.
    pub name: &'static str,
    /// What it proves.
    pub proves: &'static str,
    /// What came of it.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

/// Whether a scenario passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed, and why.
    Failed(String),
    /// The broker lacks a power that it needs.
    NotApplicable(Need),
}

impl Report {
    /// The scenarios that passed.
    pub fn passed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.verdict == Verdict::Passed)
    }

    /// The scenarios that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| matches!(entry.verdict, Verdict::Failed(_)))
    }

    /// The scenarios that do not apply to this broker.
    pub fn not_applicable(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| matches!(entry.verdict, Verdict::NotApplicable(_)))
    }

    /// Ends a test.
    ///
    /// # Panics
    /// When a scenario failed, or when none ran.
    pub fn assert(&self) {
        assert!(self.failed().next().is_none(), "the broker does not conform\n{self}");
        assert!(self.passed().next().is_some(), "no scenario ran: does the filter match any?\n{self}");
    }
}

/// A line a scenario, and a sum.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conformance of {}, {} level", self.broker, self.level)?;
        for entry in &self.entries {
            let Entry { group, name, proves, took, .. } = entry;
            match &entry.verdict {
                Verdict::Passed => writeln!(f, "  passed  {group}::{name} ({} ms): {proves}", took.as_millis())?,
                Verdict::Failed(why) => {
                    writeln!(f, "  FAILED  {group}::{name} ({} ms): {proves}\n          {why}", took.as_millis())?;
                }
                Verdict::NotApplicable(need) => {
                    writeln!(f, "  n/a     {group}::{name}: {proves}; needs {need}")?;
                }
            }
        }
        write!(
            f,
            "{} passed, {} failed, {} not applicable",
            self.passed().count(),
            self.failed().count(),
            self.not_applicable().count()
        )
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bare => "bare",
            Self::Actors => "actors",
        })
    }
}
