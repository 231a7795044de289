use std::path::Path;

use super::{load::parse, *};

fn read(text: &str) -> Result<Config, Vec<String>> {
    let var = |name: &str| match name {
        "PORT" => Some("9300".to_string()),
        "FILE" => Some("a b.db".to_string()),
        "QUEUE" => Some("orders".to_string()),
        "N" => Some("8".to_string()),
        _ => None,
    };
    parse(text, Path::new("/etc/postroom"), &var)
        .map_err(|faults| faults.into_iter().map(|fault| format!("{}: {}", fault.line, fault.message)).collect())
}

const MINIMAL: &str = "[transports.orders]\ndsn = \"memory:?queue=orders\"\n";

fn faults(text: &str) -> Vec<String> {
    read(text).map(|_| ()).unwrap_err()
}

/// One fault, in a transport's table after `dsn`, in line 3.
fn fault(line: &str) -> String {
    let all = faults(&format!("{MINIMAL}{line}\n"));
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].starts_with("3: "), "{all:?}");
    all[0].clone()
}

#[test]
fn the_contracts_example_is_read() {
    let config = read(
        r#"
[node]
name  = "billing"
namespace = "shop"
grace = "30s"
http  = "127.0.0.1:${PORT}"

[transports.orders]
dsn      = "memory:?queue=${QUEUE}"
failure  = "failed"
lease    = "30s"
heartbeat = "5s"
prefetch = "auto"
order    = "none"
unhandled = "fail"
retry    = { max = 3, delay = "1s", multiplier = 2.0, cap = "5m", jitter = 0.1 }
crashes  = 4
delay    = ""

[transports.failed]
dsn = "memory:?queue=failed"

[transports.archive]
dsn = "memory:?topic=archive&group=g"
failure = "none"
prefetch = 5
retry = { max = 0 }

[[handlers]]
from = "orders"
type = "order.placed"
concurrency = "${N:-2}"
timeout = "20s"
exec = ["./charge.sh", "--live"]

[[handlers]]
from = "orders"
type = "order.shipped"
name = "notify"
exec = ["python3", "notify.py"]
mode = "lines"
window = 4

[[handlers]]
from = "orders"
type = "audit.*"
http = "http://127.0.0.1:8080/events"

[[handlers]]
from = "orders"
type = "*"
relay = "archive"
"#,
    )
    .unwrap();
    assert_eq!(config.node.http.unwrap().to_string(), "127.0.0.1:9300");
    assert_eq!(config.node.namespace.as_deref(), Some("shop"));
    let get = |name: &str| config.transports.iter().find(|(other, _)| other.as_str() == name).unwrap().1;
    assert_eq!(get("orders").dsn.0, "memory:?queue=orders");
    assert_eq!(get("orders").retry, RetryPolicy::default());
    assert_eq!(get("orders").prefetch, Some(PrefetchConfig::Auto));
    assert!(get("failed").store && !get("orders").store);
    assert_eq!(get("archive").failure, FailureConfig::None);
    assert_eq!(get("archive").prefetch, Some(PrefetchConfig::Fixed(5)));
    assert_eq!(get("archive").retry.max, 0);
    assert_eq!(config.handlers.len(), 4);
    assert_eq!(config.handlers[0].concurrency, 8);
    assert!(matches!(&config.handlers[1].action, Action::Lines { window: 4, .. }));
    assert!(matches!(&config.handlers[3].action, Action::Relay(to) if to.as_str() == "archive"));
}

#[test]
fn the_config_of_init_is_read() {
    let text = include_str!("../commands/init.toml").replace("sqlite:postroom.db?queue=jobs", "memory:?queue=jobs");
    assert_eq!(read(&text).unwrap().handlers.len(), 1);
}

