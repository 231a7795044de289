//! Connects, and connects again: a lost connection is a state, not a crash.

use std::{rc::Rc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use postroom_core::{
    Broker, Declaration, DeclareMode, ErrorKind, Place, Source, Subscription, TransportError, protocol::Event,
};

use super::engine::{Engine, Link, Phase};
use crate::{board::Health, consumer::Told, options::FailureRef};

/// How long one try to connect, declare and subscribe may take.
const CONNECT: Duration = Duration::from_secs(15);
/// How long a broken connection may take to close.
const CLOSE_BROKEN: Duration = Duration::from_secs(2);
/// The pause after the first failed try, doubling up to the longest: a broker that came back is used within that time.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

impl<B: Broker> Engine<B> {
    pub(super) async fn keep_linked(self: Rc<Self>) {
        let backoff = || {
            ExponentialBuilder::default()
                .with_min_delay(FIRST)
                .with_max_delay(LONGEST)
                .with_jitter()
                .without_max_times()
                .build()
        };
        let mut pauses = backoff();
        let mut phase = self.phase.subscribe();
        self.show(Health::Reconnecting, "connecting");
        while self.phase() < Phase::Closing {
            let tried = tokio::select! {
                tried = tokio::time::timeout(CONNECT, self.try_link()) => tried,
                // A stop is heard while connecting.
                _ = phase.wait_for(|phase| *phase >= Phase::Closing) => return,
            };
            let tried = tried.unwrap_or_else(|_| {
                let name = &self.options.name;
                Err(TransportError::new(
                    ErrorKind::Timeout,
                    format!("transport `{name}`: no connection within {CONNECT:?}"),
                ))
            });
            self.answer_first(&tried);
            match tried {
                Ok(link) => {
                    pauses = backoff();
                    self.use_until_broken(link).await;
                }
                Err(error) => {
                    let health = match error.kind() {
                        // It will not go away by itself: say so, and look again at the slowest pace.
                        ErrorKind::Refused | ErrorKind::Config | ErrorKind::NotFound => Health::Degraded,
                        _ => Health::Reconnecting,
                    };
                    tracing::warn!(transport = %self.options.name, error = ?error, "not connected");
                    self.show(health, &error.to_string());
                }
            }
            let pause = pauses.next().unwrap_or(LONGEST);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = phase.wait_for(|phase| *phase >= Phase::Closing) => return,
            }
        }
    }

    fn answer_first(&self, tried: &Result<Link<B>, TransportError>) {
        if let Some(first) = self.first.borrow_mut().take() {
            let _ = first.send(tried.as_ref().map(|_| ()).map_err(Clone::clone));
        }
    }

    /// Connects, declares, subscribes.
    async fn try_link(&self) -> Result<Link<B>, TransportError> {
        let broker = B::connect(&self.config).await?;
        match self.furnish(&broker).await {
            Ok(sources) => {
                let epoch = self.epoch.get().saturating_add(1);
                Ok(Link { broker: Rc::new(broker), sources: sources.into(), epoch })
            }
            Err(error) => {
                let _ = tokio::time::timeout(CLOSE_BROKEN, broker.close()).await;
                Err(error)
            }
        }
    }

    async fn furnish(&self, broker: &B) -> Result<Vec<Rc<B::Source>>, TransportError> {
        let how = if self.options.setup { DeclareMode::Create } else { DeclareMode::Verify };
        // Only a store that will be written to is needed, and a place that nobody reads here may have no lane.
        if self.options.setup || !self.subs.is_empty() {
            broker.declare(&self.needs(), how).await?;
        }
        let count = broker.capabilities().delivery_count;
        let mut sources = Vec::with_capacity(self.subs.len());
        for sub in &self.subs {
            if let Some(rules) = self.ledger.borrow_mut().rules_mut(sub.gate.source) {
                rules.count = count;
            }
            let to = Subscription::new(sub.place.clone(), self.owner.clone(), self.options.lease);
            sources.push(Rc::new(broker.subscribe(to).await?));
        }
        Ok(sources)
    }

    /// The places that this transport needs on its broker.
    pub(super) fn needs(&self) -> Vec<Declaration> {
        let mut places = vec![self.options.place.clone()];
        places.extend(self.subs.iter().map(|sub| sub.place.clone()));
        let reads = self.options.place.is_readable();
        if reads && self.options.failure == FailureRef::Default {
            places.push(self.options.place.default_failure());
        }
        // A message may be sent before anybody reads: the lane is there from the start.
        places.extend(self.options.place.suspects());
        places.dedup();
        let mut unique: Vec<Place> = Vec::new();
        for place in places {
            if !unique.contains(&place) {
                unique.push(place);
            }
        }
        unique.into_iter().map(Declaration::new).collect()
    }

    async fn use_until_broken(&self, link: Link<B>) {
        let epoch = link.epoch;
        self.epoch.set(epoch);
        for sub in &self.subs {
            sub.gate.set_epoch(epoch);
        }
        *self.link.borrow_mut() = Some(link.clone());
        self.live.send_replace(epoch);
        self.show(Health::Idle, "");
        for sub in &self.subs {
            self.tell(sub.gate.source, Told::Linked);
        }
        tracing::info!(transport = %self.options.name, epoch, "connected");
        self.start_upkeep(&link);
        self.flush_publishes();
        self.flush_settles();
        self.flush_copies();
        let mut phase = self.phase.subscribe();
        tokio::select! {
            () = self.broken.notified() => {}
            // `close` takes the connection over, unless it came before this connection was there.
            _ = phase.wait_for(|phase| *phase >= Phase::Closing) => {
                if self.link.borrow_mut().take().is_none() {
                    return;
                }
            }
        }
        // The old sources end their pulls by error; nothing waits for a peer that may be silent.
        self.call("close", async move {
            for source in link.sources.iter() {
                source.wake();
            }
            let _ = tokio::time::timeout(CLOSE_BROKEN, async {
                for source in link.sources.iter() {
                    let _ = source.close().await;
                }
                let _ = link.broker.close().await;
            })
            .await;
        });
    }

    /// The connection of this epoch is broken: everything that came from it is lost to us.
    pub(super) fn broke(&self, epoch: u32, error: &TransportError) {
        if epoch == self.epoch.get() {
            tracing::warn!(transport = %self.options.name, epoch, error = ?error, "connection lost");
            self.break_link(&error.to_string());
        }
    }

    pub(super) fn break_link(&self, why: &str) {
        if self.link.borrow_mut().take().is_none() {
            return;
        }
        self.live.send_replace(0);
        for sub in &self.subs {
            // No epoch is 0: nothing that came from the old connection may start.
            sub.gate.set_epoch(0);
        }
        self.show(Health::Reconnecting, why);
        for sub in &self.subs {
            self.tell(sub.gate.source, Told::Unlinked(why.into()));
        }
        self.settles.clear();
        self.copies.clear();
        self.step(Event::Disconnected);
        self.broken.notify_one();
    }

    /// Flushes the publishes and closes. The caller bounds the time.
    pub(super) async fn close(&self) {
        self.publishes_done().await;
        self.phase.send_replace(Phase::Closing);
        let link = self.link.borrow_mut().take();
        self.live.send_replace(0);
        // What the broker has not answered by now is counted as it is.
        self.step(Event::Disconnected);
        if let Some(link) = link {
            for source in link.sources.iter() {
                if let Err(error) = source.close().await {
                    tracing::warn!(transport = %self.options.name, error = ?error, "a subscription did not close in order");
                }
            }
            if let Err(error) = link.broker.close().await {
                tracing::warn!(transport = %self.options.name, error = ?error, "the connection did not close in order");
            }
        }
        self.phase.send_replace(Phase::Closed);
        self.wake_ends();
        self.refuse_publishes();
        for sub in &self.subs {
            sub.inbox.borrow_mut().take();
        }
        self.show(Health::Stopped, "");
    }
}
