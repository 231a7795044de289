//! `postroom run`.
//!
//! It ends by a signal, `--limit`, `--until-empty`, `--for`, or when no broker is left to work with; always through the
//! node's one stop. A second signal shortens the grace to 1 s. The last line is the receipt.

use std::time::Duration;

use postroom::{DeclareMode, ErrorKind, Health, Kind, Node, Receipt, Status};
use serde_json::json;

use super::{signals::Signals, until};
use crate::{
    args::{Cli, Run},
    config::{self, Config, HandlerConfig},
    exit::{Exit, Failure},
    http,
    nodes::{self, Processes},
    output::Output,
};

/// The grace after a second signal.
const HURRY: Duration = Duration::from_secs(1);
/// How often the board is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// A connection may be lost for so long before `--fail-fast` ends the run.
const BRIEF: Duration = Duration::from_secs(1);
/// The pause between two questions whether a topology differs.
const PROBE: Duration = Duration::from_secs(5);
/// How long the processes of mode "lines" may take to end after the last message.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a run ends.
#[derive(Debug, PartialEq, Eq)]
enum Why {
    Signal(&'static str),
    Limit,
    Time,
    Empty,
    /// `--until-empty` waits in vain: a consumer is paused, for this reason.
    Paused(String),
    /// With the reason, for the error.
    Broker(String),
}

/// Runs the handlers of the config.
pub(crate) async fn run(cli: &Cli, output: Output, run: &Run) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let config = config::load(&config::locate(cli.config.as_deref()))?;
    let (handlers, mut exit) = choose(&config, output, run)?;
    let listener = config.node.http.map(http::server::bind).transpose()?;
    let mut processes = Processes::new();
    let builder = nodes::runner(&config, &handlers, &mut processes)?;
    let grace = run.grace.unwrap_or_else(|| nodes::grace(&config.node));
    let builder = builder.grace(grace).fail_fast(run.fail_fast).limit(run.limit);
    let started = tokio::select! {
        started = builder.start() => started,
        // A stop before the start: nothing was taken.
        _ = signals.next() => return finish(output, exit, &Receipt::default()),
    };
    let node = started?;
    let server = match listener.map(|listener| http::server::start(listener, &node)).transpose() {
        Ok(server) => server,
        Err(failure) => {
            node.stop_within(Duration::ZERO).await;
            return Err(failure);
        }
    };
    tracing::info!(node = %node.name(), handlers = handlers.len(), "running");
    let mut sources: Vec<String> = handlers.iter().map(|handler| handler.from.to_string()).collect();
    sources.dedup();
    sources.sort();
    sources.dedup();
    let why = wait(&node, &config, output, run, &sources, &mut signals).await;
    tracing::info!("stopping: {}", reason(&why));
    let receipt = stop(&node, grace, &mut signals).await;
    for lines in processes {
        lines.close(if receipt.is_clean() { LAST_WORDS } else { Duration::ZERO }).await;
    }
    if let Some(server) = server {
        server.stop(false).await;
    }
    let failure = match why {
        Why::Broker(text) => Some(Failure::new("connection", Exit::Broker, text)),
        Why::Paused(text) => Some(Failure::new("paused", Exit::Failed, text)),
        _ => None,
    };
    if let Some(failure) = failure {
        output.failure(&failure);
        exit = exit.and(failure.exit);
    }
    finish(output, exit, &receipt)
}

/// The handlers that `--only` names; unknown names are reported, and the others run.
fn choose<'a>(config: &'a Config, output: Output, run: &Run) -> Result<(Vec<&'a HandlerConfig>, Exit), Failure> {
    let mut exit = Exit::Done;
    let names: Vec<&str> = config.transports.keys().map(|name| name.as_str()).collect();
    for name in run.only.iter().filter(|name| !names.contains(&name.as_str())) {
        let near = crate::text::suggestion(name, names.iter().copied());
        let failure =
            Failure::not_found(format!("--only: no transport `{}` in the config{near}", crate::text::cut(name, 80)));
        if run.only.len() == 1 {
            return Err(failure);
        }
        output.failure(&failure);
        exit = exit.and(failure.exit);
    }
    let wanted = |handler: &&HandlerConfig| run.only.is_empty() || run.only.iter().any(|name| *name == *handler.from);
    let handlers: Vec<_> = config.handlers.iter().filter(wanted).collect();
    match handlers.is_empty() {
        true if exit != Exit::Done => Err(Failure::not_found("--only names no transport of the config")),
        true => Err(Failure::config("there is nothing to run: no [[handlers]] takes messages from these transports")),
        false => Ok((handlers, exit)),
    }
}

