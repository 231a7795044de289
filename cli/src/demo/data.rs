//! The records, and what comes out when they are simply counted.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The week's records, a JSON object a line.
const RECORDS: &str = include_str!("../../data/earthquakes.ndjson");

/// From here on a quake is on the alert list.
pub(super) const STRONG: f64 = 4.5;

/// One record: what the demo needs of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Quake {
    pub(super) id: String,
    pub(super) magnitude: f64,
    pub(super) place: String,
}

postroom::message!(Quake = "earthquake.recorded");

impl Quake {
    /// What stands after the last comma of its place, else all of it.
    pub(super) fn region(&self) -> &str {
        self.place.rsplit_once(", ").map_or(&self.place, |(_, region)| region)
    }
}

/// The lines, each with its record.
pub(super) fn records() -> impl Iterator<Item = (&'static str, Result<Quake, serde_json::Error>)> {
    RECORDS.lines().map(|line| (line, serde_json::from_str(line)))
}

/// The direct computation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Truth {
    /// All ids.
    pub(super) ids: BTreeSet<String>,
    /// Those of negative magnitude.
    pub(super) negative: BTreeSet<String>,
    /// Those of magnitude 4.5 or more.
    pub(super) strong: BTreeSet<String>,
    /// How many by region.
    pub(super) regions: BTreeMap<String, u64>,
}

impl Truth {
    /// Counts the records.
    pub(super) fn of(quakes: &[Quake]) -> Self {
        let mut truth = Self::default();
        for quake in quakes {
            truth.ids.insert(quake.id.clone());
            if quake.magnitude < 0.0 {
                truth.negative.insert(quake.id.clone());
            }
            if quake.magnitude >= STRONG {
                truth.strong.insert(quake.id.clone());
            }
            *truth.regions.entry(quake.region().to_string()).or_default() += 1;
        }
        truth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_week_has_1707_records_85_strong_and_44_negative() {
        let quakes: Vec<Quake> = records().map(|(_, quake)| quake.unwrap()).collect();
        let truth = Truth::of(&quakes);
        assert_eq!((quakes.len(), truth.ids.len()), (1_707, 1_707));
        assert_eq!((truth.strong.len(), truth.negative.len(), truth.regions.len()), (85, 44, 74));
    }
}
