//! Files that are new, old, newer, or none.

use std::{path::Path, time::Duration};

use postroom_core::{Broker, Durability, ErrorKind, TransportError};
use postroom_sqlite::{Sqlite, SqliteConfig};

use crate::support::{declare, normal, open, other, queue, run, send};

async fn refused(path: &Path) -> TransportError {
    let error = Sqlite::connect(&normal(path)).await.expect_err("it was opened");
    assert!(error.to_string().contains(&*path.to_string_lossy()), "the file is not named: {error}");
    error
}

/// Four writers, because their options differ, on a file that none has made yet.
#[test]
fn four_at_once_make_one_schema() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.db");
        let gate = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for i in 0..4 {
                let (path, gate) = (&path, &gate);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    runtime.block_on(async {
                        gate.wait();
                        let broker = open(&normal(path).busy(Duration::from_secs(5 + i))).await;
                        send(&broker, &queue("q"), "hello").await.unwrap();
                    });
                });
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut on = other(&path).await;
            let found: (i64, i64, i64) = sqlx::query_as(
                "SELECT (SELECT count(*) FROM postroom_schema), (SELECT count(*) FROM postroom_place), \
                 (SELECT count(*) FROM postroom_message)",
            )
            .fetch_one(&mut on)
            .await
            .unwrap();
            assert_eq!(found, (1, 1, 4));
        });
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("newer.db");
    let mut on = other(&path).await;
    run(&mut on, "CREATE TABLE postroom_schema (version INTEGER NOT NULL); INSERT INTO postroom_schema VALUES (7)")
        .await;
    let error = refused(&path).await;
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("version 7"), "{error}");
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let text = "no database\n".repeat(200);
    std::fs::write(&path, &text).unwrap();
    assert_eq!(refused(&path).await.kind(), ErrorKind::Refused);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(refused(folder.path()).await.kind(), ErrorKind::Connection);
}

#[tokio::test]
async fn a_folder_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("q.db");
    assert_eq!(refused(&path).await.kind(), ErrorKind::Connection);
    assert!(!folder.path().join("missing").exists());
}

/// The user's own tables and version stay what they are.
#[tokio::test]
async fn it_moves_into_a_file_of_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let mut on = other(&path).await;
    run(&mut on, "PRAGMA user_version = 42; CREATE TABLE orders (id INTEGER); INSERT INTO orders VALUES (1)").await;
    let broker = open(&normal(&path)).await;
    send(&broker, &queue("q"), "hello").await.unwrap();
    let found: (i64, i64) =
        sqlx::query_as("SELECT (SELECT count(*) FROM orders), user_version FROM pragma_user_version")
            .fetch_one(&mut on)
            .await
            .unwrap();
    assert_eq!(found, (1, 42));
}

/// The file was deleted under an open connection: the next one begins a new file, and does not write into the old.
#[tokio::test]
async fn a_deleted_file_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let _old = open(&normal(&path)).await;
    for name in ["q.db", "q.db-wal", "q.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    let new = open(&normal(&path)).await;
    send(&new, &queue("q"), "hello").await.unwrap();
    assert!(path.exists());
}

/// Two spellings of one file are one file, and one writer.
#[tokio::test]
async fn spellings_of_one_file_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let one = open(&normal(&folder.path().join("q.db"))).await;
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    let two = Sqlite::connect(&normal(&folder.path().join("sub/../q.db"))).await.unwrap();
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
    send(&two, &queue("q"), "hello").await.unwrap();
}

#[tokio::test]
async fn durability_is_told_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.db");
    let full = Sqlite::connect(&SqliteConfig::new(&path)).await.unwrap().capabilities();
    assert_eq!((full.durability, &*full.durability_setting), (Durability::Power, "synchronous=FULL"));
    let normal = Sqlite::connect(&normal(&path)).await.unwrap();
    declare(&normal, &queue("q")).await;
    let normal = normal.capabilities();
    assert_eq!((normal.durability, &*normal.durability_setting), (Durability::Crash, "synchronous=NORMAL"));
}
