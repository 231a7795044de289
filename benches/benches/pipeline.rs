//! The memory pipeline, from waiting messages to the last settle; start and stop of the node included, over 20,000
//! messages a run.
#![allow(missing_docs, reason = "criterion's macros make functions")]

use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use postroom_benches::pipeline::{Kind, drain, fill};

const MESSAGES: u64 = 20_000;

fn pipeline(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory pipeline");
    group.throughput(Throughput::Elements(MESSAGES)).sampling_mode(SamplingMode::Flat).sample_size(10);
    for (name, kind) in [("function", Kind::Function), ("actor", Kind::Actor)] {
        for batch in [1, 32] {
            group.bench_function(format!("{name}, batch {batch}"), |bencher| {
                bencher.iter_custom(|runs| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..runs {
                        let took = actix::System::new().block_on(async {
                            let config = fill(MESSAGES).await?;
                            let began = Instant::now();
                            drain(config, MESSAGES, batch, kind).await.map(|()| began.elapsed())
                        });
                        match took {
                            Ok(took) => spent += took,
                            Err(error) => eprintln!("{error}"),
                        }
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, pipeline);
criterion_main!(benches);
