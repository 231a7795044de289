//! `postroom __child -- COMMAND…`: a command's parent.
//!
//! The runtime may die in any way, also by kill -9, and no command may outlive it. So the runtime starts this, and this
//! starts the command in a process group of its own. Its standard input is the runtime's leash: frames (a tag, a length,
//! bytes) that feed the command or end it. The end of that input means that the runtime is gone: the group is killed.
//! When the command ends, what it left behind in its group is killed too, and its exit code or signal is passed on.
//!
//! The command's own output goes straight to the runtime; nothing is copied here.

use std::{
    ffi::OsString,
    io::{Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{ChildStdin, Command, ExitCode, Stdio},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool, mpsc},
    thread,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Bytes for the command's standard input.
pub(crate) const DATA: u8 = b'd';
/// The end of the command's standard input.
pub(crate) const END: u8 = b'e';
/// TERM to the command's group.
pub(crate) const TERM: u8 = b't';
/// KILL to the command's group.
pub(crate) const KILL: u8 = b'k';

/// The exit code for a command that could not be started, as a shell's.
const NOT_STARTED: u8 = 127;

/// The command's group, until it was reaped: later the number may be another's.
struct Group(Mutex<Option<Pid>>);

impl Group {
    fn signal(&self, signal: Signal) {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pid) = *group {
            // It fails only when nobody is left.
            let _ = kill_process_group(pid, signal);
        }
    }
}

/// Runs a command to its end.
pub(crate) fn main(command: &[OsString]) -> ExitCode {
    // A signal to the whole session or service is for the runtime; the leash says when this ends.
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let Some((program, arguments)) = command.split_first() else { return ExitCode::from(NOT_STARTED) };
    let mut child = match Command::new(program).args(arguments).stdin(Stdio::piped()).process_group(0).spawn() {
        Ok(child) => child,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "could not start `{}`: {error}", program.display());
            return ExitCode::from(NOT_STARTED);
        }
    };
    let group = Arc::new(Group(Mutex::new(i32::try_from(child.id()).ok().and_then(Pid::from_raw))));
    let (feed, food) = mpsc::channel::<Vec<u8>>();
    let stdin = child.stdin.take();
    // Neither thread is joined: the process ends with the command.
    thread::spawn(move || feed_command(stdin, &food));
    thread::spawn({
        let group = group.clone();
        move || hold_leash(&group, feed)
    });
    let waiting = *group.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pid) = waiting {
        // The command stays unreaped, so its number stays the group's while the rest of the group is killed.
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        {
        }
        group.signal(Signal::KILL);
    }
    let mut guard = group.0.lock().unwrap_or_else(PoisonError::into_inner);
    let status = child.wait();
    *guard = None;
    drop(guard);
    let Ok(status) = status else { return ExitCode::from(NOT_STARTED) };
    if let Some(signal) = status.signal() {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        return ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX));
    }
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// A command that does not read blocks this thread and nothing else.
fn feed_command(stdin: Option<ChildStdin>, food: &mpsc::Receiver<Vec<u8>>) {
    let Some(mut stdin) = stdin else { return };
    while let Ok(bytes) = food.recv() {
        if stdin.write_all(&bytes).is_err() {
            return;
        }
    }
}

fn hold_leash(group: &Group, feed: mpsc::Sender<Vec<u8>>) {
    let mut leash = std::io::stdin().lock();
    let mut feed = Some(feed);
    while let Ok((tag, bytes)) = read_frame(&mut leash) {
        match tag {
            DATA => {
                // The command may have closed its input; that is its affair.
                let _ = feed.as_ref().map(|feed| feed.send(bytes));
            }
            END => feed = None,
            TERM => group.signal(Signal::TERM),
            _ => group.signal(Signal::KILL),
        }
    }
    group.signal(Signal::KILL);
}

fn read_frame(from: &mut impl Read) -> std::io::Result<(u8, Vec<u8>)> {
    let mut tag = [0];
    let mut length = [0; 4];
    from.read_exact(&mut tag)?;
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    let mut bytes = Vec::new();
    if from.take(length.into()).read_to_end(&mut bytes)? < length as usize {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let [tag] = tag;
    Ok((tag, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_and_a_cut_one_is_an_end() {
        let mut bytes: &[u8] = b"d\0\0\0\x03abce\0\0\0\0t\0\0\0\x05ab";
        assert_eq!(read_frame(&mut bytes).unwrap(), (DATA, b"abc".to_vec()));
        assert_eq!(read_frame(&mut bytes).unwrap(), (END, Vec::new()));
        assert!(read_frame(&mut bytes).is_err());
    }
}
