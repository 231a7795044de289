//! Two groups of a topic: each gets its own copy of every message. One of them errs once; its retry comes back to it
//! alone, and the other group never sees it.
#![allow(clippy::print_stdout, reason = "an example speaks to its reader")]

use std::time::Duration;

use postroom::{HandlerError, HandlerOptions, Node, Received, open, testing::Probe};

#[derive(serde::Serialize, serde::Deserialize)]
struct Signup {
    name: String,
}
postroom::message!(Signup = "user.signup");

async fn bill(signup: Received<Signup>) -> Result<(), HandlerError> {
    println!("billing: {}", signup.name);
    Ok(())
}

async fn greet(signup: Received<Signup>) -> Result<(), HandlerError> {
    if signup.name == "grace" && signup.attempt() == 1 {
        return Err(HandlerError::retry("the post office is closed").after(Duration::from_millis(50)));
    }
    println!("welcome: {}, attempt {}", signup.name, signup.attempt());
    Ok(())
}

#[actix::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let probe = Probe::new();
    let node = Node::builder()
        .observer(probe.clone())
        // One store, `post`, for the three. The groups are declared at the start; a message sent later reaches both.
        .transport(open("billing", "memory:post?topic=signups&group=billing")?)
        .transport(open("welcome", "memory:post?topic=signups&group=welcome")?)
        // A transport without a group only sends.
        .transport(open("signups", "memory:post?topic=signups")?)
        .handle(HandlerOptions::of::<Signup>("billing")?, bill)
        .handle(HandlerOptions::of::<Signup>("welcome")?, greet)
        .fail_fast(true)
        .start()
        .await?;
    for name in ["ada", "grace"] {
        node.send("signups", &Signup { name: name.into() }).await?;
    }
    probe.idle(&node).await?;
    let (billing, welcome) = (probe.acked("billing").len(), probe.acked("welcome").len());
    println!("billing handled {billing}, welcome {welcome} after {} retry", probe.retried("welcome").len());
    println!("{}", node.stop().await);
    Ok(())
}
