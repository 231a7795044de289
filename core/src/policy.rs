//! The one place that turns a handler's outcome into a verdict, and the retry arithmetic.

use std::time::Duration;

use crate::{
    Text,
    track::{AttemptKind, Reason},
};

/// How often and when a message whose handler errored runs again. Runs = 1 + `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Retries after the first run.
    pub max: u32,
    /// The delay before the first retry.
    pub delay: Duration,
    /// What each further delay is multiplied by; below 1 or not finite counts as 1.
    pub multiplier: f64,
    /// No delay is longer.
    pub cap: Duration,
    /// The part of a delay that is random, from 0 (none) to 1 (from nothing to double, but never above the cap).
    pub jitter: f64,
}

impl Default for RetryPolicy {
    /// 3 retries after 1 s, 2 s and 4 s, each up to a tenth earlier or later, never above 5 minutes.
    fn default() -> Self {
        Self { max: 3, delay: Duration::from_secs(1), multiplier: 2.0, cap: Duration::from_secs(300), jitter: 0.1 }
    }
}

impl RetryPolicy {
    /// No retries: one run.
    #[must_use]
    pub fn never() -> Self {
        Self { max: 0, ..Self::default() }
    }

    /// The delay before retry number `retry` (from 1), before jitter: monotone, saturating at the cap, never negative.
    #[must_use]
    pub fn base_delay(&self, retry: u32) -> Duration {
        if self.delay.is_zero() {
            return Duration::ZERO;
        }
        let multiplier = if self.multiplier.is_finite() && self.multiplier > 1.0 { self.multiplier } else { 1.0 };
        // powi takes an i32; past 2^31 retries every multiplier above 1 has long met the cap.
        let power = i32::try_from(retry.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.delay.as_secs_f64() * multiplier.powi(power);
        // Infinite, NaN or beyond what a Duration holds: the cap.
        Duration::try_from_secs_f64(seconds).map_or(self.cap, |delay| delay.min(self.cap))
    }

    /// The delay before retry number `retry` (from 1); `random` is in `0.0..1.0`.
    #[must_use]
    pub fn delay(&self, retry: u32, random: f64) -> Duration {
        let jitter = if self.jitter.is_finite() { self.jitter.clamp(0.0, 1.0) } else { 0.0 };
        let factor = 1.0 + jitter * (2.0 * random.clamp(0.0, 1.0) - 1.0);
        let delay = self.base_delay(retry);
        Duration::try_from_secs_f64(delay.as_secs_f64() * factor).map_or(self.cap, |delay| delay.min(self.cap))
    }
}

/// What to do with a message whose type no handler takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unhandled {
    /// Fail it; a queue's default.
    #[default]
    Fail,
    /// Ack and count it as ignored; a group's default.
    Ack,
    /// Retry by policy: a handler may be deployed soon.
    Retry,
}

/// Which deliveries wait for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// None.
    #[default]
    None,
    /// One at a time for each key; keys side by side.
    Key,
    /// One at a time for each subscription.
    Broker,
}

/// How one run of a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Every handler is done.
    Done,
    /// An attempt that may succeed when it is tried again.
    Errored {
        /// How it ended.
        kind: AttemptKind,
        /// The error's text.
        error: Text,
        /// A delay that the handler asked for; it replaces the policy's.
        after: Option<Duration>,
        /// The named handler.
        handler: Option<Text>,
    },
    /// A handler said that no retry can help.
    Final {
        /// The error's text.
        error: Text,
        /// The named handler.
        handler: Option<Text>,
    },
    /// The body is not what its type says.
    Undecodable {
        /// What was wrong.
        error: Text,
    },
    /// No handler takes the type.
    Unhandled,
    /// No handler has started.
    NotStarted,
}

impl Outcome {
    /// An error of the handler that may succeed when it is tried again.
    #[must_use]
    pub fn errored(kind: AttemptKind, error: impl Into<Text>) -> Self {
        Self::Errored { kind, error: error.into(), after: None, handler: None }
    }

    fn with_handler(mut self, name: &Text) -> Self {
        if let Self::Errored { handler, .. } | Self::Final { handler, .. } = &mut self {
            *handler = Some(name.clone());
        }
        self
    }

    /// The outcome of several named handlers that ran in order: any retryable error makes it one, else any final one;
    /// else it is done. Also answers who is done, for the done-marks.
    #[must_use]
    pub fn combine(parts: Vec<(Text, Self)>) -> (Self, Vec<Text>) {
        let mut done = Vec::new();
        let (mut retryable, mut final_) = (None, None);
        for (name, outcome) in parts {
            match outcome {
                Self::Done => done.push(name),
                Self::Errored { .. } | Self::NotStarted => {
                    retryable.get_or_insert(outcome.with_handler(&name));
                }
                Self::Final { .. } | Self::Undecodable { .. } | Self::Unhandled => {
                    final_.get_or_insert(outcome.with_handler(&name));
                }
            }
        }
        (retryable.or(final_).unwrap_or(Self::Done), done)
    }
}

/// How a delivery is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Ack,
    /// It runs again.
    Retry {
        /// Not earlier than this from now.
        after: Duration,
    },
    /// It is given up: stored, confirmed, then acked.
    Fail {
        /// Why.
        reason: Reason,
    },
    /// It goes back untouched.
    Release,
}

