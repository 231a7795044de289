//! A server's process: start, signals, logs, end.

#![allow(clippy::expect_used, reason = "this crate serves tests only: what it cannot do ends the test")]

use std::{
    fmt,
    io::{Read, Seek, SeekFrom},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU16, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Below the ephemeral ports of Linux, so that no outgoing connection takes a server's port while it is down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// How much of a log a failed test shows.
const TAIL: u64 = 6_000;

/// A free port below the ephemeral ones. Tests of several processes look from different beginnings.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let size = PORTS.end - PORTS.start;
    let begin = u16::try_from(std::process::id().wrapping_mul(97) % u32::from(size)).unwrap_or(0);
    for _ in 0..size {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (begin.wrapping_add(step)) % size;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {} to {}", PORTS.start, PORTS.end);
}

/// A running server, or one that is stopped for now.
pub(crate) struct Server {
    name: &'static str,
    package: &'static str,
    child: Mutex<Option<Child>>,
    log: PathBuf,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn new(name: &'static str, package: &'static str, log: PathBuf, port: u16) -> Self {
        Self { name, package, child: Mutex::new(None), log, port }
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Starts it and waits until it takes connections and `ready` says so.
    pub(crate) fn start(&self, command: &mut Command, limit: Duration, ready: impl Fn(TcpStream) -> bool) {
        let log =
            std::fs::File::options().create(true).append(true).open(&self.log).expect("a log in a folder of ours");
        let errors = log.try_clone().expect("a second handle of the log");
        let started = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let child = started.unwrap_or_else(|error| {
            let Self { name, package, .. } = self;
            let program = command.get_program().to_string_lossy();
            panic!("{name} cannot be started ({program}: {error}); install the package `{package}`: tests/install-brokers does it")
        });
        *self.child() = Some(child);
        let began = Instant::now();
        while began.elapsed() < limit {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok_and(&ready) {
                return;
            }
            if let Some(Ok(Some(status))) = self.child().as_mut().map(Child::try_wait) {
                panic!("{} ended at its start with {status}\n{}", self.name, self.tail());
            }
            sleep(Duration::from_millis(5));
        }
        panic!("{} was not ready within {limit:?}\n{}", self.name, self.tail());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(child) = self.child().as_ref() {
            // Not reaped before `end`, so the id is still this child's.
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, signal));
        }
    }

    /// Sends a signal that ends it, and waits until it has gone.
    pub(crate) fn end(&self, signal: Signal) {
        self.signal(signal);
        // A frozen process ends only when it goes on.
        self.signal(Signal::CONT);
        let Some(mut child) = self.child().take() else { return };
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if matches!(child.try_wait(), Ok(Some(_))) {
                return;
            }
            sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        let read = |path: &Path| -> std::io::Result<String> {
            let mut file = std::fs::File::open(path)?;
            let size = file.metadata()?.len();
            file.seek(SeekFrom::Start(size.saturating_sub(TAIL)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read(&self.log).unwrap_or_else(|error| error.to_string());
        format!("--- the end of {}'s log\n{text}---", self.name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end(Signal::KILL);
        if std::thread::panicking() {
            eprintln!("{}", self.tail());
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).field("port", &self.port).finish_non_exhaustive()
    }
}
