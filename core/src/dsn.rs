//! DSNs: where a broker is, as one line of text.
//!
//! `scheme:` or `scheme://[user[:password]@]host[:port][,host…][/path]?key=value&…`. What the grammar uses itself is
//! written percent-encoded: `@` anywhere but at the end of user and password, `#` anywhere, `/` `?` in a user or
//! password, `:` in a user, `&` in a key or value. That is refused rather than guessed, because a wrong guess would
//! take a part of a password for a host or a path, which are shown. `+` means itself.
//!
//! A password is never shown, and an error never repeats a malformed DSN.

use std::{borrow::Cow, fmt, time::Duration};

use crate::{
    DurationError, ErrorKind, NameError, Place, TransportError, TypeName, duration::duration, protocol::Prefetch,
};

mod authority;
mod text;

pub use authority::Host;
use text::{decode, looks_secret, near};

/// The longest DSN, in bytes.
pub const MAX_DSN: usize = 8 * 1024;

/// The query keys that every broker knows.
pub const COMMON: [&str; 9] = ["queue", "topic", "group", "type", "prefetch", "lease", "setup", "tls", "require_group"];

/// The shortest lease.
const MIN_LEASE: Duration = Duration::from_secs(1);

/// What is wrong with a DSN. `Display` says which part and which rule; of the DSN it repeats at most a query key and
/// the value of a common key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DsnError(String);

impl DsnError {
    /// An error about a broker's own key or part. The message is lower case, has no full stop and no credential.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl From<NameError> for DsnError {
    fn from(error: NameError) -> Self {
        Self(error.to_string())
    }
}

impl From<DurationError> for DsnError {
    fn from(error: DurationError) -> Self {
        Self(error.to_string())
    }
}

impl From<DsnError> for TransportError {
    fn from(error: DsnError) -> Self {
        Self::new(ErrorKind::Config, error.0)
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one who logs in.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Clone)]
struct Key {
    key: String,
    value: String,
    taken: bool,
}

/// A parsed DSN. `Display` and `Debug` give it with `***` for the password, for a user without a password (that can be
/// a token), and for values that may be secret by their key or by holding an `@`.
#[derive(Clone)]
pub struct Dsn {
    scheme: String,
    slashes: bool,
    user: Option<String>,
    password: Option<Secret>,
    hosts: Vec<Host>,
    raw_path: String,
    path: String,
    keys: Vec<Key>,
}

