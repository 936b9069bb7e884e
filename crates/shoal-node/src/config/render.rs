//! The configuration in force, for `--check`: a file that can be loaded again, but with secrets hidden.

use serde_json::{Value as Json, json};
use toml::Value as Toml;

use super::settings::{ConfigDraft, LISTS, SECTIONS, of_section};
use super::value::Value;
use super::{
    Config, FreshnessRule, HintRule, Identity, KeySourceConfig, LookupPlace, QuotaConfig, QuotaScope,
    RegistryConfig, Role, Table, TierConfig, TierStoreConfig, WriteMode, WriteRule,
};

type Pairs = Vec<(&'static str, Option<Toml>)>;

/// A section or a list as it is shown.
struct Shown {
    /// Such as `store`, `tier` or `write.rule`.
    name: &'static str,
    is_list: bool,
    /// The settings of the section, or of each table of the list.
    tables: Vec<Pairs>,
}

impl Config {
    /// Returns a file that sets every value that `role` reads to its current value, with secrets hidden.
    pub fn to_toml(&self, role: Role) -> String {
        let tables = self.shown(role).into_iter().flat_map(|shown| {
            let (open, close) = if shown.is_list { ("[[", "]]") } else { ("[", "]") };
            let title = format!("{open}{}{close}\n", shown.name);
            shown.tables.into_iter().map(move |pairs| {
                let set = pairs
                    .into_iter()
                    .filter_map(|(key, value)| Some(format!("{key} = {}\n", value?)));
                title.clone() + &set.collect::<String>()
            })
        });
        tables.collect::<Vec<_>>().join("\n")
    }

    /// Returns the same as JSON.
    pub fn to_json(&self, role: Role) -> Json {
        let mut document = json!({});
        for Shown {
            name,
            is_list,
            tables,
        } in self.shown(role)
        {
            let mut tables = tables.into_iter().map(to_json);
            let value = if is_list {
                tables.collect()
            } else {
                tables.next().into()
            };
            match name.split_once('.') {
                Some((section, list)) => document[section][list] = value,
                None => document[name] = value,
            }
        }
        document
    }

    /// Returns the sections that `role` reads, each with its list, and then the lists of their own.
    fn shown(&self, role: Role) -> Vec<Shown> {
        let draft = ConfigDraft::over(self.clone());
        let section = |name| {
            let pairs = of_section(name).map(|setting| (setting.key, (setting.show)(&draft)));
            Shown {
                name,
                is_list: false,
                tables: vec![pairs.collect()],
            }
        };
        let mut lists = vec![
            list("freshness.rule", &self.freshness.rules, freshness_rule_pairs),
            list("write.rule", &self.write.rules, write_rule_pairs),
            list("hints.rule", &self.hints.rules, hint_rule_pairs),
            list("hints.table", &self.hints.tables, hint_table_pairs),
            list("lookup.place", &self.lookup.places, place_pairs),
            list("tier", &self.tiers, tier_pairs),
            list("identity", &self.identities, identity_pairs),
            list("key_source", &self.key_sources, key_source_pairs),
            list("quota", &self.quotas, quota_pairs),
        ];
        let mut all = Vec::new();
        for name in read_by(role) {
            all.push(section(name));
            all.extend(lists.extract_if(.., |list| list.name.starts_with(&format!("{name}."))));
        }
        let is_read = |list: &Shown| LISTS.contains(&list.name) && role.reads(list.name);
        all.extend(lists.into_iter().filter(is_read));
        all
    }
}

fn list<T>(name: &'static str, values: &[T], pairs: fn(&T) -> Pairs) -> Shown {
    Shown {
        name,
        is_list: true,
        tables: values.iter().map(pairs).collect(),
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
        pairs.extend(pairs!(
            "tier": rule.tier,
            "lifetime": rule.lifetime,
            "fallback": rule.fallback,
            "readers": rule.readers,
            "flush_as": rule.flush_as,
        ));
    }
    if let Some(pack) = &rule.pack {
        pairs.extend(pairs!(
            "pack": true,
            "pack_below": pack.below_bytes,
            "pack_bytes": pack.pack_bytes,
            "pack_idle": pack.idle,
            "pack_as": pack.keeper,
        ));
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
    pairs.extend(pairs!(
        "capacity": tier.capacity_bytes,
        "inline": tier.inline_bytes,
        "receipts": tier.receipts,
    ));
    match &tier.registry {
        RegistryConfig::Embedded(path) => pairs.extend(pairs!("registry": path)),
        RegistryConfig::Etcd(etcd) => {
            let own = etcd.client_certificate.clone();
            let (certificate, key) = own.map(|own| (own.certificate, own.key)).unzip();
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

fn hint_rule_pairs(rule: &HintRule) -> Pairs {
    pairs!("namespace": rule.namespace, "identity": rule.identity).into()
}

fn hint_table_pairs(table: &Table) -> Pairs {
    pairs!("names": table.names, "location": table.location).into()
}

fn place_pairs(place: &LookupPlace) -> Pairs {
    pairs!("network": place.network, "topology": place.topology).into()
}

fn identity_pairs(identity: &Identity) -> Pairs {
    let account = identity.lake_account.as_ref();
    Pairs::from(pairs!(
        "access_key": identity.access_key,
        "secret_key": identity.secret_key,
        "share": identity.share,
        "lake_access_key": account.map(|account| account.access_key.clone()),
        "lake_secret_key": account.map(|account| account.secret_key.clone()),
    ))
}

fn key_source_pairs(source: &KeySourceConfig) -> Pairs {
    let account = source.account.as_ref();
    Pairs::from(pairs!(
        "kind": source.kind,
        "url": source.url,
        "ca_file": source.ca_file,
        "headers": source.headers,
        "access_key": account.map(|account| account.access_key.clone()),
        "secret_key": account.map(|account| account.secret_key.clone()),
        "cache_time": source.cache_time,
    ))
}

fn quota_pairs(quota: &QuotaConfig) -> Pairs {
    let mut pairs = match &quota.scope {
        QuotaScope::Identity(name) => Pairs::from(pairs!("identity": name)),
        QuotaScope::Prefix(prefix) => Pairs::from(pairs!("prefix": prefix)),
    };
    pairs.extend(pairs!("room": quota.room, "bandwidth": quota.bandwidth));
    pairs
}

fn to_json(pairs: Pairs) -> Json {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.map_or(Json::Null, |value| json!(value))))
        .collect()
}

/// Returns the names of the node settings in which two configurations differ.
pub(crate) fn differences(one: &Config, other: &Config) -> Vec<String> {
    let [one_draft, other_draft] = [one, other].map(|config| ConfigDraft::over(config.clone()));
    let settings = read_by(Role::Node).flat_map(of_section);
    let differing = settings.filter(|setting| (setting.differs)(&one_draft, &other_draft));
    let names = differing.map(|setting| format!("[{}] {}", setting.section, setting.key));
    let (secret, other_secret) = (
        &one.cooperation.previous_secret_key,
        &other.cooperation.previous_secret_key,
    );
    let others = [
        ("[cooperation] secret_key_file", secret != other_secret),
        (
            "[directory] password_file",
            one.directory.password != other.directory.password,
        ),
        ("[trace] headers_file", one.trace.headers != other.trace.headers),
        ("[[freshness.rule]]", one.freshness.rules != other.freshness.rules),
        ("[[write.rule]]", one.write.rules != other.write.rules),
        ("[[hints.rule]]", one.hints.rules != other.hints.rules),
        ("[[hints.table]]", one.hints.tables != other.hints.tables),
        ("[[tier]]", one.tiers != other.tiers),
        ("[[identity]]", one.identities != other.identities),
        ("[[key_source]]", one.key_sources != other.key_sources),
        ("[[quota]]", one.quotas != other.quotas),
    ];
    let others = others.into_iter().filter(|(_, differ)| *differ);
    names.chain(others.map(|(name, _)| name.into())).collect()
}
