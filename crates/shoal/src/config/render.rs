//! The configuration in force, for `--check`: as a file that could be read again, but with secrets hidden.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};
use toml::Value as Toml;

use super::settings::{Draft, SECTIONS, of_section};
use super::value::Value;
use super::{Config, FreshnessRule, IdentityConfig};

type Pairs = Vec<(&'static str, Option<Toml>)>;

impl Config {
    /// The file that would set every value as it is, secrets hidden.
    pub fn to_toml(&self) -> String {
        let draft = Draft::over(self.clone());
        let mut text = String::new();
        for section in SECTIONS.iter().filter(|section| **section != "identity") {
            let shown = of_section(section)
                .map(|setting| (setting.key, (setting.show)(&draft)))
                .collect();
            push_table(&mut text, &format!("[{section}]"), &shown);
            if *section == "freshness" {
                let rules = self.freshness.rules.iter().map(rule_pairs);
                rules.for_each(|pairs| push_table(&mut text, "[[freshness.rule]]", &pairs));
            }
        }
        let identities = self.identities.iter().map(identity_pairs);
        identities.for_each(|pairs| push_table(&mut text, "[[identity]]", &pairs));
        text
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Json {
        let draft = Draft::over(self.clone());
        let mut document = Map::new();
        for section in SECTIONS.iter().filter(|section| **section != "identity") {
            let shown = of_section(section)
                .map(|setting| (setting.key, (setting.show)(&draft)))
                .collect();
            document.insert((*section).into(), to_json(shown));
        }
        document["freshness"]["rule"] = self
            .freshness
            .rules
            .iter()
            .map(|rule| to_json(rule_pairs(rule)))
            .collect();
        let identities: Json = self
            .identities
            .iter()
            .map(|identity| to_json(identity_pairs(identity)))
            .collect();
        document.insert("identity".into(), identities);
        Json::Object(document)
    }
}

fn rule_pairs(rule: &FreshnessRule) -> Pairs {
    vec![
        ("prefix", rule.prefix.to_toml()),
        ("freshness", rule.mode.to_toml()),
    ]
}

fn identity_pairs(identity: &IdentityConfig) -> Pairs {
    vec![
        ("access_key", identity.access_key.to_toml()),
        ("secret_key", identity.secret_key.to_toml()),
        ("lake_access_key", identity.lake_access_key.to_toml()),
        ("lake_secret_key", identity.lake_secret_key.to_toml()),
    ]
}

fn push_table(text: &mut String, title: &str, pairs: &Pairs) {
    if !text.is_empty() {
        text.push('\n');
    }
    writeln!(text, "{title}").expect("writing to a string does not fail");
    for (key, value) in pairs {
        if let Some(value) = value {
            writeln!(text, "{key} = {value}").expect("writing to a string does not fail");
        }
    }
}

fn to_json(pairs: Pairs) -> Json {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.map_or(Json::Null, |value| json!(value))))
        .collect()
}
