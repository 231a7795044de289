//! Postroom on SQLite beside raw batched statements, in the same run: send, and handle + settle, of 1 KiB JSON.
//!
//! `sqlite [ROUNDS] [MESSAGES]`; files go to `TMPDIR`. Contenders take turns within a round; the ratio is that of a
//! round, to the raw contender that is the fastest over all rounds.
#![allow(clippy::print_stdout, reason = "a program speaks to its reader")]

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use postroom::{Envelope, HandlerError, HandlerOptions, Node, Prefetch, Raw, Received, open};
use postroom_benches::pipeline::Failed;
use rusqlite::params_from_iter;
use sqlx::{AssertSqlSafe, ConnectOptions, Row, SqliteConnection, sqlite::SqliteConnectOptions};

/// No more rounds begin after this time.
const LIMIT: Duration = Duration::from_secs(150);
const TABLE: &str = "CREATE TABLE queue (id INTEGER PRIMARY KEY, state INTEGER NOT NULL DEFAULT 0, body BLOB NOT NULL)";
/// Taken before it is handled, so that several workers can share the queue; neither lease nor fence.
const CLAIM: &str = "UPDATE queue SET state = 1 \
     WHERE id IN (SELECT id FROM queue WHERE state = 0 ORDER BY id LIMIT ?) RETURNING id, body";

/// Messages a second.
#[derive(Clone, Copy, Debug)]
struct Rates {
    send: f64,
    handle: f64,
}

fn rate(count: usize, began: Instant) -> f64 {
    count as f64 / began.elapsed().as_secs_f64()
}

