//! A subscription, and what it holds.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use postroom_core::{Absent, Incoming, Position, Settled, Settlement, Source, TransportError};
use tokio::{sync::Notify, time::timeout};

use crate::{failed, file};

/// A directory cannot wake anybody: the pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// A pull that brings nothing answers after so many looks: it proves that the subscription is alive.
const LOOKS: u32 = 400;
/// How many names are remembered of a long line.
const NAMES: usize = 1024;

/// What a subscription holds, shared with its connection, which may close it.
#[derive(Debug)]
pub(crate) struct Held {
    place: PathBuf,
    held: PathBuf,
    owner: PathBuf,
    /// Its lock says that we live; it is there before its name, so nobody finds it unlocked.
    _lock: File,
    closed: Cell<bool>,
    woken: Cell<bool>,
    changed: Notify,
}

impl Held {
    pub(crate) fn new(root: &Path, place: &Path) -> io::Result<Self> {
        let name = file::fresh_name();
        let (owner, beside) = (root.join("owners").join(&name), root.join("owners").join(format!("{name}.new")));
        let lock = File::create(&beside)?;
        lock.lock()?;
        fs::rename(beside, &owner)?;
        let held = place.join("held").join(&name);
        fs::create_dir(&held)?;
        let (closed, woken) = (Cell::new(false), Cell::new(false));
        Ok(Self { place: place.into(), held, owner, _lock: lock, closed, woken, changed: Notify::new() })
    }

    pub(crate) fn close(&self) -> Result<(), TransportError> {
        if self.closed.replace(true) {
            return Ok(());
        }
        self.changed.notify_one();
        empty(&self.held, &self.place).map_err(|error| failed("can't give back", &self.held, error))?;
        // Whoever tends would do it as well.
        let _ = fs::remove_file(&self.owner);
        Ok(())
    }

    fn settle(&self, name: &str, how: &Settlement) -> io::Result<Settled> {
        let held = self.held.join(name);
        if !held.exists() {
            return Ok(Settled::Already);
        }
        match how {
            Settlement::Ack => fs::remove_file(held)?,
            Settlement::Release => fs::rename(held, self.place.join("ready").join(name))?,
            // First the copy, then the original goes: a death between the two leaves both, never none.
            Settlement::Retry { replacement, .. } => {
                file::write(&self.place, &file::fresh_name(), replacement)?;
                fs::remove_file(held)?;
            }
        }
        Ok(Settled::Done)
    }
}

/// Moves what lies in a subscription's directory back in line, under the old names, and removes the directory.
fn empty(held: &Path, place: &Path) -> io::Result<usize> {
    let mut moved = 0;
    for entry in fs::read_dir(held)? {
        let entry = entry?;
        fs::rename(entry.path(), place.join("ready").join(entry.file_name()))?;
        moved += 1;
    }
    fs::remove_dir(held)?;
    Ok(moved)
}

/// Gives back what subscriptions held whose process is dead.
pub(crate) fn give_back(root: &Path) -> io::Result<usize> {
    let mut moved = 0;
    for owner in fs::read_dir(root.join("owners"))? {
        let owner = owner?;
        // One that is gone meanwhile, or is locked, needs nothing.
        let Ok(lock) = File::open(owner.path()) else { continue };
        if owner.path().extension().is_some() || lock.try_lock().is_err() {
            continue;
        }
        for place in fs::read_dir(root)? {
            let place = place?.path();
            let held = place.join("held").join(owner.file_name());
            if held.is_dir() {
                moved += empty(&held, &place)?;
            }
        }
        let _ = fs::remove_file(owner.path());
    }
    Ok(moved)
}

/// An open subscription.
#[derive(Debug)]
pub struct DirectorySource {
    held: Rc<Held>,
    names: RefCell<VecDeque<String>>,
}

impl DirectorySource {
    pub(crate) fn new(held: Rc<Held>) -> Self {
        Self { held, names: RefCell::default() }
    }

    /// The oldest names that wait; never more than a few, however long the line is.
    fn look(&self) -> io::Result<VecDeque<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.held.place.join("ready"))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
            if names.len() == 2 * NAMES {
                names.sort_unstable();
                names.truncate(NAMES);
            }
        }
        names.sort_unstable();
        names.truncate(NAMES);
        Ok(names.into())
    }

    fn take(&self, max: usize) -> io::Result<Vec<Incoming<String>>> {
        let mut names = self.names.borrow_mut();
        if names.is_empty() {
            *names = self.look()?;
        }
        let mut taken = Vec::new();
        while taken.len() < max {
            let Some(name) = names.pop_front() else { break };
            let held = self.held.held.join(&name);
            match fs::rename(self.held.place.join("ready").join(&name), &held) {
                Ok(()) => {}
                // Another was faster.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
            let read = file::read(&held, &name)?;
            let mut incoming = Incoming::new(name.clone(), read.envelope);
            incoming.position = Position::Text(name.into());
            incoming.oddities = read.oddities;
            taken.push(incoming);
        }
        Ok(taken)
    }
}

impl Source for DirectorySource {
    /// The file's name: what is not in our own directory is not ours to settle.
    type Token = String;
    type Lease = Absent;

    async fn pull(&self, max: usize) -> Result<Vec<Incoming<String>>, TransportError> {
        for _ in 0..LOOKS {
            if self.held.closed.get() {
                return Err(TransportError::stopped());
            }
            let taken = self.take(max).map_err(|error| failed("can't read", &self.held.place, error))?;
            if self.held.woken.take() || !taken.is_empty() {
                return Ok(taken);
            }
            let _ = timeout(LOOK_AGAIN, self.held.changed.notified()).await;
        }
        Ok(Vec::new())
    }

    fn wake(&self) {
        self.held.woken.set(true);
        self.held.changed.notify_one();
    }

    async fn settle(&self, batch: &[(&String, Settlement)]) -> Vec<Result<Settled, TransportError>> {
        let one = |(name, how): &(&String, Settlement)| {
            if self.held.closed.get() {
                return Err(TransportError::stopped());
            }
            self.held.settle(name, how).map_err(|error| failed("can't settle in", &self.held.held, error))
        };
        batch.iter().map(one).collect()
    }

    fn lease(&self) -> Option<&Absent> {
        None
    }

    async fn close(&self) -> Result<(), TransportError> {
        self.held.close()
    }
}
