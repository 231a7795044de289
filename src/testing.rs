//! Tests of an application, in process: the memory transport, waiting until a node is idle, and what was sent, retried
//! and failed.
//!
//! ```
//! use postroom::{HandlerError, HandlerOptions, Node, Received, open, testing::Probe};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Charge { cents: u64 }
//! postroom::message!(Charge = "charge");
//!
//! # #[actix::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let probe = Probe::new();
//! let node = Node::builder()
//!     .observer(probe.clone())
//!     .transport(open("charges", "memory:?queue=charges")?)
//!     .handle(HandlerOptions::of::<Charge>("charges")?, |charge: Received<Charge>| async move {
//!         if charge.cents == 0 { Err(HandlerError::fail("nothing to charge")) } else { Ok(()) }
//!     })
//!     .start()
//!     .await?;
//! let good = node.send("charges", &Charge { cents: 5 }).await?;
//! let bad = node.send("charges", &Charge { cents: 0 }).await?;
//! probe.idle(&node).await?;
//! assert_eq!(probe.sent("charges"), [good.clone(), bad.clone()]);
//! assert_eq!(probe.acked("charges"), [good]);
//! assert_eq!(probe.failed("charges"), [bad]);
//! # node.stop().await;
//! # Ok(())
//! # }
//! ```

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postroom_actors::{Node, Observed, Observer};
use postroom_core::{MessageId, Text, TransportError, protocol::Tally};

#[derive(Debug)]
enum Seen {
    Sent,
    Refused,
    Settled(Tally),
}

/// Records what happens on a node; give a clone to [`NodeBuilder::observer`](crate::NodeBuilder::observer).
#[derive(Clone, Debug, Default)]
pub struct Probe {
    seen: Arc<Mutex<Vec<(Text, MessageId, Seen)>>>,
}

impl Observer for Probe {
    fn observe(&self, transport: &str, events: &[Observed]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            let (id, what) = match event {
                Observed::Published { id } => (id, Seen::Sent),
                Observed::PublishFailed { id, .. } => (id, Seen::Refused),
                Observed::Settled { id, tally } => (id, Seen::Settled(*tally)),
                _ => continue,
            };
            seen.push((transport.into(), id.clone(), what));
        }
    }
}

impl Probe {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn ids(&self, transport: &str, wanted: impl Fn(&Seen) -> bool) -> Vec<MessageId> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|(of, _, what)| of == transport && wanted(what)).map(|(_, id, _)| id.clone()).collect()
    }

    /// The messages that were sent to a transport and confirmed, in order.
    #[must_use]
    pub fn sent(&self, transport: &str) -> Vec<MessageId> {
        self.ids(transport, |what| matches!(what, Seen::Sent))
    }

    /// The messages that a transport refused.
    #[must_use]
    pub fn refused(&self, transport: &str) -> Vec<MessageId> {
        self.ids(transport, |what| matches!(what, Seen::Refused))
    }

    /// The deliveries of a transport that ended acked.
    #[must_use]
    pub fn acked(&self, transport: &str) -> Vec<MessageId> {
        self.ids(transport, |what| matches!(what, Seen::Settled(Tally::Acked)))
    }

    /// The deliveries of a transport that ended in a retry; a message is listed once for each.
    #[must_use]
    pub fn retried(&self, transport: &str) -> Vec<MessageId> {
        self.ids(transport, |what| matches!(what, Seen::Settled(Tally::Retried)))
    }

    /// The messages that a transport gave up.
    #[must_use]
    pub fn failed(&self, transport: &str) -> Vec<MessageId> {
        self.ids(transport, |what| matches!(what, Seen::Settled(Tally::Failed)))
    }

    /// Waits until nothing waits, is delayed or in flight on the transports of a node that can count. Bound it with a
    /// timeout where a message may never end.
    ///
    /// # Errors
    /// When a transport can't be asked.
    pub async fn idle(&self, node: &Node) -> Result<(), TransportError> {
        loop {
            let mut open = 0;
            for transport in node.transports() {
                let place = transport.place();
                if !place.is_readable() {
                    continue;
                }
                let lane = place.suspects();
                for place in [Some(place), lane.as_ref()].into_iter().flatten() {
                    if let Some(counts) = transport.count(place).await? {
                        let figures = [counts.waiting, counts.in_flight, counts.delayed];
                        open += figures.into_iter().flatten().sum::<u64>();
                    }
                }
            }
            if open == 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