fn body() -> Bytes {
    let text = "x".repeat(1024 - r#"{"id":1000000,"text":""}"#.len());
    Bytes::from(format!(r#"{{"id":1000000,"text":"{text}"}}"#))
}

fn placeholders(row: &str, rows: usize) -> String {
    vec![row; rows].join(",")
}

fn by_rusqlite(file: &Path, sync: &str, count: usize, batch: usize) -> Result<Rates, Failed> {
    let connection = rusqlite::Connection::open(file)?;
    connection.execute_batch(&format!("PRAGMA journal_mode = WAL; PRAGMA synchronous = {sync}; {TABLE};"))?;
    let body = body();
    let mut insert = connection.prepare(&format!("INSERT INTO queue (body) VALUES {}", placeholders("(?)", batch)))?;
    let began = Instant::now();
    for _ in 0..count / batch {
        insert.execute(params_from_iter(std::iter::repeat_n(&*body, batch)))?;
    }
    let send = rate(count, began);
    let mut claim = connection.prepare(CLAIM)?;
    let mut delete = connection.prepare(&format!("DELETE FROM queue WHERE id IN ({})", placeholders("?", batch)))?;
    let (mut handled, began) = (0, Instant::now());
    while handled < count {
        let mut ids = Vec::with_capacity(batch);
        let mut rows = claim.query([i64::try_from(batch)?])?;
        while let Some(row) = rows.next()? {
            let body: Vec<u8> = row.get(1)?;
            handled += usize::from(std::hint::black_box(body).len() == 1024);
            ids.push(row.get::<_, i64>(0)?);
        }
        drop(rows);
        if ids.len() != batch {
            return Err("a raw claim did not find its batch".into());
        }
        delete.execute(params_from_iter(ids))?;
    }
    Ok(Rates { send, handle: rate(count, began) })
}

async fn by_sqlx(file: &Path, sync: &str, count: usize, batch: usize) -> Result<Rates, Failed> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true).row_buffer_size(4096);
    let mut connection: SqliteConnection = options.disable_statement_logging().connect().await?;
    let setup = format!("PRAGMA journal_mode = WAL; PRAGMA synchronous = {sync}; {TABLE};");
    sqlx::raw_sql(AssertSqlSafe(setup)).execute(&mut connection).await?;
    let body = body();
    let insert: Arc<str> = format!("INSERT INTO queue (body) VALUES {}", placeholders("(?)", batch)).into();
    let began = Instant::now();
    for _ in 0..count / batch {
        let mut query = sqlx::query(AssertSqlSafe(insert.clone()));
        for _ in 0..batch {
            query = query.bind(&*body);
        }
        query.execute(&mut connection).await?;
    }
    let send = rate(count, began);
    let delete: Arc<str> = format!("DELETE FROM queue WHERE id IN ({})", placeholders("?", batch)).into();
    let (mut handled, began) = (0, Instant::now());
    while handled < count {
        let rows = sqlx::query(CLAIM).bind(i64::try_from(batch)?).fetch_all(&mut connection).await?;
        if rows.len() != batch {
            return Err("a raw claim did not find its batch".into());
        }
        let mut query = sqlx::query(AssertSqlSafe(delete.clone()));
        for row in &rows {
            let body: Vec<u8> = row.try_get(1)?;
            handled += usize::from(std::hint::black_box(body).len() == 1024);
            query = query.bind(row.try_get::<i64, _>(0)?);
        }
        query.execute(&mut connection).await?;
    }
    Ok(Rates { send, handle: rate(count, began) })
}

/// How Postroom is used.
#[derive(Clone, Copy, Debug)]
struct Use {
    prefetch: Option<usize>,
    /// Messages in one call of `send_all`, which is awaited before the next.
    call: usize,
}

async fn by_postroom(file: &Path, sync: &str, count: usize, how: Use) -> Result<Rates, Failed> {
    let dsn = format!("sqlite://{}?queue=bench&sync={}", file.display(), sync.to_lowercase());
    let mut transport = open("bench", &dsn)?;
    if let Some(prefetch) = how.prefetch {
        transport.options.prefetch = Prefetch::Fixed(prefetch);
    }
    let handled = Arc::new(AtomicU64::new(0));
    let seen = handled.clone();
    let node = Node::builder()
        .transport(transport)
        .handle_with::<Raw, _, _, _, _>(HandlerOptions::new("bench", "*")?, move || {
            let handled = seen.clone();
            move |raw: Received<Raw>| {
                handled.fetch_add(u64::from(std::hint::black_box(&raw.0).len() == 1024), Ordering::Relaxed);
                std::future::ready(Ok::<(), HandlerError>(()))
            }
        })
        .limit(Some(count as u64 + 1))
        .start()
        .await?;
    let body = body();
    let send = async |count: usize| -> Result<(), Failed> {
        let envelopes = (0..count).map(|_| {
            let mut envelope = Envelope::new(body.clone());
            envelope.content_type = Some("application/json".into());
            (envelope, Duration::ZERO)
        });
        for answer in node.send_all("bench", envelopes.collect()).await? {
            answer?;
        }
        Ok(())
    };
    // Everything is up once one message went all the way.
    send(1).await?;
    while handled.load(Ordering::Relaxed) < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    node.pause("bench", "a backlog is made").await;
    let began = Instant::now();
    for _ in 0..count / how.call {
        send(how.call).await?;
    }
    let sent = rate(count, began);
    // A pull that was under way when the pause came takes what it takes.
    let mut early = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = handled.load(Ordering::Relaxed);
        if now == early {
            break;
        }
        early = now;
    }
    let left = count + 1 - usize::try_from(early)?;
    let began = Instant::now();
    node.resume("bench").await;
    node.limit_reached().await;
    let handle = rate(left, began);
    let receipt = node.stop().await;
    if handled.load(Ordering::Relaxed) != count as u64 + 1 {
        return Err(format!("not every message was handled: {receipt}").into());
    }
    Ok(Rates { send: sent, handle })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(mut values: Vec<f64>, digits: usize) -> String {
    let middle = median(&mut values);
    let (least, most) = (values.first().copied().unwrap_or(f64::NAN), values.last().copied().unwrap_or(f64::NAN));
    format!("{middle:.digits$} ({least:.digits$} to {most:.digits$})")
}

fn report(runs: &BTreeMap<&'static str, Vec<Rates>>, what: &str, of: fn(&Rates) -> f64) {
    let rates = |name: &str| runs.get(name).map(|runs| runs.iter().map(of).collect::<Vec<f64>>()).unwrap_or_default();
    let raw = runs.keys().filter(|name| name.starts_with("raw")).copied();
    let best = raw.max_by(|a, b| median(&mut rates(a)).total_cmp(&median(&mut rates(b)))).unwrap_or("raw");
    let base = rates(best);
    for name in runs.keys() {
        let own = rates(name);
        let ratio: Vec<f64> = own.iter().zip(&base).map(|(own, base)| own / base).collect();
        let mark = if *name == best { " (the raw one)" } else { "" };
        println!("| {what} | {name}{mark} | {} | {} |", spread(own, 0), spread(ratio, 2));
    }
}

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(7), |text| text.parse())?;
    let count: usize = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let count = (count / 500).max(1) * 500;
    let system = actix::System::new();
    println!("{count} messages of 1 KiB a round, at most {rounds} rounds");
    println!(
        "| synchronous | work | contender | messages/s: median (least to most) | ratio to raw |\n|---|---|---|---|---|"
    );
    for sync in ["FULL", "NORMAL"] {
        let mut runs: BTreeMap<&'static str, Vec<Rates>> = BTreeMap::new();
        let began = Instant::now();
        // The first round warms up and is not counted.
        for round in 0..=rounds {
            if round > 5 && began.elapsed() > LIMIT / 2 {
                break;
            }
            let folder = tempfile::tempdir()?;
            let file = |name: &str| folder.path().join(name);
            let tuned = Use { prefetch: Some(1000), call: count };
            let round_of = system.block_on(async {
                Ok::<_, Failed>([
                    ("raw rusqlite, 100 rows", by_rusqlite(&file("a"), sync, count, 100)?),
                    (
                        "postroom, defaults",
                        by_postroom(&file("b"), sync, count, Use { prefetch: None, call: 500 }).await?,
                    ),
                    ("raw rusqlite, 500 rows", by_rusqlite(&file("c"), sync, count, 500)?),
                    ("postroom, one call, prefetch 1000", by_postroom(&file("d"), sync, count, tuned).await?),
                    ("raw sqlx, 100 rows", by_sqlx(&file("e"), sync, count, 100).await?),
                    ("raw sqlx, 500 rows", by_sqlx(&file("f"), sync, count, 500).await?),
                ])
            })?;
            if round > 0 {
                for (name, rates) in round_of {
                    runs.entry(name).or_default().push(rates);
                }
            }
        }
        report(&runs, &format!("{sync} | send"), |rates| rates.send);
        report(&runs, &format!("{sync} | handle + settle"), |rates| rates.handle);
    }
    Ok(())
}
