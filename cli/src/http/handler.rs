//! Handlers that are addresses: a POST in CloudEvents 1.0 binary mode.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use awc::{
    Client, ClientRequest, Connector,
    http::{
        StatusCode,
        header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
    },
};
use futures_util::StreamExt;
use postroom::{HandlerError, Received};
use postroom_core::{Envelope, Raw};
use rustls::{ClientConfig, RootCertStore};

/// So much of an answer is kept.
const ANSWER: usize = 8 * 1024;
/// No connection is waited for longer.
const CONNECT: Duration = Duration::from_secs(30);

/// A client for one slot. The handler's timeout ends a request, so that it counts as one.
pub(crate) fn client() -> Client {
    let connector = Connector::new().timeout(CONNECT).rustls_0_23(tls());
    Client::builder().disable_timeout().disable_redirects().connector(connector).finish()
}

/// Whom to trust: the system's authorities, and those that are compiled in, for a machine that has none.
fn tls() -> Arc<ClientConfig> {
    static TLS: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let make = || {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        // One that cannot be read is one that nobody can rely on.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
    };
    TLS.get_or_init(make).clone()
}

/// Posts one message.
pub(crate) async fn handle(
    client: &Client,
    url: &str,
    source: &str,
    received: Received<Raw>,
) -> Result<(), HandlerError> {
    let envelope = received.envelope();
    let mut request = client.post(url);
    for (name, value) in headers(envelope, source, received.attempt(), received.transport()) {
        request = add(request, &name, &value);
    }
    let sent = request.send_body(envelope.body.clone()).await;
    // The error's own text names no address, and the address may hold a password.
    let mut response = sent.map_err(|error| HandlerError::retry(format!("no answer to the POST: {error}")))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(retry_after);
    let mut text = Vec::new();
    while text.len() < ANSWER {
        match response.next().await {
            Some(Ok(part)) => text.extend_from_slice(&part),
            _ => break,
        }
    }
    text.truncate(ANSWER);
    Err(judge(status, after, &String::from_utf8_lossy(&text)))
}

fn judge(status: StatusCode, after: Option<Duration>, answer: &str) -> HandlerError {
    let answer = answer.trim();
    let text = if answer.is_empty() { format!("status {status}") } else { format!("status {status}: {answer}") };
    let again = matches!(status.as_u16(), 404 | 408 | 409 | 425 | 429) || status.is_server_error();
    match (again, after) {
        (false, _) => HandlerError::fail(text),
        (true, None) => HandlerError::retry(text),
        (true, Some(after)) => HandlerError::retry(text).after(after),
    }
}

/// Seconds, or an HTTP date.
fn retry_after(value: &str) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

fn add(request: ClientRequest, name: &str, value: &[u8]) -> ClientRequest {
    match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
        (Ok(name), Ok(value)) => request.append_header((name, value)),
        _ => request,
    }
}

/// The attributes of a message, its user headers, and which run this is.
fn headers(envelope: &Envelope, source: &str, attempt: u32, transport: &str) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    let mut put = |name: &str, value: &str| all.push((name.into(), value.as_bytes().to_vec()));
    put("ce-specversion", "1.0");
    put("ce-id", &encoded(&envelope.id));
    put("ce-source", &encoded(envelope.source.as_deref().unwrap_or(source)));
    put("ce-type", envelope.message_type.as_deref().unwrap_or("postroom.untyped"));
    if let Some(time) = envelope.time {
        put("ce-time", &crate::text::time(time));
    }
    if let Some(key) = &envelope.key {
        put("ce-partitionkey", &encoded(key));
    }
    if let Some(parent) = &envelope.traceparent {
        put("traceparent", parent);
    }
    put("postroom-attempt", &attempt.to_string());
    put("postroom-transport", transport);
    let json = || serde_json::from_slice::<serde::de::IgnoredAny>(&envelope.body).is_ok();
    match &envelope.content_type {
        Some(content_type) => put(CONTENT_TYPE.as_str(), content_type),
        None => put(CONTENT_TYPE.as_str(), if json() { "application/json" } else { "application/octet-stream" }),
    }
    for (name, value) in envelope.stamps.iter() {
        let name = name.to_ascii_lowercase();
        if !reserved(&name) {
            all.push((name, value.to_vec()));
        }
    }
    all
}

/// Headers that belong to the request, the connection, or the attributes above.
fn reserved(name: &str) -> bool {
    const OWN: [&str; 12] = [
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "traceparent",
        "proxy-connection",
    ];
    OWN.contains(&name) || name.starts_with("ce-") || name.starts_with("postroom-")
}

/// As the HTTP binding of CloudEvents says: what is not printable ASCII, and space, `"` and `%`, percent-encoded.
fn encoded(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'"' | b'%' => out.push_str(&format!("%{byte:02X}")),
            0x21..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use postroom_core::MessageId;

    use super::*;

    #[test]
    fn attributes_become_headers() {
        let mut envelope = Envelope::with_id(MessageId::new("é 1").unwrap(), "{}");
        envelope.stamps.push("X-Tenant", "7");
        envelope.stamps.push("Host", "evil");
        envelope.stamps.push("ce-id", "evil");
        let all = headers(&envelope, "postroom:/n", 2, "orders");
        let get = |name: &str| {
            let found: Vec<_> = all.iter().filter(|(other, _)| other == name).collect();
            found.first().map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        assert_eq!(get("ce-id").as_deref(), Some("%C3%A9%201"));
        assert_eq!(get("ce-source").as_deref(), Some("postroom:/n"));
        assert_eq!(get("content-type").as_deref(), Some("application/json"));
        assert_eq!(get("x-tenant").as_deref(), Some("7"));
        assert_eq!(get("host"), None);
    }

    #[test]
    fn status_rules() {
        let fails = |status: u16| {
            format!("{:?}", judge(StatusCode::from_u16(status).unwrap(), None, "why")).contains("last: true")
        };
        for status in [404, 408, 409, 425, 429, 500, 502, 503, 599] {
            assert!(!fails(status), "{status}");
        }
        for status in [301, 302, 304, 307, 400, 401, 403, 405, 410, 413, 418, 422, 451] {
            assert!(fails(status), "{status}");
        }
        assert!(judge(StatusCode::BAD_REQUEST, None, "the reason\n").text().ends_with("the reason"));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after("120"), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
        assert!(retry_after(&later).is_some_and(|after| (58..=60).contains(&after.as_secs())));
        assert_eq!(retry_after("soon"), None);
    }
}
