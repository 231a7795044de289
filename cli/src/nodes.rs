//! From a config to a node: its transports and its handlers.

use std::{sync::Arc, time::Duration};

use postroom::{FailureRef, HandlerOptions, Name, Node, NodeBuilder, Prefetch, Raw, Received, Registry, TransportSpec};

use crate::{
    config::{Action, Config, FailureConfig, HandlerConfig, NodeConfig, PrefetchConfig, TransportConfig},
    exec::{self, Spec, lines::Lines},
    exit::Failure,
    http,
};

/// The name of a node that has none.
const NAME: &str = "postroom";
/// `[node] grace`.
const GRACE: Duration = Duration::from_secs(30);
/// `timeout`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A node without transports.
pub(crate) fn builder(node: &NodeConfig) -> NodeBuilder {
    Node::builder().name(node.name.as_deref().unwrap_or(NAME)).namespace(node.namespace.clone()).grace(grace(node))
}

/// The deadline of a stop.
pub(crate) fn grace(node: &NodeConfig) -> Duration {
    node.grace.unwrap_or(GRACE)
}

/// Who a message sent from here says that it comes from (CloudEvents `source`).
pub(crate) fn source(node: &NodeConfig) -> String {
    let namespace = node.namespace.as_ref().map(Name::as_str).unwrap_or_default();
    format!("postroom:{namespace}/{}", node.name.as_deref().unwrap_or(NAME))
}

/// A transport: its DSN's options, overridden by what the config says.
pub(crate) fn transport(name: &str, config: &TransportConfig, node: &NodeConfig) -> Result<TransportSpec, Failure> {
    let registry = Registry::default().namespace(node.namespace.clone());
    let mut spec =
        if config.store { registry.open_store(name, &config.dsn.0) } else { registry.open(name, &config.dsn.0) }?;
    let options = &mut spec.options;
    options.failure = match &config.failure {
        FailureConfig::Default => FailureRef::Default,
        FailureConfig::None => FailureRef::None,
        FailureConfig::Transport(store) => FailureRef::Transport(store.as_str().into()),
    };
    if let Some(lease) = config.lease {
        options.lease = lease;
    }
    match config.prefetch {
        Some(PrefetchConfig::Auto) => options.prefetch = Prefetch::Auto,
        Some(PrefetchConfig::Fixed(n)) => options.prefetch = Prefetch::Fixed(n as usize),
        None => {}
    }
    if let Some(order) = config.order {
        options.order = order;
    }
    if config.unhandled.is_some() {
        options.unhandled = config.unhandled;
    }
    options.retry = config.retry;
    if let Some(crashes) = config.crashes {
        options.crashes = crashes;
    }
    if let Some(setup) = config.setup {
        options.setup = setup;
    }
    Ok(spec)
}

/// The processes of mode "lines", to be closed at the end.
pub(crate) type Processes = Vec<Arc<Lines>>;

/// A node that runs these handlers of a config, with every transport that they touch.
pub(crate) fn runner(
    config: &Config,
    handlers: &[&HandlerConfig],
    processes: &mut Processes,
) -> Result<NodeBuilder, Failure> {
    let mut wanted: Vec<&Name> = Vec::new();
    let want = |wanted: &mut Vec<_>, name| {
        if !wanted.contains(&name) {
            wanted.push(name);
        }
    };
    for handler in handlers {
        want(&mut wanted, &handler.from);
        if let Action::Relay(to) = &handler.action {
            want(&mut wanted, to);
        }
    }
    // Whatever fails, or waits, needs its place too.
    let mut at = 0;
    while let Some(name) = wanted.get(at).copied() {
        at += 1;
        let Some(transport) = config.transports.get(name) else { continue };
        if let FailureConfig::Transport(store) = &transport.failure {
            want(&mut wanted, store);
        }
        if let Some(delay) = &transport.delay {
            want(&mut wanted, delay);
        }
    }
    let mut node = builder(&config.node);
    for name in wanted {
        if let Some(settings) = config.transports.get(name) {
            node = node.transport(transport(name, settings, &config.node)?);
        }
    }
    for handler in handlers {
        node = add(node, config, handler, processes)?;
    }
    Ok(node)
}

fn add(
    node: NodeBuilder,
    config: &Config,
    handler: &HandlerConfig,
    processes: &mut Processes,
) -> Result<NodeBuilder, Failure> {
    let slots = handler.concurrency as usize;
    let options = |concurrency: usize| {
        let options = HandlerOptions::new(handler.from.as_str(), &handler.pattern);
        // None of these blocks its thread, so one is enough for all.
        let mut options = options.map_err(|error| Failure::config(error.to_string()))?.threads(1);
        options = options.concurrency(concurrency).timeout(handler.timeout.unwrap_or(TIMEOUT));
        Ok::<_, Failure>(match &handler.name {
            Some(name) => options.name(name.as_str()),
            None => options,
        })
    };
    Ok(match &handler.action {
        Action::Exec(command) => {
            let spec = Arc::new(Spec::new(command, &config.folder));
            node.handle_with(options(slots)?, move || {
                let spec = spec.clone();
                move |received: Received<Raw>| {
                    let spec = spec.clone();
                    async move { exec::process::handle(&spec, received).await }
                }
            })
        }
        Action::Lines { command, window } => {
            let window = *window as usize;
            let lines = Lines::new(Spec::new(command, &config.folder), slots, window);
            processes.push(lines.clone());
            node.handle_with(options(slots.saturating_mul(window))?, move || {
                let (lines, lane) = (lines.clone(), lines.seat());
                move |received: Received<Raw>| {
                    let lines = lines.clone();
                    async move { lines.handle(lane, received).await }
                }
            })
        }
        Action::Http(url) => {
            let (url, source) = (Arc::new(url.0.clone()), Arc::new(source(&config.node)));
            node.handle_with(options(slots)?, move || {
                let (client, url, source) = (http::handler::client(), url.clone(), source.clone());
                move |received: Received<Raw>| {
                    let (client, url, source) = (client.clone(), url.clone(), source.clone());
                    async move { http::handler::handle(&client, &url, &source, received).await }
                }
            })
        }
        Action::Relay(to) => node.relay(options(slots)?, to.as_str()),
    })
}
