//! The publish buffer: many messages in one call, some calls at once; each sender hears of his own.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    time::Duration,
};

use postroom_core::{Broker, ErrorKind, MessageId, Outgoing, TransportError};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{
    engine::{Engine, Link, Phase},
    settle::{BATCH, CALLS},
};
use crate::{board::Health, layer::Observed};

type Answer = Result<MessageId, TransportError>;

/// What one sender waits for.
struct Request {
    answers: RefCell<Vec<Option<Answer>>>,
    open: Cell<usize>,
    reply: Cell<Option<oneshot::Sender<Vec<Answer>>>>,
}

impl Request {
    fn answer(&self, index: usize, answer: Answer) {
        if let Some(slot) = self.answers.borrow_mut().get_mut(index)
            && slot.is_none()
        {
            *slot = Some(answer);
            self.open.set(self.open.get().saturating_sub(1));
        }
        if self.open.get() == 0
            && let Some(reply) = self.reply.take()
        {
            let answers = std::mem::take(&mut *self.answers.borrow_mut());
            // A sender that stopped waiting has his message published all the same.
            let _ = reply.send(answers.into_iter().flatten().collect());
        }
    }
}

struct Item {
    request: Rc<Request>,
    index: usize,
    outgoing: Outgoing,
    deadline: Instant,
}

#[derive(Default)]
pub(super) struct Publishes {
    waiting: RefCell<VecDeque<Item>>,
    calls: Cell<usize>,
    watched: Cell<bool>,
    done: Notify,
}

impl<B: Broker> Engine<B> {
    /// Buffers messages; the answer comes when all of them have theirs.
    pub(super) fn publish(&self, items: Vec<Outgoing>) -> oneshot::Receiver<Vec<Answer>> {
        let (reply, answer) = oneshot::channel();
        let request = Rc::new(Request {
            answers: RefCell::new(items.iter().map(|_| None).collect()),
            open: Cell::new(items.len()),
            reply: Cell::new(Some(reply)),
        });
        if items.is_empty() {
            request.answer(0, Err(TransportError::stopped()));
        }
        let deadline = Instant::now() + self.options.publish_timeout;
        for (index, mut outgoing) in items.into_iter().enumerate() {
            let refused = match self.phase() {
                Phase::Running | Phase::Draining => {
                    self.layers.iter().find_map(|layer| layer.publish(&self.options.name, &mut outgoing).err())
                }
                Phase::Closing | Phase::Closed => Some(TransportError::stopped()),
            };
            match refused {
                Some(error) => request.answer(index, Err(error)),
                None => {
                    let item = Item { request: request.clone(), index, outgoing, deadline };
                    self.publishes.waiting.borrow_mut().push_back(item);
                }
            }
        }
        // In a task of its own, it runs after what else waits in the mailbox: their messages join the call.
        if let Some(engine) = self.weak.upgrade() {
            actix::spawn(async move { engine.flush_publishes() });
        }
        answer
    }

    pub(super) fn flush_publishes(&self) {
        let publishes = &self.publishes;
        let Some(link) = self.link() else { return self.watch_publishes() };
        while publishes.calls.get() < CALLS && !publishes.waiting.borrow().is_empty() {
            let mut waiting = publishes.waiting.borrow_mut();
            let size = waiting.len().min(BATCH);
            let batch: Vec<Item> = waiting.drain(..size).collect();
            drop(waiting);
            publishes.calls.set(publishes.calls.get() + 1);
            let (Some(engine), link) = (self.weak.upgrade(), link.clone()) else { return };
            self.call("publish", async move {
                let calling = Calling(&engine);
                engine.publish_batch(&link, batch).await;
                drop(calling);
                engine.flush_publishes();
            });
        }
        if publishes.calls.get() == 0 && publishes.waiting.borrow().is_empty() {
            publishes.done.notify_waiters();
        }
    }

