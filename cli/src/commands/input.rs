//! What `send` reads: one body, or lines on a thread of their own, in batches, with back-pressure.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    path::Path,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use postroom_core::{Envelope, MessageId, Text, TypeName};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::{args::Send, exit::Failure};

/// So many lines make a batch.
const BATCH: usize = 256;
/// A batch ends earlier at so many bytes.
const BYTES: usize = 4 << 20;
/// So many batches are read ahead.
const AHEAD: usize = 4;

/// A line, or why it is none.
pub(super) type Line = Result<Vec<u8>, String>;

fn open(send: &Send) -> Result<Box<dyn Read + std::marker::Send>, Failure> {
    if let Some(body) = &send.body {
        return Ok(Box::new(std::io::Cursor::new(body.clone().into_bytes())));
    }
    match send.file.as_deref() {
        Some(path) if path != Path::new("-") => {
            let opened = std::fs::File::open(path).and_then(|file| {
                // Opening a folder succeeds; reading it does not.
                if file.metadata()?.is_dir() { Err(std::io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
            });
            Ok(Box::new(opened.map_err(|error| Failure::file("read", path, &error))?))
        }
        _ => Ok(Box::new(std::io::stdin())),
    }
}

/// All of the input as one body.
pub(super) fn whole(send: &Send) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    let read = open(send)?.read_to_end(&mut body);
    read.map_err(|error| Failure::new("file", crate::exit::Exit::Usage, format!("could not read the input: {error}")))?;
    Ok(body)
}

/// The number of lines, where the input is a file that can be read twice: for the progress bar.
pub(super) fn total(send: &Send) -> Option<u64> {
    let path = send.file.as_deref().filter(|path| path.is_file())?;
    let lines = BufReader::new(std::fs::File::open(path).ok()?).split(b'\n');
    Some(lines.map_while(Result::ok).filter(|line| !line.trim_ascii().is_empty()).count() as u64)
}

/// The lines of the input in batches, numbered from 1; blank ones are skipped.
pub(super) fn lines(send: &Send) -> Result<mpsc::Receiver<Vec<(u64, Line)>>, Failure> {
    let mut from = BufReader::new(open(send)?);
    let (out, batches) = mpsc::channel(AHEAD);
    std::thread::spawn(move || {
        let (mut number, mut batch, mut bytes) = (0, Vec::new(), 0);
        loop {
            let mut line = Vec::new();
            let read = from.read_until(b'\n', &mut line);
            number += 1;
            let more = matches!(read, Ok(1..));
            match read {
                Err(error) => batch.push((number, Err(format!("could not read the input: {error}")))),
                Ok(_) => {
                    if line.last() == Some(&b'\n') {
                        line.pop();
                    }
                    if !line.trim_ascii().is_empty() {
                        bytes += line.len();
                        batch.push((number, Ok(line)));
                    }
                }
            }
            // What came slowly, from a pipe, is sent as soon as nothing more is at hand.
            let full = batch.len() >= BATCH || bytes >= BYTES || from.buffer().is_empty();
            if (full || !more) && !batch.is_empty() {
                bytes = 0;
                if out.blocking_send(std::mem::take(&mut batch)).is_err() {
                    return;
                }
            }
            if !more {
                return;
            }
        }
    });
    Ok(batches)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    data_base64: Option<String>,
    r#type: Option<String>,
    id: Option<String>,
    key: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    delay: Option<String>,
    content_type: Option<String>,
}

/// An envelope of a line of `--envelopes`; what the line does not say, the command line says.
pub(super) fn envelope(line: &[u8], send: &Send) -> Result<(Envelope, Duration), String> {
    // A `null` is no data by serde's rule for options, but it is JSON.
    let text = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_string())?;
    let wire: Wire<'_> = serde_json::from_str(text).map_err(|error| format!("not an envelope: {error}"))?;
    let content_type = wire.content_type.or_else(|| send.content_type.clone());
    let body = match (wire.data, wire.data_base64) {
        (Some(data), None) => match serde_json::from_str::<String>(data.get()) {
            // As CloudEvents has it: with a content type other than JSON a string is the text itself.
            Ok(text) if content_type.as_deref().is_some_and(|media| !media.contains("json")) => text.into_bytes(),
            _ => data.get().as_bytes().to_vec(),
        },
        (None, Some(base64)) => STANDARD.decode(base64).map_err(|error| format!("`data_base64`: {error}"))?,
        (None, None) if text.contains("\"data\"") => b"null".to_vec(),
        _ => return Err("an envelope has either `data` or `data_base64`".into()),
    };
    let mut envelope = template(send, body);
    envelope.content_type = content_type.map(Text::from);
    if let Some(name) = wire.r#type {
        envelope.message_type = Some(TypeName::new(&name).map_err(|error| format!("`type`: {error}"))?);
    }
    if let Some(id) = wire.id {
        envelope.id = MessageId::new(id).ok_or_else(|| format!("`id`: an id has 1 to {} bytes", MessageId::MAX))?;
    }
    if let Some(key) = wire.key {
        envelope.key = Some(key.into());
    }
    for (name, value) in wire.headers.unwrap_or_default() {
        envelope.stamps.push(name, value.into_bytes());
    }
    let delay = match &wire.delay {
        Some(delay) => crate::duration::parse(delay).map_err(|error| format!("`delay`: {error}"))?,
        None => send.delay.unwrap_or_default(),
    };
    Ok((envelope, delay))
}

