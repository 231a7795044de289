//! `postroom stats`.

use std::{io::IsTerminal, time::Duration};

use postroom::ops::{self, OpsError, Stats};
use serde_json::json;

use crate::{
    args::Cli,
    exit::{Exit, Failure},
    output::{Output, table::Table},
    session::Session,
    text::span,
};

/// The pause of `--watch`.
const EVERY: Duration = Duration::from_secs(1);

/// Prints the figures of transports.
pub(crate) async fn stats(cli: &Cli, output: Output, transports: &[String], watch: bool) -> Result<Exit, Failure> {
    let mut session = Session::new(cli, transports.iter().map(String::as_str))?;
    let all = if transports.is_empty() { session.names() } else { transports.to_vec() };
    let mut signals = super::signals::Signals::new()?;
    let result = loop {
        let exit = once(&mut session, output, &all, watch).await;
        if !watch || exit.is_err() {
            break exit;
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = signals.next() => break Ok(Exit::Done),
        }
    };
    session.close().await;
    result
}

async fn once(session: &mut Session, output: Output, transports: &[String], watch: bool) -> Result<Exit, Failure> {
    let mut exit = Exit::Done;
    let mut lines = Vec::new();
    for transport in transports {
        match figures(session, transport).await {
            Ok(found) => lines.extend(found),
            Err(failure) => {
                output.failure(&failure);
                exit = exit.and(failure.exit);
            }
        }
    }
    if output.json {
        for line in &lines {
            output.object(&object(line))?;
        }
    } else {
        if watch && std::io::stdout().is_terminal() {
            // Home, and clear what follows.
            output.line("\u{1b}[H\u{1b}[2J")?;
        }
        show(output, &lines)?;
    }
    Ok(exit)
}

async fn figures(session: &mut Session, transport: &str) -> Result<Vec<Stats>, Failure> {
    let handle = session.transport(transport).await?;
    let is_store = matches!(handle.place(), postroom_core::Place::Store(_));
    let store = match session.store(transport).await {
        _ if is_store => None,
        Ok(store) => Some(store),
        Err(failure) if failure.kind == "no_store" => None,
        Err(failure) => return Err(failure),
    };
    ops::stats(&handle, store.as_ref()).await.map_err(|error| absent(handle.name(), error))
}

/// A place that is not there yet is told with what to do.
pub(super) fn absent(transport: &str, error: OpsError) -> Failure {
    let mut failure = Failure::from(error);
    if failure.exit == Exit::NotFound {
        let name = crate::text::cut(transport, 80);
        failure.message =
            format!("transport `{name}`: {}; `postroom setup`, `run` and `send` create it", failure.message);
    }
    failure
}

fn object(stats: &Stats) -> serde_json::Value {
    let mut object = json!({
        "transport": stats.transport.as_ref() as &str,
        "waiting": stats.waiting,
        "in_flight": stats.in_flight,
        "delayed": stats.delayed,
        "failed": stats.failed,
        "oldest_waiting_ms": stats.oldest_waiting_ms,
        "exact": stats.exact,
    });
    if let (Some(group), Some(object)) = (&stats.group, object.as_object_mut()) {
        object.insert("group".into(), json!(group.as_ref() as &str));
    }
    object
}

fn show(output: Output, lines: &[Stats]) -> Result<(), Failure> {
    let grouped = lines.iter().any(|stats| stats.group.is_some());
    let mut heads = vec!["TRANSPORT", "WAITING", "IN FLIGHT", "DELAYED", "FAILED", "OLDEST WAITING"];
    if grouped {
        heads.insert(1, "GROUP");
    }
    let mut table = Table::new(&heads);
    let figure = |figure: Option<u64>| figure.map_or_else(|| "-".to_string(), |figure| figure.to_string());
    for stats in lines {
        let about = if stats.exact { "" } else { "~" };
        let mut row = vec![stats.transport.to_string()];
        if grouped {
            row.push(stats.group.as_ref().map(ToString::to_string).unwrap_or_default());
        }
        row.extend([stats.waiting, stats.in_flight, stats.delayed].map(|n| format!("{about}{}", figure(n))));
        row.push(figure(stats.failed));
        row.push(stats.oldest_waiting_ms.map_or_else(|| "-".to_string(), span));
        table.row(row);
    }
    if lines.is_empty() {
        return Ok(());
    }
    for (at, line) in table.lines().iter().enumerate() {
        if at == 0 { output.line(&output.bold(line))? } else { output.line(line)? }
    }
    Ok(())
}
