//! kill -9 of `postroom run` in the middle of 1,707 records, ten times, each with at least five handlers running: every
//! record is handled, and repeats are at most what was in flight.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::support::{Place, handler, queue, until};

const RECORDS: &str = include_str!("../../examples/earthquakes/earthquakes.ndjson");

#[test]
fn ten_kills_lose_nothing() {
    let place = Place::with(&queue(&format!(
        "lease = \"1s\"\ncrashes = 100\nprefetch = 24\n{}",
        handler("*", "h.sh", "mode = \"lines\"\nconcurrency = 8")
    )));
    place.script(
        "h.sh",
        "while IFS= read -r line; do id=${line#'{\"id\":\"'}; id=${id%%'\"'*}\n\
         echo $id >>started; sleep 0.03; echo $id >>done; echo '{\"id\":\"'$id'\",\"ok\":true}'; done",
    );
    let done = place.postroom_with("send orders --ndjson --json", RECORDS.as_bytes()).exits(0);
    let ids: BTreeSet<String> = done.json().iter().map(|one| one["id"].as_str().unwrap().to_string()).collect();
    assert_eq!(ids.len(), 1_707);

    let mut in_flight = 0;
    for round in 0..10 {
        let (before, began) = (place.lines("done").len(), Instant::now());
        let mut unfinished = place.lines("started").len() - before;
        let running = place.start("run");
        until("it is in the middle, with five running", || {
            let (started, done) = (place.lines("started").len(), place.lines("done").len());
            unfinished = unfinished.min(started.saturating_sub(done));
            done >= before + 60 && started.saturating_sub(done) >= unfinished + 5
        });
        running.kill();
        let left = place.stats("orders");
        let held = left["in_flight"].as_u64().unwrap();
        assert!(held >= 5, "round {round}: {left}, {:?}", began.elapsed());
        in_flight += held;
    }
    assert!(place.lines("done").len() < 1_707, "the last kill was in the middle, too");
    place.postroom("run --until-empty").exits(0);
    let handled = place.lines("done");
    let distinct: BTreeSet<String> = handled.iter().cloned().collect();
    assert_eq!(distinct, ids, "every record was handled");
    let repeats = place.lines("started").len() as u64 - 1_707;
    assert!(repeats <= in_flight, "{repeats} repeats, {in_flight} were in flight");
    let left = place.stats("orders");
    assert_eq!((&left["waiting"], &left["in_flight"], &left["failed"]), (&0.into(), &0.into(), &0.into()));
    std::thread::sleep(Duration::from_millis(10));
}
