//! Reads a place to its end: absence is proved by what comes last, not by a pause.

use std::time::{Duration, Instant};

use postroom_core::{Counts, Envelope, MessageId, Outgoing, Place, Settlement, Source};

use super::{Connection, Reader, Stop, World, ensure};
use crate::Subject;

impl<S: Subject> World<S> {
    /// Takes and acks all that is left in a place, and answers its ids. The end is two markers, the second sent after
    /// the first came, so that what was waiting came before it; and figures of zero, where the broker can count.
    pub(super) async fn drain(
        &self,
        connection: &Connection<S::Broker>,
        place: &Place,
    ) -> Result<Vec<MessageId>, Stop> {
        let reader = connection.reader(place).await?;
        let mut left = Vec::new();
        let mut marker = mark(connection, place).await?;
        let mut markers = 0;
        let started = Instant::now();
        loop {
            ensure!(
                started.elapsed() < self.patience(),
                "{place} has no end: {}",
                self.figures(connection, place).await
            );
            let pulled = raw_pull(&reader).await?;
            let found = pulled.contains(&marker);
            left.extend(pulled.into_iter().filter(|id| !id.starts_with(MARKER)));
            if found {
                markers += 1;
                marker = if markers < 2 { mark(connection, place).await? } else { marker };
            }
            if markers >= 2 && self.is_empty(connection, place).await? {
                reader.source.close().await?;
                return Ok(left);
            }
        }
    }

    pub(crate) async fn is_empty(&self, connection: &Connection<S::Broker>, place: &Place) -> Result<bool, Stop> {
        if !self.powers.count {
            return Ok(true);
        }
        let Counts { waiting, in_flight, delayed, .. } = connection.counts(place).await?;
        Ok([waiting, in_flight, delayed].iter().all(|figure| figure.unwrap_or(0) == 0))
    }

    /// Whether neither a place nor its suspects' lane holds anything.
    pub(crate) async fn rests(&self, connection: &Connection<S::Broker>, place: &Place) -> Result<bool, Stop> {
        let lane = match place.suspects() {
            Some(lane) => self.is_empty(connection, &lane).await?,
            None => true,
        };
        Ok(lane && self.is_empty(connection, place).await?)
    }

    pub(crate) async fn figures(&self, connection: &Connection<S::Broker>, place: &Place) -> String {
        if !self.powers.count {
            return "its figures are not known".to_owned();
        }
        connection.counts(place).await.map_or_else(|stop| format!("{stop:?}"), |counts| format!("{counts:?}"))
    }
}

const MARKER: &str = "end-marker-";

async fn mark<B: postroom_core::Broker>(connection: &Connection<B>, place: &Place) -> Result<MessageId, Stop> {
    let id = MessageId::new(format!("{MARKER}{:016x}", fastrand::u64(..)));
    let envelope = Envelope::with_id(id.ok_or_else(|| Stop::failed("an id was refused"))?, "end");
    let id = envelope.id.clone();
    for answer in connection.broker.publish(&[Outgoing::new(place.clone(), envelope)]).await {
        answer?;
    }
    Ok(id)
}

/// Takes and acks one batch, past the ledger.
async fn raw_pull<R: Source>(reader: &Reader<R>) -> Result<Vec<MessageId>, Stop> {
    let pulled = reader.unbooked(256, Duration::from_millis(100)).await?;
    let acks: Vec<_> = pulled.iter().map(|delivery| (&delivery.token, Settlement::Ack)).collect();
    if !acks.is_empty() {
        for answer in reader.source.settle(&acks).await {
            answer?;
        }
    }
    Ok(pulled.into_iter().map(|delivery| delivery.envelope.id.clone()).collect())
}
