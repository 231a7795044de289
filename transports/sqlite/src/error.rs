//! SQLite's errors as the few kinds that a caller can act on. Each text names the file.

use std::path::Path;

use postroom_core::{ErrorKind, Place, TransportError};

/// SQLite's primary result code.
fn code(error: &sqlx::Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?.parse::<i32>().ok()?;
    Some(code & 0xff)
}

/// Another connection writes just now.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(code(error), Some(5 | 6))
}

/// A value is larger than SQLite takes.
pub(crate) fn is_too_large(error: &sqlx::Error) -> bool {
    code(error) == Some(18)
}

/// A place that a row points to is gone.
pub(crate) fn is_missing_place(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_foreign_key_violation)
}

/// The text of [`is_missing_place`] errors, by which a publish knows that it may ask anew.
pub(crate) const PLACE_GONE: &str = "a place was removed meanwhile";

pub(crate) fn translate(path: &Path, error: sqlx::Error) -> TransportError {
    let file = path.display();
    if is_missing_place(&error) {
        return TransportError::new(ErrorKind::Unroutable, PLACE_GONE).caused_by(error);
    }
    let (kind, text) = match code(&error) {
        Some(5 | 6) => (ErrorKind::Busy, format!("another process keeps {file} locked")),
        Some(3 | 8 | 23) => (ErrorKind::Refused, format!("{file} cannot be written")),
        Some(10) => (ErrorKind::Connection, format!("reading or writing {file} failed")),
        Some(11) => (ErrorKind::Refused, format!("{file} is damaged")),
        Some(13) => (ErrorKind::Connection, format!("the disk of {file} is full")),
        Some(14) => (ErrorKind::Connection, format!("{file} cannot be opened")),
        Some(18) => (ErrorKind::TooLarge, format!("a message is larger than {file} can hold")),
        Some(26) => (ErrorKind::Refused, format!("{file} is not a SQLite database")),
        Some(_) => (ErrorKind::Refused, format!("{file} refused a statement")),
        None => (ErrorKind::Connection, format!("the connection to {file} broke")),
    };
    TransportError::new(kind, text).caused_by(error)
}

pub(crate) fn missing(place: &Place) -> TransportError {
    TransportError::new(ErrorKind::NotFound, format!("{place} does not exist"))
}