    async fn publish_batch(&self, link: &Link<B>, batch: Vec<Item>) {
        let (mut outgoing, mut askers) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for item in batch {
            outgoing.push(item.outgoing);
            askers.push(Asker { request: item.request, index: item.index, answered: false });
        }
        let answer = tokio::time::timeout(self.options.publish_timeout, link.broker.publish(&outgoing)).await;
        let results = answer.unwrap_or_else(|_| {
            let late =
                format!("no confirmation within {:?}; the message may have been stored", self.options.publish_timeout);
            let late = TransportError::new(ErrorKind::Timeout, late);
            self.broke(link.epoch, &late);
            vec![Err(late); outgoing.len()]
        });
        let (mut confirmed, mut observed) = (0, Vec::new());
        let soonest = outgoing.iter().filter_map(|one| one.delay).min();
        let mut broken = None;
        for ((mut asker, sent), result) in askers.into_iter().zip(&outgoing).zip(results) {
            if let Err(error) = &result
                && matches!(error.kind(), ErrorKind::Connection)
            {
                broken = Some(error.clone());
            }
            confirmed += usize::from(result.is_ok());
            if self.is_observed() {
                let id = sent.envelope.id.clone();
                observed.push(match &result {
                    Ok(_) => Observed::Published { id },
                    Err(error) => Observed::PublishFailed { id, error: error.to_string() },
                });
            }
            asker.answered = true;
            asker.request.answer(asker.index, result);
        }
        self.counters.published(confirmed);
        if confirmed > 0 {
            self.show(Health::Active, "");
        }
        self.observe(&observed);
        if let Some(delay) = soonest {
            self.tend_within(delay);
        }
        if let Some(error) = broken {
            self.broke(link.epoch, &error);
        }
    }

    /// While there is no connection, those whose time is over are told so.
    fn watch_publishes(&self) {
        if self.publishes.waiting.borrow().is_empty() || self.publishes.watched.replace(true) {
            return;
        }
        let Some(engine) = self.weak.upgrade() else { return };
        actix::spawn(async move {
            while engine.link.borrow().is_none() && !engine.publishes.waiting.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let name = &engine.options.name;
                let text = format!("transport `{name}` is not connected; the message was not sent");
                engine.refuse(Some(Instant::now()), &TransportError::new(ErrorKind::Connection, text));
            }
            engine.publishes.watched.set(false);
            engine.flush_publishes();
        });
    }

    fn refuse(&self, due: Option<Instant>, error: &TransportError) {
        let mut refused = Vec::new();
        self.publishes.waiting.borrow_mut().retain(|item| {
            let over = due.is_none_or(|due| item.deadline <= due);
            if over {
                refused.push((item.request.clone(), item.index));
            }
            !over
        });
        for (request, index) in refused {
            request.answer(index, Err(error.clone()));
        }
        self.publishes.done.notify_waiters();
    }

    pub(super) fn refuse_publishes(&self) {
        self.refuse(None, &TransportError::stopped());
    }

    /// Waits until nothing is being published; without a connection that is now.
    pub(super) async fn publishes_done(&self) {
        loop {
            let done = self.publishes.done.notified();
            tokio::pin!(done);
            done.as_mut().enable();
            let idle = self.publishes.calls.get() == 0 && self.publishes.waiting.borrow().is_empty();
            if idle || self.link.borrow().is_none() {
                return;
            }
            done.await;
        }
    }
}

/// Answers even where the driver panics or gives too few results.
struct Asker {
    request: Rc<Request>,
    index: usize,
    answered: bool,
}

impl Drop for Asker {
    fn drop(&mut self) {
        if !self.answered {
            let text = "the publish ended without an answer; the message may have been stored";
            self.request.answer(self.index, Err(TransportError::new(ErrorKind::Timeout, text)));
        }
    }
}

struct Calling<'a, B: Broker>(&'a Engine<B>);

impl<B: Broker> Drop for Calling<'_, B> {
    fn drop(&mut self) {
        self.0.publishes.calls.set(self.0.publishes.calls.get().saturating_sub(1));
        self.0.publishes.done.notify_waiters();
    }
}
