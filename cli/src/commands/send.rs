//! `postroom send`.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use postroom::Node;
use postroom_core::{Envelope, ErrorKind, MessageId, TransportError};
use serde_json::json;

use super::input;
use crate::{
    args::{Cli, Send},
    exit::{Exit, Failure, of_kind, with_causes},
    output::{Output, progress::Progress},
    session::Session,
};

/// So many batches are on their way at once.
const WINDOW: usize = 4;

/// Sends one message, or one for each line.
pub(crate) async fn send(cli: &Cli, output: Output, send: &Send) -> Result<Exit, Failure> {
    let single = !(send.ndjson || send.envelopes);
    // Read before anything is touched: a file that is not there is a mistake of the command line.
    let body = if single { Some(input::whole(send)?) } else { None };
    let lines = if single { None } else { Some(input::lines(send)?) };
    let mut session = Session::new(cli, [send.transport.as_str()])?.creating();
    let result = to(&mut session, output, send, body, lines).await;
    session.close().await;
    result
}

type Batches = tokio::sync::mpsc::Receiver<Vec<(u64, input::Line)>>;

async fn to(
    session: &mut Session,
    output: Output,
    send: &Send,
    body: Option<Vec<u8>>,
    lines: Option<Batches>,
) -> Result<Exit, Failure> {
    let handle = session.transport(&send.transport).await?;
    let name = handle.name().to_string();
    if matches!(handle.place(), postroom_core::Place::Store(_)) {
        return Err(Failure::usage(format!(
            "transport `{name}` is a failure transport, which takes failed messages alone"
        )));
    }
    if send.delay.is_some_and(|delay| !delay.is_zero()) && !handle.capabilities().await?.delay {
        return Err(Failure::capability(format!("the broker of transport `{name}` cannot delay messages")));
    }
    let node = session.node(&send.transport).ok_or_else(|| Failure::failed("the node is gone"))?;
    if let Some(body) = body {
        let envelope = input::template(send, body);
        let sent = publish(node, &name, vec![(envelope, send.delay.unwrap_or_default())]).await;
        let sent = sent.into_iter().next().unwrap_or_else(|| Err(TransportError::stopped()));
        let id = sent?;
        let answer = json!({"id": &*id, "transport": name, "confirmed": true});
        output.answer(&answer, &crate::text::shown(&id))?;
        return Ok(Exit::Done);
    }
    match lines {
        Some(lines) => many(node, output, send, &name, lines).await,
        None => Ok(Exit::Done),
    }
}

async fn publish(node: &Node, name: &str, batch: Vec<(Envelope, Duration)>) -> Vec<Result<MessageId, TransportError>> {
    let count = batch.len();
    let sent = node.send_all(name, batch).await;
    sent.unwrap_or_else(|error| vec![Err(error); count])
}

/// One line's result: its number, the id where it has one, and what went wrong.
type Sent = (u64, Option<MessageId>, Option<(&'static str, Exit, String)>);

async fn one_batch(node: &Node, name: &str, send: &Send, batch: Vec<(u64, input::Line)>) -> Vec<Sent> {
    let mut results: Vec<Sent> = Vec::with_capacity(batch.len());
    let mut outgoing = Vec::with_capacity(batch.len());
    for (number, line) in batch {
        let made = line.and_then(|line| match send.envelopes {
            true => input::envelope(&line, send),
            false => Ok((input::template(send, line), send.delay.unwrap_or_default())),
        });
        match made {
            Ok(made) => {
                results.push((number, Some(made.0.id.clone()), None));
                outgoing.push(made);
            }
            Err(why) => results.push((number, None, Some((ErrorKind::Codec.as_str(), Exit::Failed, why)))),
        }
    }
    let mut answers = publish(node, name, outgoing).await.into_iter();
    for (_, id, trouble) in results.iter_mut().filter(|(.., trouble)| trouble.is_none()) {
        match answers.next().unwrap_or_else(|| Err(TransportError::stopped())) {
            Ok(confirmed) => *id = Some(confirmed),
            Err(error) => *trouble = Some((error.kind().as_str(), of_kind(error.kind()), with_causes(&error))),
        }
    }
    results
}

async fn many(node: &Node, output: Output, send: &Send, name: &str, lines: Batches) -> Result<Exit, Failure> {
    let mut progress = Progress::new(output, "sent", input::total(send));
    let (mut exit, mut sent, mut failed) = (Exit::Done, 0_u64, 0_u64);
    let batches = stream::unfold(lines, |mut lines| async move { lines.recv().await.map(|batch| (batch, lines)) });
    // In input order, although several are on their way.
    let mut results = std::pin::pin!(batches.map(|batch| one_batch(node, name, send, batch)).buffered(WINDOW));
    while let Some(batch) = results.next().await {
        progress.add(batch.len() as u64);
        for (number, id, trouble) in batch {
            let id = id.as_deref();
            let Some((kind, code, message)) = trouble else {
                sent += 1;
                if output.json {
                    output.object(&json!({"id": id, "transport": name, "confirmed": true}))?;
                }
                continue;
            };
            failed += 1;
            exit = exit.and(code);
            if output.json {
                let error = json!({"kind": kind, "message": message});
                output.object(
                    &json!({"id": id, "transport": name, "confirmed": false, "line": number, "error": error}),
                )?;
            } else {
                output.line(&format!("line {number} was not sent: {}", crate::text::shown(&message)))?;
            }
        }
    }
    progress.finish();
    if !output.json {
        let not = if failed == 0 { String::new() } else { format!("; {failed} could not be sent") };
        output.line(&format!("sent {} to {name}{not}", crate::text::count(sent, "message")))?;
    }
    Ok(exit)
}
