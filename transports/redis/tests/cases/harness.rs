//! A server, workers on it, and dead workers.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use postroom_actors::{HandlerError, HandlerOptions, Node, Received, TransportOptions, TransportSpec, launcher};
use postroom_core::{
    Broker, Declaration, DeclareMode, Envelope, Incoming, Outgoing, Place, Raw, Source, Subscription,
    protocol::Prefetch,
};
use postroom_redis::{Redis, RedisConfig, RedisSource, Token};
use postroom_testbed::{Appendfsync, redis::Redis as Server};

pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// Runs a test with a server of its own, bounded in time.
pub(crate) fn on_redis<Fut: Future<Output = ()>>(test: impl FnOnce(Arc<Server>) -> Fut) {
    let server = Arc::new(Server::start(Appendfsync::Everysec));
    actix_rt::System::new().block_on(async {
        let done = tokio::time::timeout(Duration::from_secs(90), test(server.clone())).await;
        assert!(done.is_ok(), "the test took longer than 90 s");
    });
}

/// Blocks in a thread of its own, so that the system goes on.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

pub(crate) fn queue() -> Place {
    Place::queue("q").unwrap()
}

/// A raw client of the server.
pub(crate) async fn raw(port: u16) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(("127.0.0.1", port)).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

pub(crate) async fn connect(port: u16) -> Redis {
    let broker = Redis::connect(&RedisConfig::local(port)).await.unwrap();
    broker.declare(&[Declaration::new(queue())], DeclareMode::Create).await.unwrap();
    broker
}

pub(crate) async fn send(broker: &Redis, to: &Place, bodies: impl IntoIterator<Item = String>) {
    let batch: Vec<_> = bodies.into_iter().map(|body| Outgoing::new(to.clone(), Envelope::new(body))).collect();
    for answer in broker.publish(&batch).await {
        answer.unwrap();
    }
}

pub(crate) async fn subscribe(broker: &Redis, to: &Place, owner: &str) -> RedisSource {
    broker.subscribe(Subscription::new(to.clone(), owner, LEASE)).await.unwrap()
}

pub(crate) async fn take(source: &RedisSource, n: usize) -> Vec<Incoming<Token>> {
    let mut taken = Vec::new();
    while taken.len() < n {
        taken.extend(source.pull(n - taken.len()).await.unwrap());
    }
    taken
}

/// A worker that took messages of the queue and was killed: no destructor runs.
pub(crate) async fn dead_worker(port: u16, owner: &str, n: usize) {
    let broker = connect(port).await;
    let source = subscribe(&broker, &queue(), owner).await;
    let held = take(&source, n).await;
    std::mem::forget((broker, source, held));
}

/// What handlers ran, and when.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<Mutex<Vec<(String, Instant)>>>);

impl Runs {
    fn add(&self, body: &str) {
        self.0.lock().unwrap().push((body.to_owned(), Instant::now()));
    }
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (body, _) in self.0.lock().unwrap().iter() {
            *counts.entry(body.clone()).or_default() += 1;
        }
        counts
    }
    pub(crate) fn total(&self) -> usize {
        self.0.lock().unwrap().len()
    }
    pub(crate) fn first(&self, body: &str) -> Option<Instant> {
        self.0.lock().unwrap().iter().find(|(other, _)| other == body).map(|(_, at)| *at)
    }
    /// Waits for so many different messages; answers how long it took.
    pub(crate) async fn different(&self, n: usize, within: Duration) -> Duration {
        let started = Instant::now();
        while self.counts().len() < n {
            let found = self.counts().len();
            assert!(started.elapsed() < within, "{found} of {n} within {within:?}: {:?}", self.counts());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        started.elapsed()
    }
}

/// A node that reads the queue and notes what it ran, after a pause in each handler.
pub(crate) async fn worker(name: &str, port: u16, runs: &Runs, lease: Duration, act: Act) -> Node {
    worker_of(name, RedisConfig::local(port), queue(), runs, lease, act).await
}

#[derive(Clone, Copy)]
pub(crate) enum Act {
    Sleep(Duration),
    Block(Duration),
}

pub(crate) async fn worker_of(
    name: &str,
    config: RedisConfig,
    place: Place,
    runs: &Runs,
    lease: Duration,
    act: Act,
) -> Node {
    let mut options = TransportOptions::new("main", place);
    options.lease = lease;
    options.prefetch = Prefetch::Fixed(64);
    let handler = HandlerOptions::new("main", "*").unwrap().concurrency(4).threads(1);
    let runs = runs.clone();
    let make = move || {
        let runs = runs.clone();
        move |received: Received<Raw>| {
            let runs = runs.clone();
            async move {
                runs.add(&String::from_utf8_lossy(&received.envelope().body));
                match act {
                    Act::Sleep(pause) => tokio::time::sleep(pause).await,
                    Act::Block(pause) => std::thread::sleep(pause),
                }
                Ok::<(), HandlerError>(())
            }
        }
    };
    let spec = TransportSpec::new(options, launcher::<Redis>(config));
    let builder = Node::builder().name(name.to_owned()).grace(Duration::from_secs(10)).fail_fast(true).transport(spec);
    builder.handle_with::<Raw, _, _, _, _>(handler, make).start().await.unwrap()
}

pub(crate) const AT_ONCE: Act = Act::Sleep(Duration::ZERO);

/// The number of pending entries, as the server says.
pub(crate) async fn pending(port: u16) -> i64 {
    let (count, _, _, _): (i64, redis::Value, redis::Value, redis::Value) =
        redis::cmd("XPENDING").arg("q").arg("postroom").query_async(&mut raw(port).await).await.unwrap();
    count
}

pub(crate) async fn none_pending(port: u16, within: Duration) {
    let started = Instant::now();
    while pending(port).await > 0 {
        assert!(started.elapsed() < within, "{} are pending after {within:?}", pending(port).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn named(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.map(|n| format!("m{n}"))
}
