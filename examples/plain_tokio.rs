//! A node in a plain tokio program. There is no actix system here, so the node starts one on a thread of its own; the
//! node's handle is cheap to clone and works from every task.
#![allow(clippy::print_stdout, reason = "an example speaks to its reader")]

use postroom::{HandlerError, HandlerOptions, Node, Received, open};

#[derive(serde::Serialize, serde::Deserialize)]
struct Resize {
    picture: String,
    width: u32,
}
postroom::message!(Resize = "picture.resize");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    let node = Node::builder()
        .transport(open("pictures", "memory:?queue=pictures")?)
        .handle(HandlerOptions::of::<Resize>("pictures")?.concurrency(4), move |resize: Received<Resize>| {
            let done = done.clone();
            async move {
                if resize.width == 0 {
                    return Err(HandlerError::fail("a picture has a width"));
                }
                // An error here would run the message again by the retry policy.
                done.send(resize.into_inner())?;
                Ok(())
            }
        })
        .limit(Some(5))
        .start()
        .await?;

    let mut senders = tokio::task::JoinSet::new();
    for width in [0, 100, 200, 300, 400] {
        let node = node.clone();
        senders.spawn(async move { node.send("pictures", &Resize { picture: "cat".into(), width }).await });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    let mut widths = Vec::new();
    for _ in 0..4 {
        let Some(Resize { picture, width }) = finished.recv().await else { break };
        widths.push(format!("{picture} {width}"));
    }
    widths.sort();
    println!("resized: {}", widths.join(", "));
    node.limit_reached().await;
    println!("{}", node.stop().await);
    Ok(())
}
