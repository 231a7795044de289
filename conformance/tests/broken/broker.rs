//! A broker around a broker, with one fault.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use postroom_core::{
    Broker, Capabilities, Declaration, DeclareMode, Envelope, ErrorKind, Groups, MessageId, Outgoing, Place, Stamps,
    Subscription, Tended, TransportError,
};

use crate::{
    fault::Fault,
    powers::{BrokenBrowse, BrokenCount, BrokenGroups},
    source::{BrokenSource, Held},
};

/// A config and a fault.
#[derive(Clone)]
pub struct BrokenConfig<C> {
    /// The broker's own.
    pub inner: C,
    /// What is wrong with it.
    pub fault: Fault,
    /// It reaches nothing.
    pub nowhere: bool,
}

/// A broker with one fault.
pub struct Broken<B: Broker> {
    inner: Rc<B>,
    fault: Fault,
    closed: Cell<bool>,
    sources: RefCell<Vec<Rc<Held<B>>>>,
    count: Option<BrokenCount<B>>,
    browse: Option<BrokenBrowse<B>>,
    groups: Option<BrokenGroups<B>>,
}

impl<B: Broker> Broken<B> {
    async fn rewritten(&self, outgoing: &Outgoing) -> Vec<Outgoing> {
        let mut new = outgoing.clone();
        let mut envelope = Envelope::clone(&new.envelope);
        match self.fault {
            Fault::DeliversEarly => new.delay = new.delay.map(|delay| delay / 2),
            Fault::NoGroupNeeded => new.require_group = false,
            Fault::CutsBodies => envelope.body.truncate(64 << 10),
            Fault::StopsAtNul => {
                let end = envelope.body.iter().position(|byte| *byte == 0).unwrap_or(envelope.body.len());
                envelope.body.truncate(end);
            }
            Fault::BodiesAreText => envelope.body = String::from_utf8_lossy(&envelope.body).into_owned().into(),
            Fault::StampsAreAMap => {
                let map: std::collections::BTreeMap<_, _> = envelope.stamps.iter().collect();
                let mut stamps = Stamps::new();
                map.into_iter().for_each(|(name, value)| stamps.push(name.clone(), value.clone()));
                envelope.stamps = stamps;
            }
            Fault::StampsAreText => {
                let mut stamps = Stamps::new();
                for (name, value) in envelope.stamps.iter() {
                    stamps.push(name.clone(), String::from_utf8_lossy(value).into_owned());
                }
                envelope.stamps = stamps;
            }
            Fault::CutsHeaders => {
                let mut stamps = Stamps::new();
                for (name, value) in envelope.stamps.iter() {
                    stamps.push(name.clone(), value.slice(..value.len().min(4096)));
                }
                envelope.stamps = stamps;
                if let Some(track) = envelope.track.as_mut() {
                    track.history.truncate(4);
                }
            }
            Fault::DropsTheTrack => envelope.track = None,
            Fault::RoundsTime => envelope.time = envelope.time.map(|time| time / 1000 * 1000),
            Fault::CutsIds => envelope.id = MessageId::new(envelope.id.chars().take(36).collect::<String>()).unwrap(),
            Fault::StoresTwice if matches!(new.to, Place::Store(_)) => {
                if let Some(failure) = envelope.track.as_mut().and_then(|track| track.failure.as_mut()) {
                    failure.record = format!("{}{:x}", failure.record, fastrand::u32(..)).into();
                }
            }
            Fault::MixesNames => new.to = mixed(&new.to),
            _ => {}
        }
        new.envelope = Arc::new(envelope);
        match (self.fault, &new.to) {
            (Fault::OneGroupGets, Place::Topic(topic)) => {
                let groups = self.inner.groups().unwrap().list(topic).await.unwrap_or_default();
                if let Some((group, _)) = groups.into_iter().next() {
                    new.to = Place::Group { topic: topic.clone(), group };
                }
            }
            (Fault::AllGroupsGet, Place::Group { topic, .. }) => new.to = Place::Topic(topic.clone()),
            (Fault::DeliversToBoth, Place::Queue(_)) => return vec![new.clone(), new],
            _ => {}
        }
        vec![new]
    }
}

/// As a driver does that replaces the signs that its broker does not know.
pub fn mixed(place: &Place) -> Place {
    match place {
        Place::Queue(name) => Place::queue(&name.replace('-', ".")).unwrap_or_else(|_| place.clone()),
        other => other.clone(),
    }
}

