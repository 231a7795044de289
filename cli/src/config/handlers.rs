//! `[[handlers]]`.

use std::{collections::BTreeMap, time::Duration};

use postroom_core::{Name, TypeName};

use super::{
    Action, HandlerConfig, Secret, TransportConfig,
    reader::{At, Document, Section},
};
use crate::text::suggestion;

type Transports = BTreeMap<Name, TransportConfig>;

/// A handler, and the line it begins in.
pub(super) struct Placed {
    pub(super) config: HandlerConfig,
    pub(super) line: usize,
}

pub(super) fn read(mut section: Section<'_, '_>, known: &Transports, doc: &mut Document<'_>) -> Option<Placed> {
    let from = required(&mut section, "from", doc).and_then(|at| source(&section, &at, known, doc));
    let pattern = section.parsed(doc, "type", pattern);
    if pattern.is_none() && !section.has("type") {
        doc.fault(section.line, format!("{} has no `type`, as \"order.placed\", \"order.*\" or \"*\"", section.name));
    }
    let name = section.parsed(doc, "name", |text| Name::new(text).map(|_| text.to_string())).map(|at| at.value);
    let concurrency = section.integer(doc, "concurrency", 1, 4_096);
    let timeout = section.duration(doc, "timeout", Duration::ZERO).filter(|timeout| {
        let positive = !timeout.is_zero();
        if !positive {
            let line = section.line_of(doc, "timeout");
            doc.fault(line, format!("{}: `timeout = \"0s\"`: a time above 0 is wanted", section.name));
        }
        positive
    });
    let action = action(&mut section, known, from.as_ref(), doc);
    let line = section.line;
    section.finish(doc);
    Some(Placed {
        config: HandlerConfig {
            from: from?,
            pattern: pattern?.value,
            name,
            concurrency: concurrency.unwrap_or(1),
            timeout,
            action: action?,
        },
        line,
    })
}

fn required(section: &mut Section<'_, '_>, key: &'static str, doc: &mut Document<'_>) -> Option<At<String>> {
    let found = section.string(doc, key);
    if found.is_none() && !section.has(key) {
        doc.fault(section.line, format!("{} has no `{key}`, the name of a transport", section.name));
    }
    found
}

fn source(section: &Section<'_, '_>, at: &At<String>, known: &Transports, doc: &mut Document<'_>) -> Option<Name> {
    let found = transport(section, "from", at, known, doc)?;
    if known.get(&found).is_some_and(|config| config.store) {
        doc.fault(
            at.line,
            format!(
                "{}: `from = \"{found}\"` is a failure transport, a store without consumers; use `postroom failed retry` to run its messages again",
                section.name
            ),
        );
        return None;
    }
    Some(found)
}

fn transport(
    section: &Section<'_, '_>,
    key: &str,
    at: &At<String>,
    known: &Transports,
    doc: &mut Document<'_>,
) -> Option<Name> {
    let found = known.keys().find(|name| name.as_str() == at.value).cloned();
    if found.is_none() {
        let near = suggestion(&at.value, known.keys().map(Name::as_str));
        let shown = crate::text::cut(&at.value, 60);
        doc.fault(at.line, format!("{}: `{key} = \"{shown}\"` names no transport{near}", section.name));
    }
    found
}

/// Exact, or a prefix with a final `*`.
fn pattern(text: &str) -> Result<String, String> {
    let prefix = text.strip_suffix('*').unwrap_or(text);
    if prefix.contains('*') {
        return Err("it can never match: only a final `*` stands for the rest of a type".into());
    }
    if !(prefix.is_empty() && text == "*") {
        TypeName::new(prefix).map_err(|error| format!("it can never match: {error}"))?;
    }
    Ok(text.to_string())
}

