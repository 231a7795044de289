//! What the tour tells, and its receipt.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use postroom::ops::FailedRecord;
use serde_json::json;

use super::{Worked, data::Truth};
use crate::{
    exit::Failure,
    output::Output,
    text::{cut, span},
};

/// The numbers of the tour.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Sent and confirmed.
    pub(super) sent: u64,
    /// In flight when the first worker was killed.
    pub(super) held: u64,
    /// Counted by then.
    pub(super) before: u64,
    /// Runs that were repeated after the kill.
    pub(super) repeats: u64,
    /// Distinct records counted before the repair.
    pub(super) counted: u64,
    /// Panics of the second worker.
    pub(super) panics: u64,
    /// In the failure transport before the repair.
    pub(super) failed: u64,
    /// They were the negative ones, each given up as final.
    pub(super) refused_right: bool,
    /// Sent back.
    pub(super) retried: u64,
    /// Handled by the repaired worker.
    pub(super) repaired: u64,
    /// Distinct records counted in the end.
    pub(super) handled: u64,
    /// On the alert list.
    pub(super) alerts: u64,
    /// The totals.
    pub(super) regions: BTreeMap<String, u64>,
    /// Every record, and no other, was counted.
    pub(super) same_ids: bool,
    /// The alert list is the right one.
    pub(super) same_alerts: bool,
    /// The workers stopped within their grace.
    pub(super) clean: bool,
    /// Left in the queue.
    pub(super) left: u64,
    /// Left in the failure transport.
    pub(super) still_failed: u64,
}

/// Tells the tour, a step at a time; silent under `--json`.
pub(super) struct Story {
    output: Output,
    folder: PathBuf,
}

impl Story {
    /// Begins.
    pub(super) fn new(output: Output, folder: &Path) -> Self {
        let story = Self { output, folder: folder.to_path_buf() };
        // Whether this can be written shows at the next line.
        let _ = story.tell(&[
            &output.bold("A week of earthquakes, through a queue in one SQLite file"),
            &format!("folder: {}", folder.display()),
        ]);
        story
    }

    fn tell(&self, lines: &[&str]) -> Result<(), Failure> {
        if self.output.json {
            return Ok(());
        }
        lines.iter().try_for_each(|line| self.output.line(line))
    }

    fn chapter(&self, title: &str, lines: &[String]) -> Result<(), Failure> {
        self.tell(&["", &self.output.bold(title)])?;
        lines.iter().try_for_each(|line| self.tell(&[&format!("   {line}")]))
    }

