//! Handlers that are addresses, and the node's own HTTP port.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::support::{Place, queue, until};

/// One request as it came.
#[derive(Clone, Debug)]
struct Request {
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    at: Instant,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// A server that answers by the body: `STATUS extra-header`.
fn server() -> (u16, Arc<Mutex<Vec<Request>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let heard = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let heard = heard.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &heard));
        }
    });
    (port, seen)
}

fn answer(stream: TcpStream, seen: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_string();
    let (mut headers, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().unwrap();
        }
        headers.push((name.to_ascii_lowercase(), value.to_string()));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let text = String::from_utf8_lossy(&body).into_owned();
    seen.lock().unwrap().push(Request { path, headers, body, at: Instant::now() });
    let first = seen.lock().unwrap().iter().filter(|request| request.body == text.as_bytes()).count() == 1;
    let (status, header) = text.split_once(' ').unwrap_or((&text, ""));
    // A retryable one is well the second time.
    let status = match status.strip_prefix("again") {
        Some(status) if first => status,
        Some(_) => "200",
        None => status,
    };
    let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
    let answer = "no ".repeat(4_000);
    let mut stream = stream;
    let _ = write!(
        stream,
        "HTTP/1.1 {status} Status\r\n{header}content-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    );
}

fn place(port: u16, more: &str) -> Place {
    Place::with(&queue(&format!(
        "retry = {{ max = 1, delay = \"10ms\" }}\n[[handlers]]\nfrom = \"orders\"\ntype = \"*\"\nhttp = \"http://127.0.0.1:{port}/events\"\ntimeout = \"2s\"\n{more}"
    )))
}

#[test]
fn a_post_in_cloudevents_binary_mode_and_its_status_decides() {
    let (port, seen) = server();
    let place = place(port, "concurrency = 4");
    place.postroom("send orders 204 --id m1 --type t.x --key k --header x-a=b --content-type text/plain").exits(0);
    place.postroom_with("send orders --id again", b"again503 retry-after: 1").exits(0);
    place
        .postroom_with("send orders --id moved", format!("302 location: http://127.0.0.1:{port}/elsewhere").as_bytes())
        .exits(0);
    place.postroom("send orders 422 --id bad").exits(0);
    let receipt = place.postroom("run --until-empty --json").exits(0).last();
    assert_eq!(
        (&receipt["receipt"]["acked"], &receipt["receipt"]["failed"], &receipt["receipt"]["retried"]),
        (&2.into(), &2.into(), &1.into()),
        "{receipt}"
    );
    let seen = seen.lock().unwrap().clone();
    assert!(seen.iter().all(|request| request.path == "/events"), "a redirect is never followed");
    let first = seen.iter().find(|request| request.header("ce-id") == Some("m1")).unwrap();
    assert_eq!(first.header("ce-specversion"), Some("1.0"));
    assert_eq!(first.header("ce-type"), Some("t.x"));
    assert_eq!(first.header("ce-partitionkey"), Some("k"));
    assert!(first.header("ce-source").unwrap().starts_with("postroom:"));
    assert!(first.header("ce-time").unwrap().ends_with('Z'));
    assert_eq!((first.header("content-type"), first.header("x-a")), (Some("text/plain"), Some("b")));
    let again: Vec<&Request> = seen.iter().filter(|request| request.header("ce-id") == Some("again")).collect();
    assert_eq!(again.len(), 2);
    assert!(again[1].at - again[0].at >= Duration::from_millis(950), "Retry-After is honoured");
    let failed = place.postroom("failed list --json").exits(0).json();
    assert!(failed.iter().all(|one| one["reason"] == "final"));
    let error = failed.iter().find(|one| one["id"] == "bad").unwrap()["error"].as_str().unwrap();
    assert!(error.starts_with("status 422") && error.contains("no no") && error.len() <= 8_192 + 40, "{}", error.len());
}

#[test]
fn no_connection_is_retried() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = place(port, "");
    place.postroom("send orders 200").exits(0);
    place.postroom("run --until-empty --json").exits(0);
    let failed = place.postroom("failed list --json").exits(0).json();
    assert_eq!((&failed[0]["reason"], &failed[0]["attempts"]), (&"attempts".into(), &2.into()));
}

#[test]
fn a_relay_moves_messages_whole_to_another_transport() {
    let place = Place::with(&queue(
        "[transports.archive]\ndsn = \"sqlite:archive.db?queue=archive\"\n[[handlers]]\nfrom = \"orders\"\ntype = \"*\"\nrelay = \"archive\"\n",
    ));
    place.postroom("send orders body --id m1 --type t.x --key k --header a=b").exits(0);
    place.postroom("run --until-empty --json").exits(0);
    assert_eq!(place.stats("orders")["waiting"], 0);
    let lying = place.postroom("peek archive --json").exits(0).json();
    assert_eq!((&lying[0]["id"], &lying[0]["type"], &lying[0]["key"]), (&"m1".into(), &"t.x".into(), &"k".into()));
}

fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_string()))
}

#[test]
fn the_nodes_port_tells_how_it_is() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = Place::with(&format!(
        "[node]\nname = \"n1\"\nhttp = \"{port}\"\n{}",
        queue("[[handlers]]\nfrom = \"orders\"\ntype = \"*\"\nexec = [\"true\"]\n")
    ));
    place.postroom("send orders x").exits(0);
    let running = place.start("run");
    until("it is ready and has handled one", || {
        get(port, "/ready").is_some_and(|(status, _)| status == 200)
            && get(port, "/status")
                .is_some_and(|(_, body)| body.contains("\"acked\":1") && body.contains("\"kind\":\"pool\""))
    });
    assert_eq!(get(port, "/live").unwrap().0, 200);
    let status: serde_json::Value = serde_json::from_str(&get(port, "/status").unwrap().1).unwrap();
    assert_eq!((&status["node"], &status["ready"]), (&"n1".into(), &true.into()));
    assert!(status["parts"].as_array().unwrap().iter().any(|part| part["kind"] == "pool"));
    let metrics = get(port, "/metrics").unwrap().1;
    assert!(metrics.contains("postroom_deliveries_total{transport=\"orders\",end=\"acked\"} 1"), "{metrics}");
    assert_eq!(get(port, "/nothing").unwrap().0, 404);
    let taken = place.postroom("run --json").exits(2);
    assert_eq!(taken.errors()[0]["kind"], "http");
    running.terminate();
    running.wait().exits(0);
}
