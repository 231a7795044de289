//! `postroom failed`: list and show. Retry and remove are in [`moving`](super::moving).

use std::io::Write;

use postroom::ops::{self, FailedRecord, Filter, Scan, Store};
use postroom_core::Timestamp;

use crate::{
    address,
    args::{self, Cli, Failed},
    exit::{Exit, Failure},
    output::{Output, table::Table},
    session::Session,
    text::{cut, shown, time},
};

/// Lists, shows, retries or removes failed records.
pub(crate) async fn failed(cli: &Cli, output: Output, command: &Failed) -> Result<Exit, Failure> {
    let from = match command {
        Failed::List { filter, .. } => filter.from.as_deref(),
        Failed::Retry { which, .. } | Failed::Remove { which, .. } => which.filter.from.as_deref(),
        Failed::Show { from, .. } => from.as_deref(),
    };
    let mut session = Session::new(cli, from)?;
    let result = match command {
        Failed::List { filter, since, limit } => {
            let since = since.map(|ago| {
                crate::text::now().saturating_sub(Timestamp::try_from(ago.as_millis()).unwrap_or(Timestamp::MAX))
            });
            list(&mut session, output, filter, since, *limit).await
        }
        Failed::Show { record, from, raw } => show(&mut session, output, record, from.as_deref(), *raw).await,
        Failed::Retry { which, rate } => super::moving::retry(&mut session, output, which, *rate).await,
        Failed::Remove { which, yes } => super::moving::remove(&mut session, output, which, *yes).await,
    };
    session.close().await;
    result
}

/// Whether the user agrees to something that cannot be undone.
pub(super) fn agreed(output: Output, question: &str) -> Result<bool, Failure> {
    output.confirm(question).ok_or_else(|| Failure::usage("there is no terminal to ask on; add --yes to agree"))
}

/// The stores to look into, and the errors of those that could not be opened.
pub(super) async fn stores(session: &mut Session, from: Option<&str>) -> (Vec<Store>, Vec<Failure>) {
    let mut errors = Vec::new();
    let stores = session.stores(from, &mut errors).await;
    (stores, errors)
}

/// The library's filter of the command line's.
pub(super) async fn filter(session: &mut Session, filter: &args::Filter) -> Result<Filter, Failure> {
    let mut made = Filter::default();
    if let Some(from) = &filter.from {
        let handle = session.transport(from).await?;
        // A store named here is where to look, not where records came from.
        let is_store = matches!(handle.place(), postroom_core::Place::Store(_));
        // And all that lies in the own store of a DSN's queue came from there, whatever its name was then.
        let own = address::is_dsn(from) && handle.options().failure == postroom::FailureRef::Default;
        if !is_store && !own {
            made = made.from(&handle);
        }
    }
    made.message_type = filter.type_.as_deref().map(Into::into);
    made.reason = filter.reason;
    Ok(made)
}

/// Reports errors, and answers the worst of their exits.
pub(super) fn report(output: Output, errors: &[Failure]) -> Exit {
    errors.iter().fold(Exit::Done, |exit, failure| {
        output.failure(failure);
        exit.and(failure.exit)
    })
}

async fn list(
    session: &mut Session,
    output: Output,
    wanted: &args::Filter,
    since: Option<Timestamp>,
    limit: Option<u64>,
) -> Result<Exit, Failure> {
    let mut filter = filter(session, wanted).await?;
    filter.since = since;
    let (stores, mut errors) = stores(session, wanted.from.as_deref()).await;
    let mut left = limit.unwrap_or(u64::MAX);
    let mut table = Table::new(&["RECORD", "ID", "TYPE", "FROM", "ATTEMPTS", "FAILED AT", "REASON", "ERROR"]);
    let mut found = 0_u64;
    'stores: for store in stores {
        let mut scan = Scan::new(store, filter.clone());
        loop {
            let page = match scan.next().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) => {
                    errors.push(error.into());
                    break;
                }
            };
            for record in page {
                if left == 0 {
                    break 'stores;
                }
                left -= 1;
                found += 1;
                if output.json {
                    output.object(&super::records::short(&record).into())?
                } else {
                    table.row(row(&record))
                }
            }
        }
    }
    let exit = report(output, &errors);
    if !output.json {
        if found == 0 && errors.is_empty() {
            output.note("no failed messages");
        } else if found > 0 {
            for line in table.lines() {
                output.line(&line)?;
            }
        }
    }
    Ok(exit)
}

