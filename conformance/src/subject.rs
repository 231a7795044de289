//! What a broker hands in to be tested.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use postroom_core::{Broker, Place, Text};

/// A broker under test. Two methods are needed; the others have defaults.
pub trait Subject: 'static {
    /// The broker. Its config goes to the thread of a transport.
    type Broker: Broker<Config: Send>;

    /// A config that reaches the same store at every call: each scenario connects several times.
    fn config(&self) -> <Self::Broker as Broker>::Config;

    /// The shortest lease with which a test is steady; ignored where the broker has none. A scenario waits for up to
    /// five of them.
    fn lease(&self) -> Duration;

    /// How long to wait for something that must come before it counts as missing.
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// How long one scenario may take in all.
    fn limit(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// How many messages wait where a scenario is about a backlog.
    fn backlog(&self) -> usize {
        20_000
    }

    /// A config that reaches nothing, where the broker is somewhere to be reached.
    fn unreachable(&self) -> Option<Unreachable<<Self::Broker as Broker>::Config>> {
        None
    }

    /// Whether [`Subject::inject`] works.
    fn can_inject(&self) -> bool {
        false
    }

    /// Puts a message of another program straight into a declared queue, past the driver and without any of Postroom's
    /// metadata. An error is a text.
    fn inject(&self, queue: &Place, message: Foreign) -> impl Future<Output = Result<(), String>> {
        let _ = (queue, message);
        async { Err("this subject cannot inject".to_owned()) }
    }
}

/// A config that reaches nothing.
#[derive(Debug, Clone)]
pub struct Unreachable<C> {
    /// The config.
    pub config: C,
    /// What the error must name: the host and port, or the path.
    pub named: &'static str,
    /// What neither the error nor its causes may show: the password in the config.
    pub secret: Option<&'static str>,
}

/// A message as another program would have written it.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// The body.
    pub body: Bytes,
    /// Plain headers, as the broker keeps them.
    pub headers: Vec<(Text, Bytes)>,
}