    pub(super) fn sent(&self, sent: u64, took: Duration) -> Result<(), Failure> {
        let took = span(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        self.chapter(
            "1. Send",
            &[
                format!(
                    "{} records of the US Geological Survey are in the queue `quakes`, each confirmed, in {took}.",
                    n(sent)
                ),
                "A worker process starts: 8 `totals` actors count by region, an `alerts` actor keeps the strong ones."
                    .into(),
            ],
        )
    }

    pub(super) fn killed(&self, pid: u32, counted: u64, held: u64) -> Result<(), Failure> {
        self.chapter(
            "2. A crash",
            &[
                format!("kill -9 {pid}: the worker process is gone, in the middle of its work."),
                format!("It had counted {} records, and held {} more that nobody works on now.", n(counted), n(held)),
                "A second worker starts. What the first one held comes to it when the leases of 1 s end.".into(),
            ],
        )
    }

    pub(super) fn second(&self, worked: &Worked, sums: &Sums) -> Result<(), Failure> {
        let repeats = match sums.repeats {
            0 => "No run was repeated.".to_string(),
            1 => "1 run was repeated: its record was counted, and not yet acked, when the kill came.".to_string(),
            more => format!("{} runs were repeated: counted, and not yet acked, when the kill came.", n(more)),
        };
        self.chapter(
            "3. The second worker",
            &[
                format!(
                    "It took {} deliveries: {} acked, {} retried, {} failed.",
                    n(worked.deliveries),
                    n(worked.acked),
                    n(worked.retried),
                    n(worked.failed)
                ),
                format!(
                    "A handler panicked at record {} (on purpose): its actor was restarted, the record ran again.",
                    super::worker::PANIC_AT + 1
                ),
                format!("{repeats} A repeat has the same id, so it counts once."),
            ],
        )
    }

    pub(super) fn failed(&self, failed: &[FailedRecord]) -> Result<(), Failure> {
        let mut lines =
            vec![format!("{} records were refused as final, and are kept in `quakes.failed`:", n(failed.len() as u64))];
        for record in failed.iter().take(3) {
            let failure = record.failure();
            let error = failure.map_or("", |failure| &failure.error);
            let reason = failure.map_or("", |failure| failure.reason.as_str());
            lines.push(format!("  {}  {reason}  {}", cut(&record.envelope().id, 20), cut(error, 60)));
        }
        if failed.len() > 3 {
            lines.push(format!("  and {} more; `postroom failed list` shows them all", n(failed.len() as u64 - 3)));
        }
        self.chapter("4. Failures are kept", &lines)
    }

    pub(super) fn repaired(&self, retried: u64, worked: &Worked) -> Result<(), Failure> {
        self.chapter(
            "5. Repair and replay",
            &[
                "A negative magnitude is no error: very small quakes have one. The rule is repaired.".into(),
                format!(
                    "{} records are sent back, with their ids and a fresh budget; a worker with the new rule acks {}.",
                    n(retried),
                    n(worked.acked)
                ),
            ],
        )
    }

    /// The receipt; answers whether all of its numbers are right.
    pub(super) fn receipt(&self, sums: &Sums, truth: &Truth, took: Duration) -> Result<bool, Failure> {
        let records = truth.ids.len() as u64;
        let checks = [
            ("sent, of the records in the file", sums.sent, records),
            ("counted before the repair", sums.counted, records - truth.negative.len() as u64),
            ("failed before the repair", sums.failed, truth.negative.len() as u64),
            ("retried", sums.retried, truth.negative.len() as u64),
            ("handled after the repair", sums.repaired, truth.negative.len() as u64),
            ("counted in the end", sums.handled, records),
            ("alerts of magnitude 4.5 or more", sums.alerts, truth.strong.len() as u64),
            ("regions", sums.regions.len() as u64, truth.regions.len() as u64),
            ("panics survived", sums.panics, 1),
            ("left in the queue", sums.left, 0),
            ("left in the failure transport", sums.still_failed, 0),
        ];
        let same_totals = sums.regions == truth.regions;
        let exact = [
            ("every record was counted, and no other", sums.same_ids),
            ("the totals of all regions are those of a direct computation", same_totals),
            ("the alert list is that of a direct computation", sums.same_alerts),
            ("the failed ones were the negative ones, each as `final`", sums.refused_right),
            ("no more runs were repeated than were in flight at the kill", sums.repeats <= sums.held),
            ("the workers stopped within their grace", sums.clean),
        ];
        let fine = checks.iter().all(|(_, found, wanted)| found == wanted) && exact.iter().all(|(_, fine)| *fine);
        if self.output.json {
            self.output.object(&json!({"demo": {
                "folder": self.folder.display().to_string(),
                "records": records,
                "sent": sums.sent,
                "counted_at_kill": sums.before,
                "in_flight_at_kill": sums.held,
                "repeats": sums.repeats,
                "panics": sums.panics,
                "failed": sums.failed,
                "retried": sums.retried,
                "handled": sums.handled,
                "alerts": sums.alerts,
                "regions": sums.regions,
                "matches": fine,
                "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            }}))?;
            return Ok(fine);
        }
        let mut most: Vec<(&String, &u64)> = sums.regions.iter().collect();
        most.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let most: Vec<String> = most.iter().take(5).map(|(region, count)| format!("{region} {}", n(**count))).collect();
        let mark = |fine: bool| if fine { "ok" } else { "WRONG" };
        let mut lines = vec![format!("most: {}", most.join(", "))];
        for (what, found, wanted) in checks {
            let wrong = if found == wanted { String::new() } else { format!(", but {} is right", n(wanted)) };
            lines.push(format!("{:>6}  {what:<36} {}{wrong}", n(found), mark(found == wanted)));
        }
        let sum = format!("{} + {} = {}", n(sums.counted), n(sums.repaired), n(sums.counted + sums.repaired));
        lines.push(format!("{sum}: counted, and handled after the repair, are all that was sent"));
        lines.extend(exact.iter().map(|(what, fine)| format!("{:<5} {what}", mark(*fine))));
        self.chapter("6. The receipt", &lines)?;
        let took = span(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let end = if fine { "All numbers are right" } else { "Some numbers are wrong" };
        self.tell(&[
            "",
            &format!(
                "{end}, after {took}. Look around: postroom stats -c {}",
                self.folder.join("postroom.toml").display()
            ),
        ])?;
        Ok(fine)
    }
}

/// `1,707`.
fn n(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands() {
        assert_eq!(
            ["0", "999", "1,000", "1,707", "1,234,567"],
            [0, 999, 1_000, 1_707, 1_234_567].map(super::n).each_ref().map(String::as_str)
        );
    }
}
