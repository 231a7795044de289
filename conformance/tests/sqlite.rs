//! The suite on the SQLite broker.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test; the report is what it is for"
)]

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use postroom_conformance::{Foreign, Level, Subject, Unreachable, run};
use postroom_core::Place;
use postroom_sqlite::{Sqlite, SqliteConfig};
use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;

struct OnDisk(TempDir);

impl Subject for OnDisk {
    type Broker = Sqlite;

    fn config(&self) -> SqliteConfig {
        SqliteConfig::new(self.0.path().join("conformance.db"))
    }
    fn lease(&self) -> Duration {
        Duration::from_millis(500)
    }
    fn unreachable(&self) -> Option<Unreachable<SqliteConfig>> {
        let config = SqliteConfig::new("/no/such/folder/queue.db");
        Some(Unreachable { config, named: "/no/such/folder/queue.db", secret: None })
    }
    fn can_inject(&self) -> bool {
        true
    }

    /// As any program may that reads the documented tables: a place, a body, headers as a JSON object.
    async fn inject(&self, queue: &Place, message: Foreign) -> Result<(), String> {
        let headers = message.headers.iter().map(|(name, value)| {
            let value = match std::str::from_utf8(value) {
                Ok(text) => serde_json::Value::from(text),
                Err(_) => serde_json::json!({ "base64": STANDARD.encode(value) }),
            };
            (name.to_string(), value)
        });
        let headers = serde_json::Value::Object(headers.collect()).to_string();
        let insert = "INSERT INTO postroom_message (place, body, headers)
            SELECT id, ?, ? FROM postroom_place WHERE kind = 'queue' AND name = ?";
        let inserting = async {
            let url = format!("sqlite://{}", self.0.path().join("conformance.db").display());
            let mut connection = SqliteConnection::connect(&url).await?;
            sqlx::query("PRAGMA busy_timeout = 5000").execute(&mut connection).await?;
            let query = sqlx::query(insert).bind(&message.body[..]).bind(headers).bind(queue.name().as_str());
            let done = query.execute(&mut connection).await?;
            connection.close().await?;
            Ok::<_, sqlx::Error>(done.rows_affected())
        };
        match inserting.await {
            Ok(1) => Ok(()),
            Ok(n) => Err(format!("{n} rows were inserted")),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[test]
fn sqlite_conforms_at_the_bare_level() {
    let report = run(OnDisk(TempDir::new().unwrap()), Level::Bare, "");
    println!("{report}");
    report.assert();
}

#[test]
fn sqlite_conforms_through_the_actors() {
    let report = run(OnDisk(TempDir::new().unwrap()), Level::Actors, "");
    println!("{report}");
    report.assert();
}
