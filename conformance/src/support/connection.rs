//! One connection, tended in the background as the transport actor would.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use postroom_core::{
    Broker, Browse, Browsed, Count, Counts, Declaration, DeclareMode, Envelope, ErrorKind, MessageId, Outgoing, Place,
    State, Subscription, TransportError,
};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use super::{LONG, Reader, Stop, ensure, ledger::Ledger};

/// The longest pause between two calls of `tend`.
const PAUSE: Duration = Duration::from_millis(20);

/// One connection.
pub(crate) struct Connection<B: Broker> {
    pub(crate) broker: Rc<B>,
    ledger: Rc<RefCell<Ledger>>,
    patience: Duration,
    tending: watch::Sender<bool>,
    tender: RefCell<Option<JoinHandle<Result<(), TransportError>>>>,
}

impl<B: Broker> Connection<B> {
    pub(super) fn new(broker: B, ledger: Rc<RefCell<Ledger>>, patience: Duration) -> Self {
        let broker = Rc::new(broker);
        let (tending, mut on) = watch::channel(true);
        let tended = broker.clone();
        let tender = tokio::task::spawn_local(async move {
            let mut failed = None;
            while *on.borrow() {
                let pause = match tended.tend(256).await {
                    Ok(tended) if tended.more => Duration::ZERO,
                    Ok(tended) => tended.next.unwrap_or(PAUSE).min(PAUSE),
                    Err(error) if error.kind() == ErrorKind::Stopped => break,
                    Err(error) => {
                        failed = (error.kind() != ErrorKind::Busy).then_some(error).or(failed);
                        PAUSE
                    }
                };
                // A broker that always wants to be called at once must not starve the scenario.
                let _ = timeout(pause.max(Duration::from_millis(1)), on.changed()).await;
            }
            failed.map_or(Ok(()), Err)
        });
        Self { broker, ledger, patience, tending, tender: RefCell::new(Some(tender)) }
    }

    /// Ends the tending, in order, and tells how it went.
    pub(crate) async fn untended(&self) -> Result<(), Stop> {
        self.tending.send_replace(false);
        let tender = self.tender.borrow_mut().take();
        let Some(tender) = tender else { return Ok(()) };
        match timeout(self.patience, tender).await {
            Err(_) => Err(Stop::failed("tend hangs")),
            Ok(Err(join)) => Err(Stop::failed(format_args!("tend panicked: {join}"))),
            Ok(Ok(Err(error))) => Err(Stop::failed(format_args!("tend failed: {error:?}"))),
            Ok(Ok(Ok(()))) => Ok(()),
        }
    }

    /// Closes as a stopping node does.
    pub(crate) async fn close(&self) -> Result<(), Stop> {
        self.untended().await?;
        timeout(self.patience, self.broker.close()).await.map_err(|_| Stop::failed("close hangs"))??;
        Ok(())
    }

    pub(crate) async fn declare(&self, places: &[&Place]) -> Result<(), Stop> {
        let what: Vec<_> = places.iter().map(|place| Declaration::new((*place).clone())).collect();
        self.broker.declare(&what, DeclareMode::Create).await?;
        for place in places {
            self.ledger.borrow_mut().declared(place);
        }
        Ok(())
    }

    /// Publishes a batch of which every item must be confirmed.
    pub(crate) async fn publish(&self, batch: &[Outgoing]) -> Result<Vec<MessageId>, Stop> {
        let answers = self.broker.publish(batch).await;
        ensure!(answers.len() == batch.len(), "{} answers to {} messages", answers.len(), batch.len());
        let mut ids = Vec::new();
        for (outgoing, answer) in batch.iter().zip(answers) {
            let id = answer?;
            ensure!(id == outgoing.envelope.id, "publish answered {id:?} for {:?}", outgoing.envelope.id);
            self.ledger.borrow_mut().sent(&outgoing.to, &id);
            ids.push(id);
        }
        Ok(ids)
    }

