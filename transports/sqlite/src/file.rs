//! One file in this process: its single writer, its readers, and who waits for it. All connections with the same path
//! and options share it.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, LazyLock, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use postroom_core::{ErrorKind, TransportError};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::{
    arrivals::Arrivals,
    config::{SqliteConfig, Sync},
    open,
    readers::Readers,
    work::{Job, Pending, Work},
    writer::Writer,
};

type Key = (PathBuf, Sync, Duration);
type Slot = Arc<tokio::sync::Mutex<Weak<File>>>;

static FILES: LazyLock<Mutex<HashMap<Key, Slot>>> = LazyLock::new(Mutex::default);

pub(crate) struct File {
    pub(crate) path: Arc<PathBuf>,
    pub(crate) readers: Readers,
    pub(crate) arrivals: Arc<Arrivals>,
    /// SQLite's version.
    pub(crate) server: String,
    pub(crate) sync: Sync,
    jobs: UnboundedSender<Box<dyn Job>>,
    /// Which file it was when it was opened; another may lie under its name by now.
    identity: Option<(u64, u64)>,
    broken: AtomicBool,
}

impl File {
    /// The file of this config, opened where it is not open yet.
    pub(crate) async fn open(config: &SqliteConfig) -> Result<Arc<Self>, TransportError> {
        let path = open::canonical(&config.path)?;
        let slot = {
            let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
            files
                .retain(|_, slot| Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|it| it.strong_count() > 0));
            files.entry((path.clone(), config.sync, config.busy)).or_default().clone()
        };
        let mut slot = slot.lock().await;
        if let Some(file) = slot.upgrade().filter(|file| file.is_sound()) {
            return Ok(file);
        }
        let file = Arc::new(Self::opened(Arc::new(path), config).await?);
        *slot = Arc::downgrade(&file);
        Ok(file)
    }

    async fn opened(path: Arc<PathBuf>, config: &SqliteConfig) -> Result<Self, TransportError> {
        let options = open::options(&path, config);
        // SQLite has waited `busy` by the time it says so; the rest is for where it does not wait.
        let patience = config.busy.saturating_mul(2).max(Duration::from_secs(1));
        let (connection, server) = open::writing(&options, &path, patience).await?;
        let arrivals = Arc::new(Arrivals::new());
        let writer = Writer {
            connection,
            path: path.clone(),
            arrivals: arrivals.clone(),
            grouped: config.sync == Sync::Full,
            patience,
        };
        let (jobs, work) = unbounded_channel();
        let thread = std::thread::Builder::new().name("postroom-sqlite".into()).spawn(move || {
            // Without a runtime the channel closes, and every caller is told.
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() {
                runtime.block_on(writer.run(work));
            }
        });
        thread.map_err(|error| {
            TransportError::new(ErrorKind::Connection, "no thread could be started for the writer").caused_by(error)
        })?;
        let readers = Readers::new(options, path.clone(), patience);
        let (identity, broken) = (identity(&path), AtomicBool::new(false));
        Ok(Self { path, readers, arrivals, server, sync: config.sync, jobs, identity, broken })
    }

    fn is_sound(&self) -> bool {
        !self.broken.load(Ordering::Acquire) && !self.jobs.is_closed() && identity(&self.path) == self.identity
    }

    /// Changes the file.
    pub(crate) async fn write<W: Work>(&self, work: W) -> Result<W::Answer, TransportError> {
        let (job, answer) = Pending::new(work);
        let gone = || {
            let what = format!("the writer of {} ended", self.path.display());
            Err(TransportError::new(ErrorKind::Connection, what))
        };
        let answer = match self.jobs.send(job) {
            Ok(()) => answer.await.unwrap_or_else(|_| gone()),
            Err(_) => gone(),
        };
        answer.inspect_err(|error| self.heed(error))
    }

    /// Asks something, beside the writer.
    pub(crate) async fn ask<T>(
        &self,
        question: impl AsyncFn(&mut sqlx::SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, TransportError> {
        self.readers.ask(question).await.inspect_err(|error| self.heed(error))
    }

    /// A broken file is opened anew by the next connection.
    fn heed(&self, error: &TransportError) {
        if error.kind() == ErrorKind::Connection {
            self.broken.store(true, Ordering::Release);
        }
    }
}

#[cfg(unix)]
fn identity(path: &std::path::Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(_: &std::path::Path) -> Option<(u64, u64)> {
    None
}
