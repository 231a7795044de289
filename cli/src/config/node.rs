//! `[node]`.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use postroom_core::Name;

use super::{
    NodeConfig,
    reader::{Document, Section},
};

pub(super) fn read(mut section: Section<'_, '_>, doc: &mut Document<'_>) -> NodeConfig {
    let name = section.parsed(doc, "name", |text| match text.trim() {
        "" => Err("a name is wanted"),
        _ => Ok(text.to_string()),
    });
    let node = NodeConfig {
        name: name.map(|at| at.value),
        namespace: section.parsed(doc, "namespace", Name::new).map(|at| at.value),
        grace: section.duration(doc, "grace", Duration::ZERO),
        http: section.parsed(doc, "http", address).map(|at| at.value),
    };
    section.finish(doc);
    node
}

/// `127.0.0.1:9300`, `[::1]:9300`, `localhost:9300`, and `9300` or `:9300` on the loopback.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    match port.parse() {
        Ok(port) => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        Err(_) => Err("an address and port is wanted, as 127.0.0.1:9300"),
    }
}
