//! The suite on a Redis server of its own.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test, and its report is what it is for")]

use std::time::Duration;

use postroom_conformance::{Foreign, Level, Subject, Unreachable, run};
use postroom_core::{Dsn, Place};
use postroom_redis::{Redis, RedisConfig};
use postroom_testbed::{Appendfsync, redis::Redis as Server};

struct OnRedis(u16);

impl Subject for OnRedis {
    type Broker = Redis;

    fn config(&self) -> RedisConfig {
        RedisConfig::local(self.0)
    }
    fn lease(&self) -> Duration {
        Duration::from_millis(400)
    }
    fn unreachable(&self) -> Option<Unreachable<RedisConfig>> {
        let mut dsn = Dsn::parse("redis://worker:hush-hush@127.0.0.1:9/2").unwrap();
        let config = RedisConfig::from_dsn(&mut dsn, None).unwrap();
        Some(Unreachable { config, named: "127.0.0.1:9", secret: Some("hush-hush") })
    }
    fn can_inject(&self) -> bool {
        true
    }
    async fn inject(&self, queue: &Place, message: Foreign) -> Result<(), String> {
        let client = redis::Client::open(("127.0.0.1", self.0)).map_err(|error| error.to_string())?;
        let mut connection = client.get_multiplexed_async_connection().await.map_err(|error| error.to_string())?;
        let mut add = redis::cmd("XADD");
        add.arg(queue.name().as_str()).arg("*");
        for (name, value) in &message.headers {
            add.arg(&**name).arg(&**value);
        }
        add.arg("body").arg(&*message.body);
        add.exec_async(&mut connection).await.map_err(|error| error.to_string())
    }
}

fn conforms(level: Level) {
    let server = Server::start(Appendfsync::Everysec);
    let filter = std::env::var("POSTROOM_SCENARIO").unwrap_or_default();
    let report = run(OnRedis(server.port()), level, &filter);
    println!("{report}");
    report.assert();
}

#[test]
fn redis_conforms_at_the_bare_level() {
    conforms(Level::Bare);
}

#[test]
fn redis_conforms_through_the_actors() {
    conforms(Level::Actors);
}
