//! From a DSN to a transport: which scheme is which broker.

use std::collections::BTreeMap;

use postroom_actors::{TransportOptions, TransportSpec, transport::Launcher};
use postroom_core::{Dsn, ErrorKind, Name, Place, TransportError};

/// Makes a broker's launcher from a DSN. It takes the broker's own keys ([`Dsn::take`]) and calls [`Dsn::finish`], so
/// that an unknown key is an error.
pub type Opener = fn(&mut Dsn, Option<&Name>) -> Result<Launcher, TransportError>;

/// The schemes that DSNs may begin with. [`Registry::default`] knows the brokers that are compiled in.
#[derive(Clone, Debug)]
pub struct Registry {
    schemes: BTreeMap<&'static str, Opener>,
    namespace: Option<Name>,
}

impl Default for Registry {
    fn default() -> Self {
        #[allow(unused_mut, reason = "without a broker feature nothing is added")]
        let mut registry = Self { schemes: BTreeMap::new(), namespace: None };
        #[cfg(feature = "memory")]
        registry.schemes.insert("memory", |dsn, namespace| {
            Ok(postroom_actors::launcher::<postroom_memory::Memory>(
                postroom_memory::MemoryConfig::from_dsn(dsn)?.in_namespace(namespace.cloned()),
            ))
        });
        #[cfg(feature = "sqlite")]
        registry.schemes.insert("sqlite", |dsn, namespace| {
            Ok(postroom_actors::launcher::<postroom_sqlite::Sqlite>(postroom_sqlite::SqliteConfig::from_dsn(
                dsn, namespace,
            )?))
        });
        #[cfg(feature = "redis")]
        for scheme in ["redis", "rediss", "redis+unix"] {
            registry.schemes.insert(scheme, |dsn, namespace| {
                let config = postroom_redis::RedisConfig::from_dsn(dsn, namespace)?;
                Ok(postroom_actors::launcher::<postroom_redis::Redis>(config))
            });
        }
        registry
    }
}

impl Registry {
    /// Adds a broker of your own, or replaces one.
    #[must_use]
    pub fn with(mut self, scheme: &'static str, opener: Opener) -> Self {
        self.schemes.insert(scheme, opener);
        self
    }

    /// Prefixes every name on every broker.
    #[must_use]
    pub fn namespace(mut self, namespace: Option<Name>) -> Self {
        self.namespace = namespace;
        self
    }

    /// The schemes that are known.
    pub fn schemes(&self) -> impl Iterator<Item = &'static str> {
        self.schemes.keys().copied()
    }

    /// A transport that reads a queue or a group, or sends to a queue or a topic.
    ///
    /// # Errors
    /// Kind `Config`: a malformed DSN (which is not echoed), an unknown scheme or key, a missing or wrong name.
    pub fn open(&self, name: &str, dsn: &str) -> Result<TransportSpec, TransportError> {
        self.read(name, dsn, false)
    }

    /// A transport that keeps failed messages: the DSN's queue is made in the broker's browsable form.
    ///
    /// # Errors
    /// As [`Registry::open`]; also where the DSN names a topic.
    pub fn open_store(&self, name: &str, dsn: &str) -> Result<TransportSpec, TransportError> {
        self.read(name, dsn, true)
    }

    fn read(&self, name: &str, dsn: &str, store: bool) -> Result<TransportSpec, TransportError> {
        let wrong = |text: String| TransportError::new(ErrorKind::Config, format!("transport `{name}`: {text}"));
        let mut dsn = Dsn::parse(dsn).map_err(|error| wrong(error.to_string()))?;
        let Some(opener) = self.schemes.get(dsn.scheme()) else {
            let known: Vec<_> = self.schemes().collect();
            let (scheme, known) = (dsn.scheme(), known.join(", "));
            return Err(wrong(format!("no broker for the scheme `{scheme}`; this build knows {known}")));
        };
        let launcher = opener(&mut dsn, self.namespace.as_ref()).map_err(|error| wrong(error.to_string()))?;
        let read = |error: postroom_core::DsnError| wrong(error.to_string());
        let place = match dsn.place().map_err(read)? {
            None => return Err(wrong("the DSN names no place; add `queue=NAME`, or `topic=NAME&group=NAME`".into())),
            Some(Place::Queue(queue)) if store => Place::Store(queue),
            Some(place) if store => return Err(wrong(format!("{place} can't keep failed messages; name a queue"))),
            Some(place) => place,
        };
        let mut options = TransportOptions::new(name, place);
        options.message_type = dsn.message_type().map_err(read)?;
        options.setup = dsn.setup().map_err(read)?;
        options.require_group = dsn.require_group().map_err(read)?;
        if let Some(prefetch) = dsn.prefetch().map_err(read)? {
            options.prefetch = prefetch;
        }
        if let Some(lease) = dsn.lease().map_err(read)? {
            options.lease = lease;
        }
        Ok(TransportSpec::new(options, launcher))
    }
}

/// A transport by DSN, of a broker that is compiled in; see [`Registry::open`].
///
/// # Errors
/// As [`Registry::open`].
pub fn open(name: &str, dsn: &str) -> Result<TransportSpec, TransportError> {
    Registry::default().open(name, dsn)
}

/// A transport that keeps failed messages; see [`Registry::open_store`].
///
/// # Errors
/// As [`Registry::open_store`].
pub fn open_store(name: &str, dsn: &str) -> Result<TransportSpec, TransportError> {
    Registry::default().open_store(name, dsn)
}
