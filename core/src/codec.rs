//! Codecs: a value to bytes and back. The sender's type chooses how it is encoded; decoding follows the content type
//! that the message came with.
//!
//! Built in are [`Json`] (`application/json`, anything `+json`, and a message without a content type) and, with the
//! feature `bincode`, `Bincode` (`application/x-bincode`). [`Raw`] bytes are taken and given as they are. Other codecs
//! implement [`Codec`] and are chosen by wrapping the message type: [`With<Cbor, Order>`](With). A type that is not
//! serde's (protobuf, say) implements [`Body`] itself.
//!
//! An error names the content type, what was wrong and where; it never holds the body.

use std::{fmt, marker::PhantomData, ops::Deref};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::{CodecError, Message, Raw, Text};

/// The longest piece of a foreign error text or content type that an error of ours repeats, in characters.
const SHOWN: usize = 160;

/// How a message type is encoded; see [`Message::CODEC`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// JSON: other languages can read it.
    #[default]
    Json,
    /// Bincode 2, serde mode, standard configuration: compact, and for Rust on both ends.
    #[cfg(feature = "bincode")]
    Bincode,
}

/// A format for every serde type.
pub trait Codec: 'static {
    /// The content type that it writes.
    const CONTENT_TYPE: &'static str;

    /// Whether it reads this media type (lower or upper case, without parameters). By default its own alone.
    fn reads(media_type: &str) -> bool {
        media_type.eq_ignore_ascii_case(Self::CONTENT_TYPE)
    }

    /// Encodes a value.
    ///
    /// # Errors
    /// When the format cannot hold the value, as JSON a map whose keys are no text.
    fn encode<T: Serialize>(value: &T) -> Result<Bytes, CodecError>;

    /// Decodes a whole body.
    ///
    /// # Errors
    /// When the body is not one value of that type and nothing else. The error must not hold the body.
    fn decode<T: DeserializeOwned>(body: &Bytes) -> Result<T, CodecError>;
}

/// What can be the body of an envelope: every [`Message`] that serde knows, and [`Raw`].
pub trait Body: Sized {
    /// The content type and the bytes. `None`: the value does not say what it is.
    ///
    /// # Errors
    /// When its format cannot hold the value.
    fn encode(&self) -> Result<(Option<Text>, Bytes), CodecError>;

    /// The value, by the content type that came with it; JSON where none did.
    ///
    /// # Errors
    /// When no codec reads that content type, or the body is not such a value.
    fn decode(content_type: Option<&str>, body: &Bytes) -> Result<Self, CodecError>;
}

impl<T: Message + Serialize + DeserializeOwned> Body for T {
    fn encode(&self) -> Result<(Option<Text>, Bytes), CodecError> {
        match T::CODEC {
            Format::Json => coded::<Json, T>(self),
            #[cfg(feature = "bincode")]
            Format::Bincode => coded::<Bincode, T>(self),
        }
    }

    fn decode(content_type: Option<&str>, body: &Bytes) -> Result<Self, CodecError> {
        decode(content_type, body)
    }
}

impl Body for Raw {
    fn encode(&self) -> Result<(Option<Text>, Bytes), CodecError> {
        Ok((None, self.0.clone()))
    }

    fn decode(_: Option<&str>, body: &Bytes) -> Result<Self, CodecError> {
        Ok(Self(body.clone()))
    }
}

/// A message in a format of the user's: encoded by `C`; decoded by `C` where the content type is `C`'s, and by the
/// built-in codecs otherwise.
pub struct With<C, T>(T, PhantomData<fn() -> C>);

impl<C, T> With<C, T> {
    /// Wraps a message.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(value, PhantomData)
    }

    /// The message.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<C, T> Deref for With<C, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<C, T: Clone> Clone for With<C, T> {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl<C, T: fmt::Debug> fmt::Debug for With<C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<C: Codec, T: Message> Message for With<C, T> {
    const TYPE: &'static str = T::TYPE;
    type Reply = T::Reply;
}

impl<C: Codec, T: Serialize + DeserializeOwned> Body for With<C, T> {
    fn encode(&self) -> Result<(Option<Text>, Bytes), CodecError> {
        coded::<C, T>(&self.0)
    }

    fn decode(content_type: Option<&str>, body: &Bytes) -> Result<Self, CodecError> {
        match content_type.map(media_type) {
            Some(media) if C::reads(media) => C::decode(body).map(Self::new),
            _ => decode(content_type, body).map(Self::new),
        }
    }
}

fn coded<C: Codec, T: Serialize>(value: &T) -> Result<(Option<Text>, Bytes), CodecError> {
    Ok((Some(Text::from_static(C::CONTENT_TYPE)), C::encode(value)?))
}

/// Decodes by content type, with the built-in codecs; JSON where there is none.
///
/// # Errors
/// When no built-in codec reads that content type (it is named), or the body is not such a value.
pub fn decode<T: DeserializeOwned>(content_type: Option<&str>, body: &Bytes) -> Result<T, CodecError> {
    let Some(media) = content_type.map(media_type) else {
        return Json::decode(body);
    };
    if Json::reads(media) {
        return Json::decode(body);
    }
    #[cfg(feature = "bincode")]
    if <Bincode as Codec>::reads(media) {
        return <Bincode as Codec>::decode(body);
    }
    Err(CodecError(format!("no codec reads the content type `{}`", shown(media))))
}

