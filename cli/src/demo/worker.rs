//! The worker process of the demo: two pools of handler actors over the queue, until it is empty. What they find they
//! append to files, a line a record, so that a kill -9 takes nothing with it, and a repeat is told by its id.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use actix::{Actor, Context, Handler, ResponseFuture, Supervised};
use postroom::{HandlerError, HandlerOptions, Kind, Received};
use serde_json::json;

use super::data::{Quake, STRONG};
use crate::{
    commands::until,
    config::{NodeConfig, TransportConfig},
    exit::{Exit, Failure},
    nodes,
    output::Output,
};

/// The transport's name.
pub(super) const QUAKES: &str = "quakes";
/// What the totals found.
pub(super) const TOTALS: &str = "totals.tsv";
/// What the alerts found.
pub(super) const ALERTS: &str = "alerts.tsv";
/// The record that a handler panics at, in its first run: late, so that it is the second process's.
pub(super) const PANIC_AT: usize = 1_600;
/// So long a record takes, so that there is a middle to be killed in.
const WORK: Duration = Duration::from_millis(3);
/// Handlers at once.
const ACTORS: usize = 8;

/// The address of the queue in a folder.
pub(super) fn dsn(folder: &Path) -> Result<String, Failure> {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    crate::address::check("sqlite:quakes.db?queue=quakes&type=earthquake.recorded", &folder).map_err(Failure::failed)
}

/// The transport: short leases, so that what a dead worker held comes back soon.
pub(super) fn transport(folder: &Path) -> Result<TransportConfig, Failure> {
    let mut config = TransportConfig::of_dsn(&dsn(folder)?);
    config.lease = Some(Duration::from_secs(1));
    config.retry.delay = Duration::from_millis(100);
    Ok(config)
}

/// Counts by region; refuses negative magnitudes until the rule is repaired.
struct Totals {
    folder: PathBuf,
    file: Option<File>,
    repaired: bool,
    panic_at: String,
    regions: BTreeMap<String, u64>,
}

impl Actor for Totals {
    type Context = Context<Self>;
}

impl Supervised for Totals {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.regions.clear();
    }
}

impl Handler<Received<Quake>> for Totals {
    type Result = ResponseFuture<Result<(), HandlerError>>;

    fn handle(&mut self, quake: Received<Quake>, _: &mut Self::Context) -> Self::Result {
        if quake.attempt() == 1 && quake.id == self.panic_at {
            // On purpose: the actor dies here, is restarted, and the record runs again.
            std::panic::panic_any(format!("a bug in the handler of {}", quake.id));
        }
        if quake.magnitude < 0.0 && !self.repaired {
            let refused = HandlerError::fail(format!("the magnitude {} is negative", quake.magnitude));
            return Box::pin(async move { Err(refused) });
        }
        let written = append(&mut self.file, &self.folder.join(TOTALS), &[&quake.id, quake.region()]);
        *self.regions.entry(quake.region().to_string()).or_default() += 1;
        Box::pin(async move {
            tokio::time::sleep(WORK).await;
            Ok(written?)
        })
    }
}

/// Keeps the list of the strong ones.
struct Alerts {
    folder: PathBuf,
    file: Option<File>,
}

impl Actor for Alerts {
    type Context = Context<Self>;
}

impl Supervised for Alerts {}

impl Handler<Received<Quake>> for Alerts {
    type Result = Result<(), HandlerError>;

    fn handle(&mut self, quake: Received<Quake>, _: &mut Self::Context) -> Self::Result {
        if quake.magnitude >= STRONG {
            let magnitude = quake.magnitude.to_string();
            append(&mut self.file, &self.folder.join(ALERTS), &[&quake.id, &magnitude, &quake.place])?;
        }
        Ok(())
    }
}

/// One line in one write: it is there whole, or not at all.
fn append(file: &mut Option<File>, path: &Path, fields: &[&str]) -> std::io::Result<()> {
    let mut open = match file.take() {
        Some(open) => open,
        None => OpenOptions::new().append(true).create(true).open(path)?,
    };
    open.write_all(format!("{}\n", fields.join("\t")).as_bytes())?;
    *file = Some(open);
    Ok(())
}

/// Works until the queue is empty, then prints its receipt and its panics as JSON.
pub(crate) async fn work(folder: &Path, repaired: bool) -> Result<Exit, Failure> {
    // The parent's end is this one's too.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(i32::from(Exit::Failed.code()));
    });
    // The story tells of the panic; the default hook would print it in the middle.
    std::panic::set_hook(Box::new(|_| {}));
    let node_config = NodeConfig { name: Some("demo-worker".into()), ..NodeConfig::default() };
    let panic_at = super::data::records().nth(PANIC_AT).and_then(|(_, quake)| quake.ok()).map(|quake| quake.id);
    let panic_at = panic_at.unwrap_or_default();
    let named = |name: &str| HandlerOptions::of::<Quake>(QUAKES).map(|options| options.name(name.to_string()));
    let wrong = |error: postroom::core::NameError| Failure::failed(error.to_string());
    let (totals, alerts) = (folder.to_path_buf(), folder.to_path_buf());
    let node = nodes::builder(&node_config)
        .transport(nodes::transport(QUAKES, &transport(folder)?, &node_config)?)
        .actor::<Totals, Quake>(named("totals").map_err(wrong)?.concurrency(ACTORS), move || Totals {
            folder: totals.clone(),
            file: None,
            repaired,
            panic_at: panic_at.clone(),
            regions: BTreeMap::new(),
        })
        .actor::<Alerts, Quake>(named("alerts").map_err(wrong)?, move || Alerts { folder: alerts.clone(), file: None })
        .start()
        .await?;
    let quiet = Output { json: true, color: false };
    until::empty(&node, quiet, &[QUAKES.to_string()]).await.map_err(Failure::failed)?;
    // The board looks at the pools every now and then.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let lines = node.board().lines();
    let panics: usize = lines.iter().filter(|line| line.kind == Kind::Pool).map(|line| line.part.panics).sum();
    let receipt = node.stop().await;
    quiet.object(&json!({
        "deliveries": receipt.deliveries,
        "acked": receipt.acked,
        "retried": receipt.retried,
        "failed": receipt.failed,
        "panics": panics,
        "clean": receipt.is_clean(),
    }))?;
    Ok(Exit::Done)
}
