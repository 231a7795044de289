//! A node inside an actix system: two messages, an async function that handles them, and a receipt.
#![allow(clippy::print_stdout, reason = "an example speaks to its reader")]

use postroom::{HandlerOptions, Node, Received, open};

#[derive(serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    id: u64,
}
postroom::message!(OrderPlaced = "order.placed");

async fn ship(order: Received<OrderPlaced>) -> Result<(), std::io::Error> {
    println!("order {} is shipped, attempt {}", order.id, order.attempt());
    Ok(())
}

#[actix::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::builder()
        .transport(open("orders", "memory:?queue=orders")?)
        .handle(HandlerOptions::of::<OrderPlaced>("orders")?, ship)
        .limit(Some(2))
        .start()
        .await?;
    // Each answer means: confirmed, as durable as the broker can.
    node.send("orders", &OrderPlaced { id: 1 }).await?;
    node.draft(&OrderPlaced { id: 2 })?.key("customer-7").header("shop", "north").send("orders").await?;
    node.limit_reached().await;
    println!("{}", node.stop().await);
    Ok(())
}
