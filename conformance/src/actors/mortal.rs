//! A broker whose process can die, whose connection can be cut, and whose answers can be lost.

use std::{
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures_util::future::{Either, select};
use postroom_core::{
    Broker, Capabilities, Declaration, DeclareMode, ErrorKind, Extended, Incoming, Lease, MessageId, Outgoing, Place,
    Settled, Settlement, Source, Subscription, Tended, TransportError,
};
use tokio::sync::watch;

/// What a scenario does to a process.
#[derive(Debug)]
pub(crate) struct Fate {
    dead: AtomicBool,
    /// Connections made before the last cut are broken.
    cuts: watch::Sender<usize>,
    answers_to_lose: AtomicUsize,
    stores_down: AtomicBool,
    settles: AtomicUsize,
}

impl Fate {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            dead: AtomicBool::new(false),
            cuts: watch::Sender::new(0),
            answers_to_lose: AtomicUsize::new(0),
            stores_down: AtomicBool::new(false),
            settles: AtomicUsize::new(0),
        })
    }

    /// From now on nothing of this process reaches the broker.
    pub(crate) fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.cut();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Breaks the connection; the next one works.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The next `n` settlements are done, and their answers lost.
    pub(crate) fn lose_answers(&self, n: usize) {
        self.answers_to_lose.store(n, Ordering::SeqCst);
    }

    /// While stores are down nothing can be published to one.
    pub(crate) fn stores_down(&self, down: bool) {
        self.stores_down.store(down, Ordering::SeqCst);
    }

    /// How many settlements reached the broker.
    pub(crate) fn settles(&self) -> usize {
        self.settles.load(Ordering::SeqCst)
    }

    fn lose(&self) -> bool {
        self.answers_to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
    }
}

#[derive(Clone)]
struct Line {
    fate: Arc<Fate>,
    made_at: usize,
}

impl Line {
    fn holds(&self) -> bool {
        !self.fate.is_dead() && *self.fate.cuts.borrow() == self.made_at
    }

    fn check(&self) -> Result<(), TransportError> {
        if self.holds() { Ok(()) } else { Err(broken()) }
    }

    async fn broken(&self) {
        let mut cuts = self.fate.cuts.subscribe();
        let made_at = self.made_at;
        // The sender lives in the fate that we hold.
        let _ = cuts.wait_for(|cuts| *cuts != made_at).await;
    }
}

fn broken() -> TransportError {
    TransportError::new(ErrorKind::Connection, "the connection was cut by the test")
}

/// A config and a fate.
pub(crate) struct MortalConfig<C> {
    pub(crate) inner: C,
    pub(crate) fate: Arc<Fate>,
}

impl<C: Clone> Clone for MortalConfig<C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), fate: self.fate.clone() }
    }
}

/// A broker with a fate.
pub(crate) struct Mortal<B: Broker> {
    inner: Rc<B>,
    line: Line,
}

/// A dead process runs no destructors: what its leases hold comes back when they end. A broker without leases learns of
/// a death by the end of the connection.
impl<B: Broker> Drop for Mortal<B> {
    fn drop(&mut self) {
        if self.line.fate.is_dead() && self.inner.capabilities().lease {
            std::mem::forget(self.inner.clone());
        }
    }
}

impl<B: Broker> Broker for Mortal<B> {
    type Config = MortalConfig<B::Config>;
    type Source = MortalSource<B::Source>;
    type Count = B::Count;
    type Browse = B::Browse;
    type Groups = B::Groups;

