//! A handler that keeps state: an actix actor, one a slot, under a guardian. One message makes it panic: that message
//! runs again by the retry policy, the actor is restarted, `restarting` says what becomes of its state, and its mailbox
//! is kept.
//!
//! The DSN is the first argument; without one it is the in-process broker.
#![allow(clippy::print_stdout, reason = "an example speaks to its reader")]

use std::{collections::BTreeMap, time::Duration};

use actix::{Actor, Context, Handler, Supervised};
use postroom::{HandlerError, HandlerOptions, Node, Received, open};

#[derive(serde::Serialize, serde::Deserialize)]
struct Payment {
    account: String,
    cents: i64,
}
postroom::message!(Payment = "payment");

#[derive(Default)]
struct Ledger {
    balances: BTreeMap<String, i64>,
    restarts: u32,
}

impl Actor for Ledger {
    type Context = Context<Self>;
}

impl Supervised for Ledger {
    /// The same value goes on after a panic: keep what is sound, rebuild what is not.
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.restarts += 1;
    }
}

impl Handler<Received<Payment>> for Ledger {
    type Result = Result<(), HandlerError>;

    fn handle(&mut self, payment: Received<Payment>, _: &mut Context<Self>) -> Self::Result {
        assert!(payment.cents != 13 || payment.attempt() > 1, "13 is unlucky, once");
        let balance = self.balances.entry(payment.account.clone()).or_default();
        *balance = balance.checked_add(payment.cents).ok_or_else(|| HandlerError::fail("the balance overflows"))?;
        println!("{} {:+} = {balance} (restarts: {})", payment.account, payment.cents, self.restarts);
        Ok(())
    }
}

#[actix::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dsn = std::env::args().nth(1).unwrap_or_else(|| "memory:?queue=payments".to_owned());
    let mut payments = open("payments", &dsn)?;
    payments.options.retry.delay = Duration::from_millis(100);
    let node = Node::builder()
        .transport(payments)
        // One slot: one actor holds all balances.
        .actor(HandlerOptions::of::<Payment>("payments")?.concurrency(1), Ledger::default)
        // Three messages, one of them twice.
        .limit(Some(4))
        .start()
        .await?;
    for cents in [100, 13, -40] {
        node.send("payments", &Payment { account: "ada".into(), cents }).await?;
    }
    node.limit_reached().await;
    println!("{}", node.stop().await);
    Ok(())
}
