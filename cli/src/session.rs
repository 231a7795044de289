//! The transports that a command works on: opened when they are first asked for, each in a node of its own, so that one
//! broker that is down does not keep the others from answering.

use std::{collections::BTreeMap, path::Path, time::Duration};

use postroom::{Node, TransportHandle, ops::Store};
use postroom_core::{Name, Place};

use crate::{
    address,
    args::Cli,
    config::{self, Config, FailureConfig, TransportConfig},
    exit::Failure,
    nodes,
};

/// How long the end of a command may take.
const CLOSE: Duration = Duration::from_secs(5);

/// The opened transports.
pub(crate) struct Session {
    /// The config, where one was needed.
    pub(crate) config: Option<Config>,
    /// Whether missing places are created.
    create: bool,
    open: BTreeMap<String, (Node, TransportHandle)>,
}

impl Session {
    /// For transports that are named or given as DSNs. The config is read when one is named, or when none is given.
    pub(crate) fn new<'a>(cli: &Cli, transports: impl IntoIterator<Item = &'a str>) -> Result<Self, Failure> {
        let given: Vec<&str> = transports.into_iter().collect();
        let needed = given.is_empty() || given.iter().any(|transport| !address::is_dsn(transport));
        let config = needed.then(|| config::load(&config::locate(cli.config.as_deref()))).transpose()?;
        Ok(Self { config, create: false, open: BTreeMap::new() })
    }

    /// Creates what is missing, unless a transport says `setup = false`.
    pub(crate) fn creating(mut self) -> Self {
        self.create = true;
        self
    }

    /// The names of all transports of the config.
    pub(crate) fn names(&self) -> Vec<String> {
        self.config.iter().flat_map(|config| config.transports.keys().map(Name::to_string)).collect()
    }

    /// What the config says of a transport, or a DSN alone does.
    pub(crate) fn settings(&self, transport: &str) -> Result<(String, TransportConfig), Failure> {
        if address::is_dsn(transport) {
            let folder = std::env::current_dir().unwrap_or_else(|_| Path::new(".").to_path_buf());
            let dsn = address::check(transport, &folder).map_err(Failure::usage)?;
            return Ok((address::name(&dsn), TransportConfig::of_dsn(&dsn)));
        }
        let config = self.config.as_ref().ok_or_else(|| Failure::not_found(format!("no transport `{transport}`")))?;
        let found = config.transports.iter().find(|(name, _)| name.as_str() == transport);
        let (name, settings) = found.ok_or_else(|| {
            let near = crate::text::suggestion(transport, config.transports.keys().map(Name::as_str));
            Failure::not_found(format!("no transport `{}` in the config{near}", crate::text::cut(transport, 80)))
        })?;
        Ok((name.to_string(), settings.clone()))
    }

    /// Opens a transport, by name or DSN.
    pub(crate) async fn transport(&mut self, transport: &str) -> Result<TransportHandle, Failure> {
        if let Some((_, handle)) = self.open.get(transport) {
            return Ok(handle.clone());
        }
        let (name, mut settings) = self.settings(transport)?;
        if !self.create {
            settings.setup = Some(false);
            if let Some(file) = address::missing_file(&settings.dsn.0) {
                let what = format!("the file {} does not exist", file.display());
                return Err(Failure::not_found(format!("{what}; `postroom setup`, `run` and `send` create it")));
            }
        }
        let node = self.config.as_ref().map(|config| config.node.clone()).unwrap_or_default();
        let mut spec = nodes::transport(&name, &settings, &node)?;
        if matches!(settings.failure, FailureConfig::Transport(_)) {
            // Nothing is handled here, and the other transport has a node of its own.
            spec.options.failure = postroom::FailureRef::None;
        }
        let builder = nodes::builder(&node).fail_fast(true).transport(spec);
        let started = builder.start().await?;
        let handle =
            started.transport(&name).ok_or_else(|| Failure::failed(format!("transport `{name}` did not start")))?;
        self.open.insert(transport.to_string(), (started, handle.clone()));
        Ok(handle)
    }

    /// The node of an opened transport.
    pub(crate) fn node(&self, transport: &str) -> Option<&Node> {
        self.open.get(transport).map(|(node, _)| node)
    }

    /// Opens the store of a transport's failed messages.
    pub(crate) async fn store(&mut self, transport: &str) -> Result<Store, Failure> {
        let (_, settings) = self.settings(transport)?;
        let through = match &settings.failure {
            FailureConfig::Transport(store) if !settings.store => store.to_string(),
            _ => transport.to_string(),
        };
        let handle = self.transport(&through).await?;
        // A store is its own, so nothing is left to be found.
        Ok(Store::of(&handle, |_| None)?)
    }

    /// The stores of one transport, or of all, each once; `errors` hears of those that could not be opened. Of all, those
    /// that keep no failed messages have none.
    pub(crate) async fn stores(&mut self, of: Option<&str>, errors: &mut Vec<Failure>) -> Vec<Store> {
        let transports = of.map_or_else(|| self.names(), |one| vec![one.to_string()]);
        let (mut stores, mut seen): (Vec<Store>, Vec<(String, Place)>) = (Vec::new(), Vec::new());
        for transport in &transports {
            match self.store(transport).await {
                Ok(store) => {
                    // Two groups of a topic, or two transports of a queue, keep what failed in one place.
                    let through =
                        if address::is_dsn(transport) { transport.as_str() } else { store.transport().name() };
                    let dsn = self.settings(through).map(|(_, settings)| settings.dsn.0).unwrap_or_default();
                    let at = (address::broker(&dsn), store.place().clone());
                    if !seen.contains(&at) {
                        seen.push(at);
                        stores.push(store);
                    }
                }
                Err(failure) if failure.kind == "no_store" && of.is_none() => {}
                Err(failure) => errors.push(failure),
            }
        }
        stores
    }

    /// Closes all.
    pub(crate) async fn close(self) {
        for (_, (node, _)) in self.open {
            node.stop_within(CLOSE).await;
        }
    }
}

impl From<postroom::ops::OpsError> for Failure {
    fn from(error: postroom::ops::OpsError) -> Self {
        use postroom::ops::OpsError;
        match error {
            OpsError::Transport(error) => error.into(),
            OpsError::Capability { .. } => Self::capability(error.to_string()),
            OpsError::NoStore { .. } => Self::new("no_store", crate::exit::Exit::Usage, error.to_string()),
            OpsError::NoOrigin { .. } => Self::new("unroutable", crate::exit::Exit::Failed, error.to_string()),
            other => Self::failed(other.to_string()),
        }
    }
}
