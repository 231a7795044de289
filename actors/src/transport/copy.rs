//! Copies for the failure transport and the suspects' lane: stored and confirmed first, tried again for ever.

use std::{cell::RefCell, collections::VecDeque, rc::Rc, sync::Arc, time::Duration};

use postroom_core::{
    Broker, Declaration, DeclareMode, Envelope, ErrorKind, MessageId, Outgoing, TransportError,
    protocol::{CopyTo, Event, Key},
};

use super::engine::Engine;
use crate::{board::Health, options::FailureRef};

/// The first pause after a refused copy: less than one try a second for a message, growing to the longest.
const FIRST: Duration = Duration::from_millis(1_100);
const LONGEST: Duration = Duration::from_secs(30);

struct Waiting {
    key: Key,
    to: CopyTo,
    envelope: Arc<Envelope>,
    pause: Duration,
}

#[derive(Default)]
pub(super) struct Copies(RefCell<VecDeque<Waiting>>);

impl Copies {
    pub(super) fn push(&self, key: Key, to: CopyTo, envelope: Arc<Envelope>) {
        self.0.borrow_mut().push_back(Waiting { key, to, envelope, pause: FIRST });
    }

    /// Forgets what waits: the originals are handed out again.
    pub(super) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

impl<B: Broker> Engine<B> {
    pub(super) fn flush_copies(&self) {
        if self.copies.0.borrow().is_empty() {
            return;
        }
        for to in [CopyTo::Failure, CopyTo::Suspects] {
            let mut batch = Vec::new();
            self.copies.0.borrow_mut().retain_mut(|copy| {
                let mine = copy.to == to;
                if mine {
                    batch.push(Waiting { key: copy.key, to, envelope: copy.envelope.clone(), pause: copy.pause });
                }
                !mine
            });
            if batch.is_empty() {
                continue;
            }
            if let Some(engine) = self.weak.upgrade() {
                self.call("copy", async move { engine.copy(to, batch).await });
            }
        }
    }

    async fn copy(self: Rc<Self>, to: CopyTo, batch: Vec<Waiting>) {
        let results = self.store(to, &batch).await;
        let (mut again, mut stored) = (Vec::new(), false);
        for (mut copy, result) in batch.into_iter().zip(results) {
            match result {
                Ok(_) => {
                    stored = true;
                    self.step(Event::Copied(copy.key));
                }
                Err(error) if hopeless(&error) => {
                    let why = format!("message `{}` can't be stored as failed: {error}", copy.envelope.id);
                    self.step(Event::CopyRefused(copy.key, why.into()));
                }
                Err(error) => {
                    let pause = copy.pause;
                    copy.pause = (copy.pause * 2).min(LONGEST);
                    again.push((pause, copy, error));
                }
            }
        }
        if let Some((pause, _, error)) = again.first() {
            let pause = *pause;
            let what = if to == CopyTo::Failure { "failure transport" } else { "suspects' lane" };
            tracing::error!(transport = %self.options.name, count = again.len(), error = ?error, "the {what} is down; the originals stay");
            self.show(Health::Degraded, &format!("{what} is down: {error}"));
            let engine = self.clone();
            actix::spawn(async move {
                tokio::time::sleep(pause.mul_f64(1.0 + fastrand::f64() / 5.0)).await;
                // Those whose connection ended meanwhile are another delivery's by now.
                let open = |copy: &Waiting| engine.ledger.borrow().source(copy.key).is_some();
                let again: Vec<_> = again.into_iter().map(|(_, copy, _)| copy).filter(open).collect();
                engine.copies.0.borrow_mut().extend(again);
                engine.flush_copies();
            });
        } else if stored {
            self.show(Health::Active, "");
        }
    }

    async fn store(&self, to: CopyTo, batch: &[Waiting]) -> Vec<Result<MessageId, TransportError>> {
        let missing = |text: String| -> Vec<Result<MessageId, TransportError>> {
            vec![Err(TransportError::new(ErrorKind::NotFound, text)); batch.len()]
        };
        let name = &self.options.name;
        let (place, other) = match (to, &self.options.failure) {
            (CopyTo::Suspects, _) => (self.options.place.suspects(), None),
            (CopyTo::Failure, FailureRef::Default) => (Some(self.options.place.default_failure()), None),
            (CopyTo::Failure, FailureRef::Transport(other)) => {
                let Some(handle) = self.directory.get(other).map(|handle| handle.value().clone()) else {
                    return missing(format!("transport `{name}`: its failure transport `{other}` is not there"));
                };
                (Some(handle.place().clone()), Some(handle))
            }
            (CopyTo::Failure, FailureRef::None) => (None, None),
        };
        let Some(place) = place else { return missing(format!("transport `{name}` has no failure transport")) };
        let outgoing: Vec<Outgoing> =
            batch.iter().map(|copy| Outgoing::new(place.clone(), copy.envelope.clone())).collect();
        if let Some(handle) = other {
            return handle.publish(outgoing).await;
        }
        let Some(link) = self.link() else { return vec![Err(TransportError::stopped()); batch.len()] };
        let answer = tokio::time::timeout(self.options.publish_timeout, link.broker.publish(&outgoing)).await;
        let results = answer.unwrap_or_else(|_| {
            let silent = TransportError::new(ErrorKind::Connection, "no confirmation of a copy in time");
            vec![Err(silent); batch.len()]
        });
        let error = |kind| results.iter().find_map(|result| result.as_ref().err().filter(|error| error.kind() == kind));
        if let Some(error) = error(ErrorKind::Connection) {
            self.broke(link.epoch, error);
        } else if self.options.setup && error(ErrorKind::Unroutable).or(error(ErrorKind::NotFound)).is_some() {
            // Somebody removed it: made again, the next try finds it.
            let _ = link.broker.declare(&[Declaration::new(place)], DeclareMode::Create).await;
        }
        results
    }
}

/// Whether no later try can succeed.
fn hopeless(error: &TransportError) -> bool {
    match error.kind() {
        ErrorKind::Refused | ErrorKind::TooLarge | ErrorKind::Config | ErrorKind::Codec => true,
        // Gone or down for now: it can come back.
        _ => false,
    }
}
