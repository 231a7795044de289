//! The message: one line of `examples/earthquakes/earthquakes.ndjson`, as its examples decode it.

use bytes::Bytes;
use postroom_core::{Envelope, Text, TypeName};

/// A real line, with every field.
pub const LINE: &str = r#"{"id": "us2000crkq", "time": 1517364031800, "magnitude": 5.3, "place": "50km NNW of Sangiang, Indonesia", "longitude": 118.7906, "latitude": -7.8628, "depth_km": 15.18, "kind": "earthquake", "status": "reviewed", "network": "us", "significance": 436, "felt_reports": 4, "tsunami": false}"#;

/// An earthquake.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs, reason = "the fields of the record")]
pub struct Earthquake {
    pub id: String,
    pub time: i64,
    pub magnitude: Option<f64>,
    pub place: String,
    pub longitude: f64,
    pub latitude: f64,
    pub depth_km: Option<f64>,
    pub kind: String,
    pub status: String,
    pub network: String,
    pub significance: i64,
    pub felt_reports: Option<u64>,
    pub tsunami: bool,
}
postroom::message!(Earthquake = "earthquake");

/// An envelope of the record, as a node would send it.
#[must_use]
pub fn envelope() -> Envelope {
    let mut envelope = Envelope::new(Bytes::from_static(LINE.as_bytes()));
    envelope.message_type = TypeName::from_static("earthquake").ok();
    envelope.content_type = Some(Text::from_static("application/json"));
    envelope.time = Some(1_517_364_031_800);
    envelope.source = Some(Text::from_static("postroom:/bench"));
    envelope
}
