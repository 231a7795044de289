//! A table of the config, read key by key: each value typed, expanded, with its line; each mistake recorded, none ends
//! the reading.

use std::{collections::BTreeSet, fmt::Display, ops::Range, time::Duration};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::Fault;
use crate::text::suggestion;

/// The document: where lines are, what the environment says, and the mistakes so far.
pub(super) struct Document<'a> {
    text: &'a str,
    var: &'a dyn Fn(&str) -> Option<String>,
    faults: Vec<Fault>,
}

impl<'a> Document<'a> {
    pub(super) fn new(text: &'a str, var: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { text, var, faults: Vec::new() }
    }

    /// The line of a byte offset, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count()
    }

    pub(super) fn fault(&mut self, line: usize, message: impl Into<String>) {
        self.faults.push(Fault { line, message: message.into() });
    }

    pub(super) fn into_faults(mut self) -> Vec<Fault> {
        self.faults.sort_by_key(|fault| fault.line);
        self.faults
    }
}

/// A value with its line.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) line: usize,
}

/// One table, under the name that errors call it by.
pub(super) struct Section<'t, 'i> {
    /// As `[transports.orders]`.
    pub(super) name: String,
    /// The line of its header.
    pub(super) line: usize,
    table: &'t DeTable<'i>,
    asked: BTreeSet<&'static str>,
}

impl<'t, 'i> Section<'t, 'i> {
    pub(super) fn new(name: String, line: usize, table: &'t DeTable<'i>) -> Self {
        Self { name, line, table, asked: BTreeSet::new() }
    }

    fn entry(&mut self, key: &'static str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.asked.insert(key);
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// Whether the key is there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(name, _)| name.get_ref() == key)
    }

