//! Names: one grammar for queues, topics, groups, namespaces, stores and message types.

use std::{fmt, ops::Deref};

use crate::Text;

/// The longest queue, topic, group, store or namespace name, in bytes.
pub const MAX_NAME: usize = 128;
/// The longest message type, in bytes.
pub const MAX_TYPE: usize = 256;

/// Why a name was refused. `Display` gives the name (escaped, shortened) and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It is empty.
    #[error("a name must not be empty")]
    Empty,
    /// It is longer than the limit.
    #[error("name {name} has {len} bytes; at most {max} are allowed")]
    TooLong {
        /// The name, escaped and shortened.
        name: String,
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// It holds a character outside `[A-Za-z0-9._-]`.
    #[error("name {name} has the character {found:?}; only A-Z a-z 0-9 . _ - are allowed")]
    Character {
        /// The name, escaped and shortened.
        name: String,
        /// The first offending character.
        found: char,
    },
    /// It holds `--`, which joins the parts of derived names.
    #[error("name {name} contains `--`, which is kept for names that Postroom derives")]
    Joint {
        /// The name, escaped and shortened.
        name: String,
    },
    /// It is the name of a group that Postroom keeps for itself.
    #[error(
        "a group must not be named {name}: a queue's suspects' lane has that name on brokers that join topic and group"
    )]
    Reserved {
        /// The name, escaped and shortened.
        name: String,
    },
    /// It begins or ends with `-`.
    #[error("name {name} must not begin or end with `-`")]
    Edge {
        /// The name, escaped and shortened.
        name: String,
    },
}

pub(crate) fn shown(name: &str) -> String {
    let mut out: String = name.chars().take(40).flat_map(char::escape_debug).collect();
    if name.chars().count() > 40 {
        out.push('…');
    }
    format!("`{out}`")
}

fn check(name: &str, max: usize) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > max {
        return Err(NameError::TooLong { name: shown(name), len: name.len(), max });
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        Some(found) => Err(NameError::Character { name: shown(name), found }),
        None => Ok(()),
    }
}

/// The name of a queue, topic, group, store or namespace: `[A-Za-z0-9._-]`, 1 to 128 bytes, without `--`, not
/// beginning or ending with `-`.
///
/// ```
/// use postroom_core::Name;
/// assert!(Name::new("orders.eu").is_ok());
/// assert_eq!(Name::new("a b").unwrap_err().to_string(), "name `a b` has the character ' '; only A-Z a-z 0-9 . _ - are allowed");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct Name(Text);

impl Name {
    /// Checks a name that a user gave.
    ///
    /// # Errors
    /// Says which rule the name breaks.
    pub fn new(name: &str) -> Result<Self, NameError> {
        check(name, MAX_NAME)?;
        if name.contains("--") {
            return Err(NameError::Joint { name: shown(name) });
        }
        if name.starts_with('-') || name.ends_with('-') {
            return Err(NameError::Edge { name: shown(name) });
        }
        Ok(Self(Text::from(name)))
    }

    /// A name that Postroom derives: parts joined by `--`. Injective, because no part contains or touches `--`.
    pub(crate) fn derived(parts: &[&str]) -> Self {
        Self(parts.join("--").into())
    }

    pub(crate) fn suffixed(name: &Self, suffix: &str) -> Self {
        Self(format!("{name}{suffix}").into())
    }

    /// The broker's own name of this place: the namespace (if any) and the name, joined by `--`.
    #[must_use]
    pub fn in_namespace(&self, namespace: Option<&Self>) -> String {
        match namespace {
            Some(namespace) => format!("{namespace}--{self}"),
            None => self.to_string(),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Reads back what [`Name`] wrote, derived names included, so `--` is accepted here.
impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        check(&text, 4 * MAX_NAME).map_err(serde::de::Error::custom)?;
        Ok(Self(Text::from(text.as_ref())))
    }
}

/// The type of a message, as `order.placed`: `[A-Za-z0-9._-]`, 1 to 256 bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct TypeName(Text);

impl TypeName {
    /// Checks a type name.
    ///
    /// # Errors
    /// Says which rule the name breaks.
    pub fn new(name: &str) -> Result<Self, NameError> {
        check(name, MAX_TYPE)?;
        Ok(Self(Text::from(name)))
    }

    /// As [`TypeName::new`], without a copy of the text.
    ///
    /// # Errors
    /// Says which rule the name breaks.
    pub fn from_static(name: &'static str) -> Result<Self, NameError> {
        check(name, MAX_TYPE)?;
        Ok(Self(Text::from_static(name)))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> serde::Deserialize<'de> for TypeName {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

macro_rules! textual {
    ($($name:ident),+) => {$(
        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    )+};
}
textual!(Name, TypeName);
