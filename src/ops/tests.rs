#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]
use std::{ops::ControlFlow, time::Duration};

use postroom_core::Reason;

use super::*;
use crate::{Envelope, HandlerError, HandlerOptions, MessageId, Node, Place, Raw, Received, TypeName, open};

/// Fails what its body tells it to.
async fn judge(received: Received<Raw>) -> Result<(), HandlerError> {
    match &*received.0 {
        b"bad" => Err(HandlerError::fail("it is bad")),
        _ => Ok(()),
    }
}

async fn node() -> Node {
    let options = HandlerOptions::new("q", "*").unwrap().concurrency(4);
    let node = Node::builder().transport(open("q", "memory:?queue=q").unwrap()).handle_with(options, || judge);
    node.start().await.unwrap()
}

async fn send(node: &Node, kind: &str, body: &'static [u8], n: usize) {
    let envelope = |at: usize| {
        let mut envelope = Envelope::with_id(MessageId::new(format!("{kind}-{at}")).unwrap(), body);
        envelope.message_type = TypeName::new(kind).ok();
        (envelope, Duration::ZERO)
    };
    for answer in node.send_all("q", (0..n).map(envelope).collect()).await.unwrap() {
        answer.unwrap();
    }
}

async fn all(store: &Store, filter: Filter) -> Vec<FailedRecord> {
    let mut scan = Scan::new(store.clone(), filter);
    let mut found = Vec::new();
    while let Some(page) = scan.next().await.unwrap() {
        found.extend(page);
    }
    found
}

async fn until_failed(node: &Node, store: &Store, n: u64) {
    let handle = node.transport("q").unwrap();
    let look = async || match stats(&handle, Some(store)).await.unwrap().remove(0) {
        stats if stats.failed == Some(n) && stats.backlog().0 == 0 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    for _ in 0..500 {
        if look().await.is_break() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never {n} failed: {:?}", stats(&handle, Some(store)).await);
}

#[test]
fn failed_records_are_counted_found_retried_and_removed() {
    actix_rt::System::new().block_on(async {
        let node = node().await;
        let handle = node.transport("q").unwrap();
        let store = Store::of(&handle, |name| node.transport(name)).unwrap();
        assert_eq!(store.place(), &Place::store("q.failed").unwrap());
        // More than a page.
        send(&node, "a", b"bad", 1_500).await;
        send(&node, "b", b"bad", 3).await;
        send(&node, "c", b"good", 5).await;
        until_failed(&node, &store, 1_503).await;

        assert_eq!(all(&store, Filter::default()).await.len(), 1_503);
        assert_eq!(all(&store, Filter::default().message_type("b")).await.len(), 3);
        assert_eq!(all(&store, Filter::default().from(&handle).reason(Reason::Final)).await.len(), 1_503);
        assert_eq!(all(&store, Filter::default().reason(Reason::Crashed)).await.len(), 0);
        let found = find(&store, "b-1").await.unwrap();
        assert_eq!(found.len(), 1);
        let by_record = find(&store, &found[0].id()).await.unwrap();
        assert_eq!(&*by_record[0].envelope().id, "b-1");
        assert!(find(&store, "nothing").await.unwrap().is_empty());

        assert!(remove(&found).await.remove(0).unwrap());
        assert!(!remove(&found).await.remove(0).unwrap(), "it was removed before");
        let of_b = all(&store, Filter::default().message_type("b")).await;
        assert_eq!(of_b.len(), 2);
        for result in retry(&of_b, |_, _| Some(handle.clone())).await {
            assert!(result.unwrap());
        }
        // They fail again, in the next round, with the same ids.
        until_failed(&node, &store, 1_502).await;
        let again = all(&store, Filter::default().message_type("b")).await;
        assert_eq!(again.len(), 2);
        assert!(again.iter().all(|record| record.envelope().track.as_ref().is_some_and(|track| track.round == 1)));
        let refused = retry(&again, |_, _| None).await;
        assert!(matches!(refused[0], Err(OpsError::NoOrigin { .. })));
        assert_eq!(all(&store, Filter::default().message_type("b")).await.len(), 2, "what was not sent stays");
        node.stop().await;
    });
}

#[test]
fn a_walk_sees_every_message_and_a_pace_keeps_its_rate() {
    actix_rt::System::new().block_on(async {
        let node = Node::builder().transport(open("q", "memory:?queue=q").unwrap()).start().await.unwrap();
        send(&node, "a", b"x", 2_500).await;
        let handle = node.transport("q").unwrap();
        let mut walk = peek(&handle, None).await.unwrap();
        let mut seen = 0;
        while let Some((_, items)) = walk.next(700).await.unwrap() {
            assert!(items.len() <= 700);
            seen += items.len();
        }
        assert_eq!(seen, 2_500);
        assert!(groups::list(&handle).await.is_err(), "a queue has no groups");
        node.stop().await;

        let mut pace = Pace::new(Some(50.0));
        let began = tokio::time::Instant::now();
        for _ in 0..4 {
            pace.wait(pace.batch()).await;
        }
        assert_eq!(pace.batch(), 5);
        assert!(began.elapsed() >= Duration::from_millis(290), "{:?}", began.elapsed());
    });
}
