//! Redis, persistent in its folder (`apt-get install redis-server`).

#![allow(clippy::expect_used, reason = "this crate serves tests only: what it cannot do ends the test")]

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    thread::sleep,
    time::Duration,
};

use rustix::process::Signal;

use crate::process::{Server, free_port};

/// When the server forces its log to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Appendfsync {
    /// Each second.
    #[default]
    Everysec,
    /// Before each answer.
    Always,
}

/// A Redis server. `POSTROOM_REDIS_SERVER` names another binary.
#[derive(Debug)]
pub struct Redis {
    // Dropped before its folder.
    server: Server,
    folder: tempfile::TempDir,
    appendfsync: Appendfsync,
    more: Vec<String>,
}

impl Redis {
    /// Starts one.
    ///
    /// # Panics
    /// When it cannot be started: names the package.
    #[must_use]
    pub fn start(appendfsync: Appendfsync) -> Self {
        Self::with(appendfsync, &[])
    }

    /// Starts one with more settings, as on its command line.
    ///
    /// # Panics
    /// When it cannot be started: names the package.
    #[must_use]
    pub fn with(appendfsync: Appendfsync, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let server = Server::new("redis", "redis-server", folder.path().join("redis.log"), free_port());
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        let redis = Self { server, folder, appendfsync, more };
        redis.launch();
        redis
    }

    fn launch(&self) {
        let program = std::env::var_os("POSTROOM_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let fsync = if self.appendfsync == Appendfsync::Always { "always" } else { "everysec" };
        let mut command = Command::new(program);
        command.current_dir(self.folder.path());
        command.args(["--bind", "127.0.0.1", "--port", &self.server.port.to_string()]);
        command.arg("--dir").arg(self.folder.path()).arg("--unixsocket").arg(self.socket());
        command.args(["--save", "", "--appendonly", "yes", "--appendfsync", fsync]).args(&self.more);
        self.server.start(&mut command, Duration::from_secs(20), ready);
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Its socket.
    #[must_use]
    pub fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// The beginning of its DSN; `?queue=…` follows.
    #[must_use]
    pub fn dsn(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Stops it in order; its data stay.
    pub fn stop(&self) {
        self.server.end(Signal::TERM);
    }

    /// Kills it; what it had on disk stays.
    pub fn kill9(&self) {
        self.server.end(Signal::KILL);
    }

    /// Starts it again on its port, with its data; stops it in order first where it runs.
    pub fn restart(&self) {
        self.stop();
        self.launch();
    }

    /// Stops it, and starts it again after a while.
    pub fn stop_for(&self, pause: Duration) {
        self.stop();
        sleep(pause);
        self.launch();
    }

    /// Freezes it: its connections stay open and nothing answers.
    pub fn pause(&self) {
        self.server.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.server.signal(Signal::CONT);
    }
}

/// Whether it answers: without a password with `PONG`, with one with `-NOAUTH`, and not `-LOADING`.
fn ready(mut stream: TcpStream) -> bool {
    let mut answer = [0; 5];
    let asked = stream.set_read_timeout(Some(Duration::from_secs(1))).and_then(|()| stream.write_all(b"PING\r\n"));
    asked.and_then(|()| stream.read_exact(&mut answer)).is_ok() && (answer == *b"+PONG" || answer == *b"-NOAU")
}

#[cfg(test)]
mod tests {
    use std::{net::TcpStream, panic::catch_unwind, time::Duration};

    use super::{Appendfsync, Redis};

    fn answers(redis: &Redis) -> bool {
        TcpStream::connect(("127.0.0.1", redis.port())).is_ok_and(super::ready)
    }

    #[test]
    fn several_run_at_once_and_end_when_dropped() {
        let (one, two) = (Redis::start(Appendfsync::Everysec), Redis::start(Appendfsync::Always));
        assert!(answers(&one) && answers(&two) && one.port() != two.port());
        one.kill9();
        assert!(!answers(&one) && answers(&two));
        one.restart();
        two.pause();
        assert!(answers(&one) && !answers(&two));
        two.resume();
        one.stop_for(Duration::from_millis(10));
        assert!(answers(&one) && answers(&two));
        let (first, second) = (one.port(), two.port());
        drop((one, two));
        for port in [first, second] {
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        }
    }

    #[test]
    fn a_panic_ends_it_too() {
        let port = catch_unwind(|| {
            let redis = Redis::start(Appendfsync::Everysec);
            std::panic::panic_any(redis.port());
        });
        let port = *port.unwrap_err().downcast::<u16>().unwrap();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
