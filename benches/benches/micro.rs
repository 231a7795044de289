//! The parts alone: ledger, codec, retry arithmetic, metadata headers.
#![allow(missing_docs, reason = "criterion's macros make functions")]

use std::{hint::black_box, sync::Arc};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use postroom_benches::record::{self, Earthquake};
use postroom_core::{
    Body, DeliveryCount, Incoming, Order, Outcome, Place, RetryPolicy, Settled, Unhandled,
    policy::verdict,
    protocol::{Action, End, Event, Ledger, SourceRules},
    track::Origin,
    wire::{self, Fallback, Prefix},
};

const BATCH: usize = 32;

/// 32 deliveries arrive, end, and are settled.
fn ledger(criterion: &mut Criterion) {
    let Ok(place) = Place::queue("bench") else { return };
    let envelope = Arc::new(record::envelope());
    let mut group = criterion.benchmark_group("ledger");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, order) in [("no order", Order::None), ("key order", Order::Key)] {
        let mut ledger = Ledger::<u64>::default();
        let source = ledger.add_source(SourceRules {
            origin: Origin::new("bench", place.clone()),
            retry: RetryPolicy::default(),
            unhandled: Unhandled::Fail,
            crashes: 4,
            order,
            lane: false,
            count: DeliveryCount::Exact,
            failure: true,
        });
        group.bench_function(format!("arrive, end, settle 32 ({name})"), |bencher| {
            let (mut actions, mut keys) = (Vec::new(), Vec::new());
            bencher.iter(|| {
                for token in 0..BATCH as u64 {
                    ledger.arrive(source, Incoming::new(token, envelope.clone()), 1, &mut actions);
                }
                keys.extend(actions.drain(..).filter_map(|action| match action {
                    Action::Deliver { key, .. } => Some(key),
                    _ => None,
                }));
                for key in &keys {
                    let end = End { outcome: Outcome::Done, done: Vec::new(), at: 2, random: 0.0 };
                    ledger.step(Event::Ended(*key, Box::new(end)), &mut actions);
                }
                for key in keys.drain(..) {
                    ledger.step(Event::Settled(key, Settled::Done), &mut actions);
                }
                actions.drain(..).count()
            });
        });
    }
    group.finish();
}

fn codec(criterion: &mut Criterion) {
    let envelope = record::envelope();
    let Ok(quake) = Earthquake::decode(envelope.content_type.as_deref(), &envelope.body) else { return };
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Bytes(envelope.body.len() as u64));
    group.bench_function("JSON decode", |bencher| {
        bencher.iter(|| Earthquake::decode(black_box(Some("application/json")), &envelope.body));
    });
    group.bench_function("JSON encode", |bencher| bencher.iter(|| black_box(&quake).encode()));
    group.finish();
}

fn retry(criterion: &mut Criterion) {
    let policy = RetryPolicy::default();
    let outcome = Outcome::errored(postroom_core::AttemptKind::Error, "busy");
    criterion.bench_function("retry/delay", |bencher| {
        bencher.iter(|| policy.delay(black_box(3), black_box(0.7)));
    });
    criterion.bench_function("retry/verdict", |bencher| {
        bencher.iter(|| verdict(black_box(&outcome), &policy, Unhandled::Fail, black_box(1), false, 0.7));
    });
}

fn headers(criterion: &mut Criterion) {
    let mut envelope = record::envelope();
    envelope.stamps.push("tenant", "north");
    envelope.stamps.push("trace-flags", "01");
    let mut written: Vec<(String, Vec<u8>)> = Vec::new();
    wire::write(&envelope, Prefix::Dash, &mut |name, value| written.push((name.to_owned(), value.to_vec())));
    let mut group = criterion.benchmark_group("wire");
    group.bench_function("write", |bencher| {
        bencher.iter(|| {
            let mut bytes = 0;
            wire::write(black_box(&envelope), Prefix::Dash, &mut |name, value| bytes += name.len() + value.len());
            bytes
        });
    });
    group.bench_function("read", |bencher| {
        bencher.iter_batched(
            || envelope.body.clone(),
            |body| {
                let fallback = Fallback { id: postroom_core::MessageId::unique, message_type: None };
                let headers = written.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
                wire::read(headers, Prefix::Dash, body, fallback)
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, ledger, codec, retry, headers);
criterion_main!(benches);
