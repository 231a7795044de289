//! `postroom completions`.

use clap::CommandFactory;

use crate::{
    args::Cli,
    exit::{Exit, Failure},
    output::Output,
};

/// Prints the completions of a shell.
pub(crate) fn completions(output: Output, shell: clap_complete::Shell) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "postroom", &mut text);
    output.line(String::from_utf8_lossy(&text).trim_end())?;
    Ok(Exit::Done)
}
