//! Which store a connection means, and how long that store lives.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use postroom_core::{Dsn, DsnError, Name};

use crate::store::Shared;

type Key = (String, Option<Name>);

static INSTANCES: LazyLock<Mutex<HashMap<Key, Weak<Shared>>>> = LazyLock::new(Mutex::default);

fn instance(key: Key) -> Arc<Shared> {
    let mut instances = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = instances.get(&key).and_then(Weak::upgrade) {
        return shared;
    }
    instances.retain(|_, shared| shared.strong_count() > 0);
    let shared = Arc::<Shared>::default();
    instances.insert(key, Arc::downgrade(&shared));
    shared
}

/// Which store to connect to. It keeps that store alive, as every connection and source of it does; with the last of
/// them the messages are gone.
#[derive(Clone)]
pub struct MemoryConfig {
    name: Option<String>,
    namespace: Option<Name>,
    // Held here, so that the messages outlive the moment between a lost connection and the next.
    pub(crate) shared: Arc<Shared>,
}

impl MemoryConfig {
    /// The store of this name in this process: all connections with the same name (and namespace) share it.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: Some(name.to_owned()), namespace: None, shared: instance((name.to_owned(), None)) }
    }

    /// A store of its own, shared with the clones of this value only.
    #[must_use]
    pub fn private() -> Self {
        Self { name: None, namespace: None, shared: Arc::default() }
    }

    /// The same instance in a namespace: its places have nothing to do with those of another namespace. A private
    /// store gets a new store.
    #[must_use]
    pub fn in_namespace(self, namespace: Option<Name>) -> Self {
        if namespace == self.namespace {
            return self;
        }
        let shared = match &self.name {
            Some(name) => instance((name.clone(), namespace.clone())),
            None => Arc::default(),
        };
        Self { name: self.name, namespace, shared }
    }

    /// Reads `memory:` (private) or `memory:NAME` (shared in this process).
    ///
    /// # Errors
    /// For a host, user or password, a name that breaks a rule of [`Name`], and an unknown key.
    pub fn from_dsn(dsn: &Dsn) -> Result<Self, DsnError> {
        if dsn.scheme() != "memory" {
            return Err(DsnError::new("the DSN of the memory broker begins with `memory:`"));
        }
        if !dsn.hosts().is_empty() || dsn.user().is_some() || dsn.password().is_some() {
            return Err(DsnError::new("a memory DSN has no host, user or password; write `memory:` or `memory:NAME`"));
        }
        dsn.finish(&[])?;
        match dsn.path() {
            "" => Ok(Self::private()),
            name => Ok(Self::new(Name::new(name)?.as_str())),
        }
    }
}

/// A private store.
impl Default for MemoryConfig {
    fn default() -> Self {
        Self::private()
    }
}

impl fmt::Debug for MemoryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryConfig")
            .field("name", &self.name)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
