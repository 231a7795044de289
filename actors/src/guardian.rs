//! Real supervision for an actor.
//!
//! `actix::Supervisor` does not restart after a panic, restarts without a pause after a stop, and cannot be stopped
//! while an address lives. A guardian is a task that owns the actor's context and polls it under `catch_unwind`. After a
//! panic it restarts the context (the mailbox and what waits in it are kept), sleeps an exponential back-off with
//! jitter, and polls on. Restarts are counted in a window; a spent budget is said to the parent and goes on at the
//! slowest pace, so nothing is ever given up in silence.

use std::{
    any::Any,
    collections::VecDeque,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use actix::{Actor, Addr, AsyncContext, Context, Supervised, dev::ContextFut};
use tokio::time::Instant;

/// How often and how fast an actor is restarted.
#[derive(Clone, Copy, Debug)]
pub struct RestartPolicy {
    /// The pause after the first panic; it doubles with each further one in the window.
    pub first: Duration,
    /// The longest pause, also the pace once the budget is spent.
    pub longest: Duration,
    /// Restarts in the window that are normal; beyond them the actor is *degraded*.
    pub budget: usize,
    /// The window.
    pub window: Duration,
}

impl Default for RestartPolicy {
    /// 10 ms doubling up to 5 s; 10 restarts a minute.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(10),
            longest: Duration::from_secs(5),
            budget: 10,
            window: Duration::from_secs(60),
        }
    }
}

/// What a guardian tells the actor's parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// It panicked and is restarted after the pause.
    Restarting {
        /// The panic's text.
        why: String,
        /// Restarts in the window, this one included.
        restarts: usize,
        /// Whether the budget is spent.
        degraded: bool,
    },
    /// It stopped: by itself, or because nobody can reach it any more.
    Stopped,
}

/// Starts an actor under a guardian on the current arbiter. `tell` hears of each restart and of the end. The actor lives
/// as long as somebody holds an address, or until it stops itself.
///
/// # Panics
/// Outside of an actix arbiter, as [`Actor::start`] does.
pub fn guard<A, F, T>(policy: RestartPolicy, create: F, mut tell: T) -> Addr<A>
where
    A: Actor<Context = Context<A>> + Supervised,
    F: FnOnce(&mut Context<A>) -> A,
    T: FnMut(Life) + 'static,
{
    let mut context = Context::new();
    let address = context.address();
    let actor = create(&mut context);
    let mut context = context.into_future(actor);
    actix::spawn(async move {
        let mut restarts = Restarts::new(policy);
        loop {
            match next_end(&mut context).await {
                None => break,
                Some(why) => {
                    let (pause, count, degraded) = restarts.next(Instant::now(), fastrand::f64());
                    tracing::warn!(actor = std::any::type_name::<A>(), %why, restarts = count, degraded, "actor panicked; restarting");
                    tell(Life::Restarting { why, restarts: count, degraded });
                    tokio::time::sleep(pause).await;
                    // `restarting` may panic as well: the next poll then finds a context that runs, with the old state.
                    if let Ok(false) = catch_unwind(AssertUnwindSafe(|| context.restart())) {
                        break;
                    }
                }
            }
        }
        tell(Life::Stopped);
    });
    address
}

/// Polls the context to its end: `None` when it stopped, the panic's text when it panicked.
async fn next_end<A>(context: &mut ContextFut<A, Context<A>>) -> Option<String>
where
    A: Actor<Context = Context<A>>,
{
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut *context).poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(())) => Poll::Ready(None),
        Err(panic) => Poll::Ready(Some(panic_text(&*panic))),
    })
    .await
}

/// The text of a panic; a payload that is no text is said to be so.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "panicked with a payload that is not text".to_owned()
    }
}

/// Counts restarts in a window and says how long to pause.
#[derive(Debug)]
pub(crate) struct Restarts {
    policy: RestartPolicy,
    times: VecDeque<Instant>,
}

impl Restarts {
    pub(crate) fn new(policy: RestartPolicy) -> Self {
        Self { policy, times: VecDeque::new() }
    }

    pub(crate) fn next(&mut self, now: Instant, random: f64) -> (Duration, usize, bool) {
        while self.times.front().is_some_and(|at| now.duration_since(*at) > self.policy.window) {
            self.times.pop_front();
        }
        self.times.push_back(now);
        // More than the budget tells nothing more.
        if self.times.len() > self.policy.budget.saturating_add(1) {
            self.times.pop_front();
        }
        let count = self.times.len();
        let degraded = count > self.policy.budget;
        let doublings = u32::try_from(count - 1).unwrap_or(u32::MAX).min(30);
        let pause = if degraded { self.policy.longest } else { self.policy.first.saturating_mul(1 << doublings) };
        let jittered = pause.min(self.policy.longest).mul_f64(0.75 + random / 2.0);
        (jittered, count, degraded)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use actix::{Handler, MailboxError, Message};

    use super::*;

    struct Fragile {
        restarted: usize,
    }
    impl Actor for Fragile {
        type Context = Context<Self>;
    }
    impl Supervised for Fragile {
        fn restarting(&mut self, _: &mut Context<Self>) {
            self.restarted += 1;
        }
    }
    #[derive(Message)]
    #[rtype(result = "usize")]
    struct Touch {
        hard: bool,
    }
    impl Handler<Touch> for Fragile {
        type Result = usize;
        fn handle(&mut self, touch: Touch, _: &mut Context<Self>) -> usize {
            assert!(!touch.hard, "touched too hard");
            self.restarted
        }
    }

    #[actix::test]
    async fn a_panic_costs_one_message_and_the_mailbox_is_kept() {
        let lives = Rc::new(RefCell::new(Vec::new()));
        let heard = lives.clone();
        let policy = RestartPolicy { first: Duration::from_millis(1), ..RestartPolicy::default() };
        let address = guard(policy, |_| Fragile { restarted: 0 }, move |life| heard.borrow_mut().push(life));
        let before = address.send(Touch { hard: false });
        let killer = address.send(Touch { hard: true });
        let after = address.send(Touch { hard: false });
        let (before, killer, after) = tokio::join!(before, killer, after);
        assert_eq!(before.ok(), Some(0));
        assert!(matches!(killer, Err(MailboxError::Closed)));
        assert_eq!(after.ok(), Some(1));
        assert!(
            matches!(&lives.borrow()[..], [Life::Restarting { why, restarts: 1, degraded: false }] if why == "touched too hard")
        );
    }

    #[test]
    fn pauses_grow_and_a_spent_budget_is_degraded_until_the_window_has_passed() {
        let policy = RestartPolicy { budget: 3, ..RestartPolicy::default() };
        let mut restarts = Restarts::new(policy);
        let start = Instant::now();
        let pauses: Vec<_> = (0..5).map(|_| restarts.next(start, 0.5)).collect();
        assert_eq!(pauses[0], (Duration::from_millis(10), 1, false));
        assert_eq!(pauses[2], (Duration::from_millis(40), 3, false));
        assert!(pauses[3].2 && pauses[4].2 && pauses[4].0 == policy.longest);
        let later = start + policy.window + Duration::from_secs(1);
        assert_eq!(restarts.next(later, 0.5), (Duration::from_millis(10), 1, false));
    }
}
