//! A few connections for questions. In WAL mode they neither wait for the writer nor hold it up.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postroom_core::TransportError;
use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use crate::error;

/// How many questions are answered side by side.
const READERS: usize = 2;

pub(crate) struct Readers {
    options: SqliteConnectOptions,
    path: Arc<PathBuf>,
    patience: Duration,
    permits: Semaphore,
    idle: Mutex<Vec<SqliteConnection>>,
}

impl Readers {
    pub(crate) fn new(options: SqliteConnectOptions, path: Arc<PathBuf>, patience: Duration) -> Self {
        let options = options.create_if_missing(false).pragma("query_only", "1");
        Self { options, path, patience, permits: Semaphore::new(READERS), idle: Mutex::default() }
    }

    /// Asks. A question that is dropped midway takes its connection with it: nobody knows what state that is in.
    pub(crate) async fn ask<T>(
        &self,
        question: impl AsyncFn(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, TransportError> {
        let _permit = self.permits.acquire().await.map_err(|_| TransportError::stopped())?;
        let began = Instant::now();
        loop {
            match self.once(&question).await {
                // Seldom: another process recovers the log, or closes the file as the last one.
                Err(error) if error::is_busy(&error) && began.elapsed() < self.patience => {
                    sleep(Duration::from_micros(fastrand::u64(500..20_000))).await;
                }
                answer => return answer.map_err(|error| error::translate(&self.path, error)),
            }
        }
    }

    async fn once<T>(
        &self,
        question: impl AsyncFn(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.options.connect().await?,
        };
        let answer = question(&mut connection).await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(answer)
    }
}
