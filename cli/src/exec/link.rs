//! The runtime's side of a command: its parent (see [`shim`](super::shim)) on a leash.

use std::{
    collections::VecDeque,
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};

use super::{
    Spec,
    shim::{DATA, END, KILL, TERM},
};

/// The largest part of a body in one frame.
const PART: usize = 1 << 20;
/// So much of stderr is kept.
const TAIL: usize = 8 * 1024;
/// From TERM to KILL.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long output is still read after the command and its group are gone: somebody outside of it may hold the pipe.
const LEFTOVERS: Duration = Duration::from_millis(200);

/// A running command.
pub(super) struct Link {
    child: Child,
    leash: Option<ChildStdin>,
}

/// What it writes.
pub(super) struct Streams {
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Link {
    /// Starts a command with these environment variables.
    pub(super) fn start(spec: &Spec, environment: Vec<(String, String)>) -> std::io::Result<(Self, Streams)> {
        let mut command = Command::new(own_program());
        command.arg("__child").arg("--").args(&spec.command).current_dir(&spec.folder);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(super::environment::HEADER) {
                command.env_remove(name);
            }
        }
        // Its own group: Ctrl-C in a terminal is for the runtime alone.
        command.envs(environment).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let leash = child.stdin.take();
        match (child.stdout.take(), child.stderr.take()) {
            (Some(stdout), Some(stderr)) => Ok((Self { child, leash }, Streams { stdout, stderr })),
            _ => Err(std::io::Error::other("the command has no output pipes")),
        }
    }

    async fn frame(&mut self, tag: u8, bytes: &[u8]) {
        let Some(leash) = &mut self.leash else { return };
        let mut head = vec![tag];
        head.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        // An error means that the command has ended, which its exit tells better.
        if leash.write_all(&head).await.is_err() || leash.write_all(bytes).await.is_err() {
            self.leash = None;
        }
    }

    /// Bytes for its standard input.
    pub(super) async fn feed(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(PART) {
            self.frame(DATA, part).await;
        }
    }

    /// The end of its standard input.
    pub(super) async fn end_input(&mut self) {
        self.frame(END, &[]).await;
    }

    /// Its end.
    pub(super) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// TERM to its group, then KILL after [`PATIENCE`].
    pub(super) async fn terminate(mut self) {
        self.frame(TERM, &[]).await;
        self.finish(PATIENCE).await;
    }

    /// Waits for its end, and kills its group after `patience`.
    pub(super) async fn finish(mut self, patience: Duration) {
        if tokio::time::timeout(patience, self.child.wait()).await.is_err() {
            self.frame(KILL, &[]).await;
            self.leash = None;
            let _ = self.child.wait().await;
        }
    }
}

/// This program, also when its file was replaced meanwhile.
fn own_program() -> std::path::PathBuf {
    if cfg!(target_os = "linux") {
        return "/proc/self/exe".into();
    }
    std::env::current_exe().unwrap_or_else(|_| "postroom".into())
}

/// `exit code 3`, `signal 9`.
pub(super) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Sends lines to the log until the end of the stream.
pub(super) async fn log_lines(from: impl AsyncRead + Unpin, program: &str, id: &str) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    // A line without an end is logged in parts.
    while let Ok(1..) = (&mut lines).take(TAIL as u64).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line);
        tracing::info!(target: "handler", program, id, "{}", crate::text::shown(text.trim_end_matches(['\n', '\r'])));
        line.clear();
    }
}

/// The last bytes of a stream.
#[derive(Default)]
pub(super) struct Tail(VecDeque<u8>);

impl Tail {
    /// Reads a stream to its end.
    pub(super) async fn fill(tail: Arc<Mutex<Self>>, mut from: impl AsyncRead + Unpin) {
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut part).await {
            tail.lock().unwrap_or_else(PoisonError::into_inner).push(part.get(..read).unwrap_or_default());
        }
    }

    /// Adds bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let surplus = self.0.len().saturating_sub(TAIL);
        self.0.drain(..surplus);
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim().to_string()
    }
}

/// Lets readers of output come to their end after the command's.
pub(super) async fn leftovers(reading: tokio::task::JoinHandle<()>) {
    let _ = tokio::time::timeout(LEFTOVERS, reading).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_8_kib_of_stderr_are_kept() {
        let mut tail = Tail::default();
        tail.push(&[b'a'; 9000]);
        tail.push(b"the end\n");
        let text = tail.text();
        assert!(text.ends_with("athe end") && text.len() == TAIL - 1);
    }
}
