//! One application, run on each broker.

use std::{
    any::Any,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use postroom::{
    Envelope, FailureRef, HandlerOptions, Node, NodeBuilder, Place, RetryPolicy, TransportSpec, open,
    ops::{FailedRecord, Filter, Scan, Store},
    testing::Probe,
};

/// A message of the tests.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Job {
    pub n: u64,
}
postroom::message!(Job = "job");

/// A broker to run on: each test has a store of its own.
pub struct On {
    pub name: &'static str,
    dsn: String,
    /// The folder or the server that it lives in.
    _keep: Option<Box<dyn Any>>,
}

impl On {
    fn memory() -> Self {
        let dsn = format!("memory:t{:x}?queue=q", fastrand::u64(..));
        Self { name: "memory", dsn, _keep: None }
    }

    #[cfg(feature = "sqlite")]
    fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dsn = format!("sqlite:{}?queue=q&sync=normal", folder.path().join("q.db").display());
        Self { name: "sqlite", dsn, _keep: Some(Box::new(folder)) }
    }

    #[cfg(feature = "redis")]
    fn redis() -> Self {
        let server = postroom_testbed::Redis::start(postroom_testbed::Appendfsync::Everysec);
        let dsn = format!("{}?queue=q", server.dsn());
        Self { name: "redis", dsn, _keep: Some(Box::new(server)) }
    }

    /// The queue `q`, with quick retries.
    pub fn queue(&self) -> TransportSpec {
        let mut spec = open("q", &self.dsn).unwrap();
        spec.options.retry = quick(3);
        spec
    }

    /// Another place of the same store.
    pub fn place(&self, name: &str, place: &str) -> TransportSpec {
        open(name, &self.dsn.replace("queue=q", place)).unwrap()
    }
}

/// Retries at once, at most `max`.
pub fn quick(max: u32) -> RetryPolicy {
    RetryPolicy { max, delay: Duration::from_millis(10), jitter: 0.0, ..RetryPolicy::default() }
}

/// Runs a test on each broker, in a system of its own, bounded in time.
pub fn each<Fut: Future<Output = ()>>(test: impl Fn(On) -> Fut) {
    let all = [
        On::memory(),
        #[cfg(feature = "sqlite")]
        On::sqlite(),
        #[cfg(feature = "redis")]
        On::redis(),
    ];
    for on in all {
        let name = on.name;
        println!("on {name}");
        actix::System::new().block_on(async {
            let done = tokio::time::timeout(Duration::from_secs(60), test(on)).await;
            assert!(done.is_ok(), "on {name}: the test took longer than 60 s");
        });
    }
}

/// A handler's options on the queue `q`.
pub fn jobs() -> HandlerOptions {
    HandlerOptions::of::<Job>("q").unwrap()
}

/// What happened, in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
    pub fn count(&self, line: &str) -> usize {
        self.all().iter().filter(|other| *other == line).count()
    }
    pub async fn wait_for(&self, n: usize) {
        while self.0.lock().unwrap().len() < n {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A builder with a probe.
pub fn builder() -> (NodeBuilder, Probe) {
    let probe = Probe::new();
    (Node::builder().grace(Duration::from_secs(10)).observer(probe.clone()), probe)
}

/// Waits until the node has nothing to do, with a bound.
pub async fn idle(probe: &Probe, node: &Node) {
    tokio::time::timeout(Duration::from_secs(20), probe.idle(node)).await.expect("not idle within 20 s").unwrap();
}

/// The failed records of transport `q`.
pub async fn failed(node: &Node) -> Vec<FailedRecord> {
    let transport = node.transport("q").unwrap();
    let store = Store::of(&transport, |name| node.transport(name)).unwrap();
    let mut scan = Scan::new(store, Filter::default());
    let mut all = Vec::new();
    while let Some(page) = scan.next().await.unwrap() {
        all.extend(page);
    }
    all
}

/// Sends `Job { n }` for each.
pub async fn send(node: &Node, jobs: impl IntoIterator<Item = u64>) {
    let envelopes = jobs.into_iter().map(|n| {
        let mut envelope = Envelope::new(serde_json::to_vec(&Job { n }).unwrap());
        envelope.message_type = Some(postroom::TypeName::new("job").unwrap());
        (envelope, Duration::ZERO)
    });
    for answer in node.send_all("q", envelopes.collect()).await.unwrap() {
        answer.unwrap();
    }
}

/// What still waits, is in flight or delayed in `q`.
pub async fn left(node: &Node) -> u64 {
    let transport = node.transport("q").unwrap();
    let counts = transport.count(&Place::queue("q").unwrap()).await.unwrap().unwrap();
    [counts.waiting, counts.in_flight, counts.delayed].into_iter().flatten().sum()
}

pub fn no_failure(mut spec: TransportSpec) -> TransportSpec {
    spec.options.failure = FailureRef::None;
    spec
}
