//! No statement walks through the table: a queue beside a large one is as fast as alone.

use sqlx::{Connection, Row, SqliteConnection};

use crate::{claim, powers, publish, schema, settle, source, upkeep};

async fn plan(on: &mut SqliteConnection, sql: &str) -> Vec<String> {
    let sql = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let rows = sqlx::query(sql).fetch_all(on).await.unwrap();
    rows.iter().map(|row| row.get("detail")).collect()
}

#[tokio::test]
async fn every_statement_uses_an_index() {
    let mut on = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    schema::migrate(&mut on).await.unwrap();
    let (_, retry) = publish::roomy(&settle::RETRY, 16);
    let texts = [
        claim::CLAIM[1].to_owned(),
        claim::GIVE_BACK.to_owned(),
        settle::ACK[1].to_owned(),
        settle::RELEASE[1].to_owned(),
        settle::EXTEND[1].to_owned(),
        retry.to_string(),
        source::LOOK.to_owned(),
        upkeep::FIRST.to_owned(),
        upkeep::PROMOTE.to_owned(),
        upkeep::RECLAIM.to_owned(),
        powers::page_sql(&[0]),
        powers::page_sql(&[0, 1, 2]),
        powers::find_sql(),
    ];
    for text in &texts {
        for sql in text.split(';') {
            for step in plan(&mut on, sql).await {
                let walks = step.contains("SCAN m")
                    || step.contains("SCAN postroom_message")
                    || step.contains("PRIMARY KEY (rowid>");
                assert!(!walks, "{step}: {sql}");
            }
        }
    }
    // The line is read in its order.
    let steps = plan(&mut on, claim::CLAIM[1].split(';').next().unwrap()).await;
    assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:?}");
    // A walk would be seen.
    assert!(plan(&mut on, "SELECT body FROM postroom_message").await[0].contains("SCAN postroom_message"));
}