fn action(
    section: &mut Section<'_, '_>,
    known: &Transports,
    from: Option<&Name>,
    doc: &mut Document<'_>,
) -> Option<Action> {
    let exec = section.strings(doc, "exec").map(|at| at.value);
    let lines = section.word(doc, "mode", &[("process", false), ("lines", true)]);
    let window = section.integer(doc, "window", 1, 4_096);
    let http = section.string(doc, "http").and_then(|at| url(section, at, doc));
    let relay = section.string(doc, "relay");
    let given: Vec<&str> = ["exec", "http", "relay"].into_iter().filter(|key| section.has(key)).collect();
    if given.len() != 1 {
        let what = if given.is_empty() { "none".to_string() } else { format!("`{}`", given.join("`, `")) };
        doc.fault(
            section.line,
            format!("{} has {what} of `exec`, `http` and `relay`; exactly one is wanted", section.name),
        );
        return None;
    }
    for (key, allowed) in [("mode", section.has("exec")), ("window", lines == Some(true))] {
        if section.has(key) && !allowed {
            let line = section.line_of(doc, key);
            let needs = if key == "mode" { "`exec`" } else { "`mode = \"lines\"`" };
            doc.fault(line, format!("{}: `{key}` has no meaning without {needs}", section.name));
        }
    }
    if let Some(command) = exec {
        return Some(match lines {
            Some(true) => Action::Lines { command, window: window.unwrap_or(1) },
            _ => Action::Exec(command),
        });
    }
    if let Some(url) = http {
        return Some(Action::Http(Secret(url)));
    }
    let at = relay?;
    let to = transport(section, "relay", &at, known, doc)?;
    let trouble = if from == Some(&to) {
        "is where the messages come from; name another transport"
    } else if known.get(&to).is_some_and(|config| config.store) {
        "is a failure transport, which takes failed messages alone; name another transport"
    } else {
        return Some(Action::Relay(to));
    };
    doc.fault(at.line, format!("{}: `relay = \"{to}\"` {trouble}", section.name));
    None
}

/// The address, checked; an error never shows it, as it may hold a password.
fn url(section: &Section<'_, '_>, at: At<String>, doc: &mut Document<'_>) -> Option<String> {
    let uri = at.value.parse::<actix_web::http::Uri>().ok();
    let fine = uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
    if !fine {
        doc.fault(at.line, format!("{}: `http` is not an address as \"http://127.0.0.1:8080/events\"", section.name));
    }
    fine.then_some(at.value)
}

/// Where a type repeats, each handler needs a name of its own; without, only the first could ever run.
pub(super) fn check_repeats(handlers: &[Placed], doc: &mut Document<'_>) {
    for (at, later) in handlers.iter().enumerate() {
        let same =
            |other: &&Placed| other.config.from == later.config.from && other.config.pattern == later.config.pattern;
        let Some(first) = handlers.iter().take(at).find(same) else { continue };
        let what = format!("`type = \"{}\"` from `{}`", later.config.pattern, later.config.from);
        for unnamed in [first, later].iter().filter(|handler| handler.config.name.is_none()) {
            let other = if std::ptr::eq(*unnamed, first) { later.line } else { first.line };
            // The first is reported once, at its first repeat.
            let earlier_repeat =
                handlers.iter().take(at).skip_while(|h| !std::ptr::eq(*h, first)).skip(1).any(|h| same(&h));
            if std::ptr::eq(*unnamed, first) && earlier_repeat {
                continue;
            }
            doc.fault(
                unnamed.line,
                format!("[[handlers]] can never match: {what} repeats (line {other}); give each of them a `name`, then all run in this order"),
            );
        }
        let twin = handlers
            .iter()
            .take(at)
            .filter(same)
            .find(|h| h.config.name.is_some() && h.config.name == later.config.name);
        if let (Some(twin), Some(name)) = (twin, &later.config.name) {
            doc.fault(
                later.line,
                format!("[[handlers]]: `name = \"{name}\"` is taken for {what} (line {}); choose another", twin.line),
            );
        }
    }
}