    async fn connect(config: &Self::Config) -> Result<Self, TransportError> {
        let line = Line { fate: config.fate.clone(), made_at: *config.fate.cuts.borrow() };
        line.check()?;
        Ok(Self { inner: Rc::new(B::connect(&config.inner).await?), line })
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn declare(&self, what: &[Declaration], how: DeclareMode) -> Result<(), TransportError> {
        self.line.check()?;
        self.inner.declare(what, how).await
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<MessageId, TransportError>> {
        if !self.line.holds() {
            return batch.iter().map(|_| Err(broken())).collect();
        }
        if self.line.fate.stores_down.load(Ordering::SeqCst) {
            let mut answers = Vec::new();
            for outgoing in batch {
                answers.extend(match outgoing.to {
                    Place::Store(_) => vec![Err(TransportError::new(ErrorKind::Busy, "the store is down by the test"))],
                    _ => self.inner.publish(std::slice::from_ref(outgoing)).await,
                });
            }
            return answers;
        }
        self.inner.publish(batch).await
    }

    async fn subscribe(&self, to: Subscription) -> Result<Self::Source, TransportError> {
        self.line.check()?;
        let inner = Rc::new(self.inner.subscribe(to).await?);
        let lease = inner.lease().is_some().then(|| MortalLease { inner: inner.clone(), line: self.line.clone() });
        Ok(MortalSource { inner, lease, line: self.line.clone() })
    }

    async fn tend(&self, max: usize) -> Result<Tended, TransportError> {
        self.line.check()?;
        self.inner.tend(max).await
    }

    /// A broken connection closes nothing.
    async fn close(&self) -> Result<(), TransportError> {
        if self.line.holds() { self.inner.close().await } else { Ok(()) }
    }

    fn count(&self) -> Option<&B::Count> {
        self.inner.count()
    }
    fn browse(&self) -> Option<&B::Browse> {
        self.inner.browse()
    }
    fn groups(&self) -> Option<&B::Groups> {
        self.inner.groups()
    }
}

/// A source with a fate.
pub(crate) struct MortalSource<R: Source> {
    inner: Rc<R>,
    lease: Option<MortalLease<R>>,
    line: Line,
}

impl<R: Source> Drop for MortalSource<R> {
    fn drop(&mut self) {
        if self.line.fate.is_dead() && self.inner.lease().is_some() {
            std::mem::forget(self.inner.clone());
        }
    }
}

impl<R: Source> Source for MortalSource<R> {
    type Token = R::Token;
    type Lease = MortalLease<R>;

    async fn pull(&self, max: usize) -> Result<Vec<Incoming<R::Token>>, TransportError> {
        self.line.check()?;
        // Dropping the pull strands what it took: so does a death.
        let pulled = match select(pin!(self.inner.pull(max)), pin!(self.line.broken())).await {
            Either::Left((pulled, _)) => pulled?,
            Either::Right(_) => return Err(broken()),
        };
        self.line.check()?;
        Ok(pulled)
    }

    fn wake(&self) {
        self.inner.wake();
    }

    async fn settle(&self, batch: &[(&R::Token, Settlement)]) -> Vec<Result<Settled, TransportError>> {
        if !self.line.holds() {
            return batch.iter().map(|_| Err(broken())).collect();
        }
        let answers = self.inner.settle(batch).await;
        self.line.fate.settles.fetch_add(batch.len(), Ordering::SeqCst);
        let lost = |answer| match answer {
            // Where there never is an answer, none can be lost.
            Ok(Settled::Done) if self.line.fate.lose() => {
                Err(TransportError::new(ErrorKind::Busy, "the answer was lost by the test"))
            }
            answer => answer,
        };
        answers.into_iter().map(lost).collect()
    }

    fn lease(&self) -> Option<&Self::Lease> {
        self.lease.as_ref()
    }

    async fn close(&self) -> Result<(), TransportError> {
        if self.line.holds() { self.inner.close().await } else { Ok(()) }
    }
}

/// A lease with a fate.
pub(crate) struct MortalLease<R: Source> {
    inner: Rc<R>,
    line: Line,
}

impl<R: Source> Lease<R::Token> for MortalLease<R> {
    async fn extend(&self, batch: &[&R::Token]) -> Vec<Result<Extended, TransportError>> {
        match self.inner.lease() {
            Some(lease) if self.line.holds() => lease.extend(batch).await,
            _ => batch.iter().map(|_| Err(broken())).collect(),
        }
    }
}
