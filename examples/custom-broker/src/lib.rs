//! A directory as a broker: one file a message, claimed by renaming it. Several processes can share it.
//!
//! ```text
//! ROOT/orders.queue/ready/…            waits; names sort by age
//! ROOT/orders.queue/held/OWNER/…       is delivered to one subscription
//! ROOT/owners/OWNER                    locked while the subscription lives; its process's death unlocks it
//! ```
//!
//! What a directory cannot do is said, not imitated: no delays, no leases, no topics, no counting. The
//! powers are [`Absent`], so no code for them can be reached, and [`Capabilities`] tells the runtime and the operator.

mod file;
mod source;

use std::{
    cell::{Cell, RefCell},
    fs, io,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use postroom_core::{
    Absent, Broker, Capabilities, Declaration, DeclareMode, Dsn, Durability, ErrorKind, MessageId, Name, Outgoing,
    Place, Subscription, Tended, TransportError,
};

pub use source::DirectorySource;
use source::{Held, give_back};

/// How soon after a process's death its messages are looked for.
const LOOK_FOR_THE_DEAD: Duration = Duration::from_secs(1);

/// Which directory.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory; it is made when it is not there, its parent is not.
    pub root: PathBuf,
}

impl Config {
    /// Reads `dir:PATH?queue=NAME`. A namespace is a directory of its own.
    ///
    /// # Errors
    /// For a DSN with a host, and for an unknown key.
    pub fn from_dsn(dsn: &Dsn, namespace: Option<&Name>) -> Result<Self, TransportError> {
        let wrong = |text: String| TransportError::new(ErrorKind::Config, text);
        dsn.finish(&[]).map_err(|error| wrong(error.to_string()))?;
        if !dsn.hosts().is_empty() || dsn.path().is_empty() {
            return Err(wrong("a directory DSN is `dir:PATH?queue=NAME`".into()));
        }
        let mut root = PathBuf::from(dsn.path());
        if let Some(namespace) = namespace {
            root = root.with_added_extension(namespace.as_str());
        }
        Ok(Self { root })
    }
}

/// A connection.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    closed: Cell<bool>,
    sources: RefCell<Vec<Rc<Held>>>,
}

/// An error of the file system is worth another try: a full disk is emptied, a mount comes back.
fn failed(what: &str, path: &Path, error: io::Error) -> TransportError {
    TransportError::new(ErrorKind::Busy, format!("{what} {}", path.display())).caused_by(error)
}

impl Directory {
    fn open(&self) -> Result<(), TransportError> {
        if self.closed.get() { Err(TransportError::stopped()) } else { Ok(()) }
    }

    /// The directory of a place. A name holds no slash, and the last dot is ours: no two places share a directory.
    fn path(&self, place: &Place) -> Result<PathBuf, TransportError> {
        match place {
            Place::Queue(name) => Ok(self.root.join(format!("{name}.queue"))),
            Place::Store(name) => Ok(self.root.join(format!("{name}.store"))),
            other => Err(TransportError::new(ErrorKind::Refused, format!("a directory has no topics: {other}"))),
        }
    }

    fn put(&self, outgoing: &Outgoing) -> Result<MessageId, TransportError> {
        self.open()?;
        let envelope = &outgoing.envelope;
        let place = self.path(&outgoing.to)?;
        if !place.is_dir() {
            return Err(TransportError::new(ErrorKind::Unroutable, format!("no {}", outgoing.to)));
        }
        // A failed record's id is its file's name: stored twice, it is there once.
        let record = envelope.track.as_ref().and_then(|track| track.failure.as_ref()).map(|failure| &*failure.record);
        let name = match (&outgoing.to, record) {
            (Place::Store(_), Some(record)) => record.to_owned(),
            _ => file::fresh_name(),
        };
        file::write(&place, &name, envelope).map_err(|error| failed("can't write in", &place, error))?;
        Ok(envelope.id.clone())
    }
}

impl Broker for Directory {
    type Config = Config;
    type Source = DirectorySource;
    type Count = Absent;
    type Browse = Absent;
    type Groups = Absent;

    async fn connect(config: &Config) -> Result<Self, TransportError> {
        let root = config.root.clone();
        let made = match fs::create_dir(&root) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
        made.and_then(|()| fs::create_dir_all(root.join("owners"))).map_err(|error| {
            TransportError::new(ErrorKind::Connection, format!("can't open {}", root.display())).caused_by(error)
        })?;
        Ok(Self { root, closed: Cell::default(), sources: RefCell::default() })
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::none("directory");
        can.shared = true;
        can.durability = Durability::Crash;
        can.durability_setting = "no fsync".to_owned();
        can.warnings.push("it keeps no delays: a retry runs at once".to_owned());
        can.warnings.push("a message that kills its process is never failed: deliveries are not counted".to_owned());
        can
    }

    async fn declare(&self, what: &[Declaration], how: DeclareMode) -> Result<(), TransportError> {
        self.open()?;
        for Declaration { place, .. } in what {
            let path = self.path(place)?;
            if how == DeclareMode::Verify && !path.is_dir() {
                return Err(TransportError::new(ErrorKind::NotFound, format!("no {place}")));
            }
            for part in ["new", "held", "ready"] {
                let part = path.join(part);
                fs::create_dir_all(&part).map_err(|error| failed("can't make", &part, error))?;
            }
        }
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<MessageId, TransportError>> {
        batch.iter().map(|outgoing| self.put(outgoing)).collect()
    }

    async fn subscribe(&self, to: Subscription) -> Result<DirectorySource, TransportError> {
        self.open()?;
        let place = self.path(&to.place)?;
        let held = Held::new(&self.root, &place).map_err(|error| failed("can't read", &place, error))?;
        let held = Rc::new(held);
        self.sources.borrow_mut().push(held.clone());
        Ok(DirectorySource::new(held))
    }

    /// Takes back what the dead held: the lock of a subscription ends with its process.
    async fn tend(&self, _: usize) -> Result<Tended, TransportError> {
        self.open()?;
        let mut tended = Tended::default();
        tended.reclaimed = give_back(&self.root).map_err(|error| failed("can't tend", &self.root, error))?;
        tended.next = Some(LOOK_FOR_THE_DEAD);
        Ok(tended)
    }

    async fn close(&self) -> Result<(), TransportError> {
        self.closed.set(true);
        self.sources.take().iter().try_for_each(|held| held.close())
    }

    fn count(&self) -> Option<&Absent> {
        None
    }
    fn browse(&self) -> Option<&Absent> {
        None
    }
    fn groups(&self) -> Option<&Absent> {
        None
    }
}
