//! An application opens it by DSN, like any other broker; and what a dead process held comes back.

use std::time::Duration;

use postroom::{HandlerOptions, Node, Received, Registry};
use postroom_core::{Broker, Declaration, DeclareMode, Envelope, Outgoing, Place, Source, Subscription};
use postroom_directory::{Config, Directory};

#[derive(serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    id: u64,
}
postroom::message!(OrderPlaced = "order.placed");

fn registry() -> Registry {
    Registry::default()
        .with("dir", |dsn, namespace| Ok(postroom::launcher::<Directory>(Config::from_dsn(dsn, namespace)?)))
}

#[actix::test]
async fn a_node_runs_over_it() {
    let folder = tempfile::tempdir().unwrap();
    let dsn = format!("dir:{}?queue=orders", folder.path().join("mail").display());
    let node = Node::builder()
        .transport(registry().open("orders", &dsn).unwrap())
        .handle(HandlerOptions::of::<OrderPlaced>("orders").unwrap(), |order: Received<OrderPlaced>| async move {
            assert_eq!(order.id, 7);
            Ok::<(), std::io::Error>(())
        })
        .limit(Some(1))
        .start()
        .await
        .unwrap();
    node.send("orders", &OrderPlaced { id: 7 }).await.unwrap();
    node.limit_reached().await;
    let receipt = node.stop().await;
    assert_eq!((receipt.deliveries, receipt.acked), (1, 1));
}

#[actix::test]
async fn what_a_dead_process_held_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { root: folder.path().join("mail") };
    let queue = Place::queue("orders").unwrap();
    let subscription = || Subscription::new(queue.clone(), "test", Duration::from_secs(1));
    let living = Directory::connect(&config).await.unwrap();
    living.declare(&[Declaration::new(queue.clone())], DeclareMode::Create).await.unwrap();
    living.publish(&[Outgoing::new(queue.clone(), Envelope::new("body"))]).await.remove(0).unwrap();

    // Dropped, not closed: as after a kill, only the lock goes.
    let dead = Directory::connect(&config).await.unwrap();
    let source = dead.subscribe(subscription()).await.unwrap();
    assert_eq!(source.pull(9).await.unwrap().len(), 1);
    assert_eq!(living.tend(9).await.unwrap().reclaimed, 0);
    drop((dead, source));
    assert_eq!(living.tend(9).await.unwrap().reclaimed, 1);
    let source = living.subscribe(subscription()).await.unwrap();
    assert_eq!(source.pull(9).await.unwrap().len(), 1);
    living.close().await.unwrap();
}
