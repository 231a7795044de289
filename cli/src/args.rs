//! The command line, as PROGRAM.md has it. No library user ever meets clap.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use postroom_core::{MessageId, Name, Reason, State, TypeName};

/// Supervised message workers over every broker, from one config file.
#[derive(Debug, Parser)]
#[command(name = "postroom", version, max_term_width = 110, disable_help_subcommand = true)]
#[command(after_help = "TRANSPORT is a name from the config, or a DSN such as sqlite:orders.db?queue=orders. \
    DURATION: 250ms, 30s, 5m, 1h30m.\nExit: 0 done, 1 work failed, 2 usage or config, 3 broker, 4 abandoned, 5 not found.")]
pub(crate) struct Cli {
    /// The config [default: postroom.toml, else $POSTROOM_CONFIG]
    #[arg(short, long = "config", global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Answers as JSON: one object, or one a line for a list
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Log level on stderr [default: info for `run`, else warn]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log: Option<Level>,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// A log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Nothing
    Off,
    /// Errors
    Error,
    /// And warnings
    Warn,
    /// And what happens
    Info,
    /// And details
    Debug,
    /// Everything
    Trace,
}

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a commented postroom.toml and a sample handler script
    Init {
        /// The folder [default: the current one]
        #[arg(value_name = "DIR", default_value = ".", hide_default_value = true)]
        dir: PathBuf,
    },
    /// Validate the config, connect, print what each transport can do; changes nothing
    Check,
    /// Create what the transports need
    Setup,
    /// Run the handlers
    Run(Run),
    /// Send messages
    Send(Send),
    /// Count messages
    Stats {
        /// Which [default: all of the config]
        #[arg(value_name = "TRANSPORT")]
        transports: Vec<String>,
        /// Again every second, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Look at messages without taking them
    Peek {
        /// Which
        transport: String,
        /// Only messages in this state
        #[arg(long, value_parser = state)]
        state: Option<State>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u64,
    },
    /// Failed messages: list, show, retry, remove
    #[command(subcommand)]
    Failed(Failed),
    /// Groups of a topic: list, remove
    #[command(subcommand)]
    Group(Group),
    /// The tour: real data, the embedded default, a crash, a failure, a replay
    Demo {
        /// The folder to work in, new or empty [default: a new one in the temporary folder]
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Print a shell's completions
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// A command's parent, which ends it when the runtime ends
    #[command(name = "__child", hide = true)]
    Child {
        /// The command
        #[arg(required = true, last = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// A worker process of the demo
    #[command(name = "__demo-worker", hide = true)]
    DemoWorker {
        /// The demo's folder
        dir: PathBuf,
        /// The rule for negative magnitudes is repaired
        #[arg(long)]
        repaired: bool,
    },
}

/// `run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Only the handlers of this transport
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// End after so many deliveries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// End when nothing is waiting, delayed or in flight
    #[arg(long)]
    pub(crate) until_empty: bool,
    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(crate) for_: Option<Duration>,
    /// The deadline of the whole stop [default: the config's, 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// End when a broker cannot be reached, instead of trying again
    #[arg(long)]
    pub(crate) fail_fast: bool,
}

/// `send`.
#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Where to
    pub(crate) transport: String,
    /// The body [default: the standard input]
    #[arg(conflicts_with = "file")]
    pub(crate) body: Option<String>,
    /// The body's file; `-` is the standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Each input line is one body
    #[arg(long, conflicts_with_all = ["envelopes", "id"])]
    pub(crate) ndjson: bool,
    /// Each input line is {"data" or "data_base64", "type", "id", "key", "headers", "delay"}
    #[arg(long, conflicts_with = "id")]
    pub(crate) envelopes: bool,
    /// The message type
    #[arg(long = "type", value_name = "T", value_parser = type_name)]
    pub(crate) type_: Option<TypeName>,
    /// The message id [default: a new UUID]
    #[arg(long, value_parser = message_id)]
    pub(crate) id: Option<MessageId>,
    /// The ordering key
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,
    /// A header
    #[arg(long = "header", value_name = "K=V", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Not to be delivered earlier than this from now
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) delay: Option<Duration>,
    /// The body's content type
    #[arg(long, value_name = "CT")]
    pub(crate) content_type: Option<String>,
}

