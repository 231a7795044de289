//! Finding, reading and judging the file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use postroom_core::Name;
use toml::de::{DeTable, DeValue};

use super::{
    Config, Fault, NodeConfig, handlers, node,
    reader::{Document, Section, kind},
    transports,
};
use crate::{exit::Failure, text::suggestion};

const DEFAULT: &str = "postroom.toml";
const VARIABLE: &str = "POSTROOM_CONFIG";

/// The config's path: `-c`, else `postroom.toml` where there is one, else `$POSTROOM_CONFIG`.
pub(crate) fn locate(given: Option<&Path>) -> PathBuf {
    if let Some(path) = given {
        return path.to_path_buf();
    }
    match std::env::var_os(VARIABLE) {
        Some(path) if !path.is_empty() && !Path::new(DEFAULT).exists() => PathBuf::from(path),
        _ => PathBuf::from(DEFAULT),
    }
}

/// Reads the config.
///
/// # Errors
/// All mistakes at once, one a line.
pub(crate) fn load(path: &Path) -> Result<Config, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => "; write one with `postroom init`, or name one with -c",
            _ => "",
        };
        Failure::config(format!("could not read the config {}: {error}{hint}", path.display()))
    })?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Absolute, because handlers run there and the files of brokers lie there whatever becomes of the current folder.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    parse(&text, &folder, &|name| std::env::var(name).ok()).map_err(|faults| {
        let lines: Vec<String> =
            faults.iter().map(|fault| format!("{}:{}: {}", path.display(), fault.line, fault.message)).collect();
        Failure::config(lines.join("\n"))
    })
}

/// Judges the text of a config.
pub(super) fn parse(text: &str, folder: &Path, var: &dyn Fn(&str) -> Option<String>) -> Result<Config, Vec<Fault>> {
    let mut doc = Document::new(text, var);
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let line = doc.line(error.span().map_or(0, |span| span.start));
        doc.fault(line, format!("not TOML: {}", error.message().replace('\n', ", ")));
    }
    // What a half-read file seems to lack is no mistake of its author.
    if !errors.is_empty() {
        return Err(doc.into_faults());
    }
    let mut node_config = NodeConfig::default();
    let mut drafts = BTreeMap::new();
    let mut handler_tables = Vec::new();
    for (key, value) in root.get_ref() {
        let line = doc.line(key.span().start);
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("node", DeValue::Table(table)) => {
                node_config = node::read(Section::new("[node]".into(), line, table), &mut doc)
            }
            ("transports", DeValue::Table(table)) => read_transports(table, folder, &mut drafts, &mut doc),
            ("handlers", DeValue::Array(items)) => handler_tables.extend(items.iter()),
            (name @ ("node" | "transports" | "handlers"), other) => {
                let wanted = if name == "handlers" { "`[[handlers]]`" } else { "a table" };
                doc.fault(line, format!("`{name}` is {}, but {wanted} is wanted", kind(other)));
            }
            (name, _) => {
                let near = suggestion(name, ["node", "transports", "handlers"]);
                doc.fault(line, format!("unknown section `{}`{near}", crate::text::cut(name, 60)));
            }
        }
    }
    let transports = transports::link(drafts, &mut doc);
    let mut placed = Vec::new();
    for item in handler_tables {
        let line = doc.line(item.span().start);
        match item.get_ref() {
            DeValue::Table(table) => {
                placed.extend(handlers::read(Section::new("[[handlers]]".into(), line, table), &transports, &mut doc));
            }
            other => doc.fault(line, format!("`handlers` holds {}, but `[[handlers]]` is wanted", kind(other))),
        }
    }
    handlers::check_repeats(&placed, &mut doc);
    let faults = doc.into_faults();
    if !faults.is_empty() {
        return Err(faults);
    }
    let handlers = placed.into_iter().map(|placed| placed.config).collect();
    Ok(Config { folder: folder.to_path_buf(), node: node_config, transports, handlers })
}

fn read_transports(
    table: &DeTable<'_>,
    folder: &Path,
    drafts: &mut BTreeMap<Name, transports::Draft>,
    doc: &mut Document<'_>,
) {
    for (key, value) in table {
        let line = doc.line(key.span().start);
        let shown = crate::text::cut(key.get_ref(), 60);
        let name = match Name::new(key.get_ref()) {
            Ok(name) if name.as_str() == "none" => {
                doc.fault(line, "[transports.none]: `none` is what `failure = \"none\"` means; choose another name");
                continue;
            }
            Ok(name) => name,
            Err(error) => {
                doc.fault(line, format!("[transports.{shown}]: {error}"));
                continue;
            }
        };
        match value.get_ref() {
            DeValue::Table(table) => {
                let section = Section::new(format!("[transports.{name}]"), line, table);
                if let Some(draft) = transports::read(section, folder, doc) {
                    drafts.insert(name, draft);
                }
            }
            other => doc.fault(line, format!("`transports.{shown}` is {}, but a table is wanted", kind(other))),
        }
    }
}