/// A body with what the command line says of it.
pub(super) fn template(send: &Send, body: Vec<u8>) -> Envelope {
    let mut envelope = match &send.id {
        Some(id) => Envelope::with_id(id.clone(), body),
        None => Envelope::new(body),
    };
    envelope.message_type.clone_from(&send.type_);
    envelope.key = send.key.clone().map(Text::from);
    envelope.content_type = send.content_type.clone().map(Text::from);
    for (name, value) in &send.headers {
        envelope.stamps.push(name.clone(), value.clone().into_bytes());
    }
    envelope
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn send(line: &str) -> Send {
        match Cli::parse_from(line.split_whitespace()).command {
            Command::Send(send) => send,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn envelopes_are_read() {
        let send = send("postroom send q --envelopes --type t --delay 2s --header a=1");
        let (envelope, delay) = super::envelope(
            br#"{"data":{"b":1, "a":[1e99]},"id":"7","key":"k","headers":{"x":"y"},"delay":"1m"}"#,
            &send,
        )
        .unwrap();
        assert_eq!(&*envelope.body, br#"{"b":1, "a":[1e99]}"#);
        assert_eq!(&*envelope.id, "7");
        assert_eq!(envelope.message_type.as_deref(), Some("t"));
        assert_eq!((envelope.stamps.get_str("a"), envelope.stamps.get_str("x")), (Some("1"), Some("y")));
        assert_eq!(delay, Duration::from_secs(60));
        let (envelope, delay) = super::envelope(br#"{"data_base64":"/w=="}"#, &send).unwrap();
        assert_eq!((&*envelope.body, delay), (&b"\xff"[..], Duration::from_secs(2)));
        assert_eq!(&*super::envelope(br#"{"data":null}"#, &send).unwrap().0.body, b"null");
        assert_eq!(&*super::envelope(br#"{"data":"x"}"#, &send).unwrap().0.body, br#""x""#);
        let text = super::envelope(br#"{"data":"x","content_type":"text/plain"}"#, &send).unwrap();
        assert_eq!(&*text.0.body, b"x");
        for wrong in [
            "",
            "x",
            "[]",
            "{}",
            r#"{"data":1,"data_base64":""}"#,
            r#"{"data_base64":"!"}"#,
            r#"{"data":1,"id":""}"#,
            r#"{"data":1,"type":"a b"}"#,
            r#"{"data":1,"delay":"soon"}"#,
            r#"{"data":1,"kee":"x"}"#,
        ] {
            assert!(super::envelope(wrong.as_bytes(), &send).is_err(), "{wrong}");
        }
    }
}
