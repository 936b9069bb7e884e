//! Checks of the entries of lists, but for `[[tier]]`.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::Uri;
use shoal_base::spelling::suggestion;
use shoal_s3::uri::S3Uri;

use super::rules::{Rule, faults, rules};
use super::texts::{ACCESS_KEY_HINT, PLACE_HINT, access_key_fault, is_open_to_others, is_place, url_fault};
use super::tier::has_bucket_of;
use super::{Check, Entry, Fault, Problem};
use crate::config::problem::Provenance;
use crate::config::{
    Config, CooperationMode, FreshnessMode, HintRule, Identity, KeySourceConfig, Table, WriteMode, WriteRule,
};

/// Maximum share of an identity. Next to it, an identity with share 1 still gets every thousandth turn.
const SHARE_MAX: u32 = 1000;
/// Smaller packs save few requests; some programs cannot read larger ZIP files.
const PACK_BYTES: RangeInclusive<u64> = 64 << 10..=1 << 30;
const PACK_IDLE_MAX: Duration = Duration::from_hours(1);

rules! {
    /// The rules for each `[[write.rule]]`.
    WRITE_RULES: fn(&WriteRule, &Config) -> Vec<Fault>;

    write prefix: |rule, _| (is_back(rule) && !rule.prefix.trim_start_matches("s3://").contains('/'))
            .then(|| format!("{:?} does not end the bucket's name", rule.prefix)),
        "write s3://bucket/ for one bucket: without the slash it would be every bucket whose name begins so";
    // The tier may be in the lake, in a bucket of its own.
    write prefix: |rule, config| config.tiers.iter().filter(|tier| has_bucket_of(tier, rule, config))
            .map(|tier| format!("{:?} is in the bucket of the [[tier]] {}", rule.prefix, tier.name)),
        "give the tier a bucket that no client writes to";
    write mode: |rule, config| (is_back(rule) && config.tiers.is_empty())
            .then_some("cannot be \"back\" without a [[tier]]"),
        "write [[tier]] with name = \"a\", folder = \"/ssd/tier\" and capacity = \"100GiB\" for nodes of one \
         process; a cluster needs endpoint, bucket and registry in place of folder, see shoal.toml";
    write mode: |rule, config| (is_back(rule) && rule.tier.is_none() && config.tiers.len() > 1)
            .then_some("= \"back\" does not say into which tier"),
        format!("add tier = with one of {}", config.tier_names().join(", "));
    write tier: |rule, config| unknown_tier(rule, config).map(|name| format!("cannot be {name:?}")),
        known_tier(rule, config);
    write readers: |rule, config| unknown_reader(rule, config)
            .map(|reader| format!("names {reader:?}, which is the access_key of no [[identity]]")),
        known_identity(unknown_reader(rule, config), config);
    write flush_as: |rule, config| unknown_flusher(rule, config)
            .map(|flusher| format!("names {flusher:?}, which is the access_key of no [[identity]]")),
        known_identity(unknown_flusher(rule, config), config);
    write pack: |rule, _| (rule.pack.is_some() && !rule.prefix.ends_with('/'))
            .then(|| format!("needs a prefix that ends with a slash, and {:?} does not", rule.prefix)),
        "pack everything below a folder, such as s3://bucket/x/";
    // A name has one map.
    write pack: |rule, config| rule_below(rule, config)
            .map(|below| format!("stands beside the rule for {:?}, which covers a part of its names", below.prefix)),
        "give the packed objects a prefix without other rules";
    write pack_as: |rule, config| unknown_keeper(rule, config)
            .map(|keeper| format!("names {keeper:?}, which is the access_key of no [[identity]]")),
        known_identity(unknown_keeper(rule, config), config);
    write pack_bytes: |rule, _| rule.pack.as_ref().is_some_and(|pack| !PACK_BYTES.contains(&pack.pack_bytes))
            .then_some("is not between 64KiB and 1GiB"),
        "leave it out for 32MiB";
    write pack_below: |rule, _| rule.pack.as_ref()
            .is_some_and(|pack| pack.below_bytes == 0 || pack.below_bytes > pack.pack_bytes)
            .then_some("is not between 1 and pack_bytes"),
        "leave it out for 4MiB";
    write pack_idle: |rule, _| rule.pack.as_ref().is_some_and(|pack| pack.idle > PACK_IDLE_MAX)
            .then_some("is more than 1h"),
        "leave it out for 10s: objects that wait longer are only longer dirty";
}

