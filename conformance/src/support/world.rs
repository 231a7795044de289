//! Fresh names, connections, and the proof at the end.

use std::{cell::RefCell, rc::Rc, time::Duration};

use postroom_core::{Broker, ErrorKind, Place};
use tokio::time::timeout;

use super::{Connection, Stop, ensure, ledger::Ledger};
use crate::{Subject, scenario::Powers};

type Opened<B> = RefCell<Vec<Rc<Connection<B>>>>;

/// The world of one scenario.
pub(crate) struct World<S: Subject> {
    pub(crate) subject: Rc<S>,
    pub(crate) powers: Rc<Powers>,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    opened: Rc<Opened<S::Broker>>,
    suffix: Rc<str>,
}

impl<S: Subject> Clone for World<S> {
    fn clone(&self) -> Self {
        Self {
            subject: self.subject.clone(),
            powers: self.powers.clone(),
            ledger: self.ledger.clone(),
            opened: self.opened.clone(),
            suffix: self.suffix.clone(),
        }
    }
}

impl<S: Subject> World<S> {
    pub(crate) fn new(subject: Rc<S>, powers: Powers, scenario: &str) -> Self {
        let short: String = scenario.chars().take(24).collect();
        let suffix = format!("{}.{:08x}", short.trim_end_matches('_'), fastrand::u32(..));
        Self { subject, powers: Rc::new(powers), ledger: Rc::default(), opened: Rc::default(), suffix: suffix.into() }
    }

    pub(crate) fn patience(&self) -> Duration {
        self.subject.patience()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.subject.lease()
    }

    /// A name that no other scenario has.
    pub(crate) fn name(&self, short: &str) -> String {
        format!("{short}.{}", self.suffix)
    }

    pub(crate) fn queue(&self, short: &str) -> Result<Place, Stop> {
        Ok(Place::queue(&self.name(short))?)
    }

    pub(crate) fn store(&self, short: &str) -> Result<Place, Stop> {
        Ok(Place::store(&self.name(short))?)
    }

    pub(crate) fn topic(&self, short: &str) -> Result<Place, Stop> {
        Ok(Place::topic(&self.name(short))?)
    }

    pub(crate) fn group(&self, topic: &str, group: &str) -> Result<Place, Stop> {
        Ok(Place::group(&self.name(topic), group)?)
    }

    /// One more connection; closed at the end.
    pub(crate) async fn connect(&self) -> Result<Rc<Connection<S::Broker>>, Stop> {
        let connection = Rc::new(self.connect_mortal().await?);
        self.opened.borrow_mut().push(connection.clone());
        Ok(connection)
    }

    /// A connection that the scenario owns alone, so that it can drop it.
    pub(crate) async fn connect_mortal(&self) -> Result<Connection<S::Broker>, Stop> {
        let config = self.subject.config();
        let broker = timeout(self.patience(), S::Broker::connect(&config))
            .await
            .map_err(|_| Stop::failed("connect hangs"))??;
        Ok(Connection::new(broker, self.ledger.clone(), self.patience()))
    }

    /// A connection and a fresh, declared queue: how most scenarios begin.
    pub(crate) async fn with_queue(&self) -> Result<(Rc<Connection<S::Broker>>, Place), Stop> {
        let connection = self.connect().await?;
        let queue = self.queue("q")?;
        connection.declare(&[&queue]).await?;
        Ok((connection, queue))
    }

    /// Closes what was opened, reads every place to its end, and balances the books.
    pub(crate) async fn finish(self) -> Result<(), Stop> {
        let opened = self.opened.take();
        for connection in &opened {
            connection.untended().await?;
            match timeout(self.patience(), connection.broker.close()).await {
                Err(_) => return Err(Stop::failed("close hangs at the end of the scenario")),
                Ok(Err(error)) => ensure!(error.kind() == ErrorKind::Stopped, "close failed at the end: {error:?}"),
                Ok(Ok(())) => {}
            }
        }
        let last = self.connect_mortal().await?;
        let places = self.ledger.borrow().places();
        for place in places {
            let left = if place.is_readable() {
                self.drain(&last, &place).await?
            } else if self.powers.browse {
                last.pages(&place, None, 100).await?.into_iter().map(|browsed| browsed.envelope.id.clone()).collect()
            } else {
                continue;
            };
            for id in left {
                self.ledger.borrow_mut().left(&place, &id);
            }
        }
        let worked = self.ledger.borrow().worked_places();
        for place in worked {
            self.worked(&last, &place).await?;
        }
        last.close().await?;
        self.ledger.borrow().balance()
    }
    /// What transports keep beside a place: the suspects' lane still owes its messages, the failure store keeps them.
    async fn worked(&self, last: &Connection<S::Broker>, place: &Place) -> Result<(), Stop> {
        if let Some(lane) = place.suspects() {
            for id in self.drain(last, &lane).await? {
                self.ledger.borrow_mut().left(place, &id);
            }
        }
        if self.powers.browse {
            for record in last.pages(&place.default_failure(), None, 100).await? {
                let track = record.envelope.track.as_ref();
                if track.and_then(|track| track.origin.as_ref()).is_some_and(|origin| origin.place == *place) {
                    self.ledger.borrow_mut().ended(place, &record.envelope.id);
                }
            }
        }
        Ok(())
    }
}
