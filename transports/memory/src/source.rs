//! A subscription.

use std::{fmt, sync::Arc, time::Duration};

use postroom_core::{
    Extended, Incoming, Lease, Place, Position, Settled, Settlement, Source, Subscription, TransportError,
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::{
    lane::after,
    store::{Shared, Signal, SourceKey, missing},
};

/// How long a pull waits before it answers that nothing came.
const IDLE: Duration = Duration::from_secs(5);

/// One hand-over of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub(crate) number: u64,
    pub(crate) generation: u32,
}

/// An open subscription. Dropping it closes it.
pub struct MemorySource {
    shared: Arc<Shared>,
    key: SourceKey,
    place: Place,
    lease: Duration,
    arrived: Arc<Notify>,
    signal: Arc<Signal>,
}

impl MemorySource {
    pub(crate) fn new(
        shared: Arc<Shared>,
        key: SourceKey,
        to: Subscription,
        arrived: Arc<Notify>,
        signal: Arc<Signal>,
    ) -> Self {
        Self { shared, key, place: to.place, lease: to.lease, arrived, signal }
    }

    fn take(&self, max: usize) -> Result<Vec<Incoming<Token>>, TransportError> {
        let mut store = self.shared.lock();
        let reading = match store.reading(self.key) {
            Ok(Some((lane, _))) => Ok(lane),
            Ok(None) => Err(missing(&self.place)),
            Err(stopped) => Err(stopped),
        };
        let lane = reading.inspect_err(|_| {
            // This pull may have used up another's call.
            self.arrived.notify_one();
        })?;
        let max = max.max(1).min(lane.ready.len());
        if max == 0 {
            return Ok(Vec::new());
        }
        let deadline = after(Instant::now(), self.lease);
        let mut taken = Vec::with_capacity(max);
        while taken.len() < max {
            let Some((token, envelope, delivered)) = lane.take(self.key, deadline) else { break };
            let mut incoming = Incoming::new(token, envelope);
            incoming.delivered = Some(delivered);
            incoming.position = Position::Number(token.number);
            taken.push(incoming);
        }
        if !lane.ready.is_empty() {
            self.arrived.notify_one();
        }
        Ok(taken)
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySource").field("place", &self.place).field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl Source for MemorySource {
    type Token = Token;
    type Lease = Self;

    async fn pull(&self, max: usize) -> Result<Vec<Incoming<Token>>, TransportError> {
        let mut idle = None;
        loop {
            let taken = self.take(max)?;
            // Consumed here in any case: a pull that brings something has answered too.
            let woken = self.signal.consume();
            if woken || !taken.is_empty() {
                return Ok(taken);
            }
            let until = *idle.get_or_insert_with(|| after(Instant::now(), IDLE));
            if Instant::now() >= until {
                return Ok(taken);
            }
            // Each of these keeps one call made meanwhile, so nothing is missed between the look and the wait.
            tokio::select! {
                () = self.arrived.notified() => {}
                () = self.signal.notify.notified() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    fn wake(&self) {
        self.signal.wake();
    }

    async fn settle(&self, batch: &[(&Token, Settlement)]) -> Vec<Result<Settled, TransportError>> {
        let mut store = self.shared.lock();
        match store.reading(self.key) {
            Err(stopped) => batch.iter().map(|_| Err(stopped.clone())).collect(),
            Ok(None) => batch.iter().map(|_| Ok(Settled::Already)).collect(),
            Ok(Some((lane, number))) => {
                let now = Instant::now();
                let next = |number: &mut u64| {
                    *number += 1;
                    *number
                };
                batch.iter().map(|(token, how)| Ok(lane.settle(self.key, token, how, now, || next(number)))).collect()
            }
        }
    }

    fn lease(&self) -> Option<&Self> {
        Some(self)
    }

    async fn close(&self) -> Result<(), TransportError> {
        self.shared.lock().close_source(self.key);
        Ok(())
    }
}

impl Lease<Token> for MemorySource {
    async fn extend(&self, batch: &[&Token]) -> Vec<Result<Extended, TransportError>> {
        let mut store = self.shared.lock();
        match store.reading(self.key) {
            Err(stopped) => batch.iter().map(|_| Err(stopped.clone())).collect(),
            Ok(None) => batch.iter().map(|_| Ok(Extended::Lost)).collect(),
            Ok(Some((lane, _))) => {
                let deadline = after(Instant::now(), self.lease);
                let renew = |token: &&Token| lane.extend(self.key, token, deadline);
                let told = |kept| Ok(if kept { Extended::Done } else { Extended::Lost });
                batch.iter().map(renew).map(told).collect()
            }
        }
    }
}

impl Drop for MemorySource {
    fn drop(&mut self) {
        self.shared.lock().close_source(self.key);
    }
}
