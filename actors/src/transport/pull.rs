//! Taking deliveries.

use std::{rc::Rc, time::Duration};

use postroom_core::{Broker, ErrorKind, Source, TransportError, protocol::SourceId};

use super::{
    How, Pulled,
    engine::{Engine, Phase, within},
};
use crate::board::Health;

/// A pull answers at most 5 s after it has asked the broker (see [`Source::pull`]); a later one hangs.
const PULL: Duration = Duration::from_secs(15);
/// The pause after an error that is not the connection's, doubling up to 5 s.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

impl<B: Broker> Engine<B> {
    pub(super) async fn pull(self: Rc<Self>, source: SourceId, max: usize, how: How) -> Pulled {
        let Some(sub) = self.subs.get(source.0 as usize) else { return Pulled::Stopped };
        let mut pause = FIRST_PAUSE;
        loop {
            if how == How::Now && self.link.borrow().is_none() {
                return Pulled::Took(0);
            }
            let Some(link) = self.linked(Phase::Running).await else { return Pulled::Stopped };
            let Some(from) = link.sources.get(source.0 as usize) else { return Pulled::Stopped };
            let pulling = Pulling::new(&self, source);
            let hurry = (how == How::Now).then(|| hurry(from.clone()));
            // Never dropped half-way but with its whole connection.
            let pulled = within(PULL, from.pull(max)).await.unwrap_or_else(|_| {
                Err(TransportError::new(
                    ErrorKind::Connection,
                    format!("{}: no answer to a read within {PULL:?}", sub.place),
                ))
            });
            match pulled {
                Ok(incoming) => {
                    let taken = incoming.len();
                    if link.epoch != self.epoch.get() || self.link.borrow().is_none() {
                        // Its connection has ended meanwhile: the broker hands these out again.
                        drop(incoming);
                        continue;
                    }
                    let (at, mut actions) = (crate::clock::now(), self.spare.take());
                    drop(hurry);
                    let over = match (how, &self.budget) {
                        // Claimed all the same: what goes back is refunded.
                        (How::Probe, budget) => {
                            budget.as_ref().map(|budget| budget.claim(taken));
                            taken
                        }
                        (_, Some(budget)) => budget.claim(taken),
                        (_, None) => 0,
                    };
                    {
                        let mut ledger = self.ledger.borrow_mut();
                        for (index, one) in incoming.into_iter().enumerate() {
                            if one.oddities > 0 {
                                self.counters.odd(one.oddities);
                            }
                            if index < taken - over {
                                ledger.arrive(source, one, at, &mut actions);
                            } else {
                                ledger.turn_away(source, one, &mut actions);
                            }
                        }
                    }
                    self.apply(actions);
                    drop(pulling);
                    self.show(if taken > 0 { Health::Active } else { Health::Idle }, "");
                    return Pulled::Took(taken);
                }
                Err(error) if matches!(error.kind(), ErrorKind::Connection | ErrorKind::Stopped) => {
                    self.broke(link.epoch, &error);
                }
                Err(error) => {
                    tracing::warn!(transport = %self.options.name, place = %sub.place, error = ?error, "a read failed; trying again");
                    self.show(Health::Degraded, &error.to_string());
                    drop(pulling);
                    let mut phase = self.phase.subscribe();
                    tokio::select! {
                        () = tokio::time::sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
                        _ = phase.wait_for(|phase| *phase > Phase::Running) => {}
                    }
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
            }
        }
    }
}

/// How long a pull for what is there now may wait for it.
const NOW: Duration = Duration::from_millis(100);

/// Wakes a source in a moment, unless it is dropped before.
fn hurry<S: Source>(source: Rc<S>) -> Hurry {
    Hurry(actix::spawn(async move {
        tokio::time::sleep(NOW).await;
        source.wake();
    }))
}

struct Hurry(tokio::task::JoinHandle<()>);

impl Drop for Hurry {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A pull is on its way: what it brings must still be settled.
struct Pulling<B: Broker> {
    engine: Rc<Engine<B>>,
    source: SourceId,
}

impl<B: Broker> Pulling<B> {
    fn new(engine: &Rc<Engine<B>>, source: SourceId) -> Self {
        if let Some(sub) = engine.subs.get(source.0 as usize) {
            sub.pulls.set(sub.pulls.get() + 1);
        }
        Self { engine: engine.clone(), source }
    }
}

impl<B: Broker> Drop for Pulling<B> {
    fn drop(&mut self) {
        if let Some(sub) = self.engine.subs.get(self.source.0 as usize) {
            sub.pulls.set(sub.pulls.get().saturating_sub(1));
        }
        self.engine.emptied.notify_waiters();
    }
}
