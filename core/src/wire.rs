//! The wire: an envelope's metadata as headers, and back.
//!
//! Metadata travels as CloudEvents 1.0 attributes under the broker's [`Prefix`] (`ce-id`, `ce-type`, …), the content
//! type as `content-type`, and the [`Track`](crate::Track) as `postroom-*`. User stamps are plain headers.
//!
//! **Stamps that look like metadata.** A stamp whose name we would read as metadata — an attribute of ours under any
//! prefix, anything under `postroom-`, `content-type`, in any case of letters — is written with
//! [`STAMP`] before its name, as is one whose name begins with [`STAMP`] itself; reading takes one [`STAMP`]
//! away. So every stamp survives, two never become one, and none can pose as metadata. CloudEvents attributes that are
//! not ours (`ce-subject`) are stamps like any other and keep their names.
//!
//! **Foreign and odd headers.** What is missing is absent. What is invalid or repeated counts as absent, is counted
//! ([`Read::oddities`]), and stays as a stamp of its original name and bytes, so that nothing vanishes.
//!
//! **Sizes.** History is cut, oldest error texts first, to [`MAX_HISTORY_BYTES`] of JSON and a failure's text to
//! [`MAX_FAILURE_BYTES`]; a JSON header over [`MAX_JSON`] is not read.

mod read;
mod write;

pub use read::{Fallback, Read, read};
pub use write::write;

/// Comes before the name of a stamp that looks like metadata.
pub const STAMP: &str = "x-postroom-stamp-";
/// The most that `postroom-history` takes, in bytes.
pub const MAX_HISTORY_BYTES: usize = 18 * 1024;
/// The most that the error text in `postroom-failure` takes as JSON, in bytes.
pub const MAX_FAILURE_BYTES: usize = 10 * 1024;
/// The longest JSON header that is read, in bytes.
pub const MAX_JSON: usize = 64 * 1024;
/// The most names that `postroom-done` holds.
pub const MAX_DONE: usize = 1024;
/// The longest content type, in bytes.
pub const MAX_CONTENT_TYPE: usize = 256;

const CONTENT_TYPE: &str = "content-type";
const POSTROOM: &str = "postroom-";
const ATTRIBUTES: [&str; 8] =
    ["specversion", "id", "source", "type", "time", "partitionkey", "traceparent", "datacontenttype"];
const PREFIXES: [&str; 4] = ["ce-", "ce_", "cloudEvents_", "cloudEvents:"];

/// The prefix of CloudEvents attributes on a broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prefix {
    /// `ce-`: HTTP, Redis, SQLite, memory and all others.
    #[default]
    Dash,
    /// `ce_`: Kafka.
    Underscore,
    /// `cloudEvents_`, reading `cloudEvents:` too: AMQP.
    CloudEvents,
}

/// Header names of one prefix, so that none is put together at run time.
struct Names {
    specversion: &'static str,
    id: &'static str,
    source: &'static str,
    message_type: &'static str,
    time: &'static str,
    key: &'static str,
    traceparent: &'static str,
}

macro_rules! names {
    ($prefix:literal) => {
        &Names {
            specversion: concat!($prefix, "specversion"),
            id: concat!($prefix, "id"),
            source: concat!($prefix, "source"),
            message_type: concat!($prefix, "type"),
            time: concat!($prefix, "time"),
            key: concat!($prefix, "partitionkey"),
            traceparent: concat!($prefix, "traceparent"),
        }
    };
}

impl Prefix {
    fn names(self) -> &'static Names {
        match self {
            Self::Dash => names!("ce-"),
            Self::Underscore => names!("ce_"),
            Self::CloudEvents => names!("cloudEvents_"),
        }
    }

    /// The attribute's name, where the header is a CloudEvents attribute.
    fn attribute(self, header: &str) -> Option<&str> {
        match self {
            Self::Dash => header.strip_prefix("ce-"),
            Self::Underscore => header.strip_prefix("ce_"),
            Self::CloudEvents => header.strip_prefix("cloudEvents_").or_else(|| header.strip_prefix("cloudEvents:")),
        }
    }
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, tail) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(tail)
}

/// Whether a stamp of this name must not be written as it is. Letters of any case, because some brokers (HTTP) lower
/// them on the way.
fn must_escape(name: &str) -> bool {
    match name.as_bytes().first() {
        Some(b'c' | b'C') => {
            name.eq_ignore_ascii_case(CONTENT_TYPE)
                || PREFIXES
                    .iter()
                    .filter_map(|prefix| strip_prefix_ignoring_case(name, prefix))
                    .any(|attribute| ATTRIBUTES.iter().any(|ours| attribute.eq_ignore_ascii_case(ours)))
        }
        Some(b'p' | b'P') => strip_prefix_ignoring_case(name, POSTROOM).is_some(),
        Some(b'x' | b'X') => strip_prefix_ignoring_case(name, STAMP).is_some(),
        _ => false,
    }
}
