//! A change of the file, as the writer runs it.

use std::{future::Future, pin::Pin};

use postroom_core::TransportError;
use sqlx::SqliteConnection;
use tokio::sync::oneshot;

use crate::arrivals::{Arrivals, Bell};

/// Whose the transaction is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// None is open: a work item of several statements brings its own.
    Own,
    /// The writer's, round several statements or items.
    Shared,
}

/// A text of several statements, with a transaction round it and without. SQLite runs all of it in one call, which
/// spares three or four hand-overs between threads. That a prepared text may hold several is something that only sqlx's
/// SQLite driver allows, and that sqlx means to end (launchbadge/sqlx#3108): then this is the place to change.
macro_rules! framed {
    ($($part:expr),+ $(,)?) => {
        [concat!("BEGIN IMMEDIATE; ", $($part),+, "; COMMIT"), concat!($($part),+)]
    };
}
pub(crate) use framed;

impl Frame {
    pub(crate) fn of(self, [own, shared]: &[&'static str; 2]) -> &'static str {
        if self == Self::Own { own } else { shared }
    }

    /// Undoes a failed text, as far as nobody else does.
    pub(crate) async fn undo(self, on: &mut SqliteConnection) {
        if self == Self::Own {
            // It may be that nothing is open.
            let _ = sqlx::raw_sql("ROLLBACK").execute(on).await;
        }
    }
}

/// A change. It may run more than once, where the file was busy or a neighbour in its transaction failed; only the last
/// run counts.
pub(crate) trait Work: Send + 'static {
    type Answer: Send + 'static;

    /// Whether it is one call of SQLite, with a transaction of its own where it needs one.
    fn is_single(&self) -> bool;

    fn run(
        &mut self,
        on: &mut SqliteConnection,
        frame: Frame,
    ) -> impl Future<Output = Result<Self::Answer, sqlx::Error>> + Send;

    /// Who is to be told, once it is committed.
    fn bells(&self, _answer: &Self::Answer) -> Vec<Bell> {
        Vec::new()
    }
}

/// [`Work`] with the one who waits for its answer, whatever the answer's type.
pub(crate) trait Job: Send {
    fn is_single(&self) -> bool;
    fn run<'a>(&'a mut self, on: &'a mut SqliteConnection, frame: Frame) -> Running<'a>;
    fn finish(self: Box<Self>, end: Result<(), TransportError>, arrivals: &Arrivals);
}

pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Result<(), sqlx::Error>> + Send + 'a>>;

pub(crate) struct Pending<W: Work> {
    work: W,
    answer: Option<W::Answer>,
    to: oneshot::Sender<Result<W::Answer, TransportError>>,
}

impl<W: Work> Pending<W> {
    pub(crate) fn new(work: W) -> (Box<Self>, oneshot::Receiver<Result<W::Answer, TransportError>>) {
        let (to, answer) = oneshot::channel();
        (Box::new(Self { work, answer: None, to }), answer)
    }
}

impl<W: Work> Job for Pending<W> {
    fn is_single(&self) -> bool {
        self.work.is_single()
    }

    fn run<'a>(&'a mut self, on: &'a mut SqliteConnection, frame: Frame) -> Running<'a> {
        Box::pin(async move {
            self.answer = Some(self.work.run(on, frame).await?);
            Ok(())
        })
    }

    fn finish(self: Box<Self>, end: Result<(), TransportError>, arrivals: &Arrivals) {
        let Self { work, answer, to } = *self;
        let end = end.and_then(|()| answer.ok_or_else(TransportError::stopped));
        let bells = end.as_ref().map_or_else(|_| Vec::new(), |answer| work.bells(answer));
        // First, so that who sent a message knows of it before who reads it. Who asked may be gone; what was done stays
        // done, and is told.
        let _ = to.send(end);
        bells.into_iter().for_each(|bell| arrivals.ring(bell));
    }
}
