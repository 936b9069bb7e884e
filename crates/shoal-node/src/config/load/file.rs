//! The configuration file: parses TOML into values with line numbers, and rejects unknown keys.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use shoal_base::spelling::suggestion;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

use crate::config::problem::{Problem, Provenance, Report};
use crate::config::settings::{REMOVED, SECTIONS, SETTINGS, of_section, position};
use crate::config::value::RawValue;

/// A list of tables: its name, with the section that holds it if there is one, and its keys.
struct List {
    name: &'static str,
    title: &'static str,
    keys: &'static [&'static str],
}

macro_rules! lists {
    ($($name:literal: $($key:ident)+;)*) => {
        /// Every list of tables.
        static LISTS: &[List] = &[$(List {
            name: $name,
            title: concat!("[[", $name, "]]"),
            keys: &[$(stringify!($key)),+],
        },)*];
    };
}

lists! {
    "freshness.rule": prefix freshness;
    "write.rule": prefix mode tier lifetime fallback readers flush_as pack pack_below pack_bytes pack_idle
        pack_as;
    "tier": name folder endpoint region ca_file access_key secret_key secret_key_file bucket class_large
        capacity inline receipts registry registry_certificate registry_key registry_password_file registry_quota;
    "hints.rule": namespace identity;
    "hints.table": names location;
    "lookup.place": network topology;
    "identity": access_key secret_key secret_key_file share lake_access_key lake_secret_key
        lake_secret_key_file;
    "key_source": kind url ca_file headers headers_file access_key secret_key secret_key_file cache_time;
    "quota": identity prefix room bandwidth;
}

/// The raw value of the setting at `position` in the table, and its origin.
pub(in crate::config) struct Assignment {
    pub(in crate::config) position: usize,
    pub(in crate::config) given: RawValue,
    pub(in crate::config) provenance: Provenance,
}

/// One table of a list such as `[[write.rule]]` or `[[identity]]`, as written.
pub(in crate::config) struct Entry {
    /// The line of its header.
    pub(in crate::config) provenance: Provenance,
    pub(in crate::config) title: &'static str,
    pub(super) written: BTreeMap<&'static str, (RawValue, Provenance)>,
}

/// A parsed configuration file.
#[derive(Default)]
pub(in crate::config) struct File {
    pub(in crate::config) assignments: Vec<Assignment>,
    /// The tables of all lists, in the order of the file.
    entries: Vec<Entry>,
}

impl File {
    /// Returns the tables of a list.
    pub(in crate::config) fn list(&self, title: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.title == title)
    }

    /// Returns true if a secret stands in the file itself.
    pub(in crate::config) fn holds_secrets(&self) -> bool {
        let secrets = ["secret_key", "lake_secret_key", "headers"];
        let has_secret = |entry: &Entry| secrets.iter().any(|key| entry.has(key));
        let is_secret = |one: &Assignment| SETTINGS[one.position].is_secret();
        self.assignments.iter().any(is_secret) || self.entries.iter().any(has_secret)
    }
}

impl Assignment {
    /// Assigns the text of a variable or of a flag.
    pub(in crate::config) fn bare(position: usize, text: &str, provenance: Provenance) -> Self {
        Self {
            position,
            given: RawValue::Bare(text.into()),
            provenance,
        }
    }
}

impl Entry {
    /// Returns true if the key is present.
    pub(in crate::config) fn has(&self, key: &str) -> bool {
        self.written.contains_key(key)
    }

    /// Returns where the value of the key is written, or the header line if the key is absent.
    pub(in crate::config) fn origin(&self, key: &str) -> &Provenance {
        let written = self.written.get(key);
        written.map_or(&self.provenance, |(_, provenance)| provenance)
    }
}

/// Parses `text`, the content of the file at `path`.
pub(in crate::config) fn read(path: &Path, text: &str, report: &mut Report) -> File {
    let mut reader = Reader {
        path: path.into(),
        text,
        file: File::default(),
        report,
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let offset = error.span().map_or(0, |span| span.start);
        let what = format!("this is not TOML: {}", error.message());
        reader.problem(offset, what, Some(toml_hint(error.message()).into()));
    }
    // The partial content of a malformed file would only cause misleading problems.
    if errors.is_empty() {
        reader.document(document.get_ref());
    }
    reader.file
}

/// Returns a hint for an error message of the TOML parser.
fn toml_hint(message: &str) -> &'static str {
    if message.contains("duplicate") {
        "write each section and each key once, and move what stands below the second one to the first"
    } else {
        "sections stand in [brackets], lists of them in [[two]], values that are no number, true or false in \"quotes\""
    }
}

struct Reader<'a> {
    path: Arc<Path>,
    text: &'a str,
    file: File,
    report: &'a mut Report,
}

