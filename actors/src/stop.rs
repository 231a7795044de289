//! The one shutdown path, within one deadline.
//!
//! 1. Intake ends: waiting pulls are woken, what has not started goes back at once.
//! 2. Running handlers finish, their leases renewed; publishes and settles go on until nothing is in flight.
//! 3. At the deadline, what still runs is given back, and only then its threads are left behind.
//! 4. Publishes flush, subscriptions and connections close, the pools' threads end.
//!
//! The answer is a receipt. A second signal moves the deadline nearer; the path stays the same.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::{sync::watch, time::Instant};

use crate::{consumer::Tune, node::Parts, pool::ClosePool, receipt::Receipt, transport::StopPhase};

/// How long after the deadline the broker may take to answer what is given back.
const GIVE_BACK: Duration = Duration::from_millis(500);
/// How long closing may take where the deadline is nearer.
const CLOSE: Duration = Duration::from_millis(400);

/// Stops a node's parts.
pub(crate) async fn stop(parts: &Parts, mut deadline: watch::Receiver<Instant>) -> Receipt {
    let began = Instant::now();
    // 1
    until(&mut deadline, all(parts, || StopPhase::Intake)).await;
    for queue in &parts.queues {
        queue.clear_unstarted();
    }
    for consumer in &parts.consumers {
        // One that is gone has no intake.
        let _ = consumer.send(Tune::Stop).await;
    }
    // 2
    let clean = until(&mut deadline, all(parts, || StopPhase::Settled)).await;
    // 3
    if !clean {
        tracing::warn!("the grace is over; giving back what still runs");
        let _ = tokio::time::timeout(GIVE_BACK, all(parts, || StopPhase::Abandon)).await;
    }
    for pool in &parts.pools {
        let _ = pool.send(ClosePool { abort: !clean }).await;
    }
    // 4
    let left = deadline.borrow().saturating_duration_since(Instant::now()).max(CLOSE);
    let _ = tokio::time::timeout(left, all(parts, || StopPhase::Close)).await;
    let mut receipt = Receipt::default();
    for transport in &parts.transports {
        receipt.merge(&transport.tallies.receipt());
    }
    for pool in &parts.pools {
        let _ = pool.send(ClosePool { abort: true }).await;
    }
    for transport in &parts.transports {
        transport.arbiter.stop();
    }
    receipt.stopped_in = began.elapsed();
    receipt
}

/// One phase on all transports at once: handlers of one publish to another, so none closes before all are settled.
async fn all(parts: &Parts, phase: impl Fn() -> StopPhase) {
    join_all(parts.transports.iter().map(|transport| transport.phases.send(phase()))).await;
}

/// Whether it ended before the deadline, which may move.
async fn until(deadline: &mut watch::Receiver<Instant>, work: impl Future<Output = ()>) -> bool {
    tokio::pin!(work);
    loop {
        let at = *deadline.borrow_and_update();
        tokio::select! {
            biased;
            () = &mut work => return true,
            () = tokio::time::sleep_until(at) => return false,
            changed = deadline.changed() => if changed.is_err() {
                return tokio::time::timeout_at(at, &mut work).await.is_ok();
            },
        }
    }
}