fn row(record: &FailedRecord) -> Vec<String> {
    let envelope = record.envelope();
    let failure = record.failure();
    let or_none = |text: Option<&str>, max| cut(text.unwrap_or("-"), max);
    vec![
        cut(&record.id(), 40),
        cut(&envelope.id, 40),
        or_none(envelope.message_type.as_deref(), 40),
        or_none(record.from().map(|from| &**from), 40),
        super::records::attempts(envelope).to_string(),
        failure.map_or_else(|| "-".into(), |failure| time(failure.at)),
        or_none(failure.map(|failure| failure.reason.as_str()), 20),
        or_none(failure.map(|failure| &*failure.error), 60),
    ]
}

/// All records of an id, in all stores.
pub(super) async fn find(stores: &[Store], id: &str, errors: &mut Vec<Failure>) -> Vec<FailedRecord> {
    let mut found = Vec::new();
    for store in stores {
        match ops::find(store, id).await {
            Ok(more) => found.extend(more),
            Err(error) => errors.push(error.into()),
        }
    }
    found
}

/// An id that no store holds.
pub(super) fn missing(id: &str) -> Failure {
    Failure::not_found(format!("no failed record or message `{}`; `postroom failed list` shows them", cut(id, 80)))
}

async fn show(session: &mut Session, output: Output, id: &str, from: Option<&str>, raw: bool) -> Result<Exit, Failure> {
    let (stores, mut errors) = stores(session, from).await;
    let found = find(&stores, id, &mut errors).await;
    let exit = report(output, &errors);
    match found.as_slice() {
        [] if exit != Exit::Done => return Ok(exit),
        [] => return Err(missing(id)),
        [record] if raw => {
            let mut out = std::io::stdout().lock();
            out.write_all(&record.envelope().body)?;
            out.flush()?;
        }
        several if raw => {
            let ids: Vec<String> = several.iter().map(|record| shown(&record.id())).collect();
            return Err(Failure::usage(format!(
                "message `{}` has several records; name one: {}",
                cut(id, 80),
                ids.join(", ")
            )));
        }
        all => {
            for (at, record) in all.iter().enumerate() {
                if output.json {
                    output.object(&super::records::whole(record).into())?;
                } else {
                    if at > 0 {
                        output.line("")?;
                    }
                    describe(output, record)?;
                }
            }
        }
    }
    Ok(exit)
}

fn describe(output: Output, record: &FailedRecord) -> Result<(), Failure> {
    let envelope = record.envelope();
    output.line(&output.bold(&format!("record {}", shown(&record.id()))))?;
    let whole = super::records::whole(record);
    for key in [
        "id",
        "type",
        "from",
        "group",
        "key",
        "reason",
        "error_kind",
        "failed_at",
        "attempts",
        "round",
        "time",
        "source",
        "content_type",
        "size",
    ] {
        let value = match whole.get(key) {
            None | Some(serde_json::Value::Null) => continue,
            Some(serde_json::Value::String(text)) => shown(text),
            Some(other) => other.to_string(),
        };
        output.line(&format!("  {key:<13} {value}"))?;
    }
    let track = envelope.track.as_deref();
    if let Some(done) = track.map(|track| &track.done).filter(|done| !done.is_empty()) {
        let done: Vec<String> = done.iter().map(|name| shown(name)).collect();
        output.line(&format!("  {:<13} {}", "done", done.join(", ")))?;
    }
    for (name, value) in envelope.stamps.iter() {
        output.line(&format!("  header        {}: {}", shown(name), shown(&String::from_utf8_lossy(value))))?;
    }
    if let Some(failure) = record.failure() {
        output.line("  error")?;
        for line in failure.error.lines() {
            output.line(&format!("    {}", shown(line)))?;
        }
    }
    for attempt in super::records::history(envelope) {
        let kind = serde_json::to_value(attempt.kind).ok().and_then(|kind| kind.as_str().map(str::to_string));
        let first = attempt.error.lines().next().unwrap_or_default();
        output.line(&format!(
            "  attempt       {} {}: {}",
            time(attempt.at),
            kind.unwrap_or_default(),
            cut(first, 200)
        ))?;
    }
    output.line("  body")?;
    match std::str::from_utf8(&envelope.body) {
        Ok(text) => text.lines().try_for_each(|line| output.line(&format!("    {}", shown(line)))),
        Err(_) => {
            output.line(&format!("    {} bytes that are not text; --raw writes them as they are", envelope.body.len()))
        }
    }
}
