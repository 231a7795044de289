//! One open subscription. A pull is bounded by `wake`, never by being dropped.

use std::{
    cell::RefCell,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::{Either, select};
use postroom_core::{Envelope, Extended, Incoming, Lease, Place, Settled, Settlement, Source};
use tokio::time::{sleep, timeout};

use super::{Stop, ensure, ledger::Ledger};

/// A delivery.
pub(crate) type Taken<R> = Incoming<<R as Source>::Token>;

/// One open subscription.
pub(crate) struct Reader<R: Source> {
    pub(crate) source: Rc<R>,
    pub(crate) place: Place,
    pub(super) ledger: Rc<RefCell<Ledger>>,
    pub(super) patience: Duration,
}

impl<R: Source> Clone for Reader<R> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            place: self.place.clone(),
            ledger: self.ledger.clone(),
            patience: self.patience,
        }
    }
}

impl<R: Source> Reader<R> {
    /// One pull, woken after `limit`; may come back empty.
    pub(crate) async fn pull(&self, max: usize, limit: Duration) -> Result<Vec<Taken<R>>, Stop> {
        let pulled = self.unbooked(max, limit).await?;
        for delivery in &pulled {
            self.ledger.borrow_mut().came(&self.place, &delivery.envelope.id);
        }
        Ok(pulled)
    }

    /// As [`Reader::pull`], past the ledger.
    pub(crate) async fn unbooked(&self, max: usize, limit: Duration) -> Result<Vec<Taken<R>>, Stop> {
        let waiting = pin!(self.source.pull(max));
        let pulled = match select(waiting, pin!(sleep(limit))).await {
            Either::Left((pulled, _)) => pulled?,
            Either::Right(((), waiting)) => {
                self.source.wake();
                timeout(self.patience, waiting)
                    .await
                    .map_err(|_| Stop::failed("wake() did not end a waiting pull"))??
            }
        };
        ensure!(pulled.len() <= max, "a pull of at most {max} gave {}", pulled.len());
        Ok(pulled)
    }

    /// Exactly `n` deliveries.
    pub(crate) async fn take(&self, n: usize) -> Result<Vec<Taken<R>>, Stop> {
        let mut taken = Vec::new();
        let started = Instant::now();
        while taken.len() < n {
            let left = self.patience.saturating_sub(started.elapsed());
            ensure!(!left.is_zero(), "{} of {n} came from {} within {:?}", taken.len(), self.place, self.patience);
            taken.extend(self.pull(n - taken.len(), left).await?);
        }
        Ok(taken)
    }

    /// The next delivery.
    pub(crate) async fn one(&self) -> Result<Taken<R>, Stop> {
        self.take(1).await?.pop().ok_or_else(|| Stop::failed("a pull gave nothing"))
    }

    /// One settlement and its answer.
    pub(crate) async fn settle(&self, delivery: &Taken<R>, how: Settlement) -> Result<Settled, Stop> {
        let answers = self.settle_all(&[(delivery, how)]).await?;
        answers.first().copied().ok_or_else(|| Stop::failed("settle gave no answer"))
    }

    /// A batch of settlements and their answers.
    pub(crate) async fn settle_all(&self, batch: &[(&Taken<R>, Settlement)]) -> Result<Vec<Settled>, Stop> {
        let items: Vec<_> = batch.iter().map(|(delivery, how)| (&delivery.token, how.clone())).collect();
        let answers = self.source.settle(&items).await;
        ensure!(answers.len() == batch.len(), "{} answers to {} settlements", answers.len(), batch.len());
        let mut settled = Vec::new();
        for ((delivery, how), answer) in batch.iter().zip(answers) {
            let answer = answer?;
            if matches!((how, answer), (Settlement::Ack, Settled::Done | Settled::Written)) {
                self.ledger.borrow_mut().ended(&self.place, &delivery.envelope.id);
            }
            settled.push(answer);
        }
        Ok(settled)
    }

    async fn done(&self, delivery: &Taken<R>, how: Settlement) -> Result<(), Stop> {
        let word = format!("{how:?}");
        let answer = self.settle(delivery, how).await?;
        let word = word.split([' ', '(', '{']).next().unwrap_or_default();
        ensure!(matches!(answer, Settled::Done | Settled::Written), "an owner's {word} answered {answer:?}");
        Ok(())
    }

    pub(crate) async fn ack(&self, delivery: &Taken<R>) -> Result<(), Stop> {
        self.done(delivery, Settlement::Ack).await
    }

    pub(crate) async fn release(&self, delivery: &Taken<R>) -> Result<(), Stop> {
        self.done(delivery, Settlement::Release).await
    }

    /// A retry as the runtime makes it: one errored attempt more.
    pub(crate) async fn retry(&self, delivery: &Taken<R>, after: Duration) -> Result<(), Stop> {
        self.done(delivery, again(delivery, after)).await
    }

    pub(crate) async fn ack_all(&self, deliveries: &[Taken<R>]) -> Result<(), Stop> {
        let batch: Vec<_> = deliveries.iter().map(|delivery| (delivery, Settlement::Ack)).collect();
        let answers = self.settle_all(&batch).await?;
        let odd = answers.iter().find(|answer| !matches!(answer, Settled::Done | Settled::Written));
        ensure!(odd.is_none(), "an owner's ack answered {odd:?}");
        Ok(())
    }

    /// Renews one delivery.
    pub(crate) async fn extend(&self, delivery: &Taken<R>) -> Result<Extended, Stop> {
        let lease = self.source.lease().ok_or_else(|| Stop::failed("the source has no lease, the capabilities do"))?;
        let answers = lease.extend(&[&delivery.token]).await;
        ensure!(answers.len() == 1, "{} answers to one renewal", answers.len());
        answers.into_iter().next().ok_or_else(|| Stop::failed("no answer"))?.map_err(Stop::from)
    }

    /// Proves that nothing comes: waits for `limit`, looking.
    pub(crate) async fn nothing_for(&self, limit: Duration) -> Result<(), Stop> {
        let started = Instant::now();
        while started.elapsed() < limit {
            let pulled = self.pull(1, limit.saturating_sub(started.elapsed())).await?;
            let after = started.elapsed();
            ensure!(pulled.is_empty(), "{} gave a message after {after:?}, within {limit:?}", self.place);
        }
        Ok(())
    }
}

/// The retry of a delivery: its envelope with one errored attempt more.
pub(crate) fn again<T>(delivery: &Incoming<T>, after: Duration) -> Settlement {
    let mut replacement = Envelope::clone(&delivery.envelope);
    let track = replacement.track_mut();
    track.attempts = track.attempts.saturating_add(1);
    Settlement::Retry { replacement: Arc::new(replacement), after }
}
