//! A connection.

use std::{
    fmt,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use postroom_core::{
    Broker, Capabilities, Declaration, DeclareMode, DeliveryCount, Durability, Fencing, MessageId, Outgoing,
    Subscription, Tended, TransportError,
};
use tokio::time::Instant;

use crate::{
    config::MemoryConfig,
    source::MemorySource,
    store::{Shared, Store},
};

/// A connection to a store of this process.
pub struct Memory {
    powers: Powers,
}

/// A connection's powers to count, to browse, and over groups. Apart from [`Memory`], because a type that is a broker
/// and a power at once has two methods `count`.
pub struct Powers {
    shared: Arc<Shared>,
    connection: u64,
    /// Changed under the store's lock only, so that no call passes a close.
    closed: AtomicBool,
}

impl Powers {
    pub(crate) fn open(&self) -> Result<MutexGuard<'_, Store>, TransportError> {
        let store = self.shared.lock();
        if self.closed.load(Ordering::Relaxed) { Err(TransportError::stopped()) } else { Ok(store) }
    }
}

impl fmt::Debug for Powers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Powers").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("connection", &self.powers.connection).finish_non_exhaustive()
    }
}

impl Broker for Memory {
    type Config = MemoryConfig;
    type Source = MemorySource;
    type Count = Powers;
    type Browse = Powers;
    type Groups = Powers;

    async fn connect(config: &MemoryConfig) -> Result<Self, TransportError> {
        let shared = config.shared.clone();
        let connection = shared.lock().connection();
        Ok(Self { powers: Powers { shared, connection, closed: AtomicBool::new(false) } })
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::none("memory");
        can.delay = true;
        can.lease = true;
        can.topics = true;
        can.atomic_retry = true;
        can.delivery_count = DeliveryCount::Exact;
        can.fencing = Fencing::Refused;
        can.durability = Durability::Process;
        can.durability_setting = "this process".into();
        can.warnings.push("messages are gone when the process ends".into());
        can
    }

    async fn declare(&self, what: &[Declaration], how: DeclareMode) -> Result<(), TransportError> {
        self.powers.open()?.declare(what, how)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<MessageId, TransportError>> {
        match self.powers.open() {
            Ok(mut store) => store.publish(batch),
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn subscribe(&self, to: Subscription) -> Result<MemorySource, TransportError> {
        let signal = Arc::default();
        let (key, arrived) = self.powers.open()?.open(self.powers.connection, &to.place, Arc::clone(&signal))?;
        Ok(MemorySource::new(self.powers.shared.clone(), key, to, arrived, signal))
    }

    async fn tend(&self, max: usize) -> Result<Tended, TransportError> {
        let mut store = self.powers.open()?;
        let (now, max) = (Instant::now(), max.max(1));
        let mut tended = Tended::default();
        let mut next: Option<Instant> = None;
        for lane in store.lanes.values_mut() {
            let left = max.saturating_sub(tended.promoted + tended.reclaimed);
            let promoted = lane.promote(left, now);
            tended.promoted += promoted;
            tended.reclaimed += lane.reclaim(left - promoted, now);
            next = next.into_iter().chain(lane.next()).min();
        }
        tended.next = next.map(|next| next.saturating_duration_since(now));
        tended.more = tended.next == Some(Duration::ZERO);
        Ok(tended)
    }

    async fn close(&self) -> Result<(), TransportError> {
        let mut store = self.powers.shared.lock();
        self.powers.closed.store(true, Ordering::Relaxed);
        store.close_connection(self.powers.connection);
        Ok(())
    }

    fn count(&self) -> Option<&Powers> {
        Some(&self.powers)
    }
    fn browse(&self) -> Option<&Powers> {
        Some(&self.powers)
    }
    fn groups(&self) -> Option<&Powers> {
        Some(&self.powers)
    }
}
