//! One message, one file: the number of headers, each name and value with its length before it, then the body.

use std::{
    fs, io,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use postroom_core::{
    Envelope, MessageId,
    wire::{self, Fallback, Prefix, Read},
};

/// A name that no other file has; names sort by age.
pub(crate) fn fresh_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    format!("{now:019}-{:010}-{:08x}", COUNT.fetch_add(1, Ordering::Relaxed), fastrand::u32(..))
}

/// Written beside, then renamed: a reader sees a whole file or none.
pub(crate) fn write(place: &Path, name: &str, envelope: &Envelope) -> io::Result<()> {
    let (mut headers, mut count) = (BytesMut::new(), 0);
    wire::write(envelope, Prefix::Dash, &mut |header, value| {
        count += 1;
        for part in [header.as_bytes(), value] {
            headers.put_u64(part.len() as u64);
            headers.put_slice(part);
        }
    });
    let mut whole = BytesMut::with_capacity(8 + headers.len() + envelope.body.len());
    whole.put_u64(count);
    whole.put(headers);
    whole.put_slice(&envelope.body);
    let beside = place.join("new").join(name);
    fs::write(&beside, whole)?;
    fs::rename(beside, place.join("ready").join(name))
}

/// Reads a message; a file that is none is a foreign body without headers, and fails in its handler, as it came.
pub(crate) fn read(path: &Path, name: &str) -> io::Result<Read> {
    let whole = Bytes::from(fs::read(path)?);
    let (headers, body) = split(whole.clone()).unwrap_or((Vec::new(), whole));
    let headers = headers.iter().filter_map(|(header, value)| Some((std::str::from_utf8(header).ok()?, &**value)));
    let id = || MessageId::new(format!("directory:{name}")).unwrap_or_else(MessageId::unique);
    Ok(wire::read(headers, Prefix::Dash, body, Fallback { id, message_type: None }))
}

type Header = (Bytes, Bytes);

fn split(mut rest: Bytes) -> Option<(Vec<Header>, Bytes)> {
    let count = rest.try_get_u64().ok()?;
    let mut part = || {
        let length = usize::try_from(rest.try_get_u64().ok()?).ok()?;
        (length <= rest.len()).then(|| rest.split_to(length))
    };
    let mut headers = Vec::new();
    for _ in 0..count {
        headers.push((part()?, part()?));
    }
    Some((headers, rest))
}
