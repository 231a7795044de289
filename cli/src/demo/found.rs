//! What the workers found, read from their files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::worker::{ALERTS, TOTALS};
use crate::exit::Failure;

/// What lies in the files of the folder.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The region of each record that was counted.
    pub(super) regions: BTreeMap<String, String>,
    /// The records on the alert list.
    pub(super) strong: BTreeSet<String>,
    /// Lines that were there already: runs that were repeated.
    pub(super) repeats: u64,
}

impl Found {
    /// Reads them.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let mut found = Self::default();
        for fields in lines(&folder.join(TOTALS))? {
            if let [id, region, ..] = fields.as_slice()
                && found.regions.insert(id.clone(), region.clone()).is_some()
            {
                found.repeats += 1;
            }
        }
        for fields in lines(&folder.join(ALERTS))? {
            found.strong.extend(fields.into_iter().next());
        }
        Ok(found)
    }

    /// How many by region.
    pub(super) fn totals(&self) -> BTreeMap<String, u64> {
        let mut totals = BTreeMap::new();
        for region in self.regions.values() {
            *totals.entry(region.clone()).or_default() += 1;
        }
        totals
    }
}

/// How many lines the totals have by now.
pub(super) fn progress(folder: &Path) -> usize {
    std::fs::read(folder.join(TOTALS)).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

fn lines(path: &Path) -> Result<Vec<Vec<String>>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().map(|line| line.split('\t').map(str::to_string).collect()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Failure::file("read", path, &error)),
    }
}
