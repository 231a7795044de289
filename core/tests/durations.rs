//! Durations as text.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::time::Duration;

use postroom_core::duration::{duration, text};
use proptest::prelude::*;

#[test]
fn the_forms() {
    for (written, milliseconds) in [
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("0s", 0),
        ("0ms", 0),
        ("1d", 86_400_000),
        ("1h1m1s1ms", 3_661_001),
        ("007s", 7000),
        ("90m", 5_400_000),
        ("18446744073709551615ms", u64::MAX),
    ] {
        assert_eq!(duration(written).unwrap(), Duration::from_millis(milliseconds), "{written}");
    }
    for wrong in [
        "",
        "5",
        "s",
        "-1s",
        "+1s",
        "1.5s",
        "30m1h",
        "1s1s",
        "1 h",
        " 1s",
        "1s ",
        "1S",
        "1us",
        "1h30",
        "٣s",
        "\0",
        "18446744073709551616ms",
        "18446744073709551615h",
        "18446744073709551615ms1ms",
        "1sm",
    ] {
        let error = duration(wrong).unwrap_err().to_string();
        assert!(error.contains("is not a duration"), "{wrong:?}: {error}");
    }
    assert_eq!(duration("x\n").unwrap_err().to_string(), r"`x\n` is not a duration like 250ms, 30s, 5m or 1h30m");
    assert!(duration(&"9".repeat(10_000)).unwrap_err().to_string().len() < 120);
}

#[test]
fn writing() {
    for (duration, written) in [
        (Duration::ZERO, "0s"),
        (Duration::from_micros(999), "0s"),
        (Duration::from_millis(90_250), "1m30s250ms"),
        (Duration::from_secs(5400), "1h30m"),
        (Duration::from_secs(86_400), "24h"),
    ] {
        assert_eq!(text(duration), written);
    }
    assert!(text(Duration::MAX).ends_with("999ms"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn what_is_written_is_read(milliseconds in prop_oneof![any::<u64>(), 0..100_000_000_u64]) {
        let value = Duration::from_millis(milliseconds);
        prop_assert_eq!(duration(&text(value)).unwrap(), value);
    }

    #[test]
    fn no_text_panics(written in "[0-9dhms. -]{0,30}") {
        if let Ok(value) = duration(&written) {
            prop_assert_eq!(duration(&text(value)).unwrap(), value);
        }
    }
}
