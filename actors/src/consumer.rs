//! A consumer: one subscription. Permit, pull, hand to the pools of the types.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient, StreamHandler, Supervised,
    WrapFuture,
};
use postroom_core::{
    Text,
    protocol::{Permits, Prefetch, SourceId},
};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use crate::{
    board::{Board, Health, Kind},
    gate::{Alone, Delivery, Ended, Gate},
    route::Router,
    transport::{How, Pull, Pulled},
};

/// After the transport did not answer a pull, the next is tried after this time.
const PULL_AGAIN: Duration = Duration::from_millis(200);

/// What a transport tells its consumer.
#[derive(Debug)]
pub(crate) enum Told {
    /// Hand these to the pools.
    Deliver(Vec<Delivery>),
    /// The broker has answered the settles of `ended` deliveries; `unused` more were given back.
    Freed { ended: usize, unused: usize },
    /// Pause: a message can't be handled and there is no failure transport.
    Pause(Text),
    /// The connection was made, and the subscription is open.
    Linked,
    /// The connection is lost.
    Unlinked(Text),
}

/// A limit on how many deliveries a node handles. Consumers share it: it is claimed for what arrived, not for what a
/// waiting pull might bring, so an empty queue never holds it back from a full one.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Below 0 while deliveries beyond the limit are on their way back.
    left: AtomicI64,
    open: AtomicU64,
    changed: Notify,
    reached: Notify,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            left: AtomicI64::new(i64::try_from(limit).unwrap_or(i64::MAX)),
            open: AtomicU64::new(limit),
            changed: Notify::new(),
            reached: Notify::new(),
        }
    }

    fn left(&self) -> usize {
        usize::try_from(self.left.load(Ordering::SeqCst)).unwrap_or(0)
    }

    /// Claims for `n` deliveries that arrived; answers how many of them are beyond the limit and must go back.
    pub(crate) fn claim(&self, n: usize) -> usize {
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        let left = self.left.fetch_sub(n, Ordering::SeqCst) - n;
        usize::try_from((-left).clamp(0, n)).unwrap_or(0)
    }

    fn refund(&self, n: usize) {
        if n > 0 {
            self.left.fetch_add(i64::try_from(n).unwrap_or(0), Ordering::SeqCst);
            self.changed.notify_waiters();
        }
    }

    fn spent(&self, n: usize) {
        let n = n as u64;
        let left = self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| Some(open.saturating_sub(n)));
        if left.is_ok_and(|before| before <= n) {
            self.reached.notify_waiters();
        }
    }

    /// Resolves when some of it may be left.
    async fn refilled(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.left() > 0 {
                return;
            }
            changed.await;
        }
    }

    pub(crate) async fn reached(&self) {
        loop {
            let reached = self.reached.notified();
            tokio::pin!(reached);
            reached.as_mut().enable();
            if self.open.load(Ordering::SeqCst) == 0 {
                return;
            }
            reached.await;
        }
    }
}

/// The actor of one subscription.
pub(crate) struct Consumer {
    name: Text,
    source: SourceId,
    gate: Arc<Gate>,
    pull: Recipient<Pull>,
    inbox: Rc<RefCell<mpsc::UnboundedReceiver<Told>>>,
    router: Arc<Router>,
    permits: Permits,
    budget: Option<Arc<Budget>>,
    board: Arc<Board>,
    shown: Option<Health>,
    paused: Option<Text>,
    pulling: bool,
    /// In a suspects' lane: nothing else runs in this process, until the broker has answered for the suspect.
    alone: Option<Alone>,
    started: Instant,
}

impl Consumer {
    #[allow(clippy::too_many_arguments, reason = "one call, in the node's builder")]
    pub(crate) fn new(
        name: Text,
        gate: Arc<Gate>,
        pull: Recipient<Pull>,
        inbox: mpsc::UnboundedReceiver<Told>,
        router: Arc<Router>,
        permits: Permits,
        budget: Option<Arc<Budget>>,
        board: Arc<Board>,
    ) -> Self {
        Self {
            name,
            source: gate.source,
            gate,
            pull,
            inbox: Rc::new(RefCell::new(inbox)),
            router,
            permits,
            budget,
            board,
            shown: None,
            paused: None,
            pulling: false,
            alone: None,
            started: Instant::now(),
        }
    }

    fn show(&mut self, health: Health, why: &str) {
        if self.shown != Some(health) {
            self.shown = Some(health);
            self.board.set(Kind::Consumer, &self.name, health, why);
        }
    }

