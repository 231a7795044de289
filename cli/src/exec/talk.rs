//! What the runtime and a process of mode "lines" say to each other.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use postroom_core::Envelope;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The longest answer.
pub(super) const LONGEST: usize = 1 << 20;

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    r#type: Option<&'a str>,
    attempt: u32,
    key: Option<&'a str>,
    time: Option<String>,
    headers: BTreeMap<&'a str, String>,
    #[serde(flatten)]
    body: Body,
}

/// A body in JSON: JSON as it is, a text with a text's content type as a string, anything else in base 64.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Body {
    Data(Data),
    DataBase64(String),
}

/// See [`Body`].
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Data {
    Json(Box<RawValue>),
    Text(String),
}

impl Body {
    /// The body of an envelope.
    pub(crate) fn of(content_type: Option<&str>, body: &[u8]) -> Self {
        let media = content_type.map(|text| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
        let is_json = media.as_deref().is_none_or(|media| media.ends_with("/json") || media.ends_with("+json"));
        let is_text = media.as_deref().is_some_and(|media| media.starts_with("text/"));
        let text = std::str::from_utf8(body).ok();
        if let Some(text) = text.filter(|_| is_json)
            // Line breaks stand between JSON's tokens alone, where a space does as well.
            && let Ok(json) = RawValue::from_string(text.replace(['\n', '\r'], " "))
        {
            return Self::Data(Data::Json(json));
        }
        match text.filter(|_| is_text) {
            Some(text) => Self::Data(Data::Text(text.into())),
            None => Self::DataBase64(STANDARD.encode(body)),
        }
    }
}

/// The line of a message, with its end.
pub(super) fn line(envelope: &Envelope, attempt: u32) -> Vec<u8> {
    let mut headers = BTreeMap::new();
    for (name, value) in envelope.stamps.iter() {
        headers.entry(&**name).or_insert_with(|| String::from_utf8_lossy(value).into_owned());
    }
    let line = Line {
        id: &envelope.id,
        r#type: envelope.message_type.as_deref(),
        attempt,
        key: envelope.key.as_deref(),
        time: envelope.time.map(crate::text::time),
        headers,
        body: Body::of(envelope.content_type.as_deref(), &envelope.body),
    };
    // Strings, numbers and checked JSON always serialize.
    let mut out = serde_json::to_vec(&line).unwrap_or_default();
    out.push(b'\n');
    out
}

/// An answer.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Done,
    Retry { why: String, after: Option<Duration> },
    Fail { why: String },
}

#[derive(Deserialize)]
struct Wire {
    id: String,
    ok: Option<bool>,
    retry: Option<String>,
    after: Option<String>,
    fail: Option<String>,
}

/// Reads an answer and the id that it is about.
///
/// # Errors
/// Says what is wrong with it.
pub(super) fn answer(line: &[u8]) -> Result<(String, Answer), String> {
    let shown = || crate::text::cut(String::from_utf8_lossy(line).trim(), 200);
    let wire: Wire = serde_json::from_slice(line).map_err(|error| format!("not an answer ({error}): {}", shown()))?;
    let answer = match (wire.ok, wire.retry, wire.fail) {
        (Some(true), None, None) => Answer::Done,
        (None, Some(why), None) => {
            let after = wire.after.as_deref().map(crate::duration::parse).transpose();
            Answer::Retry { why, after: after.map_err(|error| format!("`after`: {error}: {}", shown()))? }
        }
        (None, None, Some(why)) => Answer::Fail { why },
        _ => return Err(format!("an answer has exactly one of \"ok\": true, \"retry\" and \"fail\": {}", shown())),
    };
    Ok((wire.id, answer))
}

#[cfg(test)]
mod tests {
    use postroom_core::MessageId;

    use super::*;

    fn of(content_type: Option<&str>, body: &[u8]) -> String {
        serde_json::to_string(&Body::of(content_type, body)).unwrap()
    }

    #[test]
    fn bodies_are_json_text_or_base_64() {
        assert_eq!(
            of(None, b"{\"b\":1,\n \"a\":12345678901234567890123.0}"),
            r#"{"data":{"b":1,  "a":12345678901234567890123.0}}"#
        );
        assert_eq!(of(Some("application/json; charset=utf-8"), b"\"x\""), r#"{"data":"x"}"#);
        assert_eq!(of(Some("text/plain"), b"a\nb"), r#"{"data":"a\nb"}"#);
        assert_eq!(of(None, b"hello"), r#"{"data_base64":"aGVsbG8="}"#);
        assert_eq!(of(Some("application/json"), b"{"), r#"{"data_base64":"ew=="}"#);
        assert_eq!(of(Some("text/plain"), b"\xff"), r#"{"data_base64":"/w=="}"#);
        assert_eq!(of(None, b""), r#"{"data_base64":""}"#);
    }

    #[test]
    fn a_message_is_one_line() {
        let mut envelope = Envelope::with_id(MessageId::new("m\n1").unwrap(), "{\n\"a\": \"\u{2028}\\n\"\r\n}");
        envelope.stamps.push("h", &b"\xff\n"[..]);
        let line = line(&envelope, 3);
        assert_eq!(line.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count(), 1);
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["data"]["a"], "\u{2028}\n");
        assert_eq!(value["attempt"], 3);
        assert_eq!(value["type"], serde_json::Value::Null);
    }

    #[test]
    fn answers() {
        assert_eq!(answer(br#"{"id":"1","ok":true}"#), Ok(("1".into(), Answer::Done)));
        let after = Some(Duration::from_secs(10));
        let retry = Answer::Retry { why: "busy".into(), after };
        assert_eq!(answer(br#"{"id":"1","retry":"busy","after":"10s"}"#), Ok(("1".into(), retry)));
        assert_eq!(answer(br#"{"id":"1","fail":"bad"}"#), Ok(("1".into(), Answer::Fail { why: "bad".into() })));
        for wrong in [
            "",
            "x",
            "{}",
            r#"{"id":"1"}"#,
            r#"{"id":"1","ok":false}"#,
            r#"{"id":1,"ok":true}"#,
            r#"{"id":"1","ok":true,"fail":"x"}"#,
            r#"{"id":"1","retry":"x","after":"soon"}"#,
        ] {
            assert!(answer(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