rules! {
    /// The rules for each `[[hints.rule]]`.
    HINT_RULES: fn(&HintRule, &Config) -> Vec<Fault>;

    hints identity: |rule, config| rule.identity.as_deref().filter(|known| !access_keys(config).any(|key| key == *known))
            .map(|unknown| format!("is {unknown:?}, which is the access_key of no [[identity]]")),
        known_identity(rule.identity.as_deref(), config);
    hints identity: |rule, config| (rule.identity.is_none() && config.identities.len() > 1)
            .then(|| format!("is not there, and there are {}", config.identities.len())),
        "name the access_key in whose name the inputs of these jobs are read";
}

rules! {
    /// The rules for each `[[hints.table]]`.
    HINT_TABLES: fn(&Table) -> Vec<Fault>;

    hints location: |table| table.location.parse::<S3Uri>().err()
            .map(|why| format!("cannot be {:?}: {why}", table.location)),
        "write s3://bucket/prefix/";
}

rules! {
    /// The rules for each `[[identity]]`.
    IDENTITY_RULES: fn(&Identity) -> Vec<Fault>;

    identity access_key: |identity| access_key_fault(&identity.access_key), ACCESS_KEY_HINT;
    identity lake_access_key: |identity| identity.lake_account.as_ref()
            .and_then(|account| access_key_fault(&account.access_key)),
        ACCESS_KEY_HINT;
    identity share: |identity| (!(1..=SHARE_MAX).contains(&identity.share))
            .then(|| format!("is not between 1 and {SHARE_MAX}")),
        "write 1 for an identity like the others, 2 for one with twice their turns";
}

rules! {
    /// The rules for each `[[key_source]]`.
    KEY_SOURCE_RULES: fn(&KeySourceConfig) -> Vec<Fault>;

    key_source url: |source| source.url.as_deref().and_then(key_source_fault),
        "write https://host:port/path; http only for a service on this machine";
    key_source cache_time: |source| (!CACHE_TIMES.contains(&source.cache_time))
            .then_some("is not between 1s and 1h"),
        "leave it out for 1m";
}

/// How long an answer of a key source may hold.
const CACHE_TIMES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);

/// Returns what is wrong with the URL of a key source. Its answers are secrets.
fn key_source_fault(url: &str) -> Option<&'static str> {
    let uri = url.parse::<Uri>().unwrap_or_default();
    if let Some(fault) = url_fault(&uri) {
        Some(fault)
    } else if uri.query().is_some() {
        Some("has a query")
    } else if is_open_to_others(&uri) {
        Some("is http to another machine, and the answers are secrets")
    } else {
        None
    }
}

fn is_back(rule: &WriteRule) -> bool {
    rule.mode == WriteMode::Back
}

/// Returns the name of a tier that a rule names and that does not exist.
fn unknown_tier<'r>(rule: &'r WriteRule, config: &Config) -> Option<&'r str> {
    let name = rule
        .tier
        .as_deref()
        .filter(|_| is_back(rule) && !config.tiers.is_empty())?;
    (!config.tier_names().contains(&name)).then_some(name)
}

fn known_tier(rule: &WriteRule, config: &Config) -> String {
    let (name, tiers) = (rule.tier.as_deref().unwrap_or_default(), config.tier_names());
    suggestion(name, tiers.iter().copied()).map_or_else(
        || format!("the tiers are {}", tiers.join(", ")),
        |known| format!("did you mean \"{known}\"?"),
    )
}