    pub(crate) async fn send(&self, to: &Place, envelope: Envelope) -> Result<Arc<Envelope>, Stop> {
        let envelope = Arc::new(envelope);
        self.publish(&[Outgoing::new(to.clone(), envelope.clone())]).await?;
        Ok(envelope)
    }

    pub(crate) async fn send_after(&self, to: &Place, after: Duration) -> Result<MessageId, Stop> {
        let envelope = Envelope::new("later");
        let id = envelope.id.clone();
        self.publish(&[Outgoing::new(to.clone(), envelope).after(after)]).await?;
        Ok(id)
    }

    /// Sends `n` small messages, in batches.
    pub(crate) async fn send_many(&self, to: &Place, n: usize) -> Result<Vec<MessageId>, Stop> {
        let batch: Vec<_> = (0..n).map(|i| Outgoing::new(to.clone(), Envelope::new(format!("message {i}")))).collect();
        let mut ids = Vec::new();
        for chunk in batch.chunks(250) {
            ids.extend(self.publish(chunk).await?);
            // A broker whose answers are always there would hold up the scenarios beside this one.
            tokio::task::yield_now().await;
        }
        Ok(ids)
    }

    /// Subscribes with a lease that never ends within a scenario.
    pub(crate) async fn reader(&self, place: &Place) -> Result<Reader<B::Source>, Stop> {
        self.reader_for(place, LONG).await
    }

    pub(crate) async fn reader_for(&self, place: &Place, lease: Duration) -> Result<Reader<B::Source>, Stop> {
        let owner = format!("conformance-{:016x}", fastrand::u64(..));
        let source = self.broker.subscribe(Subscription::new(place.clone(), owner, lease)).await?;
        Ok(Reader {
            source: Rc::new(source),
            place: place.clone(),
            ledger: self.ledger.clone(),
            patience: self.patience,
        })
    }

    pub(crate) async fn counts(&self, place: &Place) -> Result<Counts, Stop> {
        let count = self.broker.count().ok_or_else(|| Stop::failed("the power to count has gone"))?;
        Ok(count.count(place).await?)
    }

    pub(crate) fn browse(&self) -> Result<&B::Browse, Stop> {
        self.broker.browse().ok_or_else(|| Stop::failed("the power to browse has gone"))
    }

    pub(crate) async fn find(&self, place: &Place, id: &str) -> Result<Vec<Browsed>, Stop> {
        Ok(self.browse()?.find(place, id).await?)
    }

    /// All messages of a place in one state (or all), by pages of `max`.
    pub(crate) async fn pages(&self, place: &Place, state: Option<State>, max: usize) -> Result<Vec<Browsed>, Stop> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = self.browse()?.page(place, state, after.as_ref(), max).await?;
            ensure!(page.items.len() <= max, "a page of at most {max} has {}", page.items.len());
            ensure!(page.next.is_none() || page.next != after, "the next page of {place} is the same again");
            all.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Removes browsed messages of a place, each of which must have been there.
    pub(crate) async fn remove(&self, place: &Place, what: &[Browsed]) -> Result<(), Stop> {
        let handles: Vec<_> = what.iter().map(|browsed| browsed.handle.clone()).collect();
        let answers = self.browse()?.remove(place, &handles).await?;
        ensure!(answers.len() == handles.len(), "{} answers to {} removals", answers.len(), handles.len());
        for (browsed, there) in what.iter().zip(answers) {
            ensure!(there, "{:?} was not there to be removed", browsed.envelope.id);
            self.ledger.borrow_mut().ended(place, &browsed.envelope.id);
        }
        Ok(())
    }
}

/// A connection that is dropped is a dead process: nothing is closed.
impl<B: Broker> Drop for Connection<B> {
    fn drop(&mut self) {
        if let Some(tender) = self.tender.borrow_mut().take() {
            tender.abort();
        }
    }
}
