//! DSNs and addresses.

use std::fmt;

use postroom_core::{Dsn, DsnError, Name, TransportError};
use redis::{Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::link::failure;

const PORT: u16 = 6379;
/// The keys of a socket's DSN, which has no place for them before its path.
const SOCKET_KEYS: [&str; 3] = ["db", "user", "password"];

/// Where a server is, and who asks. Its `Debug` shows no credential.
#[derive(Clone)]
pub struct RedisConfig {
    addr: ConnectionAddr,
    login: RedisConnectionInfo,
    namespace: Option<Name>,
    /// Tells transports of one node apart; kept by clones, hence over reconnects.
    instance: u64,
}

impl RedisConfig {
    /// Reads `redis://[[user]:password@]host[:port][/db]` and `redis+unix:///path/to.sock[?db=N&user=U&password=P]`.
    ///
    /// # Errors
    /// For another scheme, several hosts, a path that is no database number, and an unknown key.
    pub fn from_dsn(dsn: &mut Dsn, namespace: Option<&Name>) -> Result<Self, DsnError> {
        let mut login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2);
        let (addr, db, user, password) = match dsn.scheme() {
            "redis" => {
                let host = match dsn.hosts() {
                    [host] => host,
                    [] => return Err(DsnError::new("a redis DSN needs a host, as in `redis://localhost?queue=q`")),
                    _ => {
                        return Err(DsnError::new(
                            "a redis DSN has one host; clusters and sentinels are not known yet",
                        ));
                    }
                };
                let addr = ConnectionAddr::Tcp(host.name.clone(), host.port.unwrap_or(PORT));
                let db = dsn.path().trim_start_matches('/').to_owned();
                let password = dsn.password().map(|secret| secret.expose().to_owned());
                let user = dsn.user().map(str::to_owned);
                if user.is_some() && password.is_none() {
                    return Err(DsnError::new(
                        "the DSN has a user without a password; write `:password@` or `user:password@`",
                    ));
                }
                dsn.finish(&[])?;
                (addr, (!db.is_empty()).then_some(db), user, password)
            }
            "redis+unix" => {
                if !dsn.hosts().is_empty() || !dsn.path().starts_with('/') {
                    return Err(DsnError::new(
                        "a socket's DSN has an absolute path and no host, as in `redis+unix:///run/redis.sock`",
                    ));
                }
                let addr = ConnectionAddr::Unix(dsn.path().into());
                let [db, user, password] = SOCKET_KEYS.map(|key| dsn.take(key));
                dsn.finish(&SOCKET_KEYS)?;
                (addr, db, user, password)
            }
            "rediss" => {
                return Err(DsnError::new(
                    "TLS to redis (`rediss`) is not known yet; use a tunnel or a private network",
                ));
            }
            _ => return Err(DsnError::new("the DSN of a redis server begins with `redis://` or `redis+unix://`")),
        };
        if let Some(db) = db {
            let number = db.parse::<u32>().ok().filter(|_| db.bytes().all(|b| b.is_ascii_digit()));
            let Some(number) = number else {
                return Err(DsnError::new("the path (or `db`) of a redis DSN is a database number, as in `/3`"));
            };
            login = login.set_db(number.into());
        }
        if let Some(user) = user {
            login = login.set_username(user);
        }
        if let Some(password) = password {
            login = login.set_password(password);
        }
        Ok(Self { addr, login, namespace: namespace.cloned(), instance: fastrand::u64(..) })
    }

    /// A server of this machine without a password.
    #[must_use]
    pub fn local(port: u16) -> Self {
        let addr = ConnectionAddr::Tcp("127.0.0.1".to_owned(), port);
        let login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2);
        Self { addr, login, namespace: None, instance: fastrand::u64(..) }
    }

    /// Where, for people: without who.
    pub(crate) fn at(&self) -> String {
        format!("redis at {}", self.addr)
    }

    pub(crate) fn namespace(&self) -> Option<&Name> {
        self.namespace.as_ref()
    }

    pub(crate) fn instance(&self) -> u64 {
        self.instance
    }

    pub(crate) fn client(&self) -> Result<Client, TransportError> {
        let info = self.addr.clone().into_connection_info().map(|info| info.set_redis_settings(self.login.clone()));
        info.and_then(Client::open).map_err(|error| failure(&self.at(), error))
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("at", &self.at())
            .field("db", &self.login.db())
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