impl Reader<'_> {
    fn provenance(&self, offset: usize) -> Provenance {
        let line = self.text[..offset.min(self.text.len())].matches('\n').count() + 1;
        Provenance::File {
            path: Arc::clone(&self.path),
            line,
        }
    }

    fn at(&self, offset: usize, what: String, hint: Option<String>) -> Problem {
        let provenance = self.provenance(offset);
        Problem {
            provenance,
            what,
            hint,
        }
    }

    fn problem(&mut self, offset: usize, what: String, hint: Option<String>) {
        let problem = self.at(offset, what, hint);
        self.report.problems.push(problem);
    }

    fn stranger(&mut self, offset: usize, what: String, hint: Option<String>) {
        let problem = self.at(offset, what, hint);
        self.report.strangers.push(problem);
    }

    fn document(&mut self, document: &DeTable<'_>) {
        for (name, value) in document {
            let (name, offset) = (name.get_ref().as_ref(), name.span().start);
            if self.list(name, value, offset) {
                continue;
            }
            let is_former = REMOVED.iter().any(|(section, ..)| *section == name);
            let is_section = SECTIONS.contains(&name) || is_former;
            match value.get_ref() {
                DeValue::Table(table) if is_section => {
                    for (key, value) in table {
                        let (key, offset) = (key.get_ref().as_ref(), key.span().start);
                        if !self.list(&format!("{name}.{key}"), value, offset) {
                            self.assign(name, key, value, offset);
                        }
                    }
                }
                _ if is_section => {
                    let what = format!("[{name}] is a section and not a value");
                    let hint = format!("write [{name}] on a line of its own");
                    self.problem(offset, what, Some(hint));
                }
                DeValue::Table(_) | DeValue::Array(_) => self.unknown_section(name, offset),
                _ => {
                    let what = format!("unknown key \"{name}\" outside of any section");
                    self.stranger(offset, what, sections_with(name));
                }
            }
        }
    }

    /// Reads the value of a list; returns false if there is no list of this name.
    fn list(&mut self, name: &str, value: &Spanned<DeValue<'_>>, offset: usize) -> bool {
        let Some(list) = LISTS.iter().find(|list| list.name == name) else {
            return false;
        };
        if let DeValue::Array(tables) = value.get_ref() {
            self.entries(list, tables);
        } else {
            let hint = format!("write {}, once for each", list.title);
            self.problem(offset, format!("[{name}] is a list of tables"), Some(hint));
        }
        true
    }

    fn assign(&mut self, section: &str, key: &str, value: &Spanned<DeValue<'_>>, offset: usize) {
        let Some(position) = position(section, key) else {
            let known = of_section(section).map(|setting| setting.key);
            let list_of = |list: &'static List| list.name.strip_prefix(section)?.strip_prefix('.');
            let known: Vec<_> = known.chain(LISTS.iter().filter_map(list_of)).collect();
            return self.unknown_key(key, &format!("[{section}]"), &known, offset);
        };
        if let Some(given) = self.given(value, key) {
            self.file.assignments.push(Assignment {
                position,
                given,
                provenance: self.provenance(offset),
            });
        }
    }

    /// Reads the tables of a list and rejects unknown keys.
    fn entries(&mut self, list: &'static List, tables: &DeArray<'_>) {
        for table in tables {
            let DeValue::Table(keys) = table.get_ref() else {
                self.problem(table.span().start, format!("{} holds tables", list.title), None);
                continue;
            };
            let mut written = BTreeMap::new();
            for (name, value) in keys {
                let (key, offset) = (name.get_ref().as_ref(), name.span().start);
                match list.keys.iter().find(|known| **known == key) {
                    Some(known) => {
                        let given = self.given(value, key);
                        written.extend(given.map(|given| (*known, (given, self.provenance(offset)))));
                    }
                    None => self.unknown_key(key, list.title, list.keys, offset),
                }
            }
            let entry = Entry {
                provenance: self.provenance(table.span().start),
                title: list.title,
                written,
            };
            self.file.entries.push(entry);
        }
    }

    fn given(&mut self, value: &Spanned<DeValue<'_>>, key: &str) -> Option<RawValue> {
        let deserializer: ValueDeserializer<'_> = value.clone().into_deserializer();
        match toml::Value::deserialize(deserializer) {
            Ok(value) => Some(RawValue::File(value)),
            Err(error) => {
                let what = format!("{key} has no valid value: {}", error.message());
                self.problem(value.span().start, what, None);
                None
            }
        }
    }

    fn unknown_section(&mut self, unknown: &str, offset: usize) {
        let hint = match suggestion(unknown, SECTIONS) {
            Some(name) if LISTS.iter().any(|list| list.name == name) => format!("did you mean [[{name}]]?"),
            Some(section) => format!("did you mean [{section}]?"),
            None => format!("the sections are {}", SECTIONS.join(", ")),
        };
        self.stranger(offset, format!("unknown section [{unknown}]"), Some(hint));
    }

    fn unknown_key(&mut self, unknown: &str, title: &str, known: &[&str], offset: usize) {
        let name = title.trim_matches(['[', ']']);
        let mut removed = REMOVED.iter();
        if let Some((.., hint)) = removed.find(|(section, key, _)| (*section, *key) == (name, unknown)) {
            let what = format!("{title} {unknown} was removed");
            return self.stranger(offset, what, Some((*hint).into()));
        }
        let hint = suggestion(unknown, known.iter().copied())
            .map(|key| format!("did you mean \"{key}\"?"))
            .or_else(|| sections_with(unknown))
            .unwrap_or_else(|| format!("the keys of {title} are {}", known.join(", ")));
        let what = format!("unknown key \"{unknown}\" in {title}");
        self.stranger(offset, what, Some(hint));
    }
}

/// Names the sections that have this key.
fn sections_with(key: &str) -> Option<String> {
    let sections = SETTINGS.iter().filter(|setting| setting.key == key);
    let sections: Vec<_> = sections.map(|setting| format!("[{}]", setting.section)).collect();
    (!sections.is_empty()).then(|| format!("\"{key}\" belongs to {}", sections.join(" or ")))
}