/// Returns a reader that a rule names and that is no identity.
fn unknown_reader<'r>(rule: &'r WriteRule, config: &Config) -> Option<&'r str> {
    let mut readers = rule.readers.iter().filter(|_| is_back(rule));
    let is_role = |reader: &str| config.sts.is_on() && reader.starts_with("arn:");
    let unknown = readers.find(|reader| access_keys(config).all(|key| key != *reader) && !is_role(reader));
    unknown.map(String::as_str)
}

/// Returns the identity that flushes for writers that are gone if it is none of the configuration.
fn unknown_flusher<'r>(rule: &'r WriteRule, config: &Config) -> Option<&'r str> {
    let flusher = rule.flush_as.as_deref()?;
    access_keys(config).all(|key| key != flusher).then_some(flusher)
}

/// Returns the keeper of a rule if it is no identity.
fn unknown_keeper<'r>(rule: &'r WriteRule, config: &Config) -> Option<&'r str> {
    let keeper = &*rule.pack.as_ref()?.keeper;
    let is_unknown = !keeper.is_empty() && access_keys(config).all(|key| key != keeper);
    is_unknown.then_some(keeper)
}

/// Returns a rule for some of the names of a rule that packs.
fn rule_below<'c>(rule: &WriteRule, config: &'c Config) -> Option<&'c WriteRule> {
    let mut others = config
        .write
        .rules
        .iter()
        .filter(|other| other.prefix != rule.prefix);
    others.find(|other| rule.pack.is_some() && other.prefix.starts_with(&rule.prefix))
}

/// Returns the hint for a rule that names no identity.
pub(super) fn known_identity(unknown: Option<&str>, config: &Config) -> String {
    suggestion(unknown.unwrap_or_default(), access_keys(config)).map_or_else(
        || "add its [[identity]], or leave it out".into(),
        |known| format!("did you mean \"{known}\"?"),
    )
}

pub(super) fn access_keys(config: &Config) -> impl Iterator<Item = &str> {
    config.identities.iter().map(|identity| &*identity.access_key)
}

impl<'a> Check<'a> {
    /// Checks the entries of all lists that a node reads.
    pub(super) fn entries(&mut self) {
        let config = self.config;
        let rules = self.list("[[freshness.rule]]", &config.freshness.rules);
        self.prefixes(rules.map(|(rule, entry)| (&*rule.prefix, entry)));
        let rules = self.list("[[write.rule]]", &config.write.rules);
        self.prefixes(rules.map(|(rule, entry)| (&*rule.prefix, entry)));
        for (rule, entry) in self.list("[[write.rule]]", &config.write.rules) {
            for row in WRITE_RULES {
                self.refuse(entry, row.key, (row.faults)(rule, config));
            }
            self.keys_of_tiers(rule, entry);
        }
        self.tiers();
        if config.cooperation.mode != CooperationMode::Directory {
            self.coherent_without_directory();
        }
        for (rule, entry) in self.list("[[hints.rule]]", &config.hints.rules) {
            for row in HINT_RULES {
                self.refuse(entry, row.key, (row.faults)(rule, config));
            }
        }
        let rules = self.list("[[hints.rule]]", &config.hints.rules);
        self.written_once("namespace", rules.map(|(rule, entry)| (&rule.namespace, entry)));
        for (table, entry) in self.list("[[hints.table]]", &config.hints.tables) {
            for row in HINT_TABLES {
                self.refuse(entry, row.key, (row.faults)(table));
            }
        }
        let tables = self.list("[[hints.table]]", &config.hints.tables);
        self.written_once("names", tables.map(|(table, entry)| (&table.names, entry)));
        for (identity, entry) in self.list("[[identity]]", &config.identities) {
            for row in IDENTITY_RULES {
                self.refuse(entry, row.key, (row.faults)(identity));
            }
        }
        self.quotas();
        for (source, entry) in self.list("[[key_source]]", &config.key_sources) {
            for row in KEY_SOURCE_RULES {
                self.refuse(entry, row.key, (row.faults)(source));
            }
        }
        let identities = self.list("[[identity]]", &config.identities);
        self.written_once(
            "access_key",
            identities.map(|(identity, entry)| (&identity.access_key, entry)),
        );
    }

