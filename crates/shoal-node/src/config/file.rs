//! The configuration file: parses TOML into values with line numbers, and rejects unknown keys.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use shoal_base::spelling::suggestion;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::problem::{Problem, Provenance};
use super::settings::{LISTS, SECTIONS, SETTINGS, instead_of, is_former_section, of_section, position};
use super::value::{RawValue, Value};

/// Keys of one `[[freshness.rule]]`.
const FRESHNESS_RULE_KEYS: &[&str] = &["prefix", "freshness"];

/// Keys of one `[[write.rule]]`.
const WRITE_RULE_KEYS: &[&str] = &["prefix", "mode", "tier", "lifetime", "fallback"];

/// Keys of one `[[tier]]`.
const TIER_KEYS: &[&str] = &[
    "name",
    "folder",
    "endpoint",
    "region",
    "ca_file",
    "access_key",
    "secret_key",
    "secret_key_file",
    "bucket",
    "class_large",
    "capacity",
    "registry",
    "registry_certificate",
    "registry_key",
    "registry_password_file",
    "registry_quota",
];

/// Keys of one `[[lookup.place]]`.
const PLACE_KEYS: &[&str] = &["network", "topology"];

/// Keys of one `[[identity]]`.
const IDENTITY_KEYS: &[&str] = &[
    "access_key",
    "secret_key",
    "secret_key_file",
    "share",
    "lake_access_key",
    "lake_secret_key",
    "lake_secret_key_file",
];

/// The raw value of the setting at `position` in the table, and its origin.
pub(super) struct Assignment {
    pub(super) position: usize,
    pub(super) given: RawValue,
    pub(super) provenance: Provenance,
}

/// One table of a list such as `[[write.rule]]` or `[[identity]]`, as written.
pub(super) struct Entry {
    /// The line of its header.
    pub(super) provenance: Provenance,
    pub(super) title: &'static str,
    written: BTreeMap<&'static str, (RawValue, Provenance)>,
}

/// A parsed configuration file.
#[derive(Default)]
pub(super) struct File {
    pub(super) assignments: Vec<Assignment>,
    pub(super) freshness_rules: Vec<Entry>,
    pub(super) write_rules: Vec<Entry>,
    pub(super) tiers: Vec<Entry>,
    pub(super) places: Vec<Entry>,
    pub(super) identities: Vec<Entry>,
    /// Values that cannot be parsed.
    pub(super) problems: Vec<Problem>,
    /// Unknown names; the known ones are still valid.
    pub(super) strangers: Vec<Problem>,
}