impl Dsn {
    /// Reads a DSN. Only the grammar is checked here; [`Dsn::finish`] checks the keys.
    ///
    /// # Errors
    /// Says which part breaks which rule, without repeating it.
    pub fn parse(dsn: &str) -> Result<Self, DsnError> {
        let refuse = |what: &str| Err(DsnError(what.to_owned()));
        if dsn.len() > MAX_DSN {
            return refuse("the DSN is longer than 8192 bytes");
        }
        if dsn.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return refuse("the DSN has a space or a control character; write it percent-encoded (%20)");
        }
        if dsn.contains('#') {
            return refuse("the DSN has a `#`; write it percent-encoded (%23)");
        }
        let Some((scheme, rest)) = dsn.split_once(':') else {
            return refuse("the DSN does not begin with a scheme, as in `memory:`");
        };
        let wrong = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || scheme.contains(wrong) {
            return refuse("the DSN does not begin with a scheme, as in `memory:`");
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (slashes, authority, raw_path) = match rest.strip_prefix("//") {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (true, authority, path)
            }
            None => (false, "", rest),
        };
        if raw_path.contains('@') || query.contains('@') {
            return refuse(
                "the DSN has an `@` after the host; write it percent-encoded (%40), \
                 as also `/` (%2F) and `?` (%3F) in a user or password",
            );
        }
        let (user, password, hosts) = authority::parts(authority)?;
        let path = decode(raw_path, "path")?;
        let mut parsed = Self {
            scheme: scheme.to_ascii_lowercase(),
            slashes,
            user,
            password,
            hosts,
            raw_path: raw_path.to_owned(),
            path,
            keys: Vec::new(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return refuse("the DSN has a query key without a value, as in `key=value`");
            };
            let (key, value) = (decode(key, "query")?, decode(value, "query")?);
            if parsed.keys.iter().any(|known| known.key == key) {
                return Err(DsnError(format!("the DSN has the key {} twice", text::shown(&key))));
            }
            parsed.keys.push(Key { key, value, taken: false });
        }
        Ok(parsed)
    }

    /// The scheme, in lower case.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user, decoded; `None` where it is missing or empty.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, decoded; empty after `user:@`.
    #[must_use]
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// The hosts, in order; none for `scheme:path` and `scheme:///path`.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The path as it was written, so that `%2f` and `/` can be told apart. After `//` it begins with `/` or is empty.
    #[must_use]
    pub fn raw_path(&self) -> &str {
        &self.raw_path
    }

    /// The path, decoded.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value of a query key, decoded.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.keys.iter().find(|known| known.key == key).map(|known| known.value.as_str())
    }

    /// The value of a broker's own key, which from now on counts as known.
    #[must_use]
    pub fn take(&mut self, key: &str) -> Option<String> {
        let found = self.keys.iter_mut().find(|known| known.key == key)?;
        found.taken = true;
        Some(found.value.clone())
    }

    /// Checks that every key is a common one, was taken, or is in `known` (all of the broker's own keys, for the
    /// suggestion), and that the common ones have sensible values.
    ///
    /// # Errors
    /// Names the key, and the nearest valid one; or the value, and what is allowed.
    pub fn finish(&self, known: &[&str]) -> Result<(), DsnError> {
        for Key { key, taken, .. } in &self.keys {
            let valid = || COMMON.iter().chain(known).copied();
            if *taken || valid().any(|valid| valid == key) {
                continue;
            }
            let hint = match near(key, valid()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", valid().collect::<Vec<_>>().join(", ")),
            };
            return Err(DsnError(format!("the DSN has the unknown key {}; {hint}", text::shown(key))));
        }
        self.place()?;
        self.message_type()?;
        self.prefetch()?;
        self.lease()?;
        self.setup()?;
        self.require_group()?;
        Ok(())
    }

    /// The place of `queue`, `topic`, or `topic` and `group`; `None` where no key names one.
    ///
    /// # Errors
    /// For a queue beside a topic or group, a group without a topic, and a name that breaks a rule.
    pub fn place(&self) -> Result<Option<Place>, DsnError> {
        let place = match (self.get("queue"), self.get("topic"), self.get("group")) {
            (None, None, None) => return Ok(None),
            (Some(queue), None, None) => Place::queue(queue),
            (None, Some(topic), None) => Place::topic(topic),
            (None, Some(topic), Some(group)) => Place::group(topic, group),
            (Some(_), Some(_), _) => return Err(DsnError("the DSN has both `queue` and `topic`".into())),
            (Some(_), None, Some(_)) => {
                return Err(DsnError("the DSN has both `queue` and `group`; a group belongs to a topic".into()));
            }
            (None, None, Some(_)) => return Err(DsnError("the DSN has `group` without `topic`".into())),
        };
        Ok(Some(place?))
    }

    /// The type of foreign messages that carry none (`type`).
    ///
    /// # Errors
    /// When the name breaks a rule.
    pub fn message_type(&self) -> Result<Option<TypeName>, DsnError> {
        Ok(self.get("type").map(TypeName::new).transpose()?)
    }

    /// The prefetch (`auto` or a number).
    ///
    /// # Errors
    /// For anything but `auto` and a number from 1 to 65535.
    pub fn prefetch(&self) -> Result<Option<Prefetch>, DsnError> {
        self.common("prefetch", "`auto` or a number from 1 to 65535", |value| match value {
            "auto" => Some(Prefetch::Auto),
            _ => value.parse::<u16>().ok().filter(|n| *n > 0).map(|n| Prefetch::Fixed(n.into())),
        })
    }

    /// The lease.
    ///
    /// # Errors
    /// For a text that is not a duration, and for less than 1 s.
    pub fn lease(&self) -> Result<Option<Duration>, DsnError> {
        self.common("lease", "a duration of at least 1s", |value| {
            duration(value).ok().filter(|lease| *lease >= MIN_LEASE)
        })
    }

    /// Whether places are created (`setup`); the default is to create them.
    ///
    /// # Errors
    /// For anything but `true` and `false`.
    pub fn setup(&self) -> Result<bool, DsnError> {
        Ok(self.flag("setup")?.unwrap_or(true))
    }

    /// Whether a publish to a topic without groups is an error (`require_group`); by default it is not.
    ///
    /// # Errors
    /// For anything but `true` and `false`.
    pub fn require_group(&self) -> Result<bool, DsnError> {
        Ok(self.flag("require_group")?.unwrap_or(false))
    }

    /// The value of `tls`, whose meaning is the broker's.
    #[must_use]
    pub fn tls(&self) -> Option<&str> {
        self.get("tls")
    }

    /// A key that is `true` or `false`.
    ///
    /// # Errors
    /// For anything but `true` and `false`; names the key.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, DsnError> {
        self.common(key, "`true` or `false`", |value| value.parse().ok())
    }

    fn common<T>(&self, key: &str, allowed: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, DsnError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        read(value).map(Some).ok_or_else(|| {
            let shown = if looks_secret(key, value) { Cow::Borrowed("`***`") } else { text::shown(value).into() };
            DsnError(format!("`{key}` must be {allowed}, not {shown}"))
        })
    }
}