    pub(super) fn prefixes(&mut self, rules: impl Iterator<Item = (&'a str, &'a Entry)>) {
        let mut uris = Vec::new();
        for (prefix, entry) in rules {
            match prefix.parse::<S3Uri>() {
                Ok(uri) => uris.push((uri.to_string(), entry)),
                Err(why) => {
                    let what = format!("cannot be {prefix:?}: {why}");
                    self.refuse(entry, "prefix", [Fault::new(what, "write s3://bucket/prefix/")]);
                }
            }
        }
        self.written_once("prefix", uris);
    }

    /// Rejects an entry that has the same value of `key` as an earlier one.
    pub(super) fn written_once<V: Debug + Eq + Hash>(
        &mut self,
        key: &str,
        entries: impl IntoIterator<Item = (V, &'a Entry)>,
    ) {
        let mut seen = HashMap::new();
        for (value, entry) in entries {
            let what = format!("{value:?} is written twice");
            if let Some(first) = seen.insert(value, entry.origin(key)) {
                let hint = format!("the first stands at {first}");
                self.refuse(entry, key, [Fault::new(what, hint)]);
            }
        }
    }

    /// Rejects keys that only a rule that writes back, or that packs, may have.
    fn keys_of_tiers(&mut self, rule: &WriteRule, entry: &Entry) {
        let mode = rule.mode;
        let of_packs = ["pack_below", "pack_bytes", "pack_idle", "pack_as"].into_iter();
        for key in of_packs.filter(|key| rule.pack.is_none() && entry.has(key)) {
            let hint = "leave it out, or add pack = true";
            self.refuse(entry, key, [Fault::new("stands without pack = true", hint)]);
        }
        let of_tiers = ["tier", "lifetime", "fallback", "readers", "flush_as", "pack"].into_iter();
        for key in of_tiers.filter(|key| mode != WriteMode::Back && entry.has(key)) {
            let what = format!("stands beside mode = \"{}\"", mode.as_str());
            let hint =
                "leave it out, or write mode = \"back\": only objects that are written back are in a tier";
            self.refuse(entry, key, [Fault::new(what, hint)]);
        }
    }

    /// Without a directory, nodes cannot learn of each other's changes.
    fn coherent_without_directory(&mut self) {
        let freshness = &self.config.freshness;
        let rules = self.list("[[freshness.rule]]", &freshness.rules);
        let rules = rules.map(|(rule, entry)| (rule.mode, entry.origin("freshness")));
        let default = self.draft.provenance("freshness", "default");
        let modes = rules.chain([(freshness.default, default)]);
        for (_, provenance) in modes.filter(|(mode, _)| *mode == FreshnessMode::Coherent) {
            let what = "freshness \"coherent\" needs a directory";
            let hint = "write a time such as \"10s\", or [cooperation] mode = \"directory\"";
            self.report.problems.push(Problem::new(provenance, what, hint));
        }
    }

    /// Checks the entries of the list that the name server reads.
    pub(super) fn places(&mut self) {
        let places = || self.list("[[lookup.place]]", &self.config.lookup.places);
        let networks = places().map(|(place, entry)| (place.network, entry));
        for (place, entry) in places().filter(|(place, _)| !is_place(&place.topology)) {
            let what = format!("cannot be {:?}", place.topology);
            self.refuse(entry, "topology", [Fault::new(what, PLACE_HINT)]);
        }
        self.written_once("network", networks);
        if self.config.lookup.places.is_empty() {
            let what = "no [[lookup.place]] says where clients are";
            let hint =
                "all nodes are equally far from every client; write the places of the networks of your racks";
            self.warn(&Provenance::Default, what, hint);
        }
    }
}