impl<B: Broker> Broker for Broken<B> {
    type Config = BrokenConfig<B::Config>;
    type Source = BrokenSource<B>;
    type Count = BrokenCount<B>;
    type Browse = BrokenBrowse<B>;
    type Groups = BrokenGroups<B>;

    async fn connect(config: &Self::Config) -> Result<Self, TransportError> {
        let fault = config.fault;
        if config.nowhere {
            let text = match fault {
                Fault::ShowsThePassword => "cannot reach amqp://user:hunter2@nowhere.example:1",
                Fault::NamesNothing => "connection refused",
                _ => "cannot reach nowhere.example:1",
            };
            return Err(TransportError::new(ErrorKind::Connection, text));
        }
        let inner = Rc::new(B::connect(&config.inner).await?);
        Ok(Self {
            fault,
            closed: Cell::new(false),
            sources: RefCell::default(),
            count: inner.count().is_some().then(|| BrokenCount {
                inner: inner.clone(),
                fault,
                oldest: Cell::new(None),
            }),
            browse: inner.browse().is_some().then(|| BrokenBrowse { inner: inner.clone(), fault }),
            groups: inner.groups().is_some().then(|| BrokenGroups { inner: inner.clone(), fault }),
            inner,
        })
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = self.inner.capabilities();
        can.lease &= self.fault != Fault::HidesItsLeases;
        can
    }

    async fn declare(&self, what: &[Declaration], how: DeclareMode) -> Result<(), TransportError> {
        match self.fault {
            Fault::VerifyCreates => self.inner.declare(what, DeclareMode::Create).await,
            Fault::MixesNames => {
                let what: Vec<_> = what.iter().map(|one| Declaration::new(mixed(&one.place))).collect();
                self.inner.declare(&what, how).await
            }
            _ => self.inner.declare(what, how).await,
        }
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<MessageId, TransportError>> {
        if self.closed.get() && self.fault == Fault::ConfirmsAfterClose {
            return batch.iter().map(|outgoing| Ok(outgoing.envelope.id.clone())).collect();
        }
        let mut answers = Vec::new();
        let mut rewritten = Vec::new();
        let mut copies = Vec::new();
        for outgoing in batch {
            let new = self.rewritten(outgoing).await;
            copies.push(new.len());
            rewritten.extend(new);
        }
        let mut results = self.inner.publish(&rewritten).await.into_iter();
        for (outgoing, n) in batch.iter().zip(copies) {
            let answer = results.by_ref().take(n).last().unwrap();
            let id = outgoing.envelope.id.clone();
            answers.push(match (answer, self.fault) {
                (Err(error), Fault::ConfirmsNowhere) if error.kind() == ErrorKind::Unroutable => Ok(id),
                (Err(error), _) => Err(error),
                (Ok(_), _) => Ok(id),
            });
        }
        if self.fault == Fault::OneErrorForAll
            && let Some(error) = answers.iter().find_map(|answer| answer.as_ref().err()).cloned()
        {
            return batch.iter().map(|_| Err(error.clone())).collect();
        }
        answers
    }

    async fn subscribe(&self, mut to: Subscription) -> Result<Self::Source, TransportError> {
        match self.fault {
            Fault::NeverExpires => to.lease = to.lease.max(std::time::Duration::from_secs(3600)),
            Fault::ExpiresEarly => to.lease /= 4,
            Fault::MixesNames => to.place = mixed(&to.place),
            _ => {}
        }
        let place = to.place.clone();
        let inner = self.inner.subscribe(to).await?;
        let held = Rc::new(Held::new(inner, self.inner.clone(), place, self.fault));
        self.sources.borrow_mut().push(held.clone());
        Ok(BrokenSource::new(held))
    }

    async fn tend(&self, max: usize) -> Result<Tended, TransportError> {
        let mut tended = self.inner.tend(max).await?;
        tended.more |= self.fault == Fault::TendsForEver;
        Ok(tended)
    }

    async fn close(&self) -> Result<(), TransportError> {
        self.closed.set(true);
        let sources = self.sources.take();
        for source in sources {
            source.closing().await;
        }
        self.inner.close().await
    }

    fn count(&self) -> Option<&Self::Count> {
        self.count.as_ref()
    }
    fn browse(&self) -> Option<&Self::Browse> {
        self.browse.as_ref()
    }
    fn groups(&self) -> Option<&Self::Groups> {
        self.groups.as_ref()
    }
}