/// Turns an outcome into a verdict; nothing else in Postroom does. `attempts` are the errored attempts before this run;
/// `random` is in `0.0..1.0`.
#[must_use]
pub fn verdict(
    outcome: &Outcome,
    retry: &RetryPolicy,
    unhandled: Unhandled,
    attempts: u32,
    draining: bool,
    random: f64,
) -> Verdict {
    let again = |after: Option<Duration>| {
        if attempts >= retry.max {
            Verdict::Fail { reason: Reason::Attempts }
        } else {
            Verdict::Retry { after: after.unwrap_or_else(|| retry.delay(attempts.saturating_add(1), random)) }
        }
    };
    match outcome {
        Outcome::Done => Verdict::Ack,
        Outcome::NotStarted => Verdict::Release,
        // A handler that was told to stop may error because of that: nothing is counted.
        Outcome::Errored { .. } if draining => Verdict::Release,
        Outcome::Errored { after, .. } => again(*after),
        Outcome::Final { .. } => Verdict::Fail { reason: Reason::Final },
        Outcome::Undecodable { .. } => Verdict::Fail { reason: Reason::Undecodable },
        Outcome::Unhandled => match unhandled {
            Unhandled::Fail => Verdict::Fail { reason: Reason::Unhandled },
            Unhandled::Ack => Verdict::Ack,
            Unhandled::Retry if draining => Verdict::Release,
            Unhandled::Retry => match again(None) {
                Verdict::Fail { .. } => Verdict::Fail { reason: Reason::Unhandled },
                verdict => verdict,
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errored() -> Outcome {
        Outcome::errored(AttemptKind::Error, "no")
    }

    /// C38, the whole table: base 1 s, factor 2, no cap, attempts 1..=100 and u32::MAX; base 0; jitter 100 %.
    #[test]
    fn c38_delay_is_monotone_saturates_and_is_never_negative() {
        let policy = RetryPolicy { cap: Duration::MAX, jitter: 0.0, max: u32::MAX, ..RetryPolicy::default() };
        let mut last = Duration::ZERO;
        for retry in (1..=100).chain([u32::MAX - 1, u32::MAX]) {
            let delay = policy.base_delay(retry);
            assert!(delay >= last, "retry {retry}: {delay:?} < {last:?}");
            last = delay;
        }
        assert_eq!(last, Duration::MAX);
        assert_eq!(policy.base_delay(1), Duration::from_secs(1));
        assert_eq!(policy.base_delay(4), Duration::from_secs(8));
        let capped = RetryPolicy { jitter: 1.0, ..RetryPolicy::default() };
        for retry in (0..=100).chain([u32::MAX]) {
            for random in [0.0, 0.3, 0.999_999, f64::NAN, -1.0, 7.0] {
                assert!(capped.delay(retry, random) <= capped.cap);
            }
        }
        assert_eq!(capped.delay(1, 0.0), Duration::ZERO);
        let zero = RetryPolicy { delay: Duration::ZERO, jitter: 1.0, ..RetryPolicy::default() };
        assert_eq!(zero.delay(u32::MAX, 0.9), Duration::ZERO);
        for multiplier in [0.0, -3.0, f64::NAN, f64::INFINITY, 1.0] {
            let policy = RetryPolicy { multiplier, ..RetryPolicy::default() };
            assert!(policy.base_delay(50) >= policy.base_delay(1));
        }
    }

    /// C38: limits 0, 1 and 3 give 1, 2 and 4 runs.
    #[test]
    fn c38_runs_are_one_plus_the_limit() {
        for max in [0, 1, 3] {
            let policy = RetryPolicy { max, ..RetryPolicy::default() };
            let mut runs = 0;
            loop {
                let attempts = runs;
                runs += 1;
                match verdict(&errored(), &policy, Unhandled::Fail, attempts, false, 0.5) {
                    Verdict::Retry { .. } => {}
                    Verdict::Fail { reason: Reason::Attempts } => break,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(runs, max + 1);
        }
    }

    #[test]
    fn a_drain_releases_retryable_errors_and_still_fails_final_ones() {
        let policy = RetryPolicy::never();
        let judge = |outcome, draining| verdict(&outcome, &policy, Unhandled::Fail, 0, draining, 0.5);
        assert_eq!(judge(errored(), true), Verdict::Release);
        assert_eq!(judge(errored(), false), Verdict::Fail { reason: Reason::Attempts });
        let last = Outcome::Final { error: "x".into(), handler: None };
        assert_eq!(judge(last, true), Verdict::Fail { reason: Reason::Final });
        assert_eq!(judge(Outcome::Done, true), Verdict::Ack);
        assert_eq!(judge(Outcome::NotStarted, false), Verdict::Release);
    }

    #[test]
    fn a_handlers_own_delay_wins_over_the_policy() {
        let outcome = Outcome::Errored {
            kind: AttemptKind::Error,
            error: "busy".into(),
            after: Some(Duration::from_secs(9)),
            handler: None,
        };
        let judged = verdict(&outcome, &RetryPolicy::default(), Unhandled::Fail, 0, false, 0.5);
        assert_eq!(judged, Verdict::Retry { after: Duration::from_secs(9) });
    }

    #[test]
    fn several_handlers_retry_first_then_final_then_done() {
        let last = Outcome::Final { error: "bad".into(), handler: None };
        let (outcome, done) = Outcome::combine(vec![
            ("h1".into(), Outcome::Done),
            ("h2".into(), last.clone()),
            ("h3".into(), errored()),
            ("h4".into(), Outcome::Done),
        ]);
        assert!(matches!(outcome, Outcome::Errored { handler: Some(name), .. } if name == "h3"));
        assert_eq!(done, ["h1", "h4"]);
        let (outcome, _) = Outcome::combine(vec![("h1".into(), Outcome::Done), ("h2".into(), last)]);
        assert!(matches!(outcome, Outcome::Final { handler: Some(name), .. } if name == "h2"));
        assert_eq!(Outcome::combine(vec![("h1".into(), Outcome::Done)]).0, Outcome::Done);
    }
}
