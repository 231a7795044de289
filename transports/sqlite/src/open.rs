//! Opening a file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use postroom_core::{ErrorKind, TransportError};
use sqlx::{
    ConnectOptions, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};
use tokio::time::{Instant, sleep};

use crate::{
    config::{SqliteConfig, Sync},
    error, schema,
};

/// File systems that do not keep the locks and the shared memory that SQLite's log needs.
const NETWORK: [&str; 12] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "9p",
    "fuse.sshfs",
    "fuse.glusterfs",
];

/// The file's absolute path, links resolved, so that two spellings are one file.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf, TransportError> {
    let refused = |what: String| TransportError::new(ErrorKind::Connection, what);
    let shown = path.display();
    if let Ok(path) = path.canonicalize() {
        if path.is_dir() {
            return Err(refused(format!("{shown} is a folder, not a SQLite file")));
        }
        return Ok(path);
    }
    let name = path.file_name().ok_or_else(|| refused(format!("{shown} names no file")))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder.canonicalize().map_err(|error| {
        refused(format!("the folder of {shown} does not exist; only the file itself is created")).caused_by(error)
    })?;
    Ok(folder.join(name))
}

pub(crate) fn options(path: &Path, config: &SqliteConfig) -> SqliteConnectOptions {
    let sync = match config.sync {
        Sync::Full => SqliteSynchronous::Full,
        Sync::Normal => SqliteSynchronous::Normal,
    };
    SqliteConnectOptions::new()
        .filename(path)
        // Of a new file. Each page of a claim or settle is one write call: larger ones are fewer.
        .page_size(16384)
        .create_if_missing(true)
        .busy_timeout(config.busy)
        .synchronous(sync)
        .foreign_keys(true)
        // A queue writes the same pages again and again; what is not copied back so soon is copied back once.
        .pragma("wal_autocheckpoint", "1000")
        // After a long reader the log has grown; it need not stay so.
        .pragma("journal_size_limit", "67108864")
        // A claim's rows fit, so that SQLite never waits in the middle of a write for us to take them.
        .row_buffer_size(4096)
        .thread_name(|id| format!("postroom-sqlite-{id}"))
        .disable_statement_logging()
}

/// Opens the writing connection, and brings the file into shape. Several processes may do it at once.
pub(crate) async fn writing(
    options: &SqliteConnectOptions,
    path: &Arc<PathBuf>,
    patience: Duration,
) -> Result<(SqliteConnection, String), TransportError> {
    let began = Instant::now();
    loop {
        match once(options).await {
            // The change to WAL needs the file alone, and SQLite does not wait for that.
            Err(error) if error::is_busy(&error) && began.elapsed() < patience => {
                sleep(Duration::from_micros(fastrand::u64(1_000..20_000))).await;
            }
            Err(error) => return Err(error::translate(path, error)),
            Ok((_, _, version)) if version > schema::NEWEST => {
                let newest = schema::NEWEST;
                let what = format!(
                    "{} has schema version {version}, this program knows versions up to {newest}: it was written by a newer one",
                    path.display()
                );
                return Err(TransportError::new(ErrorKind::Refused, what));
            }
            Ok((connection, server, _)) => return Ok((connection, server)),
        }
    }
}

async fn once(options: &SqliteConnectOptions) -> Result<(SqliteConnection, String, i64), sqlx::Error> {
    let mut connection = options.connect().await?;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await?;
    if mode != "wal" {
        sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL").fetch_one(&mut connection).await?;
    }
    let version = schema::migrate(&mut connection).await?;
    let server = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut connection).await?;
    Ok((connection, server, version))
}

/// The network file system that a path lies on, where that is known.
pub(crate) fn network(path: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let nearest = mounts.filter(|(folder, _)| path.starts_with(folder)).max_by_key(|(folder, _)| folder.len());
    nearest.map(|(_, kind)| kind).filter(|kind| NETWORK.contains(kind)).map(str::to_owned)
}
