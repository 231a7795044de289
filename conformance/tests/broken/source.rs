//! A source around a source, with one fault.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use postroom_core::{
    Broker, Envelope, Extended, Incoming, Lease, Outgoing, Place, Settled, Settlement, Source, TransportError,
};

use crate::fault::Fault;

type Inner<B> = <<B as Broker>::Source as Source>::Token;

/// A token that the wrapper can keep too.
pub struct Token<B: Broker> {
    inner: Inner<B>,
    envelope: Arc<Envelope>,
    settled: Cell<bool>,
}

/// What a source shares with its connection.
pub struct Held<B: Broker> {
    source: B::Source,
    broker: Rc<B>,
    place: Place,
    fault: Fault,
    open: RefCell<Vec<Rc<Token<B>>>>,
    ready: RefCell<VecDeque<Incoming<Inner<B>>>>,
    woken: Cell<bool>,
    waiting: Cell<usize>,
}

impl<B: Broker> Held<B> {
    /// Wraps a source.
    pub fn new(source: B::Source, broker: Rc<B>, place: Place, fault: Fault) -> Self {
        Self {
            source,
            broker,
            place,
            fault,
            open: RefCell::default(),
            ready: RefCell::default(),
            woken: Cell::default(),
            waiting: Cell::default(),
        }
    }

    /// What is done wrong at a close.
    pub async fn closing(&self) {
        if self.fault == Fault::LosesOnClose {
            let open = self.open.take();
            for token in open.iter().filter(|token| !token.settled.get()) {
                self.source.settle(&[(&token.inner, Settlement::Ack)]).await;
            }
        }
    }

