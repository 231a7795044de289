//! The tour, and the same job as a user does it.

use std::{collections::BTreeSet, path::Path};

use super::support::Place;

#[test]
fn the_tour_ends_with_a_receipt_whose_numbers_are_right() {
    let place = Place::new();
    let done = place.postroom("demo --dir tour").exits(0);
    for part in ["kill -9", "panicked", "44 records were refused", "All numbers are right"] {
        assert!(done.out.contains(part), "{part}\n{}", done.out);
    }
    let figures = place.postroom("-c tour/postroom.toml stats quakes --json").exits(0).last();
    assert_eq!((&figures["waiting"], &figures["failed"]), (&0.into(), &0.into()));
    place.postroom("demo --dir tour").exits(2);
    let numbers = place.postroom("demo --json --dir other").exits(0).last()["demo"].clone();
    assert_eq!((&numbers["sent"], &numbers["alerts"], &numbers["failed"]), (&1_707.into(), &85.into(), &44.into()));
    assert_eq!((&numbers["handled"], &numbers["matches"]), (&1_707.into(), &true.into()));
}

#[test]
fn the_example_does_the_same_job() {
    let place = Place::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/earthquakes");
    for name in ["postroom.toml", "earthquakes.ndjson", "totals.sh", "alerts.sh"] {
        std::fs::copy(example.join(name), place.path(name)).unwrap();
    }
    place.postroom("send quakes --ndjson -f earthquakes.ndjson").exits(0);
    let receipt = place.postroom("run --until-empty --json").exits(0).last()["receipt"].clone();
    assert_eq!((&receipt["acked"], &receipt["failed"]), (&1_663.into(), &44.into()), "{receipt}");
    let distinct = |name: &str| place.lines(name).into_iter().collect::<BTreeSet<_>>().len();
    assert_eq!((distinct("totals.tsv"), distinct("alerts.tsv")), (1_663, 85));
    let script = place.read("totals.sh");
    let repaired: Vec<&str> =
        script.lines().filter(|line| !line.contains("-*)") && !line.contains("is negative")).collect();
    place.script("totals.sh", &repaired.join("\n"));
    place.postroom("failed retry --all").exits(0);
    place.postroom("run --until-empty --json").exits(0);
    assert_eq!((distinct("totals.tsv"), distinct("alerts.tsv")), (1_707, 85));
    let californias = place.lines("totals.tsv").into_iter().collect::<BTreeSet<_>>();
    assert_eq!(californias.iter().filter(|line| line.ends_with("\tCA")).count(), 747);
}
