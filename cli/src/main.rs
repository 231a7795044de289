//! The `postroom` program: supervised message workers from a config file, and everybody's operations.
//!
//! In reading order:
//! - [`args`]: the command line; [`exit`]: how it ends;
//! - [`config`]: the config file, with [`address`] and [`duration`] for its values;
//! - [`nodes`], [`session`]: from a config to a node that runs, or to transports that are asked;
//! - [`exec`], [`http`]: handlers that are commands or addresses, and the node's own HTTP port;
//! - [`commands`]: one a file; [`demo`]: the tour;
//! - [`output`], [`text`]: answers, progress, and what people read.

mod address;
mod args;
mod commands;
mod config;
mod demo;
mod duration;
mod exec;
mod exit;
mod http;
mod nodes;
mod output;
mod session;
mod text;

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};

use clap::Parser;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    args::{Cli, Color, Command, Level},
    exit::{Exit, Failure},
    output::{Output, wants_color},
};

fn main() -> ExitCode {
    // A process a message starts this once a message: its way is short.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == "__child") && arguments.next().is_some_and(|second| second == "--")
    {
        return exec::shim::main(&arguments.collect::<Vec<_>>());
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    // Only one provider is compiled in; a second call would find it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    log(&cli);
    let output = Output::new(cli.json, cli.color);
    let done = match cli.check() {
        Ok(()) => actix_rt::System::new().block_on(dispatch(&cli, output)),
        Err(message) => Err(Failure::usage(message)),
    };
    let exit = done.unwrap_or_else(|failure| {
        // A reader that went away, as `head`, has what it wanted.
        if failure.kind != "closed" {
            output.failure(&failure);
        }
        failure.exit
    });
    ExitCode::from(exit.code())
}

async fn dispatch(cli: &Cli, output: Output) -> Result<Exit, Failure> {
    match &cli.command {
        Command::Init { dir } => commands::init::init(output, dir),
        Command::Check => commands::check::check(cli, output).await,
        Command::Setup => commands::setup::setup(cli, output).await,
        Command::Run(run) => commands::run::run(cli, output, run).await,
        Command::Send(send) => commands::send::send(cli, output, send).await,
        Command::Stats { transports, watch } => commands::stats::stats(cli, output, transports, *watch).await,
        Command::Peek { transport, state, limit } => commands::peek::peek(cli, output, transport, *state, *limit).await,
        Command::Failed(failed) => commands::failed::failed(cli, output, failed).await,
        Command::Group(group) => commands::group::group(cli, output, group).await,
        Command::Demo { dir } => demo::demo(output, dir.as_deref()).await,
        Command::Completions { shell } => commands::completions::completions(output, *shell),
        // Written in another way than the runtime does.
        Command::Child { .. } => Err(Failure::usage("__child is the runtime's own: postroom __child -- COMMAND")),
        Command::DemoWorker { dir, repaired } => demo::worker::work(dir, *repaired).await,
    }
}

/// Help and version are answers; everything else is a usage error, in JSON where JSON was asked for.
fn usage(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json");
    if json && error.use_stderr() {
        let text = error.to_string();
        let message = text.trim().trim_start_matches("error: ").to_string();
        Output { json, color: false }.failure(&Failure::usage(message));
    } else {
        let _ = error.print();
        let _ = std::io::stderr().flush();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn log(cli: &Cli) {
    use tracing::level_filters::LevelFilter;
    let level = match cli.log {
        Some(Level::Off) => LevelFilter::OFF,
        Some(Level::Error) => LevelFilter::ERROR,
        Some(Level::Warn) => LevelFilter::WARN,
        Some(Level::Info) => LevelFilter::INFO,
        Some(Level::Debug) => LevelFilter::DEBUG,
        Some(Level::Trace) => LevelFilter::TRACE,
        None if matches!(cli.command, Command::Run(_)) => LevelFilter::INFO,
        None => LevelFilter::WARN,
    };
    // The servers' own chatter, and what the answer of a short command says itself, only when asked for.
    let mut filter = Targets::new().with_default(level);
    if level <= LevelFilter::INFO {
        for target in ["actix_server", "actix_http", "mio", "sqlx"] {
            filter = filter.with_target(target, level.min(LevelFilter::WARN));
        }
    }
    if cli.log.is_none() && !matches!(cli.command, Command::Run(_)) {
        filter = filter.with_target("postroom_actors", LevelFilter::ERROR);
    }
    let color = if cli.json { Color::Never } else { cli.color };
    let ansi = wants_color(color, std::io::stderr().is_terminal());
    let lines = tracing_subscriber::fmt::layer().with_writer(|| output::progress::Log).with_ansi(ansi);
    tracing_subscriber::registry().with(filter).with(lines).init();
}
