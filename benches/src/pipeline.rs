//! Messages that wait on a memory broker, through pool and settle.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use actix::{Actor, Context, Handler, Supervised};
use postroom::{
    HandlerError, HandlerOptions, Node, Outgoing, Place, Prefetch, Received, Tally, TransportOptions, TransportSpec,
    launcher,
};
use postroom_core::{Broker, Declaration, DeclareMode};
use postroom_memory::{Memory, MemoryConfig};

use crate::record::{self, Earthquake};

/// Any error.
pub type Failed = Box<dyn Error>;

/// The kind of handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An async function.
    Function,
    /// An actor.
    Actor,
}

/// A memory broker where `count` messages wait in `queue bench`. They are published to the broker, past the runtime.
///
/// # Errors
/// When the broker refuses.
pub async fn fill(count: u64) -> Result<MemoryConfig, Failed> {
    let config = MemoryConfig::private();
    let broker = Memory::connect(&config).await?;
    let place = Place::queue("bench")?;
    broker.declare(&[Declaration::new(place.clone())], DeclareMode::Create).await?;
    let mut left = count;
    while left > 0 {
        let now = left.min(256);
        let batch: Vec<Outgoing> = (0..now).map(|_| Outgoing::new(place.clone(), record::envelope())).collect();
        for answer in broker.publish(&batch).await {
            answer?;
        }
        left -= now;
    }
    Ok(config)
}

#[derive(Debug)]
struct Summing(Arc<AtomicU64>);

impl Actor for Summing {
    type Context = Context<Self>;
}
impl Supervised for Summing {}

impl Handler<Received<Earthquake>> for Summing {
    type Result = Result<(), HandlerError>;
    fn handle(&mut self, quake: Received<Earthquake>, _: &mut Context<Self>) -> Self::Result {
        self.0.fetch_add(quake.significance.unsigned_abs(), Ordering::Relaxed);
        Ok(())
    }
}

/// Handles and settles all that wait, at most `batch` at once. Answers once the broker has answered every settle.
///
/// # Errors
/// When a message did not end acked.
pub async fn drain(config: MemoryConfig, count: u64, batch: usize, kind: Kind) -> Result<(), Failed> {
    let mut options = TransportOptions::new("bench", Place::queue("bench")?);
    options.prefetch = Prefetch::Fixed(batch);
    let sum = Arc::new(AtomicU64::new(0));
    let builder = Node::builder().transport(TransportSpec::new(options, launcher::<Memory>(config))).limit(Some(count));
    let handler = HandlerOptions::of::<Earthquake>("bench")?;
    let builder = match kind {
        Kind::Function => {
            let sum = sum.clone();
            builder.handle(handler, move |quake: Received<Earthquake>| {
                sum.fetch_add(quake.significance.unsigned_abs(), Ordering::Relaxed);
                std::future::ready(Ok::<(), HandlerError>(()))
            })
        }
        Kind::Actor => {
            let sum = sum.clone();
            builder.actor(handler, move || Summing(sum.clone()))
        }
    };
    let node = builder.start().await?;
    node.limit_reached().await;
    let acked = node.board().counters("bench").map_or(0, |counters| counters.of(Tally::Acked));
    node.stop().await;
    if acked != count || sum.load(Ordering::Relaxed) != count * 436 {
        return Err(format!("{acked} of {count} messages were acked").into());
    }
    Ok(())
}
