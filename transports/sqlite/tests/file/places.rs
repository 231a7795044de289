//! Places, groups that others remove, namespaces.

use std::time::Duration;

use postroom_core::{Broker, Count, Envelope, ErrorKind, Groups, Name, Outgoing, Place, Source};
use postroom_sqlite::Sqlite;

use crate::support::{declare, normal, one, open, queue, read, send};

/// Another process removed a group that this one knows: what was sent to it is unroutable, and its neighbours are kept.
#[tokio::test]
async fn a_group_that_another_removed_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let here = open(&normal(&path)).await;
    let there = open(&normal(&path).busy(Duration::from_secs(6))).await;
    let (group, topic) = (Place::group("t", "g").unwrap(), Place::topic("t").unwrap());
    declare(&here, &group).await;
    send(&here, &group, "known").await.unwrap();
    let source = read(&here, &group).await;
    let (t, g) = (Name::new("t").unwrap(), Name::new("g").unwrap());
    assert!(there.groups().unwrap().remove(&t, &g).await.unwrap());

    let batch = [queue("q"), group.clone(), topic.clone()].map(|to| Outgoing::new(to, Envelope::new("late")));
    let answers = here.publish(&batch).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::Unroutable);
    assert_eq!(here.count().unwrap().count(&queue("q")).await.unwrap().waiting, Some(1));
    let gone = loop {
        match source.pull(1).await {
            Ok(taken) => assert!(taken.is_empty()),
            Err(error) => break error,
        }
    };
    assert_eq!(gone.kind(), ErrorKind::NotFound);

    // Declared anew it is another, and gets what is sent from now on.
    declare(&there, &group).await;
    send(&here, &topic, "new").await.unwrap();
    assert_eq!(&*one(&read(&here, &group).await).await.envelope.body, b"new");
}

/// A namespace and a derived name may look the same when they are joined.
#[tokio::test]
async fn namespaces_never_meet() {
    let folder = tempfile::tempdir().unwrap();
    let config = normal(&folder.path().join("q.db"));
    let plain = Sqlite::connect(&config).await.unwrap();
    let inner = Sqlite::connect(&config.in_namespace(Some(Name::new("orders").unwrap()))).await.unwrap();
    let lane = queue("orders").suspects().unwrap();
    declare(&plain, &lane).await;
    declare(&inner, &queue("suspects")).await;
    send(&plain, &lane, "lane").await.unwrap();
    assert_eq!(inner.count().unwrap().count(&queue("suspects")).await.unwrap().waiting, Some(0));
    assert_eq!(plain.count().unwrap().count(&lane).await.unwrap().waiting, Some(1));
}
