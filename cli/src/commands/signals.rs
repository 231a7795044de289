//! SIGTERM and SIGINT.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// Both signals, from the moment that this is made.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Listens.
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::failed(format!("could not listen for signals: {error}")));
        Ok(Self { term: listen(SignalKind::terminate())?, int: listen(SignalKind::interrupt())? })
    }

    /// The next one, by name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
