//! A subscription.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use postroom_core::{
    Extended, Incoming, Lease, Place, Position, Settled, Settlement, Source, Subscription, TransportError,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    claim::{Claim, GiveBack},
    clock,
    error::{missing, translate},
    file::File,
    pack::Packed,
    settle::{Extend, Settle},
};

/// How long a pull waits before it answers that nothing came.
const IDLE: Duration = Duration::from_secs(3);

pub(crate) const LOOK: &str = "SELECT EXISTS (SELECT 1 FROM postroom_message WHERE place = ?1 AND state = 0) \
     FROM postroom_place WHERE id = ?1";

/// One hand-over of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub(crate) id: i64,
    pub(crate) generation: i64,
}

/// What a connection knows of its sources.
pub(crate) struct Open {
    pub(crate) place: i64,
    /// Who holds what this source took: unlike any other source's.
    pub(crate) owner: Arc<str>,
    closed: AtomicBool,
    woken: AtomicBool,
    signal: Notify,
}

impl Open {
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.signal.notify_one();
    }

    /// Ends it; false where it had ended before.
    pub(crate) fn end(&self) -> bool {
        let first = !self.closed.swap(true, Ordering::AcqRel);
        self.wake();
        first
    }

    fn check(&self) -> Result<(), TransportError> {
        if self.closed.load(Ordering::Acquire) { Err(TransportError::stopped()) } else { Ok(()) }
    }
}

/// An open subscription. One that is dropped without a close keeps what it holds until the leases end.
pub struct SqliteSource {
    file: Arc<File>,
    pub(crate) open: Arc<Open>,
    place: Place,
    lease: i64,
    arrived: Arc<Notify>,
    /// Whether the last look found nothing: then a look is cheaper than a claim, which locks the file.
    empty: AtomicBool,
}

impl SqliteSource {
    pub(crate) fn new(file: Arc<File>, id: i64, topic: Option<i64>, to: Subscription) -> Self {
        let owner: Arc<str> = format!("{}/{:016x}", to.owner, fastrand::u64(..)).into();
        let (closed, woken) = (AtomicBool::new(false), AtomicBool::new(false));
        let open = Arc::new(Open { place: id, owner, closed, woken, signal: Notify::new() });
        let arrived = file.arrivals.bell(id, topic);
        let lease = clock::span(to.lease);
        Self { file, open, place: to.place, lease, arrived, empty: AtomicBool::new(false) }
    }

    /// Whether something is ready, asked without a lock.
    async fn look(&self) -> Result<bool, TransportError> {
        let id = self.open.place;
        let found = self.file.ask(async |on| sqlx::query_scalar::<_, bool>(LOOK).bind(id).fetch_optional(on).await);
        found.await?.ok_or_else(|| missing(&self.place))
    }

    async fn claim(&self, max: usize) -> Result<Vec<Incoming<Token>>, TransportError> {
        let Open { place, owner, .. } = &*self.open;
        let max = i64::try_from(max.max(1)).unwrap_or(i64::MAX);
        let taken = self.file.write(Claim { place: *place, owner: owner.clone(), lease: self.lease, max }).await?;
        self.empty.store(taken.count == 0, Ordering::Relaxed);
        let pack = taken.pack().map_err(|error| translate(&self.file.path, error))?;
        let rows: Vec<_> = pack.map(incoming).collect();
        debug_assert_eq!(i64::try_from(rows.len()), Ok(taken.count), "the pack is whole");
        Ok(rows)
    }
}

fn incoming(packed: Packed<'_>) -> Incoming<Token> {
    let Packed { id, generation, delivered, stored } = packed;
    let (envelope, oddities) = stored.envelope(id);
    let mut incoming = Incoming::new(Token { id, generation }, envelope);
    incoming.delivered = Some(u32::try_from(delivered).unwrap_or(u32::MAX));
    incoming.position = u64::try_from(id).map_or(Position::None, Position::Number);
    incoming.oddities = oddities;
    incoming
}

impl fmt::Debug for SqliteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteSource")
            .field("place", &self.place)
            .field("owner", &self.open.owner)
            .finish_non_exhaustive()
    }
}

impl Source for SqliteSource {
    type Token = Token;
    type Lease = Self;

    async fn pull(&self, max: usize) -> Result<Vec<Incoming<Token>>, TransportError> {
        self.open.check()?;
        let until = Instant::now() + IDLE;
        // Watched from before the first look, so that nothing is missed between a look and the wait.
        let mut foreign = self.file.arrivals.watch();
        let mut sure = !self.empty.load(Ordering::Relaxed);
        loop {
            let taken = if sure || self.look().await? { self.claim(max).await? } else { Vec::new() };
            // What was taken after the close began is given back by it.
            self.open.check().inspect_err(|_| self.arrived.notify_one())?;
            let woken = self.open.woken.swap(false, Ordering::AcqRel);
            if woken || !taken.is_empty() || Instant::now() >= until {
                return Ok(taken);
            }
            let _waiting = self.file.arrivals.wait();
            sure = tokio::select! {
                () = self.arrived.notified() => true,
                _ = foreign.changed() => false,
                () = self.open.signal.notified() => false,
                () = sleep_until(until) => false,
            };
        }
    }

    fn wake(&self) {
        self.open.wake();
    }

    async fn settle(&self, batch: &[(&Token, Settlement)]) -> Vec<Result<Settled, TransportError>> {
        if batch.is_empty() {
            return Vec::new();
        }
        let told = match self.open.check() {
            Ok(()) => self.file.write(Settle::new(self.open.place, self.open.owner.clone(), batch)).await,
            Err(stopped) => Err(stopped),
        };
        match told {
            Ok(told) => told.into_iter().map(Ok).collect(),
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn lease(&self) -> Option<&Self> {
        Some(self)
    }

    async fn close(&self) -> Result<(), TransportError> {
        if !self.open.end() {
            return Ok(());
        }
        self.file.write(GiveBack { sources: vec![(self.open.place, self.open.owner.clone())] }).await
    }
}

impl Lease<Token> for SqliteSource {
    async fn extend(&self, batch: &[&Token]) -> Vec<Result<Extended, TransportError>> {
        if batch.is_empty() {
            return Vec::new();
        }
        let kept = match self.open.check() {
            Ok(()) => self.file.write(Extend::new(self.open.owner.clone(), self.lease, batch)).await,
            Err(stopped) => Err(stopped),
        };
        match kept {
            Ok(kept) => kept.into_iter().map(|kept| Ok(if kept { Extended::Done } else { Extended::Lost })).collect(),
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}
