//! `postroom group`.

use postroom::ops;
use postroom_core::Name;
use serde_json::json;

use crate::{
    args::{Cli, Group},
    exit::{Exit, Failure},
    output::{Output, table::Table},
    session::Session,
};

/// Lists or removes groups of a topic.
pub(crate) async fn group(cli: &Cli, output: Output, command: &Group) -> Result<Exit, Failure> {
    let (Group::List { transport } | Group::Remove { transport, .. }) = command;
    let mut session = Session::new(cli, [transport.as_str()])?;
    let result = match command {
        Group::List { .. } => list(&mut session, output, transport).await,
        Group::Remove { group, yes, .. } => remove(&mut session, output, transport, group, *yes).await,
    };
    session.close().await;
    result
}

async fn list(session: &mut Session, output: Output, transport: &str) -> Result<Exit, Failure> {
    let handle = session.transport(transport).await?;
    let mut table = Table::new(&["GROUP", "WAITING"]);
    for (group, waiting) in ops::groups::list(&handle).await? {
        if output.json {
            output.object(&json!({"transport": &**handle.name(), "group": group.as_str(), "waiting": waiting}))?;
        }
        table.row(vec![group.to_string(), waiting.map_or_else(|| "-".into(), |n| n.to_string())]);
    }
    if !output.json {
        for line in table.lines() {
            output.line(&line)?;
        }
    }
    Ok(Exit::Done)
}

async fn remove(
    session: &mut Session,
    output: Output,
    transport: &str,
    group: &Name,
    yes: bool,
) -> Result<Exit, Failure> {
    let handle = session.transport(transport).await?;
    let topic = handle.place().name();
    if !yes
        && !super::failed::agreed(output, &format!("remove group {group} of topic {topic} and its messages for good?"))?
    {
        return Ok(Exit::Done);
    }
    if !ops::groups::remove(&handle, group).await? {
        return Err(Failure::not_found(format!(
            "topic {topic} has no group `{group}`; `postroom group list` shows them"
        )));
    }
    let answer = json!({"transport": &**handle.name(), "group": group.as_str(), "removed": true});
    output.answer(&answer, &format!("removed group {group} of topic {topic}"))?;
    Ok(Exit::Done)
}
