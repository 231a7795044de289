//! `[node] http`: /live, /ready, /status (JSON) and /metrics (Prometheus text).

use std::{
    fmt::Write,
    net::{SocketAddr, TcpListener},
    time::SystemTime,
};

use actix_web::{App, HttpResponse, HttpServer, dev::ServerHandle, web};
use postroom::{Kind, Node, Status, Tally};
use serde_json::json;

use crate::exit::{Exit, Failure};

/// Takes the port, before anything else is touched.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        let text = format!("could not listen on {address}: {error}; choose another address for `http` in [node]");
        Failure::new("http", Exit::Usage, text)
    })
}

/// Serves until it is stopped.
pub(crate) fn start(listener: TcpListener, node: &Node) -> Result<ServerHandle, Failure> {
    let node = web::Data::new(node.clone());
    let app = move || {
        App::new()
            .app_data(node.clone())
            .route("/live", web::get().to(live))
            .route("/ready", web::get().to(ready))
            .route("/status", web::get().to(status))
            .route("/metrics", web::get().to(metrics))
    };
    // The signals are the program's.
    let server = HttpServer::new(app).workers(1).disable_signals().shutdown_timeout(1).listen(listener);
    let server = server.map_err(|error| Failure::failed(format!("could not serve on the node's port: {error}")))?;
    let addresses = server.addrs();
    let server = server.run();
    let handle = server.handle();
    actix_rt::spawn(server);
    tracing::info!(?addresses, "http: /live /ready /status /metrics");
    Ok(handle)
}

async fn live() -> HttpResponse {
    HttpResponse::Ok().body("live\n")
}

async fn ready(node: web::Data<Node>) -> HttpResponse {
    if node.board().is_ready() {
        return HttpResponse::Ok().body("ready\n");
    }
    let bad = node.board().lines().into_iter().filter(|line| !line.health.is_green());
    let bad: Vec<String> = bad
        .map(|line| format!("{} {}: {} {}", line.kind.as_str(), line.name, line.health.as_str(), line.why))
        .collect();
    HttpResponse::ServiceUnavailable().body(format!("not ready\n{}\n", bad.join("\n")))
}

fn ms(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn line(status: &Status) -> serde_json::Value {
    let mut object = json!({
        "kind": status.kind.as_str(),
        "name": &*status.name,
        "state": status.health.as_str(),
        "since": crate::text::time(ms(status.since)),
        "why": status.why,
    });
    if let (Kind::Pool, Some(object)) = (status.kind, object.as_object_mut()) {
        for (name, figure) in figures(status) {
            object.insert(name.into(), json!(figure));
        }
    }
    object
}

fn figures(status: &Status) -> [(&'static str, usize); 4] {
    let part = &status.part;
    [("running", part.running), ("waiting", part.waiting), ("panics", part.panics), ("blocked", part.blocked)]
}

const TALLIES: [(Tally, &str); 6] = [
    (Tally::Acked, "acked"),
    (Tally::Retried, "retried"),
    (Tally::Failed, "failed"),
    (Tally::Released, "released"),
    (Tally::Lost, "lost"),
    (Tally::Abandoned, "abandoned"),
];

async fn status(node: web::Data<Node>) -> HttpResponse {
    let board = node.board();
    let parts: Vec<_> = board.lines().iter().map(line).collect();
    let mut transports = serde_json::Map::new();
    for transport in node.transports() {
        let Some(counters) = board.counters(transport.name()) else { continue };
        let mut object = serde_json::Map::new();
        for (tally, name) in TALLIES {
            object.insert(name.into(), json!(counters.of(tally)));
        }
        object.insert("published".into(), json!(counters.published_count()));
        object.insert("ignored".into(), json!(counters.ignored_count()));
        object.insert("oddities".into(), json!(counters.oddity_count()));
        transports.insert(transport.name().to_string(), object.into());
    }
    let answer = json!({
        "node": &**node.name(),
        "ready": board.is_ready(),
        "uptime_ms": node.uptime_ms(),
        "parts": parts,
        "transports": transports,
    });
    HttpResponse::Ok().json(answer)
}

/// A label's value, escaped as the text format says.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

async fn metrics(node: web::Data<Node>) -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(exposition(&node))
}

type Figure = fn(&postroom::Counters) -> u64;

fn exposition(node: &Node) -> String {
    let mut out = String::new();
    let board = node.board();
    // Writing to a String never fails.
    let mut put = |line: std::fmt::Arguments<'_>| {
        let _ = writeln!(out, "{line}");
    };
    put(format_args!("# HELP postroom_ready Whether every part is well.\n# TYPE postroom_ready gauge"));
    put(format_args!("postroom_ready {}", u8::from(board.is_ready())));
    let counted: Vec<_> = node
        .transports()
        .into_iter()
        .filter_map(|one| Some((label(one.name()), board.counters(one.name())?)))
        .collect();
    put(format_args!(
        "# HELP postroom_deliveries_total Deliveries that ended, by how.\n# TYPE postroom_deliveries_total counter"
    ));
    for (name, counters) in &counted {
        for (tally, end) in TALLIES {
            put(format_args!("postroom_deliveries_total{{transport=\"{name}\",end=\"{end}\"}} {}", counters.of(tally)));
        }
    }
    let singles: [(&str, &str, Figure); 3] = [
        ("published", "Messages published and confirmed.", postroom::Counters::published_count),
        ("ignored", "Messages acked as unhandled.", postroom::Counters::ignored_count),
        ("oddities", "Metadata from outside that was out of range.", postroom::Counters::oddity_count),
    ];
    for (what, help, figure) in singles {
        put(format_args!("# HELP postroom_{what}_total {help}\n# TYPE postroom_{what}_total counter"));
        for (name, counters) in &counted {
            put(format_args!("postroom_{what}_total{{transport=\"{name}\"}} {}", figure(counters)));
        }
    }
    let lines = board.lines();
    put(format_args!("# HELP postroom_up Whether a part is well.\n# TYPE postroom_up gauge"));
    for line in &lines {
        let (kind, name, state) = (line.kind.as_str(), label(&line.name), line.health.as_str());
        put(format_args!(
            "postroom_up{{kind=\"{kind}\",name=\"{name}\",state=\"{state}\"}} {}",
            u8::from(line.health.is_green())
        ));
    }
    for (at, (what, kind)) in
        [("running", "gauge"), ("waiting", "gauge"), ("panics_total", "counter"), ("blocked", "gauge")]
            .into_iter()
            .enumerate()
    {
        put(format_args!("# TYPE postroom_pool_{what} {kind}"));
        for line in lines.iter().filter(|line| line.kind == Kind::Pool) {
            let figure = figures(line).get(at).map_or(0, |(_, figure)| *figure);
            put(format_args!("postroom_pool_{what}{{pool=\"{}\"}} {figure}", label(&line.name)));
        }
    }
    out
}
