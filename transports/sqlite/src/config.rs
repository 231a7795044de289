//! Which file, and how durable.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use postroom_core::{Dsn, DsnError, Name, duration};

/// The keys of a SQLite DSN beyond the common ones.
const KEYS: [&str; 2] = ["sync", "busy"];

/// What a confirmed publish survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sync {
    /// `synchronous=FULL`: a power cut. Each confirmation waits for the disk.
    #[default]
    Full,
    /// `synchronous=NORMAL`: a crash of the process. A power cut may lose what was confirmed last, and leaves the file
    /// whole.
    Normal,
}

impl Sync {
    pub(crate) fn setting(self) -> &'static str {
        match self {
            Self::Full => "synchronous=FULL",
            Self::Normal => "synchronous=NORMAL",
        }
    }
}

/// Which file to open, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteConfig {
    pub(crate) path: PathBuf,
    pub(crate) namespace: Option<Name>,
    pub(crate) sync: Sync,
    pub(crate) busy: Duration,
}

impl SqliteConfig {
    /// A file; it is created where it is missing, its folder is not. A relative path begins at the current folder.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), namespace: None, sync: Sync::Full, busy: Duration::from_secs(5) }
    }

    /// Puts all places into a namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: Option<Name>) -> Self {
        self.namespace = namespace;
        self
    }

    /// How durable a confirmed message is.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// How long SQLite waits for the write of another process before the driver steps in and tries again.
    #[must_use]
    pub fn busy(mut self, busy: Duration) -> Self {
        self.busy = busy;
        self
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads `sqlite:PATH`, `sqlite:///PATH`, with `sync=full|normal` and `busy=5s`.
    ///
    /// # Errors
    /// For a host or user, a missing path, a wrong value, and an unknown key.
    pub fn from_dsn(dsn: &mut Dsn, namespace: Option<&Name>) -> Result<Self, DsnError> {
        if dsn.scheme() != "sqlite" {
            return Err(DsnError::new("the DSN of the SQLite broker begins with `sqlite:`"));
        }
        if !dsn.hosts().is_empty() || dsn.user().is_some() || dsn.password().is_some() {
            return Err(DsnError::new(
                "a SQLite DSN has no host; write `sqlite:PATH`, or `sqlite:///PATH` from the root",
            ));
        }
        if dsn.path().starts_with(':') {
            return Err(DsnError::new("SQLite in memory cannot be shared; write `memory:` for the memory broker"));
        }
        if dsn.path().is_empty() || dsn.path().ends_with('/') {
            return Err(DsnError::new("the DSN names no file; write `sqlite:PATH`"));
        }
        let mut config = Self::new(dsn.path()).in_namespace(namespace.cloned());
        match dsn.take("sync").as_deref() {
            None | Some("full") => {}
            Some("normal") => config.sync = Sync::Normal,
            Some(_) => return Err(DsnError::new("`sync` must be `full` or `normal`")),
        }
        if let Some(busy) = dsn.take("busy") {
            config.busy = duration(&busy)?;
        }
        dsn.finish(&KEYS)?;
        Ok(config)
    }
}
