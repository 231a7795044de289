//! What a live connection needs by the clock: renewals of leases, and `tend`.

use std::{rc::Rc, time::Duration};

use postroom_core::{
    Broker, ErrorKind, Extended, Lease, Source, TransportError,
    protocol::{Event, Key},
};
use tokio::time::Instant;

use super::{
    engine::{Engine, Link, Phase},
    settle::BATCH,
};
use crate::gate::now_ms;

/// `tend` is called at least this often: other processes make messages due, and die.
const TICK: Duration = Duration::from_millis(500);
/// How many messages one call of `tend` moves.
const TEND: usize = 1_000;

impl<B: Broker> Engine<B> {
    pub(super) fn start_upkeep(&self, link: &Link<B>) {
        let Some(engine) = self.weak.upgrade() else { return };
        let (tending, with) = (engine.clone(), link.clone());
        self.call("tend", async move { tending.tend(with).await });
        if self.subs.is_empty() {
            return;
        }
        let with = link.clone();
        self.call("renewal", async move { engine.renew(with).await });
    }

    fn is_live(&self, epoch: u32) -> bool {
        self.link.borrow().as_ref().is_some_and(|link| link.epoch == epoch)
    }

    /// Resolves when this connection is no longer the live one.
    async fn over(&self, epoch: u32) {
        let mut live = self.live.subscribe();
        let _ = live.wait_for(|live| *live != epoch).await;
    }

    /// Asks for a call of `tend` within this time: a message becomes due then.
    pub(super) fn tend_within(&self, within: Duration) {
        let at = Instant::now() + within;
        if self.tend_at.get().is_none_or(|known| at < known) {
            self.tend_at.set(Some(at));
            self.tend_now.notify_one();
        }
    }

    async fn tend(self: Rc<Self>, link: Link<B>) {
        while self.is_live(link.epoch) {
            self.tend_at.set(None);
            let mut wait = TICK;
            match tokio::time::timeout(TICK * 30, link.broker.tend(TEND)).await {
                Ok(Ok(tended)) if tended.more => wait = Duration::ZERO,
                Ok(Ok(tended)) => wait = tended.next.map_or(TICK, |next| next.min(TICK)),
                Ok(Err(error)) if matches!(error.kind(), ErrorKind::Connection | ErrorKind::Stopped) => {
                    return self.broke(link.epoch, &error);
                }
                Ok(Err(error)) => {
                    tracing::warn!(transport = %self.options.name, error = ?error, "upkeep failed; trying again");
                }
                Err(_) => {
                    let silent = TransportError::new(
                        ErrorKind::Connection,
                        format!("no answer to upkeep within {:?}", TICK * 30),
                    );
                    return self.broke(link.epoch, &silent);
                }
            }
            // Replicas tend the same broker: jitter keeps them apart.
            let deadline = Instant::now() + wait.mul_f64(0.9 + fastrand::f64() / 10.0);
            loop {
                let until = self.tend_at.get().map_or(deadline, |asked| asked.min(deadline));
                tokio::select! {
                    () = tokio::time::sleep_until(until) => break,
                    () = self.tend_now.notified() => {}
                    () = self.over(link.epoch) => return,
                }
            }
        }
    }

    /// Renews at a third of the lease, off the handlers' threads; goes on through a drain and a slow settle.
    async fn renew(self: Rc<Self>, link: Link<B>) {
        if link.sources.iter().all(|source| source.lease().is_none()) {
            return;
        }
        let mut wait = self.options.lease / 3;
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.over(link.epoch) => return,
            }
            wait = self.options.lease / 3;
            for (sub, source) in self.subs.iter().zip(link.sources.iter()) {
                let Some(power) = source.lease() else { continue };
                let began = now_ms();
                let leased: Vec<(Key, _)> =
                    self.ledger.borrow().leased(sub.gate.source).map(|(key, token)| (key, token.clone())).collect();
                let mut whole = true;
                for batch in leased.chunks(BATCH) {
                    let tokens: Vec<_> = batch.iter().map(|(_, token)| token).collect();
                    let limit = self.options.lease;
                    let results = tokio::time::timeout(limit, power.extend(&tokens)).await;
                    let Ok(results) = results else {
                        let silent = TransportError::new(
                            ErrorKind::Connection,
                            format!("no answer to a renewal within {limit:?}"),
                        );
                        return self.broke(link.epoch, &silent);
                    };
                    for ((key, _), result) in batch.iter().zip(results) {
                        match result {
                            Ok(Extended::Done) => {}
                            Ok(Extended::Lost) => self.lease_lost(*key),
                            Err(error) if error.kind() == ErrorKind::Connection => {
                                return self.broke(link.epoch, &error);
                            }
                            Err(error) => {
                                whole = false;
                                tracing::warn!(transport = %self.options.name, error = ?error, "a renewal failed; trying again");
                            }
                        }
                    }
                }
                if whole {
                    sub.gate.renewed(began);
                } else {
                    wait = self.options.lease / 10;
                }
            }
            if self.phase() == Phase::Closed {
                return;
            }
        }
    }

    fn lease_lost(&self, key: Key) {
        let (gate, id) = {
            let ledger = self.ledger.borrow();
            let Some(source) = ledger.source(key) else { return };
            // A settle on its way may have removed it: its own answer says what came of it.
            if !ledger.is_open(key) {
                return;
            }
            (self.subs.get(source.0 as usize).map(|sub| sub.gate.clone()), ledger.envelope(key).map(|e| e.id.clone()))
        };
        tracing::warn!(transport = %self.options.name, id = ?id, "lease lost: another worker has the message by now");
        if let Some(gate) = gate {
            gate.lost(key);
        }
        self.step(Event::Lost(key));
    }
}
