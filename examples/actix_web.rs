//! A node inside an actix-web program: a route sends, a pool handles, and one stop ends both in the right order.
//!
//! The server finishes first, so that no request is left without a node to send with; then the node stops, within its
//! grace, and answers its receipt; the system ends with `main`.
#![allow(clippy::print_stdout, reason = "an example speaks to its reader")]

use actix_web::{App, HttpResponse, HttpServer, Responder, http::StatusCode, post, rt, web};
use postroom::{ErrorKind, HandlerError, HandlerOptions, Node, Received, open};

#[derive(serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    id: u64,
}
postroom::message!(OrderPlaced = "order.placed");

/// 202 means: the broker has confirmed it.
#[post("/orders")]
async fn place(node: web::Data<Node>, order: web::Json<OrderPlaced>) -> impl Responder {
    match node.send("orders", &*order).await {
        Ok(id) => HttpResponse::Accepted().body(id.to_string()),
        Err(error) if error.kind().may_retry() => HttpResponse::ServiceUnavailable().body(error.to_string()),
        Err(error) if error.kind() == ErrorKind::Stopped => HttpResponse::ServiceUnavailable().finish(),
        Err(error) => HttpResponse::InternalServerError().body(error.to_string()),
    }
}

async fn ship(order: Received<OrderPlaced>) -> Result<(), HandlerError> {
    println!("order {} is shipped", order.id);
    Ok(())
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::builder()
        .transport(open("orders", "memory:?queue=orders")?)
        .handle(HandlerOptions::of::<OrderPlaced>("orders")?.concurrency(2), ship)
        .limit(Some(1))
        .start()
        .await?;
    let shared = web::Data::new(node.clone());
    let server = HttpServer::new(move || App::new().app_data(shared.clone()).service(place))
        .workers(1)
        .disable_signals()
        .bind(("127.0.0.1", 0))?;
    let address = server.addrs().first().copied().ok_or("no address is bound")?;
    let server = server.run();
    let stop = server.handle();
    let serving = rt::spawn(server);

    // A program that goes on would wait for a signal here; this one is its own client.
    let client = awc::Client::default();
    let mut answer = client.post(format!("http://{address}/orders")).send_json(&OrderPlaced { id: 7 }).await?;
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    println!("confirmed, an id of {} characters", answer.body().await?.len());
    node.limit_reached().await;

    stop.stop(true).await;
    serving.await??;
    println!("the server has finished");
    println!("{}", node.stop().await);
    Ok(())
}
