//! The writer: the only connection of this process that changes the file, on a thread of its own, so that no caller who
//! stops waiting can leave a transaction open.

use std::{path::PathBuf, sync::Arc, time::Duration};

use sqlx::{Connection, SqliteConnection};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    arrivals::{Arrivals, Bell},
    error,
    work::{Frame, Job},
};

/// The most work items in one transaction.
const GROUP: usize = 64;
/// The pauses between two looks at what other processes did, from the shortest, while nothing happens.
const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

type Jobs = UnboundedReceiver<Box<dyn Job>>;

pub(crate) struct Writer {
    pub(crate) connection: SqliteConnection,
    pub(crate) path: Arc<PathBuf>,
    pub(crate) arrivals: Arc<Arrivals>,
    /// Whether a commit waits for the disk, so that one for many pays.
    pub(crate) grouped: bool,
    /// How long a busy file is tried in all.
    pub(crate) patience: Duration,
}

impl Writer {
    /// Ends when nobody can send work any more.
    pub(crate) async fn run(mut self, mut jobs: Jobs) {
        let mut looks = Looks { pause: LOOK.0, at: Instant::now(), version: None };
        let mut group = Vec::new();
        while let Some(first) = self.next(&mut jobs, &mut looks).await {
            group.push(first);
            while self.grouped && group.len() < GROUP {
                let Ok(job) = jobs.try_recv() else { break };
                group.push(job);
            }
            self.commit(&mut group).await;
            looks.pause = LOOK.0;
            if looks.at.elapsed() > LOOK.1 {
                self.look(&mut looks).await;
            }
        }
        // Checkpoints, where this is the last connection to the file.
        let _ = self.connection.close().await;
    }

    /// The next work item. While somebody waits for messages, it looks for what other processes wrote.
    async fn next(&mut self, jobs: &mut Jobs, looks: &mut Looks) -> Option<Box<dyn Job>> {
        loop {
            if !self.arrivals.is_waited_for() {
                let arrivals = self.arrivals.clone();
                tokio::select! {
                    job = jobs.recv() => return job,
                    () = arrivals.begun.notified() => looks.pause = LOOK.0,
                }
                continue;
            }
            match timeout_at(looks.at + looks.pause, jobs.recv()).await {
                Ok(job) => return job,
                Err(_) => self.look(looks).await,
            }
        }
    }

    async fn look(&mut self, looks: &mut Looks) {
        let version = sqlx::query_scalar::<_, i64>("PRAGMA data_version").fetch_one(&mut self.connection).await.ok();
        if looks.version.is_some() && looks.version != version {
            looks.pause = LOOK.0;
            self.arrivals.ring(Bell::All);
        } else {
            looks.pause = looks.pause.mul_f32(1.3).min(LOOK.1);
        }
        looks.version = version;
        looks.at = Instant::now();
    }

    /// Runs all of them, and answers each.
    async fn commit(&mut self, group: &mut Vec<Box<dyn Job>>) {
        let together = self.attempt(group).await;
        if let Err(error) = together {
            if group.len() == 1 || error::is_busy(&error) {
                let error = error::translate(&self.path, error);
                group.drain(..).for_each(|job| job.finish(Err(error.clone()), &self.arrivals));
                return;
            }
            // One of them failed, and its error is not another's.
            for mut job in group.drain(..) {
                let alone = self.attempt(std::slice::from_mut(&mut job)).await;
                job.finish(alone.map_err(|error| error::translate(&self.path, error)), &self.arrivals);
            }
            return;
        }
        group.drain(..).for_each(|job| job.finish(Ok(()), &self.arrivals));
    }

    /// Runs them in one transaction, and again while the file is busy.
    async fn attempt(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), sqlx::Error> {
        let began = Instant::now();
        loop {
            let result = match &mut *group {
                [job] if job.is_single() => {
                    let result = job.run(&mut self.connection, Frame::Own).await;
                    if result.is_err() {
                        Frame::Own.undo(&mut self.connection).await;
                    }
                    result
                }
                group => self.transaction(group).await,
            };
            match result {
                Err(error) if error::is_busy(&error) && began.elapsed() < self.patience => {
                    sleep(Duration::from_micros(fastrand::u64(500..20_000))).await;
                }
                result => return result,
            }
        }
    }

    async fn transaction(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), sqlx::Error> {
        // Immediate: a transaction that begins as a reader fails at once where another has written meanwhile.
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut self.connection).await?;
        let mut result = Ok(());
        for job in group {
            result = job.run(&mut self.connection, Frame::Shared).await;
            if result.is_err() {
                break;
            }
        }
        if result.is_ok() {
            result = sqlx::raw_sql("COMMIT").execute(&mut self.connection).await.map(drop);
        }
        if result.is_err() {
            Frame::Own.undo(&mut self.connection).await;
        }
        result
    }
}

struct Looks {
    pause: Duration,
    at: Instant,
    version: Option<i64>,
}
