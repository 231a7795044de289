//! `postroom peek`.

use postroom::ops;
use postroom_core::State;

use crate::{
    args::Cli,
    exit::{Exit, Failure},
    output::{Output, table::Table},
    session::Session,
    text::{cut, time},
};

/// Prints messages without taking them.
pub(crate) async fn peek(
    cli: &Cli,
    output: Output,
    transport: &str,
    state: Option<State>,
    limit: u64,
) -> Result<Exit, Failure> {
    let mut session = Session::new(cli, [transport])?;
    let result = look(&mut session, output, transport, state, limit).await;
    session.close().await;
    result
}

async fn look(
    session: &mut Session,
    output: Output,
    transport: &str,
    state: Option<State>,
    limit: u64,
) -> Result<Exit, Failure> {
    let handle = session.transport(transport).await?;
    let mut walk = ops::peek(&handle, state).await?;
    let mut left = limit;
    let mut table = Table::new(&["ID", "TYPE", "STATE", "DUE AT", "ATTEMPTS", "KEY", "SIZE", "BODY"]);
    let mut shown = 0_u64;
    while left > 0 {
        let Some((place, items)) = walk
            .next(usize::try_from(left).unwrap_or(usize::MAX))
            .await
            .map_err(|error| super::stats::absent(handle.name(), error))?
        else {
            break;
        };
        for item in items.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            left -= 1;
            shown += 1;
            if output.json {
                output.object(&super::records::peeked(item, &place).into())?;
                continue;
            }
            let envelope = &item.envelope;
            table.row(vec![
                cut(&envelope.id, 40),
                cut(envelope.message_type.as_deref().unwrap_or("-"), 40),
                super::records::state(item.state).into(),
                item.due_at.map_or_else(|| "-".into(), time),
                super::records::attempts(envelope).to_string(),
                cut(envelope.key.as_deref().unwrap_or("-"), 20),
                envelope.body.len().to_string(),
                cut(&String::from_utf8_lossy(&envelope.body), 40),
            ]);
        }
    }
    if !output.json {
        for line in table.lines() {
            output.line(&line)?;
        }
        if left == 0 && limit > 0 {
            output.note(&format!("the first {shown}; --limit N shows more"));
        }
    }
    Ok(Exit::Done)
}
