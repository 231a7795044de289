//! No group shares a name with a suspects' lane.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

use postroom_core::{NameError, Place};

#[test]
fn a_group_named_as_the_lane_is_refused() {
    let error = Place::group("orders", "suspects").unwrap_err();
    assert!(matches!(&error, NameError::Reserved { name } if name == "`suspects`"), "{error:?}");
    assert!(error.to_string().starts_with("a group must not be named `suspects`"));
    // Only the whole name, only of a group.
    for group in ["suspects2", "suspect", "Suspects", "a-suspects", "suspects.eu"] {
        let place = Place::group("orders", group).unwrap();
        let lane = Place::queue("orders").unwrap().suspects().unwrap();
        assert_ne!(format!("{}--{}", place.name(), place.group_name().unwrap()), lane.name().as_str());
    }
    assert!(Place::queue("suspects").is_ok() && Place::topic("suspects").is_ok() && Place::store("suspects").is_ok());
    assert!(Place::group("suspects", "orders").is_ok());
}
