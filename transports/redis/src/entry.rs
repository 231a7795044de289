//! An envelope as a stream entry: the field `body` first, then a field a header. Fields may repeat, and the first
//! `body` is the body, so a stamp of that name survives.

use bytes::Bytes;
use postroom_core::{
    Envelope, ErrorKind, MessageId, TransportError,
    wire::{self, Fallback, Prefix, Read},
};
use redis::{Cmd, Value};

use crate::link::{array, bytes};

const BODY: &str = "body";
/// More fields than this do not fit on the stack of the server's Lua.
const MAX_FIELDS: usize = 3_500;

/// The arguments of one message: for a script how many, then names and values.
pub(crate) fn write(command: &mut Cmd, envelope: &Envelope, counted: bool) {
    if counted {
        let mut parts = 2;
        wire::write(envelope, Prefix::Dash, &mut |_, _| parts += 2);
        command.arg(parts);
    }
    command.arg(BODY).arg(&*envelope.body);
    wire::write(envelope, Prefix::Dash, &mut |name, value| {
        command.arg(name).arg(value);
    });
}

/// Whether the server takes it.
pub(crate) fn check(envelope: &Envelope, max_body: usize) -> Result<(), TransportError> {
    let refuse = |text: String| Err(TransportError::new(ErrorKind::TooLarge, text));
    let size = envelope.body.len();
    if size > max_body {
        return refuse(format!("message `{}` has {size} bytes; redis takes at most {max_body}", envelope.id));
    }
    // Beside the stamps there are about twenty fields at most.
    if envelope.stamps.len() > MAX_FIELDS - 50 {
        return refuse(format!(
            "message `{}` has {} stamps; redis takes 3450 at most",
            envelope.id,
            envelope.stamps.len()
        ));
    }
    Ok(())
}

/// Reads an entry's fields. A foreign message's id is its place in the stream.
pub(crate) fn read(id: &str, fields: Value) -> Option<Read> {
    let fields = array(fields)?;
    let mut body = None;
    let mut headers = Vec::with_capacity(fields.len() / 2);
    let mut fields = fields.into_iter();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        let (name, value) = (bytes(name)?, bytes(value)?);
        if body.is_none() && name == BODY.as_bytes() {
            body = Some(value);
        } else {
            let name = String::from_utf8(name).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into());
            headers.push((name, value));
        }
    }
    let fallback =
        Fallback { id: || MessageId::new(format!("redis:{id}")).unwrap_or_else(MessageId::unique), message_type: None };
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    Some(wire::read(headers, Prefix::Dash, Bytes::from(body.unwrap_or_default()), fallback))
}