impl Entry {
    /// Parses the value of a key and returns it with its origin; `None` if it is absent, or invalid (then
    /// recorded in `problems`).
    pub(super) fn take<T: Value>(
        &self,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<(T, Provenance)> {
        let (given, provenance) = self.written.get(key)?;
        match T::read(given) {
            Ok(value) => Some((value, provenance.clone())),
            Err(misread) => {
                let what = format!("{} {key} cannot be {}", self.title, misread.what);
                problems.push(Problem::new(provenance, what).hint(misread.hint));
                None
            }
        }
    }

    /// Returns true if the key is present.
    pub(super) fn has(&self, key: &str) -> bool {
        self.written.contains_key(key)
    }

    /// Returns where the value of the key is written, or the header line if the key is absent.
    pub(super) fn origin(&self, key: &str) -> &Provenance {
        self.written
            .get(key)
            .map_or(&self.provenance, |(_, provenance)| provenance)
    }

    /// Like [`Self::take`] for a required key.
    pub(super) fn require<T: Value>(
        &self,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<(T, Provenance)> {
        if !self.has(key) {
            let what = format!("{} has no {key}", self.title);
            problems.push(Problem::new(&self.provenance, what).hint(format!("add a line: {key} = ...")));
        }
        self.take(key, problems)
    }
}

/// Parses `text`, the content of the file at `path`.
pub(super) fn read(path: &Path, text: &str) -> File {
    let mut reader = Reader {
        path: path.into(),
        text,
        file: File::default(),
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let provenance = reader.provenance(error.span().map_or(0, |span| span.start));
        let what = format!("this is not TOML: {}", error.message());
        let hint = toml_hint(error.message());
        reader
            .file
            .problems
            .push(Problem::new(&provenance, what).hint(hint));
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
}

impl Reader<'_> {
    fn provenance(&self, offset: usize) -> Provenance {
        let line = self.text[..offset.min(self.text.len())].matches('\n').count() + 1;
        Provenance::File {
            path: Arc::clone(&self.path),
            line,
        }
    }

    fn problem(&mut self, offset: usize, what: String, hint: Option<String>) {
        let provenance = self.provenance(offset);
        self.file.problems.push(Problem {
            provenance,
            what,
            hint,
        });
    }

    fn stranger(&mut self, offset: usize, what: String, hint: Option<String>) {
        let provenance = self.provenance(offset);
        self.file.strangers.push(Problem {
            provenance,
            what,
            hint,
        });
    }

    fn document(&mut self, document: &DeTable<'_>) {
        for (name, value) in document {
            let (name, offset) = (name.get_ref().as_ref(), name.span().start);
            match (name, value.get_ref()) {
                ("identity", DeValue::Array(_)) => {
                    self.file.identities = self.entries("[[identity]]", IDENTITY_KEYS, value);
                }
                ("tier", DeValue::Array(_)) => {
                    self.file.tiers = self.entries("[[tier]]", TIER_KEYS, value);
                }
                (list, _) if LISTS.contains(&list) => self.single(list, offset),
                (section, DeValue::Table(table))
                    if SECTIONS.contains(&section) || is_former_section(section) =>
                {
                    self.section(section, table);
                }
                (section, _) if SECTIONS.contains(&section) => {
                    let what = format!("[{section}] is a section and not a value");
                    self.problem(
                        offset,
                        what,
                        Some(format!("write [{section}] on a line of its own")),
                    );
                }
                (unknown, DeValue::Table(_) | DeValue::Array(_)) => self.unknown_section(unknown, offset),
                (unknown, _) => {
                    let what = format!("unknown key \"{unknown}\" outside of any section");
                    self.stranger(offset, what, sections_with(unknown));
                }
            }
        }
    }

    fn section(&mut self, section: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let (key, offset) = (name.get_ref().as_ref(), name.span().start);
            match (section, key, value.get_ref()) {
                ("freshness", "rule", DeValue::Array(_)) => {
                    self.file.freshness_rules =
                        self.entries("[[freshness.rule]]", FRESHNESS_RULE_KEYS, value);
                }
                ("freshness", "rule", _) => self.single("freshness.rule", offset),
                ("write", "rule", DeValue::Array(_)) => {
                    self.file.write_rules = self.entries("[[write.rule]]", WRITE_RULE_KEYS, value);
                }
                ("write", "rule", _) => self.single("write.rule", offset),
                ("lookup", "place", DeValue::Array(_)) => {
                    self.file.places = self.entries("[[lookup.place]]", PLACE_KEYS, value);
                }
                ("lookup", "place", _) => self.single("lookup.place", offset),
                _ => self.assign(section, key, value, offset),
            }
        }
    }

    fn assign(&mut self, section: &str, key: &str, value: &Spanned<DeValue<'_>>, offset: usize) {
        let Some(position) = position(section, key) else {
            let known = of_section(section).map(|setting| setting.key);
            let known: Vec<_> = known.chain(list_of(section)).collect();
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

    /// Reads the tables of an array of tables and rejects keys that are not `known`.
    fn entries(
        &mut self,
        title: &'static str,
        known: &'static [&'static str],
        tables: &Spanned<DeValue<'_>>,
    ) -> Vec<Entry> {
        let mut entries = Vec::new();
        for table in tables.get_ref().as_array().into_iter().flatten() {
            let DeValue::Table(keys) = table.get_ref() else {
                self.problem(table.span().start, format!("{title} holds tables"), None);
                continue;
            };
            let mut written = BTreeMap::new();
            for (name, value) in keys {
                let (key, offset) = (name.get_ref().as_ref(), name.span().start);
                match known.iter().find(|known| **known == key) {
                    Some(known) => {
                        let given = self.given(value, key);
                        written.extend(given.map(|given| (*known, (given, self.provenance(offset)))));
                    }
                    None => self.unknown_key(key, title, known, offset),
                }
            }
            entries.push(Entry {
                provenance: self.provenance(table.span().start),
                title,
                written,
            });
        }
        entries
    }

    fn given(&mut self, value: &Spanned<DeValue<'_>>, key: &str) -> Option<RawValue> {
        let deserializer: ValueDeserializer<'_> = value.clone().into_deserializer();
        match toml::Value::deserialize(deserializer) {
            Ok(value) => Some(RawValue::File(value)),
            Err(error) => {
                self.problem(
                    value.span().start,
                    format!("{key} has no valid value: {}", error.message()),
                    None,
                );
                None
            }
        }
    }

    fn single(&mut self, name: &str, offset: usize) {
        let hint = format!("write [[{name}]], once for each");
        self.problem(offset, format!("[{name}] is a list of tables"), Some(hint));
    }

    fn unknown_section(&mut self, unknown: &str, offset: usize) {
        let hint = match suggestion(unknown, SECTIONS) {
            Some(list) if LISTS.contains(&list) => format!("did you mean [[{list}]]?"),
            Some(section) => format!("did you mean [{section}]?"),
            None => format!("the sections are {}", SECTIONS.join(", ")),
        };
        self.stranger(offset, format!("unknown section [{unknown}]"), Some(hint));
    }

    fn unknown_key(&mut self, unknown: &str, title: &str, known: &[&str], offset: usize) {
        if let Some(hint) = instead_of(title.trim_matches(['[', ']']), unknown) {
            return self.stranger(
                offset,
                format!("{title} {unknown} was removed"),
                Some(hint.into()),
            );
        }
        let hint = suggestion(unknown, known.iter().copied())
            .map(|key| format!("did you mean \"{key}\"?"))
            .or_else(|| sections_with(unknown))
            .unwrap_or_else(|| format!("the keys of {title} are {}", known.join(", ")));
        self.stranger(
            offset,
            format!("unknown key \"{unknown}\" in {title}"),
            Some(hint),
        );
    }
}

/// Returns the key of a section that holds a list of tables.
fn list_of(section: &str) -> Option<&'static str> {
    match section {
        "freshness" | "write" => Some("rule"),
        "lookup" => Some("place"),
        _ => None,
    }
}

/// Names the sections that have this key.
fn sections_with(key: &str) -> Option<String> {
    let sections = SETTINGS.iter().filter(|setting| setting.key == key);
    let sections: Vec<_> = sections.map(|setting| format!("[{}]", setting.section)).collect();
    (!sections.is_empty()).then(|| format!("\"{key}\" belongs to {}", sections.join(" or ")))
}
