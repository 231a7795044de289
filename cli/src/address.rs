//! DSNs as they stand in a config or a command line.

use std::path::{Path, PathBuf};

use postroom_core::dsn::Dsn;

/// The name of a transport that is opened only to be checked.
const PLACEHOLDER: &str = "(unnamed)";

/// Whether a TRANSPORT is a DSN: no name holds a `:`.
pub(crate) fn is_dsn(transport: &str) -> bool {
    transport.contains(':')
}

/// Checks a DSN and makes a relative file path start at `folder`. An error never repeats the DSN.
pub(crate) fn check(dsn: &str, folder: &Path) -> Result<String, String> {
    let parsed = Dsn::parse(dsn).map_err(|error| error.to_string())?;
    let rooted = rooted(dsn, &parsed, folder);
    // Its place, its broker, its keys: all that can be known without a connection.
    let opened = postroom::open(PLACEHOLDER, &rooted);
    opened.map_err(|error| error.to_string().replace(&format!("transport `{PLACEHOLDER}`: "), ""))?;
    Ok(rooted)
}

/// The name of a transport that has none: of its queue or topic.
pub(crate) fn name(dsn: &str) -> String {
    let place = Dsn::parse(dsn).ok().and_then(|dsn| dsn.place().ok().flatten());
    place.map_or_else(|| "transport".to_string(), |place| place.name().to_string())
}

/// The broker that a DSN leads to: two DSNs with the same one see the same queues.
pub(crate) fn broker(dsn: &str) -> String {
    let parsed = Dsn::parse(dsn).ok().map(|dsn| format!("{} {:?} {}", dsn.scheme(), dsn.hosts(), dsn.raw_path()));
    parsed.unwrap_or_default()
}

/// The file of a DSN, where it is not there and could be made: to ask what is in it must not make it.
pub(crate) fn missing_file(dsn: &str) -> Option<PathBuf> {
    let parsed = Dsn::parse(dsn).ok().filter(|dsn| dsn.scheme() == "sqlite")?;
    let path = PathBuf::from(parsed.path());
    let folder = path.parent().is_none_or(|folder| folder.as_os_str().is_empty() || folder.is_dir());
    (folder && !path.exists()).then_some(path)
}

/// `sqlite:orders.db?…` becomes `sqlite:/folder/orders.db?…`.
fn rooted(dsn: &str, parsed: &Dsn, folder: &Path) -> String {
    let path = parsed.raw_path();
    let relative =
        parsed.scheme() == "sqlite" && parsed.hosts().is_empty() && !path.is_empty() && !path.starts_with(['/', ':']);
    let Some((scheme, rest)) = dsn.split_once(':').filter(|_| relative) else { return dsn.to_string() };
    let path = path.strip_prefix("./").unwrap_or(path);
    let query = rest.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
    format!("{scheme}:{}/{path}{query}", encoded(&folder.to_string_lossy()))
}

/// Percent-encodes what a DSN's grammar uses.
fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.trim_end_matches('/').bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_files_start_at_the_folder() {
        let rooted = |dsn: &str| super::rooted(dsn, &Dsn::parse(dsn).unwrap(), Path::new("/a b/c"));
        assert_eq!(rooted("sqlite:x.db?queue=q"), "sqlite:/a%20b/c/x.db?queue=q");
        assert_eq!(rooted("sqlite:./d/x.db?queue=q"), "sqlite:/a%20b/c/d/x.db?queue=q");
        assert_eq!(rooted("sqlite:/x.db?queue=q"), "sqlite:/x.db?queue=q");
        assert_eq!(rooted("memory:?queue=q"), "memory:?queue=q");
    }
}
