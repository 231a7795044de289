//! `postroom demo`: the tour. Real data, the embedded default, a crash, a failure, a replay, and a receipt whose numbers
//! are checked against a direct computation.
//!
//! - [`data`]: the records, and the direct computation;
//! - [`worker`]: the worker process and its handler actors; [`found`]: what it found;
//! - [`story`]: what people read; this file: what happens.

mod data;
mod found;
mod story;
pub(crate) mod worker;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use postroom::{
    Envelope, MessageId, Node, TransportHandle, TypeName,
    ops::{self, FailedRecord, Filter, Pace, Scan, Store},
};
use serde::Deserialize;
use tokio::process::{Child, Command};

use self::{
    data::{Quake, Truth},
    found::Found,
    story::{Story, Sums},
    worker::QUAKES,
};
use crate::{
    config::NodeConfig,
    exit::{Exit, Failure},
    nodes,
    output::{Output, progress::Progress},
};

/// The first worker is ended once it has counted so many records.
const MIDDLE: usize = 600;
/// No part of the tour takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a worker says at its end.
#[derive(Debug, Default, Deserialize)]
struct Worked {
    deliveries: u64,
    acked: u64,
    retried: u64,
    failed: u64,
    panics: u64,
    clean: bool,
}

/// The tour.
pub(crate) async fn demo(output: Output, folder: Option<&Path>) -> Result<Exit, Failure> {
    let began = Instant::now();
    let folder = prepare(folder)?;
    let story = Story::new(output, &folder);
    let mut quakes = Vec::new();
    let mut lines = Vec::new();
    for (line, quake) in data::records() {
        quakes.push(quake.map_err(|error| Failure::failed(format!("a record of the demo is broken: {error}")))?);
        lines.push(line);
    }
    let truth = Truth::of(&quakes);
    let config = NodeConfig { name: Some("demo".into()), ..NodeConfig::default() };
    let spec = nodes::transport(QUAKES, &worker::transport(&folder)?, &config)?;
    let node = nodes::builder(&config).fail_fast(true).transport(spec).start().await?;
    let result = tour(&node, output, &story, &folder, &quakes, &lines, &truth).await;
    node.stop_within(Duration::from_secs(5)).await;
    let sums = result?;
    let fine = story.receipt(&sums, &truth, began.elapsed())?;
    Ok(if fine { Exit::Done } else { Exit::Failed })
}

async fn tour(
    node: &Node,
    output: Output,
    story: &Story,
    folder: &Path,
    quakes: &[Quake],
    lines: &[&str],
    truth: &Truth,
) -> Result<Sums, Failure> {
    let handle = node.transport(QUAKES).ok_or_else(|| Failure::failed("the demo's transport did not start"))?;
    let mut sums = Sums { sent: send(node, output, story, quakes, lines).await?, ..Sums::default() };

    let first = start(folder, false)?;
    (sums.held, sums.before) = kill(first, &handle, story, folder).await?;
    let second = finish(start(folder, false)?).await?;
    let found = Found::read(folder)?;
    sums.repeats = found.repeats;
    sums.counted = found.regions.len() as u64;
    sums.panics = second.panics;
    story.second(&second, &sums)?;

    let failed = failed(&handle).await?;
    sums.failed = failed.len() as u64;
    sums.refused_right = failed.iter().all(|record| truth.negative.contains(&*record.envelope().id))
        && failed.iter().all(|record| record.failure().is_some_and(|failure| failure.reason.as_str() == "final"));
    story.failed(&failed)?;

    let (own, mut pace) = (handle.clone(), Pace::new(None));
    for batch in failed.chunks(pace.batch()) {
        pace.wait(batch.len()).await;
        for result in ops::retry(batch, |_, _| Some(own.clone())).await {
            result?;
            sums.retried += 1;
        }
    }
    let third = finish(start(folder, true)?).await?;
    sums.repaired = third.acked;
    story.repaired(sums.retried, &third)?;

    let found = Found::read(folder)?;
    sums.handled = found.regions.len() as u64;
    sums.alerts = found.strong.len() as u64;
    sums.regions = found.totals();
    sums.same_ids = found.regions.keys().eq(truth.ids.iter());
    sums.same_alerts = found.strong == truth.strong;
    sums.clean = second.clean && third.clean;
    sums.left = left(&handle).await?;
    sums.still_failed = self::failed(&handle).await?.len() as u64;
    Ok(sums)
}