#[test]
fn every_mistake_of_a_transport_is_one_error_with_its_line_and_the_nearest_name() {
    assert!(fault("leese = \"1m\"").contains("unknown key `leese`; did you mean `lease`?"));
    assert!(fault("lease = \"500ms\"").contains("must be at least 1s"));
    assert!(fault("lease = 30").contains("`lease` is a whole number, but a string is wanted"));
    assert!(fault("lease = \"soon\"").contains("not a duration"));
    assert!(fault("failure = \"nothing\"").contains("names no transport; valid: `none`"));
    assert!(fault("failure = \"orders\"").contains("is the transport itself"));
    assert!(fault("prefetch = 0").contains("at least 1") || fault("prefetch = 0").contains("1 to"));
    assert!(fault("prefetch = \"aut\"").contains("did you mean `auto`?"));
    assert!(fault("order = \"keys\"").contains("did you mean `key`?"));
    assert!(fault("unhandled = \"drop\"").contains("valid: `fail`, `ack`, `retry`"));
    assert!(fault("crashes = 2").contains("at least 3"));
    assert!(fault("delay = \"slow\"").contains("names no transport"));
    assert!(fault("setup = \"no\"").contains("true or false"));
    assert!(fault("retry = { max = -1 }").contains("whole number"));
    assert!(fault("retry = { jitter = 2 }").contains("0 to 1"));
    assert!(fault("retry = { multiplier = 0.5 }").contains("1 to"));
    assert!(fault("retry = { delays = \"1s\" }").contains("did you mean `delay`?"));
    assert!(fault("failure = \"${NOPE}\"").contains("`NOPE` is not set"));
}

#[test]
fn all_mistakes_come_at_once_in_order() {
    let all = faults(
        r#"[nod]
[node]
grase = "1s"
http = "nowhere"
[transports.a]
dsn = "memory:?queue=a"
failure = "b"
[transports.b]
dsn = "memory:?queue=b"
failure = "none"
[transports."a b"]
dsn = "memory:?queue=c"
[transports.d]
[[handlers]]
from = "b"
type = "x"
exec = ["x"]
[[handlers]]
from = "ab"
type = "a.*.b"
exec = []
http = "x"
[[handlers]]
from = "a"
type = "t"
exec = ["x"]
[[handlers]]
from = "a"
type = "t"
relay = "b"
[[handlers]]
from = "a"
type = "t"
relay = "a"
mode = "line"
"#,
    );
    let found = |line: usize, part: &str| {
        assert!(
            all.iter().any(|fault| fault.starts_with(&format!("{line}: ")) && fault.contains(part)),
            "{line} {part}: {all:#?}"
        );
    };
    found(1, "unknown section `nod`; did you mean `node`?");
    found(3, "did you mean `grace`?");
    found(4, "`http = \"nowhere\"`");
    found(10, "it has none itself");
    found(11, "a b");
    found(13, "has no `dsn`");
    found(15, "is a failure transport");
    found(19, "names no transport; did you mean");
    found(20, "can never match");
    found(21, "`exec` is empty");
    found(18, "exactly one is wanted");
    found(30, "takes failed messages alone");
    found(34, "is where the messages come from");
    found(35, "did you mean `lines`?");
    let mut sorted = all.iter().map(|fault| fault.split(':').next().unwrap().parse::<usize>().unwrap());
    assert!(sorted.clone().is_sorted() && sorted.all(|line| line > 0));
}

#[test]
fn a_repeated_type_needs_names() {
    let handler = |name: &str| format!("[[handlers]]\nfrom = \"orders\"\ntype = \"t\"\nexec = [\"x\"]\n{name}\n");
    let all = faults(&format!("{MINIMAL}{}{}", handler(""), handler("")));
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(all[0].starts_with("3: ") && all[1].starts_with("8: "), "{all:#?}");
    assert!(all[1].contains("can never match") && all[1].contains("line 3"), "{all:#?}");
    assert_eq!(faults(&format!("{MINIMAL}{}{}", handler("name = \"a\""), handler(""))).len(), 1);
    let twins = faults(&format!("{MINIMAL}{}{}", handler("name = \"a\""), handler("name = \"a\"")));
    assert!(twins[0].contains("is taken"), "{twins:#?}");
    assert!(read(&format!("{MINIMAL}{}{}", handler("name = \"a\""), handler("name = \"b\""))).is_ok());
}

#[test]
fn a_dsn_is_never_echoed() {
    for dsn in [
        "nosuch://user:hunter2@host/0?queue=q",
        "memory:?queue=q&passwort=hunter2",
        "hunter2",
        "memory://u:hunter2@h@h?queue=q",
        "memory:?queue=bad--hunter2x",
    ] {
        let all = faults(&format!("[transports.a]\ndsn = \"{dsn}\"\n"));
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(!all[0].contains("hunter2") || dsn.contains("bad--"), "{all:?}");
    }
    let debug = format!("{:?}", TransportConfig::of_dsn("redis://u:hunter2@h"));
    assert!(!debug.contains("hunter2"));
}

#[test]
fn broken_toml_is_told_with_its_line() {
    let all = faults("[node]\nname = \n[transports.a\n");
    assert!(all.iter().all(|fault| fault.contains("not TOML")) && all[0].starts_with("2: "), "{all:?}");
}
