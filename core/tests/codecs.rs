//! Codecs: round trips, hostile bytes, and errors that tell what is wrong and nothing of the body.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use bytes::Bytes;
use postroom_core::{
    Body, Codec, CodecError, Message, Raw,
    codec::{Json, With, decode, encode_json},
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    name: String,
    tags: Vec<String>,
}
postroom_core::message!(Order = "order");

fn order() -> Order {
    Order { id: 7, name: "änne \0".into(), tags: vec!["a".into()] }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn a_message_is_json_unless_it_says_otherwise() {
    let (content_type, body) = order().encode().unwrap();
    assert_eq!(content_type.as_deref(), Some("application/json"));
    assert_eq!(&body[..], r#"{"id":7,"name":"änne \u0000","tags":["a"]}"#.as_bytes());
    assert_eq!(encode_json(&order()).unwrap(), body);
    assert_eq!(<Order as Body>::decode(content_type.as_deref(), &body).unwrap(), order());
}

#[test]
fn the_codec_follows_the_content_type() {
    let body = bytes("[1,2]");
    for json in [
        None,
        Some("application/json"),
        Some("Application/JSON; charset=utf-8"),
        Some("text/json"),
        Some("application/cloudevents+json"),
        Some(" application/vnd.x+JSON ;v=1"),
    ] {
        assert_eq!(decode::<Vec<u8>>(json, &body).unwrap(), [1, 2], "{json:?}");
    }
    for other in ["text/plain", "", "json", "+jso", "ü+json2", "application/json5"] {
        let error = decode::<Vec<u8>>(Some(other), &body).unwrap_err().to_string();
        assert_eq!(error, format!("no codec reads the content type `{other}`"));
    }
    let long = decode::<u8>(Some(&"x\n".repeat(5000)), &body).unwrap_err().to_string();
    assert!(long.len() < 800 && !long.contains('\n'), "{long}");
}

#[test]
fn raw_bytes_are_taken_and_given_as_they_are() {
    let body = Bytes::from_static(&[0, 0xff, b'{']);
    for content_type in [None, Some("application/json"), Some("no/such")] {
        assert_eq!(<Raw as Body>::decode(content_type, &body).unwrap(), Raw(body.clone()));
    }
    assert_eq!(Raw(body.clone()).encode().unwrap(), (None, body));
}

#[test]
fn json_errors_name_the_place_and_hold_no_value() {
    for (body, said) in [
        ("", "application/json: the body is empty"),
        ("{\"id\":1", "application/json: EOF while parsing an object at line 1 column 7"),
        (
            "{\"id\":\n\"hunter2, expected x\",\"name\":\"\",\"tags\":[]}",
            "application/json: invalid type: string, expected u64 at line 2 column 21",
        ),
        (
            "{\"id\":-424242,\"name\":\"\",\"tags\":[]}",
            "application/json: invalid value: integer, expected u64 at line 1 column 13",
        ),
        ("{\"id\":1,\"tags\":[]}", "application/json: missing field `name` at line 1 column 18"),
        ("{\"id\":1,\"name\":\"\",\"tags\":[]} x", "application/json: trailing characters at line 1 column 30"),
    ] {
        assert_eq!(<Order as Body>::decode(None, &bytes(body)).unwrap_err().to_string(), said, "{body}");
    }
}

#[test]
fn json_depth_is_bounded() {
    #[derive(Debug, Deserialize)]
    struct Nest(#[allow(dead_code)] Vec<Nest>);
    assert!(decode::<Nest>(None, &bytes(&("[".repeat(120) + &"]".repeat(120)))).is_ok());
    let error = decode::<Nest>(None, &bytes(&"[".repeat(1_000_000))).unwrap_err().to_string();
    assert!(error.starts_with("application/json: recursion limit exceeded"), "{error}");
    // Also where the value is skipped.
    let skipped = format!("{{\"id\":1,\"name\":\"\",\"tags\":[],\"other\":{}", "[".repeat(1_000_000));
    assert!(<Order as Body>::decode(None, &bytes(&skipped)).is_err());
}

#[test]
fn a_codec_of_the_users_is_chosen_by_wrapping() {
    /// JSON, backwards.
    struct Backwards;
    impl Codec for Backwards {
        const CONTENT_TYPE: &'static str = "application/x-backwards";
        fn encode<T: Serialize>(value: &T) -> Result<Bytes, CodecError> {
            Ok(Json::encode(value)?.iter().rev().copied().collect())
        }
        fn decode<T: DeserializeOwned>(body: &Bytes) -> Result<T, CodecError> {
            Json::decode(&body.iter().rev().copied().collect())
        }
    }
    type Wrapped = With<Backwards, Order>;
    assert_eq!(Wrapped::TYPE, Order::TYPE);
    let (content_type, body) = Wrapped::new(order()).encode().unwrap();
    assert_eq!(content_type.as_deref(), Some("application/x-backwards"));
    assert_eq!(body[0], b'}');
    let back = <Wrapped as Body>::decode(Some("application/X-backwards; a=b"), &body).unwrap();
    assert_eq!(back.into_inner(), order());
    let (_, json) = order().encode().unwrap();
    assert_eq!(*<Wrapped as Body>::decode(None, &json).unwrap(), order());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn hostile_json_is_an_error_and_is_not_repeated(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let body = Bytes::from(body);
        if let Err(CodecError(text)) = <Order as Body>::decode(None, &body) {
            prop_assert!(text.starts_with("application/json: ") && text.len() < 400);
        } else {
            prop_assert!(false, "random bytes are no order");
        }
    }

    #[test]
    fn a_wrong_string_is_never_in_the_error(secret in "[a-z,\"` ]{0,40}") {
        let marked = format!("S3cr3t{secret}");
        let body = encode_json(&serde_json::json!({ "id": marked })).unwrap();
        let text = <Order as Body>::decode(None, &body).unwrap_err().to_string();
        prop_assert!(!text.contains("S3cr3t"), "{text}");
    }
}

#[cfg(feature = "bincode")]
mod bincode {
    use super::*;
    use postroom_core::codec::{Bincode, Format};

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Compact(u64, String, Vec<u128>);
    impl Message for Compact {
        const TYPE: &'static str = "compact";
        const CODEC: Format = Format::Bincode;
        type Reply = ();
    }
    const TYPE: Option<&str> = Some("application/x-bincode");

    #[test]
    fn round_trip_by_the_types_codec() {
        let value = Compact(300, "ü".into(), vec![1; 4000]);
        let (content_type, body) = value.encode().unwrap();
        assert_eq!(content_type.as_deref(), TYPE);
        assert_eq!(<Compact as Body>::decode(TYPE, &body).unwrap(), value);
        // The content type decides, not the message type.
        assert_eq!(<Compact as Body>::decode(None, &encode_json(&value).unwrap()).unwrap(), value);
    }

    #[test]
    fn small_bodies_of_wide_integers_fit_the_small_limit() {
        let value: Vec<u128> = vec![1; 4090];
        let body = <Bincode>::encode(&value).unwrap();
        assert!(body.len() <= 4096);
        assert_eq!(<Bincode>::decode::<Vec<u128>>(&body).unwrap(), value);
    }

    #[test]
    fn a_false_length_claims_nothing() {
        let huge = Bytes::from_static(&[253, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        let text = <Bincode>::decode::<String>(&huge).unwrap_err().to_string();
        assert_eq!(text, "application/x-bincode: a length is beyond the decode limit");
        // 1 MiB is under the limit, but far over what this body can hold.
        let large = Bytes::from_static(&[252, 0, 0, 16, 0]);
        let text = <Bincode>::decode::<String>(&large).unwrap_err().to_string();
        assert_eq!(text, "application/x-bincode: a length is beyond the decode limit");
        let list = <Bincode>::decode::<Vec<u64>>(&huge).unwrap_err().to_string();
        assert!(list.contains("ends early") || list.contains("limit"), "{list}");
    }

    #[test]
    fn the_limit_holds_and_can_be_chosen() {
        let body = Bincode::<100>::encode(&"x".repeat(200)).unwrap();
        assert!(Bincode::<100>::decode::<String>(&body).is_err());
        assert!(Bincode::<1000>::decode::<String>(&body).is_ok());
        let body = <Bincode>::encode(&"x".repeat(17 << 20)).unwrap();
        assert!(<Bincode>::decode::<String>(&body).unwrap_err().to_string().contains("limit"));
    }

    #[test]
    fn bytes_after_the_value_are_an_error() {
        let text = <Bincode>::decode::<u8>(&Bytes::from_static(&[1, 2, 3])).unwrap_err().to_string();
        assert_eq!(text, "application/x-bincode: 2 more bytes follow the value, which ends at byte 1");
        let text = <Bincode>::decode::<u16>(&Bytes::new()).unwrap_err().to_string();
        assert!(text.contains("ends early"), "{text}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]
        #[test]
        fn hostile_bincode_is_an_error_or_round_trips(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let body = Bytes::from(body);
            match <Bincode>::decode::<Compact>(&body) {
                Ok(value) => prop_assert_eq!(<Bincode>::decode::<Compact>(&<Bincode>::encode(&value).unwrap()).unwrap(), value),
                Err(CodecError(text)) => prop_assert!(text.starts_with("application/x-bincode: ") && text.len() < 400),
            }
        }
    }
}
