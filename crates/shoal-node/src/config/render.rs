//! The configuration in force, for `--check`: a file that can be loaded again, but with secrets hidden.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};
use toml::Value as Toml;

use super::settings::{ConfigDraft, LISTS, SECTIONS, of_section};
use super::value::Value;
use super::{
    Config, FreshnessRule, IdentityConfig, LookupPlace, RegistryConfig, Role, TierConfig, TierStoreConfig,
    WriteMode, WriteRule,
};

type Pairs = Vec<(&'static str, Option<Toml>)>;

impl Config {
    /// Returns a file that sets every value that `role` reads to its current value, with secrets hidden.
    pub fn to_toml(&self, role: Role) -> String {
        let draft = ConfigDraft::over(self.clone());
        let mut text = String::new();
        for section in read_by(role) {
            let shown = of_section(section)
                .map(|setting| (setting.key, (setting.show)(&draft)))
                .collect();
            push_table(&mut text, &format!("[{section}]"), &shown);
            if let Some((list, tables)) = self.lists_of(section) {
                let title = format!("[[{section}.{list}]]");
                for pairs in &tables {
                    push_table(&mut text, &title, pairs);
                }
            }
        }
        for (list, tables) in self.lists().filter(|(list, _)| role.reads(list)) {
            let title = format!("[[{list}]]");
            for pairs in &tables {
                push_table(&mut text, &title, pairs);
            }
        }
        text
    }

    /// Returns the same as JSON.
    pub fn to_json(&self, role: Role) -> Json {
        let draft = ConfigDraft::over(self.clone());
        let mut document = Map::new();
        for section in read_by(role) {
            let shown = of_section(section)
                .map(|setting| (setting.key, (setting.show)(&draft)))
                .collect();
            let mut shown = to_json(shown);
            if let Some((list, tables)) = self.lists_of(section) {
                shown[list] = tables.into_iter().map(to_json).collect();
            }
            document.insert(section.into(), shown);
        }
        for (list, tables) in self.lists().filter(|(list, _)| role.reads(list)) {
            document.insert(list.into(), tables.into_iter().map(to_json).collect());
        }
        Json::Object(document)
    }

    /// Returns the sections that are lists of tables.
    fn lists(&self) -> impl Iterator<Item = (&'static str, Vec<Pairs>)> {
        LISTS.into_iter().zip([
            self.tiers.iter().map(tier_pairs).collect(),
            self.identities.iter().map(identity_pairs).collect(),
        ])
    }

    /// Returns the list of tables within a section.
    fn lists_of(&self, section: &str) -> Option<(&'static str, Vec<Pairs>)> {
        match section {
            "freshness" => Some((
                "rule",
                self.freshness.rules.iter().map(freshness_rule_pairs).collect(),
            )),
            "write" => Some(("rule", self.write.rules.iter().map(write_rule_pairs).collect())),
            "lookup" => Some(("place", self.lookup.places.iter().map(place_pairs).collect())),
            _ => None,
        }
    }
}

/// Returns the sections that `role` reads and that are not lists themselves.
fn read_by(role: Role) -> impl Iterator<Item = &'static str> {
    SECTIONS
        .into_iter()
        .filter(move |section| !LISTS.contains(section) && role.reads(section))
}

/// Pairs of keys and values.
macro_rules! pairs {
    ($($key:literal: $value:expr),* $(,)?) => { [$(($key, $value.to_toml())),*] };
}

fn freshness_rule_pairs(rule: &FreshnessRule) -> Pairs {
    pairs!("prefix": rule.prefix, "freshness": rule.mode).into()
}

fn write_rule_pairs(rule: &WriteRule) -> Pairs {
    let mut pairs = Pairs::from(pairs!("prefix": rule.prefix, "mode": rule.mode));
    if rule.mode == WriteMode::Back {
        pairs.extend(pairs!("tier": rule.tier, "lifetime": rule.lifetime, "fallback": rule.fallback));
    }
    pairs
}

