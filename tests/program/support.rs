//! A folder, a config, and the program in it.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

pub(crate) struct Place {
    dir: tempfile::TempDir,
}

/// What came of one call.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }

    /// Each line of stdout as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.out.lines().map(read).collect()
    }

    /// The last line of stdout as JSON.
    #[track_caller]
    pub(crate) fn last(&self) -> Value {
        self.json().pop().unwrap_or_else(|| panic!("no answer\nstderr:\n{}", self.err))
    }

    /// The errors on stderr, each an object.
    #[track_caller]
    pub(crate) fn errors(&self) -> Vec<Value> {
        let lines = self.err.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str::<Value>(line).unwrap()["error"].clone()).collect()
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// With a config.
    pub(crate) fn with(config: &str) -> Self {
        let place = Self::new();
        place.write("postroom.toml", config);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn script(&self, name: &str, body: &str) {
        self.write(name, &format!("#!/bin/sh\n{body}\n"));
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        self.read(name).lines().map(str::to_string).collect()
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postroom"));
        command.current_dir(self.dir.path()).args(args.split_whitespace());
        command.env_remove("POSTROOM_CONFIG").env_remove("RUST_LOG").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The program with these arguments, separated by spaces.
    pub(crate) fn postroom(&self, args: &str) -> Done {
        self.postroom_with(args, b"")
    }

    /// The same, with a standard input.
    pub(crate) fn postroom_with(&self, args: &str, input: &[u8]) -> Done {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeding = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        feeding.join().unwrap();
        Done {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The program in the background.
    pub(crate) fn start(&self, args: &str) -> Running {
        Running { child: Some(self.command(args).spawn().unwrap()) }
    }

    /// The figures of a transport.
    pub(crate) fn stats(&self, transport: &str) -> Value {
        self.postroom(&format!("stats --json {transport}")).exits(0).last()
    }
}

/// A program in the background.
pub(crate) struct Running {
    child: Option<Child>,
}

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Done {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        Done {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let mut err = String::new();
            if std::thread::panicking()
                && child.stderr.take().is_some_and(|mut from| from.read_to_string(&mut err).is_ok())
            {
                eprintln!("stderr of the program:\n{err}");
            }
            let _ = child.wait();
        }
    }
}

/// Waits until something holds, at most 20 s.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is there (a zombie is not).
pub(crate) fn is_alive(pid: &str) -> bool {
    let Some(number) = pid.trim().parse().ok().and_then(Pid::from_raw) else { return false };
    if test_kill_process(number).is_err() {
        return false;
    }
    let stat = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
    !stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// A queue in a file, and these lines after it.
pub(crate) fn queue(more: &str) -> String {
    format!("[transports.orders]\ndsn = \"sqlite:orders.db?queue=orders\"\n{more}")
}

/// A handler that runs a script.
pub(crate) fn handler(kind: &str, script: &str, more: &str) -> String {
    format!("\n[[handlers]]\nfrom = \"orders\"\ntype = \"{kind}\"\nexec = [\"./{script}\"]\n{more}\n")
}
