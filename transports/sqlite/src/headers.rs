//! Headers as a JSON object: `{"name":"value"}`, and `{"name":{"base64":"…"}}` where a value is no UTF-8. A name that
//! repeats repeats as a key, in order.

use std::{borrow::Cow, fmt};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

/// Writes headers one by one.
#[derive(Default)]
pub(crate) struct Writing(String);

impl Writing {
    pub(crate) fn put(&mut self, name: &str, value: &[u8]) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.text(name);
        self.0.push(':');
        if let Ok(value) = std::str::from_utf8(value) {
            self.text(value);
        } else {
            self.0.push_str("{\"base64\":\"");
            STANDARD.encode_string(value, &mut self.0);
            self.0.push_str("\"}");
        }
    }

    fn text(&mut self, text: &str) {
        // Most need no escape, and then a copy does.
        if text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\') {
            self.0.push('"');
            self.0.push_str(text);
            self.0.push('"');
        } else {
            self.0.push_str(&serde_json::Value::from(text).to_string());
        }
    }

    /// `None` where there are no headers.
    pub(crate) fn end(mut self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        self.0.push('}');
        Some(self.0)
    }
}

/// Headers as they were read.
#[derive(Default)]
pub(crate) struct Headers<'a>(pub(crate) Vec<(Cow<'a, str>, Cow<'a, [u8]>)>);

impl<'a> Headers<'a> {
    /// `None` where the text is no JSON object.
    pub(crate) fn read(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}

impl<'de> Deserialize<'de> for Headers<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Headers<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of headers")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers<'de>, A::Error> {
                let mut headers = Vec::new();
                while let Some((Name(name), Value(value))) = map.next_entry()? {
                    headers.push((name, value));
                }
                Ok(Headers(headers))
            }
        }
        from.deserialize_map(Object)
    }
}

struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a header's name")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        from.deserialize_str(Text)
    }
}

struct Value<'a>(Cow<'a, [u8]>);

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a header's value")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
                Ok(Value(Cow::Borrowed(text.as_bytes())))
            }
            fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
                Ok(owned(text))
            }
            // Other programs write numbers and the like: they are taken as their JSON text.
            fn visit_bool<E>(self, value: bool) -> Result<Value<'de>, E> {
                Ok(owned(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Value<'de>, E> {
                Ok(owned(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Value<'de>, E> {
                Ok(owned(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Value<'de>, E> {
                Ok(owned(value))
            }
            fn visit_unit<E>(self) -> Result<Value<'de>, E> {
                Ok(owned(""))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'de>, A::Error> {
                let mut object = serde_json::Map::new();
                while let Some((name, value)) = map.next_entry()? {
                    object.insert(name, value);
                }
                let encoded = object.get("base64").filter(|_| object.len() == 1).and_then(serde_json::Value::as_str);
                match encoded.and_then(|encoded| STANDARD.decode(encoded).ok()) {
                    Some(bytes) => Ok(Value(Cow::Owned(bytes))),
                    None => Ok(owned(serde_json::Value::Object(object))),
                }
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Value<'de>, A::Error> {
                let mut list = Vec::new();
                while let Some(value) = seq.next_element()? {
                    list.push(value);
                }
                Ok(owned(serde_json::Value::Array(list)))
            }
        }
        from.deserialize_any(Any)
    }
}

fn owned(value: impl fmt::Display) -> Value<'static> {
    Value(Cow::Owned(value.to_string().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives() {
        let all: Vec<u8> = (0..=255).collect();
        let headers: [(&str, &[u8]); 6] = [
            ("x", b"1"),
            ("x", b"2"),
            ("nul\0\"\\", b"a\0b"),
            ("e", b""),
            ("bin", &all),
            ("\u{1f980}", "ü".as_bytes()),
        ];
        let mut writing = Writing::default();
        headers.iter().for_each(|(name, value)| writing.put(name, value));
        let text = writing.end().unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        let read = Headers::read(text.as_bytes()).unwrap();
        assert_eq!(read.0.iter().map(|(n, v)| (&**n, &**v)).collect::<Vec<_>>(), headers);
    }

    #[test]
    fn what_others_write_is_taken_as_its_text() {
        let text = br#"{"n":5,"t":true,"o":{"a":1},"z":null,"l":[1,"x"],"b":{"base64":"!"}}"#;
        let read = Headers::read(text).unwrap();
        let values: Vec<_> = read.0.iter().map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect();
        assert_eq!(values, ["5", "true", r#"{"a":1}"#, "", r#"[1,"x"]"#, r#"{"base64":"!"}"#]);
        assert!(Headers::read(b"[]").is_none());
        assert!(Headers::read(b"{").is_none());
    }
}
