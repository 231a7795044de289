//! Rows that other programs write.

use postroom_core::{Settled, Settlement};

use crate::support::{normal, one, open, other, queue, read, run, settle};

const INSERT: &str = "INSERT INTO postroom_message (place, body) \
     SELECT id, 'hello' FROM postroom_place WHERE namespace = '' AND kind = 'queue' AND name = 'q'";

#[tokio::test]
async fn the_least_insert_is_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let broker = open(&normal(&path)).await;
    run(&mut other(&path).await, INSERT).await;
    let source = read(&broker, &queue("q")).await;
    let delivery = one(&source).await;
    assert_eq!((&*delivery.envelope.body, delivery.delivered, delivery.oddities), (&b"hello"[..], Some(1), 0));
    assert_eq!(delivery.envelope.id.len(), 32);
    assert!(delivery.envelope.message_type.is_none() && delivery.envelope.track.is_none());
    assert_eq!(settle(&source, &delivery.token, Settlement::Ack).await, Settled::Done);
    assert_eq!(settle(&source, &delivery.token, Settlement::Ack).await, Settled::Already);
}

#[tokio::test]
async fn odd_columns_are_counted_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let broker = open(&normal(&path)).await;
    let mut on = other(&path).await;
    run(
        &mut on,
        "INSERT INTO postroom_message (place, message_id, type, key, headers, body) VALUES \
         (1, '', 'a b', x'ff', 'no json', 5), \
         (1, 7, 'order.placed', 'k', '{\"x\": 1, \"bin\": {\"base64\": \"/w==\"}}', x'00ff')",
    )
    .await;
    let source = read(&broker, &queue("q")).await;
    let odd = one(&source).await;
    // The id, the type, the key and the headers.
    assert_eq!(odd.oddities, 4);
    assert_eq!((&*odd.envelope.id, &*odd.envelope.body), ("sqlite:1", &b"5"[..]));
    assert!(odd.envelope.message_type.is_none() && odd.envelope.key.is_none());
    assert_eq!(odd.envelope.stamps.get_str("x-postroom-unreadable-headers"), Some("no json"));
    let good = one(&source).await;
    assert_eq!((good.oddities, &*good.envelope.id, &*good.envelope.body), (0, "7", &[0, 255][..]));
    assert_eq!(good.envelope.stamps.get_str("x"), Some("1"));
    assert_eq!(good.envelope.stamps.get("bin").map(|value| &value[..]), Some(&[255][..]));
}