fn tier_pairs(tier: &TierConfig) -> Pairs {
    let mut pairs = Pairs::from(pairs!("name": tier.name));
    match &tier.store {
        TierStoreConfig::Folder(path) => pairs.extend(pairs!("folder": path)),
        TierStoreConfig::S3(store) => {
            let keys = store.keys.as_ref();
            pairs.extend(pairs!(
                "endpoint": store.endpoint,
                "region": store.region,
                "ca_file": store.ca_file,
                "access_key": keys.map(|keys| keys.access_key.clone()),
                "secret_key": keys.map(|keys| keys.secret_key.clone()),
                "bucket": store.bucket,
                "class_large": store.class_large,
            ));
        }
    }
    pairs.extend(pairs!("capacity": tier.capacity_bytes));
    match &tier.registry {
        RegistryConfig::Embedded(path) => pairs.extend(pairs!("registry": path)),
        RegistryConfig::Etcd(etcd) => {
            let (certificate, key) = etcd.client_certificate.clone().unzip();
            let user = etcd.user.as_ref();
            let endpoints = match user {
                Some(user) => etcd.endpoints.replacen("://", &format!("://{}@", user.name), 1),
                None => etcd.endpoints.clone(),
            };
            if matches!(tier.store, TierStoreConfig::Folder(_)) {
                pairs.extend(pairs!("ca_file": etcd.ca_file));
            }
            pairs.extend(pairs!(
                "registry": endpoints,
                "registry_certificate": certificate,
                "registry_key": key,
                "registry_password_file": user.map(|user| user.password_file.clone()),
                "registry_quota": etcd.quota_bytes,
            ));
        }
    }
    pairs
}

fn place_pairs(place: &LookupPlace) -> Pairs {
    pairs!("network": place.network, "topology": place.topology).into()
}

fn identity_pairs(identity: &IdentityConfig) -> Pairs {
    Pairs::from(pairs!(
        "access_key": identity.access_key,
        "secret_key": identity.secret_key,
        "share": identity.share,
        "lake_access_key": identity.lake_access_key,
        "lake_secret_key": identity.lake_secret_key,
    ))
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

/// Returns the names of the node settings in which two configurations differ.
pub(crate) fn differences(one: &Config, other: &Config) -> Vec<String> {
    let drafts = [one, other].map(|config| ConfigDraft::over(config.clone()));
    let mut names = Vec::new();
    for section in read_by(Role::Node) {
        let differing = of_section(section).filter(|setting| {
            let [one, other] = &drafts;
            (setting.show)(one) != (setting.show)(other)
        });
        names.extend(differing.map(|setting| format!("[{section}] {}", setting.key)));
    }
    // All secrets are rendered alike, so their values are compared here.
    let secrets = [
        ("[lake] secret_key", &one.lake.secret_key, &other.lake.secret_key),
        (
            "[cooperation] secret_key",
            &one.cooperation.secret_key,
            &other.cooperation.secret_key,
        ),
        (
            "[cooperation] secret_key_file",
            &one.cooperation.previous_secret_key,
            &other.cooperation.previous_secret_key,
        ),
        (
            "[directory] password_file",
            &one.directory.password,
            &other.directory.password,
        ),
    ];
    for (name, one, other) in secrets {
        if one.is_some() && other.is_some() && one != other {
            names.push(name.into());
        }
    }
    let lists = [
        ("[[freshness.rule]]", one.freshness.rules != other.freshness.rules),
        ("[[write.rule]]", one.write.rules != other.write.rules),
        ("[[tier]]", one.tiers != other.tiers),
        ("[[identity]]", one.identities != other.identities),
    ];
    names.extend(
        lists
            .iter()
            .filter(|(_, differ)| *differ)
            .map(|(name, _)| (*name).into()),
    );
    names
}