    async fn fetch(&self, max: usize) -> Result<Vec<Incoming<Inner<B>>>, TransportError> {
        match self.fault {
            Fault::Panics => panic!("a bug in a driver"),
            Fault::PullsMore => self.source.pull(max + 1).await,
            Fault::Prefetches => {
                if self.ready.borrow().is_empty() {
                    let all = self.source.pull(100_000).await?;
                    self.ready.borrow_mut().extend(all);
                }
                let mut ready = self.ready.borrow_mut();
                let n = max.min(ready.len());
                Ok(ready.drain(..n).collect())
            }
            Fault::SleepsOn => {
                // A look, then a long sleep without a notification.
                self.source.wake();
                let found = self.source.pull(max).await?;
                if !found.is_empty() {
                    return Ok(found);
                }
                for _ in 0..200 {
                    if self.woken.take() {
                        return self.source_now(max).await;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                self.source_now(max).await
            }
            _ => self.source.pull(max).await,
        }
    }

    async fn source_now(&self, max: usize) -> Result<Vec<Incoming<Inner<B>>>, TransportError> {
        self.source.wake();
        self.source.pull(max).await
    }

    async fn settle_one(&self, token: &Token<B>, how: &Settlement) -> Result<Settled, TransportError> {
        let answer = match (self.fault, how) {
            (Fault::Hangs, Settlement::Ack) => std::future::pending().await,
            (Fault::AcksAtPull | Fault::ForgetsAcks, Settlement::Ack) => Ok(Settled::Done),
            (Fault::AcksAtPull, Settlement::Release) => Ok(Settled::Done),
            (Fault::AcksAtPull, Settlement::Retry { replacement, after }) => {
                self.publish(self.place.clone(), replacement, *after).await
            }
            (Fault::RetriesTwice, Settlement::Retry { replacement, after }) => {
                self.publish(self.place.clone(), replacement, *after).await?;
                self.inner(token, how).await
            }
            (Fault::RetriesTheOriginal, Settlement::Retry { .. })
            | (Fault::RetryKeepsTheOriginal, Settlement::Retry { .. }) => {
                if let (Fault::RetryKeepsTheOriginal, Settlement::Retry { replacement, after }) = (self.fault, how) {
                    self.publish(self.place.clone(), replacement, *after).await?;
                }
                self.inner(token, &Settlement::Release).await
            }
            (Fault::RetryInTwoSteps, Settlement::Retry { replacement, after }) => {
                let acked = self.inner(token, &Settlement::Ack).await?;
                if acked != Settled::Done {
                    return Ok(acked);
                }
                for _ in 0..5 {
                    tokio::task::yield_now().await;
                }
                self.publish(self.place.clone(), replacement, *after).await
            }
            (Fault::DeliversEarly, Settlement::Retry { replacement, after }) => {
                let how = Settlement::Retry { replacement: replacement.clone(), after: *after / 2 };
                self.inner(token, &how).await
            }
            (Fault::RetriesToTheTopic, Settlement::Retry { replacement, after }) => match &self.place {
                Place::Group { topic, .. } => {
                    self.publish(Place::Topic(topic.clone()), replacement, *after).await?;
                    self.inner(token, &Settlement::Ack).await
                }
                _ => self.inner(token, how).await,
            },
            (Fault::ReleasesNothing, Settlement::Release) => Ok(Settled::Done),
            (Fault::ReleaseCounts, Settlement::Release) => {
                let mut counted = Envelope::clone(&token.envelope);
                counted.track_mut().attempts += 1;
                let how = Settlement::Retry { replacement: Arc::new(counted), after: Duration::ZERO };
                self.inner(token, &how).await
            }
            _ => self.inner(token, how).await,
        };
        match (answer, self.fault) {
            (Ok(Settled::LeaseLost), Fault::SettlesStaleLeases) => Ok(Settled::Done),
            (answer, _) => answer,
        }
    }

    async fn inner(&self, token: &Token<B>, how: &Settlement) -> Result<Settled, TransportError> {
        self.source.settle(&[(&token.inner, how.clone())]).await.pop().unwrap()
    }

    async fn publish(&self, to: Place, envelope: &Arc<Envelope>, after: Duration) -> Result<Settled, TransportError> {
        let outgoing = Outgoing::new(to, envelope.clone()).after(after);
        self.broker.publish(&[outgoing]).await.pop().unwrap().map(|_| Settled::Done)
    }
}

/// A source with one fault.
pub struct BrokenSource<B: Broker> {
    held: Rc<Held<B>>,
    lease: Option<BrokenLease<B>>,
}

impl<B: Broker> BrokenSource<B> {
    /// A source with one fault.
    pub fn new(held: Rc<Held<B>>) -> Self {
        let lease = held.source.lease().is_some().then(|| BrokenLease(held.clone()));
        Self { held, lease }
    }
}

impl<B: Broker> Source for BrokenSource<B> {
    type Token = Rc<Token<B>>;
    type Lease = BrokenLease<B>;

    async fn pull(&self, max: usize) -> Result<Vec<Incoming<Self::Token>>, TransportError> {
        let held = &self.held;
        held.waiting.set(held.waiting.get() + 1);
        let pulled = held.fetch(max).await;
        held.waiting.set(held.waiting.get() - 1);
        let pulled = pulled?;
        if held.fault == Fault::WakeStrands && held.woken.take() {
            return Ok(Vec::new());
        }
        let mut wrapped = Vec::new();
        for incoming in pulled {
            if held.fault == Fault::AcksAtPull {
                held.source.settle(&[(&incoming.token, Settlement::Ack)]).await;
            }
            let envelope = incoming.envelope.clone();
            let token = Token { inner: incoming.token, envelope: envelope.clone(), settled: Cell::new(false) };
            let token = Rc::new(token);
            held.open.borrow_mut().push(token.clone());
            let mut new = Incoming::new(token, envelope);
            new.delivered = match held.fault {
                Fault::CountsNoDelivery => incoming.delivered.map(|_| 1),
                _ => incoming.delivered,
            };
            new.position = incoming.position;
            new.oddities = incoming.oddities;
            wrapped.push(new);
        }
        Ok(wrapped)
    }

    fn wake(&self) {
        let held = &self.held;
        if held.fault == Fault::ForgetsWake && held.waiting.get() == 0 {
            return;
        }
        held.woken.set(true);
        held.source.wake();
    }

    async fn settle(&self, batch: &[(&Self::Token, Settlement)]) -> Vec<Result<Settled, TransportError>> {
        let mut answers = Vec::new();
        for (token, how) in batch {
            let answer = self.held.settle_one(token, how).await;
            token.settled.set(true);
            answers.push(answer);
        }
        if self.held.fault == Fault::AnswersBackwards {
            answers.reverse();
        }
        answers
    }

    fn lease(&self) -> Option<&Self::Lease> {
        self.lease.as_ref()
    }

    async fn close(&self) -> Result<(), TransportError> {
        self.held.closing().await;
        self.held.source.close().await
    }
}

/// A lease with one fault.
pub struct BrokenLease<B: Broker>(Rc<Held<B>>);

impl<B: Broker> Lease<Rc<Token<B>>> for BrokenLease<B> {
    async fn extend(&self, batch: &[&Rc<Token<B>>]) -> Vec<Result<Extended, TransportError>> {
        if self.0.fault == Fault::ExtendsNothing {
            return batch.iter().map(|_| Ok(Extended::Done)).collect();
        }
        let tokens: Vec<_> = batch.iter().map(|token| &token.inner).collect();
        let mut answers = self.0.source.lease().unwrap().extend(&tokens).await;
        if self.0.fault == Fault::SettlesStaleLeases {
            answers.iter_mut().for_each(|answer| *answer = Ok(Extended::Done));
        }
        if self.0.fault == Fault::AnswersBackwards {
            answers.reverse();
        }
        answers
    }
}
