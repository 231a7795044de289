//! The part of a DSN between `//` and the path: user, password and hosts.

use std::{fmt, net::Ipv6Addr};

use super::{DsnError, Secret, text::decode};

/// One `host[:port]` of a DSN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The name or address, decoded; an IPv6 address without its brackets.
    pub name: String,
    /// The port, never 0; the broker's own where there is none.
    pub port: Option<u16>,
}

/// `host:port` or `[v6]:port`.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]", self.name)?
        } else {
            f.write_str(&self.name)?
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

type Authority = (Option<String>, Option<Secret>, Vec<Host>);

pub(super) fn parts(authority: &str) -> Result<Authority, DsnError> {
    let (login, hosts) = match authority.split_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, authority),
    };
    if hosts.contains('@') {
        return Err(DsnError("the DSN has an `@` in its user or password; write it percent-encoded (%40)".into()));
    }
    let (user, password) = match login.map(|login| login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)))) {
        Some((user, password)) => {
            let user = decode(user, "user")?;
            let password = password.map(|password| decode(password, "password")).transpose()?;
            ((!user.is_empty()).then_some(user), password.map(Secret))
        }
        None => (None, None),
    };
    let hosts = match hosts {
        "" if login.is_some() => return Err(DsnError("the DSN has a user and no host".into())),
        "" => Vec::new(),
        hosts => hosts.split(',').map(host).collect::<Result<_, _>>()?,
    };
    Ok((user, password, hosts))
}

fn host(host: &str) -> Result<Host, DsnError> {
    let refuse = |what: &str| Err(DsnError(what.to_owned()));
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((name, port)) = rest.split_once(']') else {
                return refuse("the DSN has a host with `[` and without `]`");
            };
            if name.parse::<Ipv6Addr>().is_err() {
                return refuse("the DSN has a host in brackets that is not an IPv6 address");
            }
            match port.strip_prefix(':') {
                None if !port.is_empty() => {
                    return refuse("the DSN has a host with something else than a port after `]`");
                }
                port => (name.to_owned(), port),
            }
        }
        None => {
            let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
            (decode(name, "host")?, port)
        }
    };
    if name.is_empty() {
        return refuse("the DSN has an empty host");
    }
    let Some(port) = port else {
        return Ok(Host { name, port: None });
    };
    match port.parse::<u16>() {
        Ok(number) if number > 0 && port.starts_with(|c: char| c.is_ascii_digit()) => {
            Ok(Host { name, port: Some(number) })
        }
        // The text is not repeated: it is a password's beginning where someone wrote `/` or `?` in it as it is.
        _ => refuse("the DSN has a port that is not a number from 1 to 65535 (IPv6 addresses stand in brackets)"),
    }
}
