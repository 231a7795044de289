//! `postroom check`.

use postroom::TransportHandle;
use postroom_core::{Capabilities, DeclareMode, DeliveryCount, Durability, ErrorKind, Fencing};
use serde_json::{Value, json};

use crate::{
    args::Cli,
    config::{Action, Config, FailureConfig},
    exec::Spec,
    exit::{Exit, Failure},
    output::Output,
    session::Session,
};

/// Says for each transport what it is, what it can do, and what is wrong with it; changes nothing.
pub(crate) async fn check(cli: &Cli, output: Output) -> Result<Exit, Failure> {
    let mut session = Session::new(cli, [])?;
    let mut exit = Exit::Done;
    for name in session.names() {
        match one(&mut session, output, &name).await {
            Ok(code) => exit = exit.and(code),
            // Not even its file is there.
            Err(failure) if failure.exit == Exit::NotFound => {
                let topology = format!("missing ({failure})");
                let text = format!("{}\n  topology      {topology}", output.bold(&name));
                output.answer(&json!({"transport": name, "topology": topology, "warnings": []}), &text)?;
                if session.settings(&name)?.1.setup == Some(false) {
                    exit = exit.and(Exit::Broker);
                }
            }
            Err(failure) => {
                let failure = Failure { message: format!("transport `{name}`: {}", failure.message), ..failure };
                output.failure(&failure);
                exit = exit.and(failure.exit);
            }
        }
    }
    for warning in session.config.iter().flat_map(commands) {
        output.answer(&json!({ "warning": warning }), &format!("warning: {warning}"))?;
    }
    session.close().await;
    Ok(exit)
}

/// Commands of handlers that are plainly not there.
fn commands(config: &Config) -> Vec<String> {
    let command = |action: &Action| match action {
        Action::Exec(command) | Action::Lines { command, .. } => Spec::new(command, &config.folder).trouble(),
        _ => None,
    };
    let of = config.handlers.iter().filter_map(|handler| {
        let trouble = command(&handler.action)?;
        Some(format!("the handler of `{}` from `{}`: {trouble}", handler.pattern, handler.from))
    });
    of.collect()
}

async fn one(session: &mut Session, output: Output, name: &str) -> Result<Exit, Failure> {
    let handle = session.transport(name).await?;
    let capabilities = handle.capabilities().await?;
    let (_, settings) = session.settings(name)?;
    let (topology, exit) = topology(&handle, name, settings.setup != Some(false)).await?;
    let warnings = warnings(&handle, &capabilities, &settings.failure);
    if output.json {
        output.object(&json!({
            "transport": name,
            "place": handle.place().to_string(),
            "broker": capabilities.broker,
            "server": capabilities.server,
            "durability": durability(capabilities.durability),
            "durability_setting": capabilities.durability_setting,
            "capabilities": powers(&capabilities),
            "topology": topology,
            "warnings": warnings,
        }))?;
        return Ok(exit);
    }
    let server = capabilities.server.as_deref().map(|server| format!(" {server}")).unwrap_or_default();
    output.line(&output.bold(&format!("{name}: {} on {}{server}", handle.place(), capabilities.broker)))?;
    let setting = match capabilities.durability_setting.as_str() {
        "" => String::new(),
        setting => format!(" ({setting})"),
    };
    output.line(&format!("  durability    a confirmed message {}{setting}", survives(capabilities.durability)))?;
    let listed = powers(&capabilities);
    let shown = listed.as_object().into_iter().flatten().map(|(power, value)| match value {
        Value::Bool(true) => power.replace('_', " "),
        Value::Bool(false) | Value::Null => format!("no {}", power.replace('_', " ")),
        other => format!("{} {}", power.replace('_', " "), other.to_string().trim_matches('"')),
    });
    output.line(&format!("  capabilities  {}", shown.collect::<Vec<_>>().join(", ")))?;
    output.line(&format!("  topology      {topology}"))?;
    for warning in warnings {
        output.line(&format!("  warning       {warning}"))?;
    }
    Ok(exit)
}

async fn topology(handle: &TransportHandle, name: &str, creates: bool) -> Result<(String, Exit), Failure> {
    match handle.declare(DeclareMode::Verify).await {
        Ok(()) => Ok(("there".into(), Exit::Done)),
        // `run` and `send` create it.
        Err(error) if error.kind() == ErrorKind::NotFound && creates => {
            Ok((format!("missing ({error}); `postroom setup`, `run` and `send` create it"), Exit::Done))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok((
            format!("missing ({error}), and `{name}` has `setup = false`; create it with `postroom setup`"),
            Exit::Broker,
        )),
        Err(error) if error.kind() == ErrorKind::Refused => Ok((format!("differs: {error}"), Exit::Broker)),
        Err(error) => Err(error.into()),
    }
}

fn warnings(handle: &TransportHandle, capabilities: &Capabilities, failure: &FailureConfig) -> Vec<String> {
    let mut all = capabilities.warnings.clone();
    let readable = handle.place().is_readable();
    if readable && *failure == FailureConfig::None {
        all.push("`failure = \"none\"`: the first message that can't be handled pauses the consumer".into());
    }
    if readable && !capabilities.delay && !handle.options().retry.delay.is_zero() {
        all.push("the broker cannot delay: a retry waits in the worker's memory".into());
    }
    all
}

fn powers(capabilities: &Capabilities) -> Value {
    json!({
        "atomic_retry": capabilities.atomic_retry,
        "delay": capabilities.delay,
        "delivery_count": match capabilities.delivery_count {
            DeliveryCount::Exact => "exact",
            DeliveryCount::Raw => "raw",
            DeliveryCount::Flag => "flag",
            _ => "none",
        },
        "fencing": match capabilities.fencing { Fencing::Refused => "refused", _ => "connection" },
        "lease": capabilities.lease,
        "max_body": capabilities.max_body,
        "shared": capabilities.shared,
        "topics": capabilities.topics,
    })
}

fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Power => "power",
        Durability::Crash => "crash",
        _ => "process",
    }
}

fn survives(durability: Durability) -> &'static str {
    match durability {
        Durability::Power => "survives a power cut",
        Durability::Crash => "survives a crash of the broker, perhaps not a power cut",
        _ => "lives as long as its process",
    }
}