/// Which failed records.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filter {
    /// Only those that came from this transport
    #[arg(long, value_name = "TRANSPORT")]
    pub(crate) from: Option<String>,
    /// Only those of this message type; a final `*` matches a prefix
    #[arg(long = "type", value_name = "T")]
    pub(crate) type_: Option<String>,
    /// Only those given up for this reason: final, attempts, undecodable, unhandled, crashed, unroutable
    #[arg(long, value_name = "R", value_parser = reason)]
    pub(crate) reason: Option<Reason>,
}

impl Filter {
    /// Whether it chooses among records; `--from` alone says where to look.
    fn chooses(&self) -> bool {
        self.type_.is_some() || self.reason.is_some()
    }
}

/// `failed`.
#[derive(Debug, Subcommand)]
pub(crate) enum Failed {
    /// List failed records
    List {
        #[command(flatten)]
        filter: Filter,
        /// Only those given up in this time until now
        #[arg(long, value_name = "D", value_parser = duration)]
        since: Option<Duration>,
        /// At most so many
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
    },
    /// Show a whole record
    Show {
        /// A record's id, or a message id
        record: String,
        /// Only look where this transport's failed messages lie
        #[arg(long, value_name = "TRANSPORT")]
        from: Option<String>,
        /// The body alone, byte for byte
        #[arg(long, conflicts_with = "json")]
        raw: bool,
    },
    /// Send records back to where they came from, with a fresh budget, then remove them
    Retry {
        #[command(flatten)]
        which: Which,
        /// At most so many a second, as `50/s`
        #[arg(long, value_name = "N/s", value_parser = rate)]
        rate: Option<f64>,
    },
    /// Remove records for good
    Remove {
        #[command(flatten)]
        which: Which,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// Records by id, or all that match.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Records' ids, or message ids
    #[arg(value_name = "RECORD", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) records: Vec<String>,
    /// All that the filters match
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) filter: Filter,
}

/// `group`.
#[derive(Debug, Subcommand)]
pub(crate) enum Group {
    /// List a topic's groups
    List {
        /// A transport of the topic
        transport: String,
    },
    /// Remove a group and its messages for good
    Remove {
        /// A transport of the topic
        transport: String,
        /// The group
        #[arg(value_parser = name)]
        group: Name,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

impl Cli {
    /// What clap's declarations cannot say.
    pub(crate) fn check(&self) -> Result<(), String> {
        let which = match &self.command {
            Command::Failed(Failed::Retry { which, .. } | Failed::Remove { which, .. }) => which,
            _ => return Ok(()),
        };
        if !which.all && which.filter.chooses() {
            return Err("--type and --reason choose among all records: add --all, or leave them out".into());
        }
        Ok(())
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    crate::duration::parse(text)
}

fn type_name(text: &str) -> Result<TypeName, String> {
    TypeName::new(text).map_err(|error| error.to_string())
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

fn message_id(text: &str) -> Result<MessageId, String> {
    MessageId::new(text).ok_or_else(|| format!("an id has 1 to {} bytes", MessageId::MAX))
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) | None => Err("a header is written NAME=VALUE".into()),
        Some((name, value)) => Ok((name.into(), value.into())),
    }
}

/// `50/s`, `0.5/s`; a bare number counts as one.
fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.001 => Ok(rate),
        _ => Err("a rate is written N/s, as 50/s, and is at least 0.001/s".into()),
    }
}

fn reason(text: &str) -> Result<Reason, String> {
    const ALL: [Reason; 6] =
        [Reason::Final, Reason::Attempts, Reason::Undecodable, Reason::Unhandled, Reason::Crashed, Reason::Unroutable];
    ALL.into_iter()
        .find(|reason| reason.as_str() == text)
        .ok_or_else(|| format!("no such reason{}", crate::text::suggestion(text, ALL.map(Reason::as_str))))
}

fn state(text: &str) -> Result<State, String> {
    match text {
        "waiting" => Ok(State::Waiting),
        "in-flight" | "in_flight" => Ok(State::InFlight),
        "delayed" => Ok(State::Delayed),
        _ => Err(format!("no such state{}", crate::text::suggestion(text, ["waiting", "in-flight", "delayed"]))),
    }
}

#[cfg(test)]
mod tests;
