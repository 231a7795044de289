//! C49: addresses and logins.

use std::time::Duration;

use postroom_core::{Broker, Count, Dsn, ErrorKind, Settled, Settlement, Source};
use postroom_redis::{Redis, RedisConfig};
use postroom_testbed::{Appendfsync, redis::Redis as Server};

use crate::harness::{named, send, subscribe, take};

const PASSWORD: &str = "p%25%23%3F%26%2F%40:é";

fn config(dsn: &str) -> Result<RedisConfig, String> {
    let mut dsn = Dsn::parse(dsn).map_err(|error| error.to_string())?;
    RedisConfig::from_dsn(&mut dsn, None).map_err(|error| error.to_string())
}

#[test]
fn c49_each_address_connects_as_whom_it_says() {
    let more = ["--requirepass", "p%#?&/@:é", "--user", "worker", "on", ">p%#?&/@:é", "~*", "+@all"];
    let server = Server::with(Appendfsync::Everysec, &more);
    let (port, socket) = (server.port(), server.socket().display().to_string());
    actix_rt::System::new().block_on(async {
        for (dsn, user, db) in [
            (format!("redis://:{PASSWORD}@127.0.0.1:{port}"), "default", 0),
            (format!("redis://worker:{PASSWORD}@127.0.0.1:{port}/3?queue=q"), "worker", 3),
            (format!("redis+unix://{socket}?password={}&db=2", PASSWORD.replace(':', "%3A")), "default", 2),
            (format!("redis+unix://{socket}?user=worker&password={PASSWORD}"), "worker", 0),
        ] {
            let config = config(&dsn).unwrap();
            let shown = format!("{config:?}");
            assert!(!shown.contains("p%") && !shown.contains("worker"), "{shown}");
            let broker = Redis::connect(&config).await.unwrap();
            let admin = redis::Client::open(format!("redis://:{PASSWORD}@127.0.0.1:{port}/9")).unwrap();
            let mut admin = admin.get_multiplexed_async_connection().await.unwrap();
            let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut admin).await.unwrap();
            let ours = |line: &&str| line.contains(&format!(" db={db} ")) && line.contains(&format!(" user={user} "));
            assert_eq!(clients.lines().filter(ours).count(), 1, "{dsn}: {clients}");
            broker.close().await.unwrap();
        }
        for dsn in [
            format!("redis://worker:wrong-secret@127.0.0.1:{port}"),
            format!("redis://127.0.0.1:{port}"),
            format!("redis+unix://{socket}?password=wrong-secret"),
        ] {
            let error = Redis::connect(&config(&dsn).unwrap()).await.unwrap_err();
            let shown = format!("{error} {error:?}");
            assert_eq!(error.kind(), ErrorKind::Refused, "{shown}");
            assert!(!shown.contains("wrong-secret"), "{shown}");
        }
    });
}

/// The rights that the README names are enough.
#[test]
fn a_user_with_few_rights_can_work() {
    let rights = "~q ~{q}:* +@read +@write +@stream +@scripting +client|id +client|unblock +info +time +type";
    let more: Vec<&str> = ["--user", "few", "on", ">secret"].into_iter().chain(rights.split(' ')).collect();
    let server = Server::with(Appendfsync::Everysec, &more);
    actix_rt::System::new().block_on(async {
        let config = config(&format!("redis://few:secret@127.0.0.1:{}", server.port())).unwrap();
        let broker = Redis::connect(&config).await.unwrap();
        assert!(broker.capabilities().durability_setting.contains("unknown"));
        let queue = postroom_core::Place::queue("q").unwrap();
        let what = [postroom_core::Declaration::new(queue.clone())];
        broker.declare(&what, postroom_core::DeclareMode::Create).await.unwrap();
        send(&broker, &queue, named(0..2)).await;
        let source = subscribe(&broker, &queue, "a").await;
        let held = take(&source, 2).await;
        let again = Settlement::Retry { replacement: held[0].envelope.clone(), after: Duration::from_millis(1) };
        for answer in source.settle(&[(&held[0].token, again), (&held[1].token, Settlement::Release)]).await {
            assert_eq!(answer.unwrap(), Settled::Done);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        broker.tend(10).await.unwrap();
        take(&source, 2).await;
        source.wake();
        source.pull(1).await.unwrap();
        assert_eq!(broker.count().unwrap().count(&queue).await.unwrap().in_flight, Some(2));
        broker.close().await.unwrap();
    });
}

#[test]
fn c49_what_is_wrong_is_said_without_the_secret() {
    for (dsn, said) in [
        ("redis:q", "needs a host"),
        ("redis://u:secret@h/x", "database number"),
        ("redis://u:secret@h/-1", "database number"),
        ("redis://a,b", "one host"),
        ("redis://token@h", "a user without a password"),
        ("redis://h?quue=q", "did you mean `queue`?"),
        ("redis://h?db=3", "unknown key `db`"),
        ("redis+unix://h/run/x.sock", "no host"),
        ("rediss://h", "TLS"),
    ] {
        let error = config(dsn).map(|_| ()).unwrap_err();
        assert!(error.contains(said) && !error.contains("secret"), "{dsn}: {error}");
    }
    assert!(config("redis://[::1]:7000/1?topic=t&group=g").is_ok());
}