async fn wait(
    node: &Node,
    config: &Config,
    output: Output,
    run: &Run,
    sources: &[String],
    signals: &mut Signals,
) -> Why {
    let time = async {
        match run.for_ {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let empty = async {
        if run.until_empty { until::empty(node, output, sources).await } else { std::future::pending().await }
    };

    tokio::select! {
        signal = signals.next() => Why::Signal(signal),
        () = node.limit_reached() => Why::Limit,
        () = time => Why::Time,
        ended = empty => ended.map_or_else(Why::Paused, |()| Why::Empty),
        text = brokers_lost(node, config, run.fail_fast, sources) => Why::Broker(text),
    }
}

/// Resolves when no transport is left to work with: the topology of each differs, which trying again does not mend; or
/// under `--fail-fast` when one is not connected.
async fn brokers_lost(node: &Node, config: &Config, fail_fast: bool, sources: &[String]) -> String {
    let mut look = LOOK;
    loop {
        tokio::time::sleep(look).await;
        look = LOOK;
        let lost: Vec<Status> = sources.iter().filter_map(|name| unconnected(node, name)).collect();
        let text = || {
            let line = |line: &Status| format!("transport `{}`: {}", line.name, line.why);
            lost.iter().map(line).collect::<Vec<_>>().join("\n")
        };
        if fail_fast && !lost.is_empty() {
            return text();
        }
        if lost.len() == sources.len() && lost.iter().all(|line| line.health == Health::Degraded) {
            let mut differ = 0;
            for line in &lost {
                differ += usize::from(differs(config, &line.name).await);
            }
            if differ == lost.len() {
                return text();
            }
            look = PROBE;
        }
    }
}

/// The board's line of a transport that has had no connection for a while. Its consumer knows: a transport is degraded
/// for other reasons, too.
fn unconnected(node: &Node, name: &str) -> Option<Status> {
    let consumer = node.board().line(Kind::Consumer, name)?;
    let brief = consumer.since.elapsed().unwrap_or_default() <= BRIEF;
    (consumer.health == Health::Reconnecting && !brief).then(|| node.board().line(Kind::Transport, name))?
}

/// Whether a transport's places are there with other settings.
async fn differs(config: &Config, name: &str) -> bool {
    let settings = config.transports.iter().find(|(other, _)| other.as_str() == name).map(|(_, settings)| settings);
    let Some(mut settings) = settings.cloned() else { return false };
    settings.setup = Some(false);
    let Ok(spec) = nodes::transport(name, &settings, &config.node) else { return false };
    let Ok(probe) = nodes::builder(&config.node).fail_fast(true).transport(spec).start().await else { return false };
    let verified = match probe.transport(name) {
        Some(handle) => handle.declare(DeclareMode::Verify).await,
        None => Ok(()),
    };
    probe.stop_within(BRIEF).await;
    verified.is_err_and(|error| error.kind() == ErrorKind::Refused)
}

fn reason(why: &Why) -> String {
    match why {
        Why::Signal(name) => format!("{name}; a second signal shortens the grace to {}s", HURRY.as_secs()),
        Why::Limit => "the limit of deliveries is reached".into(),
        Why::Time => "the time is over".into(),
        Why::Empty => "nothing is waiting, delayed or in flight".into(),
        Why::Paused(text) | Why::Broker(text) => text.clone(),
    }
}

async fn stop(node: &Node, grace: Duration, signals: &mut Signals) -> Receipt {
    let mut stopping = std::pin::pin!(node.stop_within(grace));
    loop {
        tokio::select! {
            receipt = &mut stopping => return receipt,
            name = signals.next() => {
                tracing::warn!("{name}: the stop has {}s left", HURRY.as_secs());
                node.hurry(HURRY);
            }
        }
    }
}

fn finish(output: Output, exit: Exit, receipt: &Receipt) -> Result<Exit, Failure> {
    let abandoned: Vec<&str> = receipt.abandoned.iter().map(|id| &**id).collect();
    let stopped_in = u64::try_from(receipt.stopped_in.as_millis()).unwrap_or(u64::MAX);
    let answer = json!({"receipt": {
        "deliveries": receipt.deliveries,
        "acked": receipt.acked,
        "retried": receipt.retried,
        "failed": receipt.failed,
        "released": receipt.released,
        "lost": receipt.lost,
        "abandoned": abandoned,
        "stopped_in_ms": stopped_in,
    }});
    let mut text = receipt.to_string();
    if !abandoned.is_empty() {
        text.push_str("\nabandoned, and given back: ");
        text.push_str(&crate::text::shown(&abandoned.join(", ")));
    }
    output.answer(&answer, &text)?;
    Ok(if receipt.is_clean() { exit } else { exit.and(Exit::Abandoned) })
}

/// Whether an error says that a place is not there.
pub(super) fn is_missing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Unroutable)
}
