//! Progress of long work: a bar on a terminal, plain lines elsewhere, nothing under `--json`.

use std::{
    io::{IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::Output;

/// The pause between two plain lines.
const PAUSE: Duration = Duration::from_secs(2);

/// The bar on the terminal, where there is one.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Where the log goes: to stderr, above the bar.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match bar {
            Some(bar) => bar.suspend(|| std::io::stderr().write(bytes)),
            None => std::io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// The progress of one piece of work.
pub(crate) struct Progress {
    what: &'static str,
    total: Option<u64>,
    done: u64,
    bar: Option<ProgressBar>,
    plain: bool,
    last: Instant,
}

impl Progress {
    /// Begins; `what` is done to a message, as `sent`.
    pub(crate) fn new(output: Output, what: &'static str, total: Option<u64>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !output.json).then(|| {
            let (bar, template) = match total {
                Some(total) => (ProgressBar::new(total), "{bar:30} {pos}/{len} {msg} ({per_sec}, {eta})"),
                None => (ProgressBar::new_spinner(), "{spinner} {pos} {msg} ({per_sec})"),
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            let bar = bar.with_message(what);
            *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
            bar
        });
        Self { what, total, done: 0, bar, plain: !terminal && !output.json, last: Instant::now() }
    }

    /// So much is done by now.
    pub(crate) fn set(&mut self, done: u64) {
        self.done = done;
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        } else if self.plain && self.last.elapsed() >= PAUSE {
            self.last = Instant::now();
            self.print();
        }
    }

    /// So much more is done.
    pub(crate) fn add(&mut self, more: u64) {
        self.set(self.done + more);
    }

    fn print(&self) {
        let of = self.total.map(|total| format!(" of {total}")).unwrap_or_default();
        let _ = writeln!(std::io::stderr(), "{}{of} {}", self.done, self.what);
    }

    /// Ends. The answer says the rest, so the bar goes; elsewhere a last line stays.
    pub(crate) fn finish(self) {
        BAR.lock().unwrap_or_else(PoisonError::into_inner).take();
        match &self.bar {
            Some(bar) => bar.finish_and_clear(),
            None if self.plain => self.print(),
            None => {}
        }
    }
}
