//! `[transports.NAME]`.

use std::{collections::BTreeMap, path::Path, time::Duration};

use postroom_core::{Name, Order, RetryPolicy, Unhandled};

use super::{
    FailureConfig, PrefetchConfig, Secret, TransportConfig,
    reader::{At, Document, Section},
};
use crate::text::suggestion;

/// A transport as it stands in the file, before names are checked against each other.
pub(super) struct Draft {
    config: TransportConfig,
    failure: Option<At<String>>,
    delay: Option<At<String>>,
}

pub(super) fn read(mut section: Section<'_, '_>, folder: &Path, doc: &mut Document<'_>) -> Option<Draft> {
    let dsn = section.string(doc, "dsn");
    if dsn.is_none() && !section.has("dsn") {
        doc.fault(section.line, format!("{} has no `dsn`, as \"sqlite:orders.db?queue=orders\"", section.name));
    }
    let dsn = dsn.and_then(|at| match crate::address::check(&at.value, folder) {
        Ok(dsn) => Some(dsn),
        Err(why) => {
            doc.fault(at.line, format!("{}: `dsn`: {why}", section.name));
            None
        }
    });
    let failure = section.string(doc, "failure");
    // For brokers with connections; those that are built in so far have none, so it is only checked.
    let _ = section.duration(doc, "heartbeat", Duration::from_secs(1));
    let delay = section.string(doc, "delay").filter(|at| !at.value.is_empty());
    let config = TransportConfig {
        lease: section.duration(doc, "lease", Duration::from_secs(1)),
        prefetch: section.auto(doc, "prefetch").map(|n| n.map_or(PrefetchConfig::Auto, PrefetchConfig::Fixed)),
        order: section.word(doc, "order", &[("none", Order::None), ("key", Order::Key), ("broker", Order::Broker)]),
        unhandled: section.word(
            doc,
            "unhandled",
            &[("fail", Unhandled::Fail), ("ack", Unhandled::Ack), ("retry", Unhandled::Retry)],
        ),
        retry: section.table(doc, "retry").map_or_else(RetryPolicy::default, |table| retry(table, doc)),
        crashes: section.integer(doc, "crashes", 3, u32::MAX),
        setup: section.boolean(doc, "setup"),
        ..TransportConfig::of_dsn("")
    };
    section.finish(doc);
    // Without its address the rest was still checked, and its name still counts as known.
    Some(Draft { config: TransportConfig { dsn: Secret(dsn.unwrap_or_default()), ..config }, failure, delay })
}

fn retry(mut section: Section<'_, '_>, doc: &mut Document<'_>) -> RetryPolicy {
    let default = RetryPolicy::default();
    let policy = RetryPolicy {
        max: section.integer(doc, "max", 0, u32::MAX).unwrap_or(default.max),
        delay: section.duration(doc, "delay", Duration::ZERO).unwrap_or(default.delay),
        multiplier: section.float(doc, "multiplier", 1.0, 1e9).unwrap_or(default.multiplier),
        cap: section.duration(doc, "cap", Duration::ZERO).unwrap_or(default.cap),
        jitter: section.float(doc, "jitter", 0.0, 1.0).unwrap_or(default.jitter),
    };
    section.finish(doc);
    policy
}

/// Checks the names that transports use of each other, and marks the stores.
pub(super) fn link(drafts: BTreeMap<Name, Draft>, doc: &mut Document<'_>) -> BTreeMap<Name, TransportConfig> {
    let names: Vec<Name> = drafts.keys().cloned().collect();
    let find = |text: &str| names.iter().find(|name| name.as_str() == text).cloned();
    let mut out = BTreeMap::new();
    let mut stores: BTreeMap<Name, Name> = BTreeMap::new();
    let mut written: BTreeMap<Name, usize> = BTreeMap::new();
    for (name, Draft { mut config, failure, delay }) in drafts {
        if let Some(At { value, line }) = failure {
            written.insert(name.clone(), line);
            match find(&value) {
                _ if value == "none" => config.failure = FailureConfig::None,
                Some(store) if store == name => {
                    doc.fault(line, format!("[transports.{name}]: `failure = \"{value}\"` is the transport itself; name another, or leave it out"));
                }
                Some(store) => {
                    stores.insert(store.clone(), name.clone());
                    config.failure = FailureConfig::Transport(store);
                }
                None => {
                    doc.fault(line, unknown(&name, "failure", &value, names.iter().map(Name::as_str).chain(["none"])))
                }
            }
        }
        if let Some(At { value, line }) = delay {
            match find(&value) {
                Some(other) if other != name => config.delay = Some(other),
                Some(_) => doc.fault(line, format!("[transports.{name}]: `delay = \"{value}\"` is the transport itself; name another, or leave it out")),
                None => doc.fault(line, unknown(&name, "delay", &value, names.iter().map(Name::as_str))),
            }
        }
        out.insert(name, config);
    }
    for (store, of) in &stores {
        let of_line = written.get(of).copied().unwrap_or_default();
        if let Some(config) = out.get_mut(store) {
            config.store = true;
            let place = postroom_core::Dsn::parse(&config.dsn.0).ok().and_then(|dsn| dsn.place().ok().flatten());
            if let Some(place) = place.filter(|place| !matches!(place, postroom_core::Place::Queue(_))) {
                doc.fault(of_line, format!("[transports.{of}]: `failure = \"{store}\"` is the {place}, which can't keep failed messages; name a queue in its dsn"));
            }
            if config.failure != FailureConfig::Default {
                let line = written.get(store).copied().unwrap_or_default();
                doc.fault(line, format!("[transports.{store}] is the failure transport of `{of}`: it has none itself; remove its `failure`"));
            }
        }
    }
    out
}

fn unknown<'a>(name: &Name, key: &str, value: &str, valid: impl Iterator<Item = &'a str>) -> String {
    let near = suggestion(value, valid.filter(|other| *other != name.as_str()));
    format!("[transports.{name}]: `{key} = \"{}\"` names no transport{near}", crate::text::cut(value, 60))
}
