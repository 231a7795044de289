//! The transport's registry over the broker itself: what no handler can do, because a delivery ends once by its type.

use std::time::Duration;

use postroom_core::{
    AttemptKind, Broker, DeliveryCount, Outcome, Place, RetryPolicy, Settled, Settlement, Source,
    policy::{Order, Unhandled},
    protocol::{Action, End, Event, Key, Ledger, SourceId, SourceRules},
    track::Origin,
};

use super::worker::MAIN;
use crate::{
    Subject,
    scenario::scenarios,
    support::{Reader, Stop, World, ensure},
};

scenarios! { Settling;
    retry_after_ack_does_nothing [] "a retry, an ack and a failure of what is acked never reach the broker";
    ack_after_retry_leaves_the_copy_alone [] "an ack and a second retry of what is retried never reach the broker";
    settling_what_was_never_received_does_nothing [] "an end that is no delivery's never reaches the broker, and harms no delivery that is open";
}

/// A registry over one subscription, as the transport actor runs it, one step at a time.
struct Desk<S: Subject> {
    world: World<S>,
    reader: Reader<<S::Broker as Broker>::Source>,
    ledger: Ledger<<<S::Broker as Broker>::Source as Source>::Token>,
    source: SourceId,
}

impl<S: Subject> Desk<S> {
    async fn of(world: &World<S>, messages: usize) -> Result<Self, Stop> {
        let (connection, queue) = world.with_queue().await?;
        connection.send_many(&queue, messages).await?;
        let mut ledger = Ledger::default();
        let source = ledger.add_source(rules(queue.clone(), world.powers.capabilities.delivery_count));
        Ok(Self { world: world.clone(), reader: connection.reader(&queue).await?, ledger, source })
    }

    /// Takes the next delivery; answers its key and its envelope's earlier errors.
    async fn next(&mut self) -> Result<(Key, u32), Stop> {
        let delivery = self.reader.one().await?;
        let mut actions = Vec::new();
        self.ledger.arrive(self.source, delivery, 0, &mut actions);
        match actions.as_slice() {
            [Action::Deliver { key, envelope, .. }] => Ok((*key, envelope.attempts())),
            other => Err(Stop::failed(format_args!("a delivery made {other:?}"))),
        }
    }

    /// Ends a delivery; answers how many settlements reached the broker.
    async fn end(&mut self, key: Key, outcome: Outcome) -> Result<usize, Stop> {
        let mut actions = Vec::new();
        let end = End { outcome, done: Vec::new(), at: 0, random: 0.5 };
        self.ledger.step(Event::Ended(key, Box::new(end)), &mut actions);
        let mut reached = 0;
        for action in actions {
            let Action::Settle(key, _, settlement) = action else { continue };
            let Some((_, token)) = self.ledger.token(key) else { return Err(Stop::failed("no token of a settle")) };
            let acked = matches!(settlement, Settlement::Ack);
            let envelope = self.ledger.envelope(key).cloned();
            for answer in self.reader.source.settle(&[(&token, settlement)]).await {
                let answer = answer?;
                ensure!(matches!(answer, Settled::Done | Settled::Written), "an owner's settle answered {answer:?}");
                if let (true, Some(envelope)) = (acked, &envelope) {
                    self.world.ledger.borrow_mut().ended(&self.reader.place, &envelope.id);
                }
                self.ledger.step(Event::Settled(key, answer), &mut Vec::new());
                reached += 1;
            }
        }
        Ok(reached)
    }

    /// None of the ways to end a delivery reaches the broker any more.
    async fn is_over(&mut self, key: Key, what: &str) -> Result<(), Stop> {
        let last = Outcome::Final { error: "late".into(), handler: None };
        for outcome in [Outcome::Done, errored(), last, Outcome::NotStarted] {
            let word = format!("{outcome:?}");
            let reached = self.end(key, outcome).await?;
            ensure!(reached == 0, "{word} of {what} reached the broker");
        }
        Ok(())
    }
}

fn rules(place: Place, count: DeliveryCount) -> SourceRules {
    SourceRules {
        origin: Origin::new(MAIN, place),
        retry: RetryPolicy { max: 3, delay: Duration::ZERO, ..RetryPolicy::default() },
        unhandled: Unhandled::Fail,
        crashes: 4,
        order: Order::None,
        lane: false,
        count,
        failure: true,
    }
}

fn errored() -> Outcome {
    Outcome::errored(AttemptKind::Error, "once more")
}

async fn retry_after_ack_does_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let mut desk = Desk::of(&world, 1).await?;
    let (key, _) = desk.next().await?;
    ensure!(desk.end(key, Outcome::Done).await? == 1, "an ack is one settlement");
    desk.is_over(key, "what is acked").await
}

async fn ack_after_retry_leaves_the_copy_alone<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let mut desk = Desk::of(&world, 1).await?;
    let (key, _) = desk.next().await?;
    ensure!(desk.end(key, errored()).await? == 1, "a retry is one settlement");
    desk.is_over(key, "what is retried").await?;
    let (copy, attempts) = desk.next().await?;
    ensure!(attempts == 1, "one retry made a copy that counts {attempts}");
    desk.is_over(key, "what is retried, its copy taken").await?;
    ensure!(desk.end(copy, Outcome::Done).await? == 1, "the copy's ack is one settlement");
    Ok(())
}

async fn settling_what_was_never_received_does_nothing<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let mut desk = Desk::of(&world, 3).await?;
    desk.is_over(Key::default(), "what was never received").await?;
    let (gone, _) = desk.next().await?;
    desk.end(gone, Outcome::Done).await?;
    // The slot of the one that is gone is used again: the old key must not open it.
    let (open, _) = desk.next().await?;
    desk.is_over(Key::default(), "what was never received").await?;
    desk.is_over(gone, "what is gone").await?;
    ensure!(desk.end(open, Outcome::Done).await? == 1, "the open one's ack is one settlement");
    Ok(())
}
