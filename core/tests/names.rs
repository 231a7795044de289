//! Names: the grammar, and that no two places share a broker's name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::collections::HashMap;

use postroom_core::{Name, NameError, Place, TypeName};
use proptest::prelude::*;

#[test]
fn the_grammar() {
    let (longest, too_long) = ("a".repeat(128), "a".repeat(129));
    for valid in ["a", "A.b_c-9", "orders.eu", ".", "_", "a-b", &longest] {
        assert_eq!(Name::new(valid).unwrap().as_str(), valid);
    }
    type Check = fn(&NameError) -> bool;
    let table: [(&str, Check); 13] = [
        ("", |e| matches!(e, NameError::Empty)),
        (&too_long, |e| matches!(e, NameError::TooLong { len: 129, max: 128, .. })),
        ("a b", |e| matches!(e, NameError::Character { found: ' ', .. })),
        ("a/b", |e| matches!(e, NameError::Character { found: '/', .. })),
        ("a\0", |e| matches!(e, NameError::Character { found: '\0', .. })),
        ("a\n", |e| matches!(e, NameError::Character { found: '\n', .. })),
        ("ä", |e| matches!(e, NameError::Character { found: 'ä', .. })),
        ("a:b", |e| matches!(e, NameError::Character { found: ':', .. })),
        ("a*", |e| matches!(e, NameError::Character { found: '*', .. })),
        ("a--b", |e| matches!(e, NameError::Joint { .. })),
        ("--", |e| matches!(e, NameError::Joint { .. })),
        ("-a", |e| matches!(e, NameError::Edge { .. })),
        ("a-", |e| matches!(e, NameError::Edge { .. })),
    ];
    for (invalid, check) in table {
        let error = Name::new(invalid).unwrap_err();
        assert!(check(&error), "{invalid:?}: {error:?}");
        assert!(!error.to_string().chars().any(char::is_control) && error.to_string().len() < 300);
    }
    assert!(TypeName::new(&"a".repeat(256)).is_ok());
    assert!(TypeName::new(&"a".repeat(257)).is_err());
    assert!(TypeName::new("order placed").is_err());
}

fn name() -> impl Strategy<Value = Name> {
    // A few characters only, so that collisions would be found.
    "[ab.]{1,2}(-[ab.]{1,2})?".prop_map(|text| Name::new(&text).unwrap())
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        name().prop_map(Place::Queue),
        (name(), name()).prop_map(|(topic, group)| Place::Group { topic, group }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn only_the_grammar_is_a_name(text in "[ -~ä]{0,6}") {
        let allowed = text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        let valid = allowed && !text.is_empty() && !text.contains("--") && !text.starts_with('-') && !text.ends_with('-');
        prop_assert_eq!(Name::new(&text).is_ok(), valid);
    }

    #[test]
    fn lanes_and_namespaces_never_collide(places in proptest::collection::vec((place(), proptest::option::of(name())), 200)) {
        let mut seen: HashMap<String, (Place, Option<Name>)> = HashMap::new();
        for (place, namespace) in places {
            let lane = place.suspects().unwrap().name().in_namespace(namespace.as_ref());
            // Applications that share a broker either all have a namespace or are one: `b--a--suspects` is the lane
            // of queue `a` in namespace `b`, and of group `a` of topic `b` without one.
            let lane = format!("{}{lane}", namespace.is_some());
            let before = seen.insert(lane.clone(), (place.clone(), namespace.clone()));
            if let Some(before) = before {
                prop_assert!(before == (place.clone(), namespace.clone()), "{lane}: {before:?} and {place:?}");
            }
        }
    }

    #[test]
    fn a_place_survives_serde(place in place()) {
        let text = serde_json::to_string(&place).unwrap();
        prop_assert_eq!(serde_json::from_str::<Place>(&text).unwrap(), place);
    }
}
