//! The documented tables, and how a file gets them. The version lies in a table of ours and not in `user_version`,
//! because the file may be the user's own.

use sqlx::SqliteConnection;

/// The steps from an empty file to the newest version; each is one version.
const STEPS: [&str; 1] = [include_str!("schema/1.sql")];

/// The newest version that this program knows.
pub(crate) const NEWEST: i64 = STEPS.len() as i64;

/// Brings the file to the newest version, and answers the version found there. Safe in many processes at once.
pub(crate) async fn migrate(on: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let found = version(on).await?;
    if found >= NEWEST {
        return Ok(found);
    }
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *on).await?;
    let steps = steps(on).await;
    let end = if steps.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = sqlx::raw_sql(end).execute(&mut *on).await;
    let found = steps?;
    ended.map(|_| found)
}

async fn steps(on: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    // Asked again under the lock: another process may have been first.
    let found = version(on).await?;
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        sqlx::raw_sql(*step).execute(&mut *on).await?;
    }
    Ok(found.max(NEWEST))
}

async fn version(on: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let there = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'postroom_schema'";
    if sqlx::query_scalar::<_, i64>(there).fetch_one(&mut *on).await? == 0 {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM postroom_schema").fetch_one(on).await
}
