//! What a scenario is, and the powers that it may need.

use std::fmt;

use futures_util::future::LocalBoxFuture;
use postroom_core::{Broker, Capabilities, DeliveryCount, Fencing};

use crate::{
    Subject,
    support::{Stop, World},
};

/// At which level the suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The bare contract, as the driver implements it.
    Bare,
    /// Through the transport actor: nodes, pools and handlers.
    Actors,
}

/// What a scenario is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Sent, received, settled: the base of everything.
    Settling,
    /// Who owns a delivery, and for how long.
    Leases,
    /// How messages are taken.
    Pull,
    /// Topics and their groups.
    Topics,
    /// Every byte arrives as it was sent.
    Bytes,
    /// What an operator sees and does.
    Operations,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Settling => "settling",
            Self::Leases => "leases",
            Self::Pull => "pull",
            Self::Topics => "topics",
            Self::Bytes => "bytes",
            Self::Operations => "operations",
        })
    }
}

/// A power without which a scenario is not applicable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Need {
    /// Delays that the broker keeps.
    Delay,
    /// Leases that expire and can be extended.
    Lease,
    /// A stale owner is refused by the broker.
    Fencing,
    /// Topics with groups.
    Topics,
    /// Counting.
    Count,
    /// Browsing.
    Browse,
    /// Listing and removing groups.
    Groups,
    /// Deliveries are counted exactly.
    ExactDeliveryCount,
    /// A limit of the body's size, low enough to be tried.
    BodyLimit,
    /// The subject can inject foreign messages.
    Injection,
    /// The subject has a config that reaches nothing.
    Unreachable,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delay => "delay",
            Self::Lease => "lease",
            Self::Fencing => "fencing by the broker",
            Self::Topics => "topics",
            Self::Count => "count",
            Self::Browse => "browse",
            Self::Groups => "groups",
            Self::ExactDeliveryCount => "an exact delivery count",
            Self::BodyLimit => "a limit of the body's size, of 64 MiB at most",
            Self::Injection => "a subject that can inject foreign messages",
            Self::Unreachable => "a subject with an unreachable config",
        })
    }
}

/// Above this the proof that a body is too large would cost more than it says.
const PROVABLE: usize = 64 << 20;

/// What a connected broker turned out to have.
#[derive(Clone, Debug)]
pub(crate) struct Powers {
    pub(crate) capabilities: Capabilities,
    pub(crate) count: bool,
    pub(crate) browse: bool,
    pub(crate) groups: bool,
    injection: bool,
    unreachable: bool,
}

impl Powers {
    pub(crate) fn discover<S: Subject>(subject: &S, broker: &S::Broker) -> Self {
        Self {
            capabilities: broker.capabilities(),
            count: broker.count().is_some(),
            browse: broker.browse().is_some(),
            groups: broker.groups().is_some(),
            injection: subject.can_inject(),
            unreachable: subject.unreachable().is_some(),
        }
    }

    pub(crate) fn has(&self, need: Need) -> bool {
        let can = &self.capabilities;
        match need {
            Need::Delay => can.delay,
            Need::Lease => can.lease,
            Need::Fencing => can.fencing == Fencing::Refused,
            Need::Topics => can.topics,
            Need::Count => self.count,
            Need::Browse => self.browse,
            Need::Groups => self.groups,
            Need::ExactDeliveryCount => can.delivery_count == DeliveryCount::Exact,
            Need::BodyLimit => can.max_body.is_some_and(|limit| limit <= PROVABLE),
            Need::Injection => self.injection,
            Need::Unreachable => self.unreachable,
        }
    }
}

/// One scenario.
pub(crate) struct Scenario<S: Subject> {
    pub(crate) group: Group,
    pub(crate) name: &'static str,
    pub(crate) proves: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(World<S>) -> LocalBoxFuture<'static, Result<(), Stop>>,
}

/// A group's list of scenarios: `function [needs] "what it proves";`.
macro_rules! scenarios {
    ($group:ident; $($name:ident [$($need:ident),*] $proves:literal;)+) => {
        /// The scenarios of this group.
        pub(crate) fn all<S: $crate::Subject>() -> Vec<$crate::scenario::Scenario<S>> {
            vec![$($crate::scenario::Scenario {
                group: $crate::Group::$group,
                name: stringify!($name),
                proves: $proves,
                needs: &[$($crate::Need::$need),*],
                run: |world| Box::pin($name(world)),
            }),+]
        }
    };
}
pub(crate) use scenarios;
