//! A process a message.

use std::sync::{Arc, Mutex, PoisonError};

use postroom::{HandlerError, Received};
use postroom_core::{Raw, Text};
use tokio::sync::oneshot;

use super::{
    Spec, environment,
    link::{Link, Streams, Tail, ending, leftovers, log_lines},
};

/// The exit code that says: no retry can help.
const FINAL: i32 = 65;

/// Runs a command for one message. When this future is dropped, at the timeout or at the grace, the command gets TERM
/// and after 2 s KILL.
pub(crate) async fn handle(spec: &Spec, received: Received<Raw>) -> Result<(), HandlerError> {
    let envelope = received.envelope();
    let variables = environment::of(envelope, received.attempt(), received.transport());
    let started = Link::start(spec, variables);
    let (link, streams) =
        started.map_err(|error| HandlerError::retry(format!("could not start `{}`: {error}", spec.program())))?;
    let (answer, ended) = oneshot::channel();
    // A task of its own, so that a dropped handler leaves somebody behind who ends the command.
    tokio::spawn(guard(
        link,
        streams,
        envelope.body.clone(),
        spec.program().to_string(),
        envelope.id.as_text().clone(),
        answer,
    ));
    match ended.await {
        Ok(result) => result,
        Err(_) => Err(HandlerError::retry("the runtime stopped watching the command")),
    }
}

async fn guard(
    mut link: Link,
    streams: Streams,
    body: bytes::Bytes,
    program: String,
    id: Text,
    mut answer: oneshot::Sender<Result<(), HandlerError>>,
) {
    let tail = Arc::new(Mutex::new(Tail::default()));
    // Both are read to their end whatever becomes of the handler: a command that is told to end may say so, and must not
    // die of a closed pipe before it has. They end at the latest when the group is gone.
    tokio::spawn({
        let program = program.clone();
        async move { log_lines(streams.stdout, &program, &id).await }
    });
    let reading = tokio::spawn(Tail::fill(tail.clone(), streams.stderr));
    let feeding = async {
        link.feed(&body).await;
        link.end_input().await;
        link.wait().await
    };
    let ended = tokio::select! {
        ended = feeding => Some(ended),
        () = answer.closed() => None,
    };
    match ended {
        None => link.terminate().await,
        Some(ended) => {
            leftovers(reading).await;
            let stderr = tail.lock().unwrap_or_else(PoisonError::into_inner).text();
            // Nobody waits any more: the handler was dropped in this moment.
            let _ = answer.send(judge(&program, ended, &stderr));
        }
    }
}

fn judge(program: &str, ended: std::io::Result<std::process::ExitStatus>, stderr: &str) -> Result<(), HandlerError> {
    let status = match ended {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status,
        Err(error) => return Err(HandlerError::retry(format!("could not wait for `{program}`: {error}"))),
    };
    let text =
        if stderr.is_empty() { format!("`{program}` ended with {}", ending(status)) } else { stderr.to_string() };
    Err(if status.code() == Some(FINAL) { HandlerError::fail(text) } else { HandlerError::retry(text) })
}
