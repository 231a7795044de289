//! C03 and what else is about streams.

use std::time::Duration;

use postroom_core::{Broker, Count, Declaration, DeclareMode, Place, Settlement, Source};

use crate::harness::*;

async fn length(port: u16) -> usize {
    redis::cmd("XLEN").arg("topic:t").query_async(&mut raw(port).await).await.unwrap()
}

async fn handled(source: &postroom_redis::RedisSource, n: usize) {
    let taken = take(source, n).await;
    let acks: Vec<_> = taken.iter().map(|one| (&one.token, Settlement::Ack)).collect();
    for answer in source.settle(&acks).await {
        answer.unwrap();
    }
}

#[test]
fn c03_a_topic_is_trimmed_below_every_groups_need_and_never_above() {
    on_redis(|server| async move {
        let port = server.port();
        let broker = connect(port).await;
        let (topic, one) = (Place::topic("t").unwrap(), Place::group("t", "one").unwrap());
        let two = Place::group("t", "two").unwrap();
        let what = [Declaration::new(one.clone()), Declaration::new(two.clone())];
        broker.declare(&what, DeclareMode::Create).await.unwrap();
        send(&broker, &topic, named(0..1_000)).await;
        let (first, second) = (subscribe(&broker, &one, "a").await, subscribe(&broker, &two, "b").await);
        handled(&first, 1_000).await;
        broker.tend(100).await.unwrap();
        assert_eq!(length(port).await, 1_000, "what the second group has not read was trimmed");
        let held = take(&second, 1).await;
        handled(&second, 599).await;
        broker.tend(100).await.unwrap();
        assert_eq!(length(port).await, 1_000, "what the second group holds was trimmed");
        assert_eq!(broker.count().unwrap().count(&two).await.unwrap().waiting, Some(400));
        for answer in second.settle(&[(&held[0].token, Settlement::Ack)]).await {
            answer.unwrap();
        }
        broker.tend(100).await.unwrap();
        // The server trims whole nodes of a hundred entries.
        assert!((400..=501).contains(&length(port).await), "{} are left", length(port).await);
        handled(&second, 400).await;
        broker.tend(1_000).await.unwrap();
        assert!(length(port).await <= 101, "{} are left", length(port).await);
        assert_eq!(broker.count().unwrap().count(&two).await.unwrap().waiting, Some(0));
        broker.close().await.unwrap();
    });
}

#[test]
fn a_key_of_another_type_is_refused_by_name() {
    on_redis(|server| async move {
        let mut client = raw(server.port()).await;
        redis::cmd("SET").arg("taken").arg("1").exec_async(&mut client).await.unwrap();
        let broker = connect(server.port()).await;
        let what = [Declaration::new(Place::queue("taken").unwrap())];
        let error = broker.declare(&what, DeclareMode::Create).await.unwrap_err().to_string();
        assert_eq!(error, "queue taken: the key's type is wanted to be stream, found is string taken");
    });
}

#[test]
fn memory_that_is_full_is_an_error_and_loses_nothing() {
    on_redis(|server| async move {
        let port = server.port();
        let broker = connect(port).await;
        send(&broker, &queue(), named(0..1)).await;
        let source = subscribe(&broker, &queue(), "a").await;
        let held = take(&source, 1).await;
        let mut client = raw(port).await;
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec_async(&mut client).await.unwrap();
        let outgoing = postroom_core::Outgoing::new(queue(), postroom_core::Envelope::new("no room"));
        let refused = broker.publish(&[outgoing]).await.remove(0).unwrap_err();
        assert_eq!(refused.kind(), postroom_core::ErrorKind::Busy, "{refused:?}");
        let again = Settlement::Retry { replacement: held[0].envelope.clone(), after: Duration::ZERO };
        let refused = source.settle(&[(&held[0].token, again.clone())]).await.remove(0).unwrap_err();
        assert_eq!(refused.kind(), postroom_core::ErrorKind::Busy, "{refused:?}");
        assert_eq!(pending(port).await, 1);
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).exec_async(&mut client).await.unwrap();
        let settled = source.settle(&[(&held[0].token, again)]).await.remove(0).unwrap();
        assert_eq!(settled, postroom_core::Settled::Done);
        handled(&source, 1).await;
        broker.close().await.unwrap();
    });
}
