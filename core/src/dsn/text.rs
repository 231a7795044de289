//! The text of a DSN: percent-encoding, what may be shown, and the nearest key.

use std::fmt;

use super::{Dsn, DsnError};

/// Decodes percent-encoding; the result is UTF-8 without NUL.
pub(super) fn decode(text: &str, part: &str) -> Result<String, DsnError> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            let what = format!("the {part} of the DSN has a `%` without two hex digits; write `%` itself as %25");
            return Err(DsnError(what));
        };
        out.push((high * 16 + low) as u8);
    }
    match String::from_utf8(out) {
        Ok(text) if !text.contains('\0') => Ok(text),
        Ok(_) => Err(DsnError(format!("the {part} of the DSN has a NUL"))),
        Err(_) => Err(DsnError(format!("the {part} of the DSN is not UTF-8 once decoded"))),
    }
}

/// Encodes what the grammar or a terminal would take for something else.
fn encoded(f: &mut fmt::Formatter<'_>, text: &str, keep: &[char]) -> fmt::Result {
    for c in text.chars() {
        let plain = c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~') || keep.contains(&c);
        if plain || (!c.is_ascii() && !c.is_control() && !c.is_whitespace()) {
            fmt::Write::write_char(f, c)?;
        } else {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).bytes() {
                write!(f, "%{byte:02X}")?;
            }
        }
    }
    Ok(())
}

/// Whether a value is not to be shown: by its key, or because it looks like an address with a user.
pub(super) fn looks_secret(key: &str, value: &str) -> bool {
    const WORDS: [&str; 10] = ["pass", "pwd", "secret", "token", "key", "auth", "cred", "sig", "jwt", "cookie"];
    let key = key.to_ascii_lowercase();
    WORDS.iter().any(|word| key.contains(word)) || value.contains('@')
}

/// A key or value in an error: escaped and shortened.
pub(super) fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        out.push('…');
    }
    format!("`{out}`")
}

/// The nearest of the valid names, where one is near enough to be what was meant.
pub(super) fn near<'a>(wrong: &str, valid: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wrong: Vec<char> = wrong.chars().take(64).collect();
    let allowed = 2.min(wrong.len() / 2);
    valid.map(|name| (distance(&wrong, name), name)).filter(|(far, _)| *far <= allowed).min().map(|(_, name)| name)
}

/// Levenshtein's distance, one row at a time.
fn distance(a: &[char], b: &str) -> usize {
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, cb) in b.chars().enumerate() {
        let mut left = i + 1;
        let mut diagonal = i;
        for (ca, cell) in a.iter().zip(row.iter_mut().skip(1)) {
            let above = *cell;
            left = (diagonal + usize::from(*ca != cb)).min(above + 1).min(left + 1);
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

impl fmt::Display for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if self.slashes {
            f.write_str("//")?;
        }
        match (&self.user, &self.password) {
            (None, None) => {}
            (Some(_), None) => f.write_str("***@")?,
            (user, Some(_)) => {
                encoded(f, user.as_deref().unwrap_or_default(), &[])?;
                f.write_str(":***@")?;
            }
        }
        for (i, host) in self.hosts.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if host.name.contains(':') {
                write!(f, "{comma}{host}")?;
            } else {
                f.write_str(comma)?;
                encoded(f, &host.name, &[])?;
                host.port.map_or(Ok(()), |port| write!(f, ":{port}"))?;
            }
        }
        f.write_str(&self.raw_path)?;
        for (i, key) in self.keys.iter().enumerate() {
            f.write_str(if i == 0 { "?" } else { "&" })?;
            encoded(f, &key.key, &[])?;
            f.write_str("=")?;
            if looks_secret(&key.key, &key.value) {
                f.write_str("***")?;
            } else {
                encoded(f, &key.value, &['/', ':', ',', '*'])?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dsn({self})")
    }
}
