//! Answers: JSON for programs, tables for people; on stdout. Progress and errors are on stderr.

pub(crate) mod progress;
pub(crate) mod table;

use std::io::{IsTerminal, Write};

use serde_json::{Value, json};

use crate::{args::Color, exit::Failure};

/// How to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// As JSON.
    pub(crate) json: bool,
    /// With colours, on stdout.
    pub(crate) color: bool,
}

impl Output {
    /// As the command line says.
    pub(crate) fn new(json: bool, color: Color) -> Self {
        Self { json, color: wants_color(color, std::io::stdout().is_terminal()) }
    }

    /// One JSON object on a line.
    pub(crate) fn object(self, value: &Value) -> Result<(), Failure> {
        self.line(&value.to_string())
    }

    /// A line of text.
    pub(crate) fn line(self, text: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()?;
        Ok(())
    }

    /// The object under `--json`, else the text.
    pub(crate) fn answer(self, value: &Value, text: &str) -> Result<(), Failure> {
        if self.json { self.object(value) } else { self.line(text) }
    }

    /// Bold, where there are colours.
    pub(crate) fn bold(self, text: &str) -> String {
        if self.color { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_string() }
    }

    /// An error on stderr.
    pub(crate) fn failure(self, failure: &Failure) {
        let text = if self.json {
            json!({"error": {"kind": failure.kind, "message": failure.message}}).to_string()
        } else {
            failure
                .message
                .lines()
                .map(|line| format!("error: {}", crate::text::shown(line)))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// A remark on stderr, which is no part of the answer; none under `--json`.
    pub(crate) fn note(self, text: &str) {
        if !self.json {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Asks a question on the terminal; `None` where there is none to ask.
    pub(crate) fn confirm(self, question: &str) -> Option<bool> {
        if self.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return None;
        }
        let _ = write!(std::io::stderr(), "{question} [y/N] ");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).ok()?;
        Some(matches!(answer.trim(), "y" | "Y" | "yes"))
    }
}

/// Whether a stream gets colours.
pub(crate) fn wants_color(color: Color, terminal: bool) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}
