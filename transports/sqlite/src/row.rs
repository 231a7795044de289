//! An envelope as a row, and back. What programs search by has a column; the rest is in `headers`.

use std::{borrow::Cow, str};

use bytes::Bytes;
use postroom_core::{
    Envelope, MessageId,
    wire::{self, Fallback, Prefix},
};
use sqlx::{Row, sqlite::SqliteRow};

use crate::headers::{Headers, Writing};

const ID: &str = "ce-id";
const TYPE: &str = "ce-type";
const KEY: &str = "ce-partitionkey";
const CONTENT_TYPE: &str = "content-type";
/// Says nothing that a row of these tables does not say.
const SPECVERSION: &str = "ce-specversion";
/// Where headers that are no JSON object are kept.
const UNREADABLE: &str = "x-postroom-unreadable-headers";

/// The metadata of an envelope, column by column.
pub(crate) struct Columns<'a> {
    pub(crate) message_id: &'a str,
    pub(crate) message_type: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) headers: Option<String>,
    pub(crate) record: Option<&'a str>,
}

pub(crate) fn columns(envelope: &Envelope) -> Columns<'_> {
    let mut headers = Writing::default();
    wire::write(envelope, Prefix::Dash, &mut |name, value| {
        // A stamp never has one of these names: the wire escapes them.
        if !matches!(name, ID | TYPE | KEY | CONTENT_TYPE | SPECVERSION) {
            headers.put(name, value);
        }
    });
    let failure = envelope.track.as_deref().and_then(|track| track.failure.as_ref());
    Columns {
        message_id: &envelope.id,
        message_type: envelope.message_type.as_deref(),
        key: envelope.key.as_deref(),
        content_type: envelope.content_type.as_deref(),
        headers: headers.end(),
        record: failure.map(|failure| &*failure.record),
    }
}

/// The columns of an envelope as they lie in a row. Bytes, because other programs may write a text into a blob column,
/// and the other way round.
pub(crate) struct Stored<'a> {
    pub(crate) message_id: Option<&'a [u8]>,
    pub(crate) message_type: Option<&'a [u8]>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) headers: Option<&'a [u8]>,
    pub(crate) body: Option<&'a [u8]>,
}

impl<'a> Stored<'a> {
    /// From column `first` on the row has message_id, type, key, content_type, headers and body.
    pub(crate) fn of(row: &'a SqliteRow, first: usize) -> Result<Self, sqlx::Error> {
        let column = |at: usize| row.try_get_unchecked::<Option<&[u8]>, _>(first + at);
        let (message_id, message_type, key, content_type) = (column(0)?, column(1)?, column(2)?, column(3)?);
        Ok(Self { message_id, message_type, key, content_type, headers: column(4)?, body: column(5)? })
    }

    /// The envelope, and how many of its headers were odd.
    pub(crate) fn envelope(&self, id: i64) -> (Envelope, u32) {
        let text = self.headers.unwrap_or_default();
        let body = Bytes::copy_from_slice(self.body.unwrap_or_default());
        let (headers, unreadable) = match text {
            b"" => (Headers::default(), None),
            text => match Headers::read(text) {
                Some(headers) => (headers, None),
                None => (Headers::default(), Some((UNREADABLE, text))),
            },
        };
        let own =
            [(ID, self.message_id), (TYPE, self.message_type), (KEY, self.key), (CONTENT_TYPE, self.content_type)];
        let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let others = headers.0.iter().map(|(name, value)| (&**name, &**value));
        let fallback = Fallback { id: || foreign_id(id), message_type: None };
        let odd = u32::from(unreadable.is_some());
        let read = wire::read(own.chain(others).chain(unreadable), Prefix::Dash, body, fallback);
        (read.envelope, read.oddities.saturating_add(odd))
    }
}

/// The id of a message that has none that is valid.
fn foreign_id(id: i64) -> MessageId {
    MessageId::new(format!("sqlite:{id}")).unwrap_or_else(MessageId::unique)
}

/// A text column that only this crate writes.
pub(crate) fn text<'a>(row: &'a SqliteRow, at: usize) -> Result<Option<Cow<'a, str>>, sqlx::Error> {
    let bytes = row.try_get_unchecked::<Option<&'a [u8]>, _>(at)?;
    Ok(bytes.map(|bytes| str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)))
}