/// Encodes as JSON.
///
/// # Errors
/// When JSON cannot hold the value.
pub fn encode_json<T: Serialize>(value: &T) -> Result<Bytes, CodecError> {
    Json::encode(value)
}

/// A content type without its parameters: `application/json` of `application/json; charset=utf-8`.
fn media_type(content_type: &str) -> &str {
    content_type.split_once(';').map_or(content_type, |(media, _)| media).trim()
}

/// JSON, at most 128 levels deep.
#[derive(Clone, Copy, Debug)]
pub struct Json;

impl Codec for Json {
    const CONTENT_TYPE: &'static str = "application/json";

    fn reads(media_type: &str) -> bool {
        let suffix = media_type.len().checked_sub("+json".len()).and_then(|at| media_type.get(at..));
        media_type.eq_ignore_ascii_case(Self::CONTENT_TYPE)
            || media_type.eq_ignore_ascii_case("text/json")
            || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case("+json"))
    }

    fn encode<T: Serialize>(value: &T) -> Result<Bytes, CodecError> {
        serde_json::to_vec(value)
            .map(Bytes::from)
            .map_err(|error| CodecError(format!("application/json: cannot encode: {}", shown(&error.to_string()))))
    }

    fn decode<T: DeserializeOwned>(body: &Bytes) -> Result<T, CodecError> {
        if body.is_empty() {
            return Err(CodecError("application/json: the body is empty".into()));
        }
        serde_json::from_slice(body).map_err(|error| {
            let text = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            let what = text.strip_suffix(&place).unwrap_or(&text);
            CodecError(format!("application/json: {}{place}", shown(&without_value(what))))
        })
    }
}

/// Bincode 2 in serde mode and standard configuration (little endian, variable integers). What a decode may claim is
/// limited to `LIMIT` bytes, 16 MiB unless said otherwise.
///
/// A type that holds a sequence of values without bytes of their own (`Vec<()>`) is not for this codec: no limit can
/// bound its length.
#[cfg(feature = "bincode")]
#[derive(Clone, Copy, Debug)]
pub struct Bincode<const LIMIT: usize = { 16 * 1024 * 1024 }>;

#[cfg(feature = "bincode")]
impl<const LIMIT: usize> Bincode<LIMIT> {
    /// A body of at most this many bytes...
    const SMALL_BODY: usize = 4 * 1024;
    /// ...may claim no more than this: 16 times as much, as an honest one byte can claim a u128.
    const SMALL_LIMIT: usize = 16 * Self::SMALL_BODY;
}

#[cfg(feature = "bincode")]
impl<const LIMIT: usize> Codec for Bincode<LIMIT> {
    const CONTENT_TYPE: &'static str = "application/x-bincode";

    fn encode<T: Serialize>(value: &T) -> Result<Bytes, CodecError> {
        bincode::serde::encode_to_vec(value, bincode::config::standard())
            .map(Bytes::from)
            .map_err(|error| CodecError(format!("application/x-bincode: cannot encode: {}", shown(&error.to_string()))))
    }

    fn decode<T: DeserializeOwned>(body: &Bytes) -> Result<T, CodecError> {
        let config = bincode::config::standard();
        // A tighter limit for small bodies, because a false length claims its memory before the bytes are missed.
        let decoded = if body.len() <= Self::SMALL_BODY && LIMIT > Self::SMALL_LIMIT {
            bincode::serde::decode_from_slice::<T, _>(body, config.with_limit::<{ 64 * 1024 }>())
        } else {
            bincode::serde::decode_from_slice::<T, _>(body, config.with_limit::<LIMIT>())
        };
        match decoded {
            Ok((value, read)) if read == body.len() => Ok(value),
            Ok((_, read)) => Err(CodecError(format!(
                "application/x-bincode: {} more bytes follow the value, which ends at byte {read}",
                body.len().saturating_sub(read)
            ))),
            Err(error) => Err(CodecError(format!("application/x-bincode: {}", bincode_reason(&error)))),
        }
    }
}

#[cfg(feature = "bincode")]
fn bincode_reason(error: &bincode::error::DecodeError) -> String {
    use bincode::error::DecodeError;
    match error {
        DecodeError::UnexpectedEnd { additional } => {
            format!("the body ends early, at least {additional} bytes are missing")
        }
        DecodeError::LimitExceeded => "a length is beyond the decode limit".into(),
        DecodeError::Utf8 { inner } => format!("text is not UTF-8 from its byte {}", inner.valid_up_to()),
        DecodeError::OtherString(text) => shown(&without_value(text)),
        DecodeError::InvalidCharEncoding(_) => "a character is not valid".into(),
        DecodeError::InvalidBooleanValue(_) => "a boolean is neither 0 nor 1".into(),
        other => shown(&other.to_string()),
    }
}

/// serde's `invalid type: string "…", expected u64` repeats the value; this keeps the kind and what was expected.
fn without_value(text: &str) -> String {
    let repeats = text.starts_with("invalid type: ") || text.starts_with("invalid value: ");
    match (text.find(['"', '`']), text.rfind(", expected ")) {
        (Some(value), Some(expected)) if repeats && value < expected => {
            let kind = text.get(..value).unwrap_or_default().trim_end();
            format!("{kind}{}", text.get(expected..).unwrap_or_default())
        }
        _ => text.to_owned(),
    }
}

fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(SHOWN).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(SHOWN).is_some() {
        out.push('…');
    }
    out
}