    /// The line of a key that is there, else the section's.
    pub(super) fn line_of(&self, doc: &Document<'_>, key: &str) -> usize {
        let span = self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(name, _)| name.span());
        span.map_or(self.line, |span: Range<usize>| doc.line(span.start))
    }

    fn wrong(&self, doc: &mut Document<'_>, value: &Spanned<DeValue<'_>>, key: &str, wanted: &str) {
        let line = doc.line(value.span().start);
        doc.fault(line, format!("{}: `{key}` is {}, but {wanted} is wanted", self.name, kind(value.get_ref())));
    }

    /// A string, expanded.
    pub(super) fn string(&mut self, doc: &mut Document<'_>, key: &'static str) -> Option<At<String>> {
        let value = self.entry(key)?;
        match value.get_ref() {
            DeValue::String(text) => self.expand(doc, key, text, value.span()),
            _ => {
                self.wrong(doc, value, key, "a string");
                None
            }
        }
    }

    fn expand(&self, doc: &mut Document<'_>, key: &str, text: &str, span: Range<usize>) -> Option<At<String>> {
        let line = doc.line(span.start);
        match super::expand::expand(text, doc.var) {
            Ok(value) => Some(At { value, line }),
            Err(why) => {
                doc.fault(line, format!("{}: `{key}`: {why}", self.name));
                None
            }
        }
    }

    /// A string that `read` understands; its error ends the sentence `` `key = "value"`: ``.
    pub(super) fn parsed<T, E: Display>(
        &mut self,
        doc: &mut Document<'_>,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<At<T>> {
        let text = self.string(doc, key)?;
        match read(&text.value) {
            Ok(value) => Some(At { value, line: text.line }),
            Err(why) => {
                let shown = crate::text::cut(&text.value, 60);
                doc.fault(text.line, format!("{}: `{key} = \"{shown}\"`: {why}", self.name));
                None
            }
        }
    }

    /// A duration of at least `least`.
    pub(super) fn duration(&mut self, doc: &mut Document<'_>, key: &'static str, least: Duration) -> Option<Duration> {
        let read = |text: &str| match crate::duration::parse(text)? {
            short if short < least => Err(format!("it must be at least {}s", least.as_secs())),
            long => Ok(long),
        };
        self.parsed(doc, key, read).map(|at| at.value)
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(
        &mut self,
        doc: &mut Document<'_>,
        key: &'static str,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let read = |text: &str| {
            let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
            found.ok_or_else(|| format!("unknown{}", suggestion(text, words.iter().map(|(word, _)| *word))))
        };
        self.parsed(doc, key, read).map(|at| at.value)
    }

    /// A number, or a string with a variable that becomes one.
    fn number(&mut self, doc: &mut Document<'_>, key: &'static str, wanted: &str) -> Option<At<String>> {
        let value = self.entry(key)?;
        let line = doc.line(value.span().start);
        match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => Some(At { value: number.as_str().into(), line }),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
                Some(At { value: parsed.to_string(), line })
            }
            DeValue::Float(number) => Some(At { value: number.as_str().into(), line }),
            DeValue::String(text) if text.contains("${") => self.expand(doc, key, text, value.span()),
            _ => {
                self.wrong(doc, value, key, wanted);
                None
            }
        }
    }

    /// A whole number in a range.
    pub(super) fn integer(&mut self, doc: &mut Document<'_>, key: &'static str, least: u32, most: u32) -> Option<u32> {
        let text = self.number(doc, key, "a whole number")?;
        match text.value.parse::<u32>() {
            Ok(number) if (least..=most).contains(&number) => Some(number),
            _ => {
                let shown = crate::text::cut(&text.value, 40);
                let range = if most == u32::MAX { format!("at least {least}") } else { format!("{least} to {most}") };
                doc.fault(text.line, format!("{}: `{key} = {shown}`: a whole number is wanted, {range}", self.name));
                None
            }
        }
    }

    /// A number in a range.
    pub(super) fn float(&mut self, doc: &mut Document<'_>, key: &'static str, least: f64, most: f64) -> Option<f64> {
        let text = self.number(doc, key, "a number")?;
        match text.value.parse::<f64>() {
            Ok(number) if number.is_finite() && (least..=most).contains(&number) => Some(number),
            _ => {
                let shown = crate::text::cut(&text.value, 40);
                doc.fault(
                    text.line,
                    format!("{}: `{key} = {shown}`: a number from {least} to {most} is wanted", self.name),
                );
                None
            }
        }
    }

    /// A number of at least 1, or the word `auto` (`None`).
    pub(super) fn auto(&mut self, doc: &mut Document<'_>, key: &'static str) -> Option<Option<u32>> {
        let word =
            self.table.iter().find(|(name, _)| name.get_ref() == key).and_then(|(_, value)| value.get_ref().as_str());
        match word {
            Some(text) if !text.contains("${") => self.word(doc, key, &[("auto", None)]),
            Some(_) => {
                let read = |text: &str| match text {
                    "auto" => Ok(None),
                    _ => text
                        .parse()
                        .ok()
                        .filter(|n| *n > 0)
                        .map(Some)
                        .ok_or("`auto` or a number of at least 1 is wanted"),
                };
                self.parsed(doc, key, read).map(|at| at.value)
            }
            None => self.integer(doc, key, 1, 1_000_000).map(Some),
        }
    }

    /// Yes or no.
    pub(super) fn boolean(&mut self, doc: &mut Document<'_>, key: &'static str) -> Option<bool> {
        let value = self.entry(key)?;
        match value.get_ref() {
            DeValue::Boolean(yes) => Some(*yes),
            DeValue::String(text) if text.contains("${") => {
                let read = |text: &str| text.parse::<bool>().map_err(|_| "`true` or `false` is wanted");
                self.parsed(doc, key, read).map(|at| at.value)
            }
            _ => {
                self.wrong(doc, value, key, "true or false");
                None
            }
        }
    }

    /// A list of strings, not empty.
    pub(super) fn strings(&mut self, doc: &mut Document<'_>, key: &'static str) -> Option<At<Vec<String>>> {
        let value = self.entry(key)?;
        let line = doc.line(value.span().start);
        let wanted = "a list of strings, as [\"./charge.sh\", \"--live\"],";
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong(doc, value, key, wanted);
            return None;
        };
        let mut out = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::String(text) => out.push(self.expand(doc, key, text, item.span())?.value),
                _ => {
                    self.wrong(doc, item, key, wanted);
                    return None;
                }
            }
        }
        if out.first().is_none_or(String::is_empty) {
            doc.fault(line, format!("{}: `{key}` is empty, but {wanted} is wanted", self.name));
            return None;
        }
        Some(At { value: out, line })
    }

    /// A table under this one.
    pub(super) fn table(&mut self, doc: &mut Document<'_>, key: &'static str) -> Option<Section<'t, 'i>> {
        let value = self.entry(key)?;
        let line = doc.line(value.span().start);
        match value.get_ref() {
            DeValue::Table(table) => Some(Section::new(format!("{}: `{key}`", self.name), line, table)),
            _ => {
                self.wrong(doc, value, key, "a table");
                None
            }
        }
    }

    /// Reports the keys that nobody asked for. Call it when all known ones were.
    pub(super) fn finish(self, doc: &mut Document<'_>) {
        for name in self.table.keys() {
            let key: &str = name.get_ref();
            if !self.asked.contains(key) {
                let line = doc.line(name.span().start);
                let near = suggestion(key, self.asked.iter().copied());
                doc.fault(line, format!("{} has an unknown key `{}`{near}", self.name, crate::text::cut(key, 60)));
            }
        }
    }
}

/// What a value is, for an error.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