    /// Pulls as many as there are permits, one pull at a time.
    fn pump(&mut self, context: &mut Context<Self>) {
        if self.paused.is_some() || self.gate.is_draining() {
            if self.permits.taken() == 0 {
                self.alone = None;
            }
            return;
        }
        if self.pulling {
            return;
        }
        if !self.gate.lane && self.gate.quiet.is_wanted() {
            // A suspect runs alone: what is pulled now would die beside it.
            let quiet = self.gate.quiet.clone();
            return self.wait(context, async move { quiet.over().await });
        }
        let free = self.permits.free(self.started.elapsed());
        let max = self.budget.as_ref().map_or(free, |budget| free.min(budget.left()));
        if max == 0 {
            if let Some(budget) = self.budget.clone().filter(|_| free > 0) {
                self.wait(context, async move { budget.refilled().await });
            }
            return;
        }
        if self.budget.is_none() && !self.permits.is_worth(max, self.router.queued()) {
            // What is freed next pumps again.
            return;
        }
        self.permits.take(max);
        self.pulling = true;
        // A suspect that is taken while others run could be brought back by their death, which would count as its own:
        // it is only looked for until this process is quiet.
        let how = match (self.gate.lane, &self.alone) {
            (false, _) => How::Wait,
            (true, None) => How::Probe,
            (true, Some(_)) => How::Now,
        };
        let pull = self.pull.send(Pull { source: self.source, max, how });
        context.spawn(pull.into_actor(self).map(move |answer, consumer, context| {
            consumer.pulling = false;
            let taken = match answer {
                Ok(Pulled::Took(taken)) => taken,
                Ok(Pulled::Stopped) => {
                    consumer.alone = None;
                    consumer.permits.refund(max);
                    return;
                }
                Err(_) => {
                    // The transport is being restarted.
                    consumer.alone = None;
                    consumer.permits.refund(max);
                    context.run_later(PULL_AGAIN, Self::pump);
                    return;
                }
            };
            consumer.permits.refund(max.saturating_sub(taken));
            match how {
                How::Probe if taken > 0 => return consumer.want_quiet(context),
                // The lane is empty, or another process was first.
                How::Now if taken == 0 => consumer.alone = None,
                _ => {}
            }
            if consumer.paused.is_none() && taken > 0 {
                consumer.show(Health::Active, "");
            } else if consumer.paused.is_none() && consumer.permits.taken() == 0 {
                consumer.show(Health::Idle, "");
            }
            consumer.pump(context);
        }));
    }

    /// Pumps again once `what` is over.
    fn wait(&mut self, context: &mut Context<Self>, what: impl Future<Output = ()> + 'static) {
        self.pulling = true;
        context.spawn(what.into_actor(self).map(|(), consumer, context| {
            consumer.pulling = false;
            consumer.pump(context);
        }));
    }

    /// Waits until nothing else runs in this process, and keeps others out.
    fn want_quiet(&mut self, context: &mut Context<Self>) {
        self.pulling = true;
        let quiet = self.gate.quiet.clone();
        let alone = async move { quiet.enter_alone().await };
        context.spawn(alone.into_actor(self).map(|alone, consumer, context| {
            consumer.alone = Some(alone);
            consumer.pulling = false;
            consumer.pump(context);
        }));
    }

    fn listen(&mut self, context: &mut Context<Self>) {
        let inbox = self.inbox.clone();
        context.add_stream(futures_util::stream::poll_fn(move |cx| inbox.borrow_mut().poll_recv(cx)));
        self.pump(context);
    }
}

impl Actor for Consumer {
    type Context = Context<Self>;
    fn started(&mut self, context: &mut Self::Context) {
        self.show(Health::Reconnecting, "not connected yet");
        self.listen(context);
    }
}

impl Supervised for Consumer {
    fn restarting(&mut self, context: &mut Self::Context) {
        // The answer of a pull that was under way went with the old context; its deliveries come by the inbox.
        self.pulling = false;
        self.alone = None;
        self.listen(context);
    }
}

impl StreamHandler<Told> for Consumer {
    fn handle(&mut self, told: Told, context: &mut Self::Context) {
        match told {
            Told::Deliver(deliveries) => {
                let unhandled: Vec<Ended> = self.router.dispatch(deliveries);
                if !unhandled.is_empty() {
                    // Only a transport that is gone does not hear it.
                    let _ = self.gate.ends.send(unhandled);
                }
            }
            Told::Freed { ended, unused } => {
                self.permits.give(ended);
                self.permits.refund(unused);
                if let Some(budget) = &self.budget {
                    budget.spent(ended);
                    budget.refund(unused);
                }
                self.pump(context);
            }
            Told::Pause(why) => {
                tracing::error!(consumer = %self.name, %why, "consumer paused");
                self.show(Health::Degraded, &why);
                self.paused = Some(why);
            }
            Told::Linked if self.paused.is_none() => self.show(Health::Idle, ""),
            Told::Unlinked(why) if self.paused.is_none() => self.show(Health::Reconnecting, &why),
            Told::Linked | Told::Unlinked(_) => {}
        }
    }

    /// The transport is gone: the node stops, or rebuilds both.
    fn finished(&mut self, context: &mut Self::Context) {
        self.show(Health::Stopped, "");
        context.stop();
    }
}

/// Changes how a consumer works.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub(crate) enum Tune {
    Pause(Text),
    Resume,
    Prefetch(Prefetch),
    /// A waiting pull was woken: intake has ended.
    Stop,
}

impl Handler<Tune> for Consumer {
    type Result = ();
    fn handle(&mut self, tune: Tune, context: &mut Self::Context) {
        match tune {
            Tune::Pause(why) => {
                self.show(Health::Standby, &why);
                self.paused = Some(why);
            }
            Tune::Resume => {
                self.paused = None;
                self.show(Health::Active, "");
                self.pump(context);
            }
            Tune::Prefetch(prefetch) => {
                self.permits.change(prefetch);
                self.pump(context);
            }
            Tune::Stop => self.show(Health::Stopped, ""),
        }
    }
}
