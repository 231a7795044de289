//! Rows on their way out, packed into one value: each row that leaves SQLite costs a dozen allocations and a wake of
//! another thread, and a claim has many.
//!
//! A row is its three numbers and the lengths of its six columns, each with a space after it, then the columns as they
//! are. A length of -1 is NULL.

use crate::row::Stored;

/// Packs one row of `postroom_message`, as the next hand-over will have it.
macro_rules! pack {
    () => {
        "format('%d %d %d %d %d %d %d %d %d ', id, generation + 1, delivered + 1, \
             coalesce(octet_length(message_id), -1), coalesce(octet_length(type), -1), \
             coalesce(octet_length(key), -1), coalesce(octet_length(content_type), -1), \
             coalesce(octet_length(headers), -1), coalesce(octet_length(body), -1)) \
         || coalesce(message_id, '') || coalesce(type, '') || coalesce(key, '') || coalesce(content_type, '') \
         || coalesce(headers, '') || coalesce(body, '')"
    };
}
pub(crate) use pack;

/// One packed row.
pub(crate) struct Packed<'a> {
    pub(crate) id: i64,
    pub(crate) generation: i64,
    pub(crate) delivered: i64,
    pub(crate) stored: Stored<'a>,
}

/// The rows of a pack.
pub(crate) struct Unpack<'a>(pub(crate) &'a [u8]);

impl<'a> Unpack<'a> {
    fn number(&mut self) -> Option<i64> {
        let end = self.0.iter().position(|b| *b == b' ')?;
        let (number, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.get(1..)?;
        std::str::from_utf8(number).ok()?.parse().ok()
    }

    fn column(&mut self, length: i64) -> Option<Option<&'a [u8]>> {
        let Ok(length) = usize::try_from(length) else { return Some(None) };
        let (column, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(Some(column))
    }

    fn row(&mut self) -> Option<Packed<'a>> {
        let mut numbers = [0; 9];
        for number in &mut numbers {
            *number = self.number()?;
        }
        let [id, generation, delivered, message_id, message_type, key, content_type, headers, body] = numbers;
        let stored = Stored {
            message_id: self.column(message_id)?,
            message_type: self.column(message_type)?,
            key: self.column(key)?,
            content_type: self.column(content_type)?,
            headers: self.column(headers)?,
            body: self.column(body)?,
        };
        Some(Packed { id, generation, delivered, stored })
    }
}

/// Ends early, with something left, only where the pack is none of ours.
impl<'a> Iterator for Unpack<'a> {
    type Item = Packed<'a>;

    fn next(&mut self) -> Option<Packed<'a>> {
        if self.0.is_empty() { None } else { self.row() }
    }
}