/// A new folder, or the given one, which has to be empty.
fn prepare(folder: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = match folder {
        Some(folder) => folder.to_path_buf(),
        None => std::env::temp_dir().join(format!("postroom-demo-{}-{}", std::process::id(), crate::text::now())),
    };
    std::fs::create_dir_all(&folder).map_err(|error| Failure::file("create", &folder, &error))?;
    let mut entries = std::fs::read_dir(&folder).map_err(|error| Failure::file("read", &folder, &error))?;
    if entries.next().is_some() {
        return Err(Failure::usage(format!("{} is not empty; name a new folder for the demo", folder.display())));
    }
    let config = folder.join("postroom.toml");
    let text = format!("[transports.{QUAKES}]\ndsn = \"sqlite:quakes.db?queue=quakes&type=earthquake.recorded\"\n");
    std::fs::write(&config, text).map_err(|error| Failure::file("write", &config, &error))?;
    Ok(folder)
}

async fn send(node: &Node, output: Output, story: &Story, quakes: &[Quake], lines: &[&str]) -> Result<u64, Failure> {
    let kind = TypeName::new("earthquake.recorded").map_err(|error| Failure::failed(error.to_string()))?;
    let mut progress = Progress::new(output, "sent", Some(lines.len() as u64));
    let (mut sent, began) = (0, Instant::now());
    let all: Vec<(&Quake, &str)> = quakes.iter().zip(lines.iter().copied()).collect();
    for batch in all.chunks(256) {
        let envelopes = batch.iter().map(|(quake, line)| {
            let id = MessageId::new(quake.id.as_str()).unwrap_or_else(MessageId::unique);
            let mut envelope = Envelope::with_id(id, line.as_bytes().to_vec());
            envelope.message_type = Some(kind.clone());
            (envelope, Duration::ZERO)
        });
        for result in node.send_all(QUAKES, envelopes.collect()).await? {
            result?;
            sent += 1;
        }
        progress.set(sent);
    }
    progress.finish();
    story.sent(sent, began.elapsed())?;
    Ok(sent)
}

/// Starts a worker process: this program again.
fn start(folder: &Path, repaired: bool) -> Result<Child, Failure> {
    let program =
        std::env::current_exe().map_err(|error| Failure::failed(format!("could not find this program: {error}")))?;
    let mut command = Command::new(program);
    command.args(["__demo-worker", "--log", "off"]).args(repaired.then_some("--repaired")).arg(folder);
    // Its input is a leash: it ends when this process does.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    command.spawn().map_err(|error| Failure::failed(format!("could not start a worker process: {error}")))
}

/// Ends a worker with kill -9 in the middle; answers what it held, and what it had counted.
async fn kill(
    mut worker: Child,
    handle: &TransportHandle,
    story: &Story,
    folder: &Path,
) -> Result<(u64, u64), Failure> {
    let pid = worker.id().unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    while found::progress(folder) < MIDDLE {
        if Instant::now() > deadline {
            return Err(Failure::failed("the worker process did not get on; see what else runs on this machine"));
        }
        if let Ok(Some(status)) = worker.try_wait() {
            return Err(Failure::failed(format!("the worker process ended too soon: {status}")));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    worker.kill().await.map_err(|error| Failure::failed(format!("could not kill the worker process: {error}")))?;
    let counted = found::progress(folder) as u64;
    let held = ops::stats(handle, None).await?.iter().filter_map(|stats| stats.in_flight).sum();
    story.killed(pid, counted, held)?;
    Ok((held, counted))
}

/// Waits for a worker's own end and reads what it says.
async fn finish(worker: Child) -> Result<Worked, Failure> {
    // `wait_with_output` would close the leash.
    let mut worker = worker;
    let leash = worker.stdin.take();
    let done = tokio::time::timeout(PATIENCE, worker.wait_with_output()).await;
    drop(leash);
    let ended =
        done.map_err(|_| Failure::failed("the worker process did not end; see what else runs on this machine"))?;
    let ended = ended.map_err(|error| Failure::failed(format!("could not wait for the worker process: {error}")))?;
    if !ended.status.success() {
        return Err(Failure::failed(format!("the worker process ended with {}", ended.status)));
    }
    let last = String::from_utf8_lossy(&ended.stdout).lines().last().unwrap_or_default().to_string();
    serde_json::from_str(&last).map_err(|error| Failure::failed(format!("the worker process gave no receipt: {error}")))
}

/// All failed records of the queue.
async fn failed(handle: &TransportHandle) -> Result<Vec<FailedRecord>, Failure> {
    let mut scan = Scan::new(Store::of(handle, |_| None)?, Filter::default());
    let mut all = Vec::new();
    while let Some(page) = scan.next().await? {
        all.extend(page);
    }
    Ok(all)
}

/// What is left in the queue.
async fn left(handle: &TransportHandle) -> Result<u64, Failure> {
    Ok(ops::stats(handle, None).await?.iter().map(|stats| stats.backlog().0).sum())
}
