//! Checks of `[[tier]]`.

use std::path::{Path, PathBuf};

use http::Uri;
use shoal_base::amount::human_bytes;
use shoal_base::tls::OwnCertificate;
use shoal_s3::uri::S3Uri;

use super::rules::{PEM_HINT, Rule, faults, others_reach, rules};
use super::texts::{
    ACCESS_KEY_HINT, access_key_fault, endpoint_fault, is_host_and_port, is_name, is_own, unreadable,
};
use super::{Check, Entry, Fault};
use crate::config::{
    Config, EtcdConfig, RegistryConfig, S3StoreConfig, TierConfig, TierStoreConfig, WriteRule,
};

const NAME_LENGTH_MAX: usize = 32;

const FOLDER_HINT: &str =
    "write endpoint and bucket of an S3 store that all nodes reach, and the URLs of an etcd as registry";
const CACHE_HINT: &str = "give the tier a folder of its own: the cache may lose its folder, the tier may not";

rules! {
    /// The rules for each `[[tier]]`.
    RULES: fn(&TierConfig, &Config) -> Vec<Fault>;

    tier name: |tier, _| (!is_tier_name(&tier.name)).then(|| format!("cannot be {:?}", tier.name)),
        format!("use 1 to {NAME_LENGTH_MAX} lower-case letters, digits and -");
    tier capacity: |tier, _| (tier.capacity_bytes == 0).then_some("is 0"),
        "write the room that dirty objects may take, such as \"100GiB\"";

    tier inline: |tier, _| (tier.inline_bytes > TierConfig::INLINE_BYTES_MAX)
            .then(|| format!("is more than {}", human_bytes(TierConfig::INLINE_BYTES_MAX))),
        "a registry orders names, and is too small for large objects: an etcd has a few GiB for everything and takes \
         1.5 MiB at a time; leave larger ones to the store";

    tier folder: |tier, config| folder(tier).and_then(|_| beyond_this_machine(config)), FOLDER_HINT;
    tier folder: |tier, config| folder(tier).and_then(|folder| in_the_cache(folder, config)), CACHE_HINT;

    tier endpoint: |tier, _| s3(tier).and_then(|store| endpoint_fault(&store.endpoint)),
        "write only scheme, host and port, such as https://store:9000";
    tier endpoint: |tier, config| s3(tier).is_some_and(|store| is_own(&store.endpoint, config))
            .then_some("is an address of this node itself"),
        "name the S3 store that keeps dirty objects";
    tier region: |tier, _| s3(tier).is_some_and(|store| !is_name(&store.region)).then_some("is not a region"),
        "write a name such as us-east-1";
    tier bucket: |tier, _| s3(tier).filter(|store| !is_bucket(&store.bucket))
            .map(|store| format!("cannot be {:?}", store.bucket)),
        "write the name of one bucket, and nothing else";
    tier class_large: |tier, _| s3(tier).and_then(|store| store.class_large.as_deref())
            .is_some_and(|class| !is_name(class))
            .then_some("is not a storage class"),
        "write a storage class that the store knows, such as \"STANDARD\"";
    tier access_key: |tier, _| s3(tier).and_then(|store| access_key_fault(&store.keys.as_ref()?.access_key)),
        ACCESS_KEY_HINT;
    tier ca_file: |tier, _| unreadable(ca_file(tier)), PEM_HINT;

    tier registry: |tier, _| registry(tier).filter(|path| names_hosts(path))
            .map(|_| "is neither a URL nor a folder"),
        registry(tier).map_or_else(String::new, |path| {
            format!("write https://{0} or http://{0} for an etcd, ./{0} for a folder", path.display())
        });
    tier registry: |tier, config| registry(tier).filter(|path| !names_hosts(path))
            .and_then(|_| beyond_this_machine(config)),
        FOLDER_HINT;
    tier registry: |tier, config| registry(tier).and_then(|registry| in_the_cache(registry, config)),
        CACHE_HINT;
    tier registry: |tier, _| folder(tier).zip(registry(tier))
            .filter(|(folder, registry)| nested(folder, registry))
            .map(|_| "lies in or around the folder of its tier"),
        "leave it out, which means the folder registry in that folder, or name one elsewhere";
    tier registry: |tier, _| etcd(tier).into_iter().flat_map(|etcd| etcd.endpoints.split(','))
            .filter_map(|member| Some(format!("names {member:?}, which {}", endpoint_fault(member)?))),
        "write the URLs of all members with commas, such as \"https://etcd-1:2379,https://etcd-2:2379\"";
    tier registry_certificate: |tier, _| unreadable(client(tier).map(|own| &*own.certificate)),
        PEM_HINT;
    tier registry_key: |tier, _| unreadable(client(tier).map(|own| &*own.key)), PEM_HINT;
}

impl Check<'_> {
    pub(super) fn tiers(&mut self) {
        let config = self.config;
        let tiers: Vec<_> = self.list("[[tier]]", &config.tiers).collect();
        for (position, (tier, entry)) in tiers.iter().enumerate() {
            for row in RULES {
                self.refuse(entry, row.key, (row.faults)(tier, config));
            }
            for (other, _) in &tiers[..position] {
                self.apart(tier, entry, other);
            }
        }
        self.written_once("name", tiers.iter().map(|(tier, entry)| (&tier.name, *entry)));
    }

    /// Checks that a tier shares nothing with an earlier one.
    fn apart(&mut self, tier: &TierConfig, entry: &Entry, other: &TierConfig) {
        let name = &other.name;
        if let (Some(one), Some(two)) = (s3(tier), s3(other))
            && one.bucket == two.bucket
            && is_same_server(&one.endpoint, &two.endpoint)
        {
            let what = format!("{:?} is that of the [[tier]] {name}, too", one.bucket);
            let hint = "give each tier a bucket of its own";
            self.refuse(entry, "bucket", [Fault::new(what, hint)]);
        }
        let others: Vec<_> = [folder(other), registry(other)].into_iter().flatten().collect();
        for (key, path) in [("folder", folder(tier)), ("registry", registry(tier))] {
            if path.is_some_and(|path| others.iter().any(|other| nested(path, other))) {
                let what = format!("lies in or around a folder of the [[tier]] {name}");
                self.refuse(
                    entry,
                    key,
                    [Fault::new(what, "give each tier folders of its own")],
                );
            }
        }
    }
}

/// Returns true if the objects of a rule are in the bucket of a tier.
pub(super) fn has_bucket_of(tier: &TierConfig, rule: &WriteRule, config: &Config) -> bool {
    let at_lake = s3(tier).filter(|store| is_same_server(&store.endpoint, &config.lake.endpoint));
    let uri = rule.prefix.parse::<S3Uri>();
    at_lake.is_some_and(|store| uri.is_ok_and(|uri| uri.bucket == store.bucket))
}

fn is_tier_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=NAME_LENGTH_MAX).contains(&name.len()) && name.chars().all(allowed)
}

fn is_bucket(name: &str) -> bool {
    format!("s3://{name}").parse::<S3Uri>().is_ok() && !name.contains('/')
}

fn s3(tier: &TierConfig) -> Option<&S3StoreConfig> {
    match &tier.store {
        TierStoreConfig::S3(store) => Some(store),
        TierStoreConfig::Folder(_) => None,
    }
}

/// Returns the folder of a tier's store.
fn folder(tier: &TierConfig) -> Option<&Path> {
    match &tier.store {
        TierStoreConfig::Folder(path) => Some(path),
        TierStoreConfig::S3(_) => None,
    }
}

fn etcd(tier: &TierConfig) -> Option<&EtcdConfig> {
    match &tier.registry {
        RegistryConfig::Etcd(etcd) => Some(etcd),
        RegistryConfig::Embedded(_) => None,
    }
}

/// Returns the folder of a tier's registry, unless it belongs to the folder of its store.
fn registry(tier: &TierConfig) -> Option<&Path> {
    match &tier.registry {
        RegistryConfig::Embedded(path) => {
            let is_within =
                folder(tier).is_some_and(|folder| tier.registry == RegistryConfig::within(folder));
            (!is_within).then_some(path)
        }
        RegistryConfig::Etcd(_) => None,
    }
}

/// Returns the certificate that a node shows to etcd.
fn client(tier: &TierConfig) -> Option<&OwnCertificate> {
    etcd(tier)?.client_certificate.as_ref()
}

fn ca_file(tier: &TierConfig) -> Option<&Path> {
    match s3(tier) {
        Some(store) => store.ca_file.as_deref(),
        None => etcd(tier)?.ca_file.as_deref(),
    }
}

/// Returns true if a folder looks like the addresses of an etcd.
fn names_hosts(path: &Path) -> bool {
    path.to_string_lossy()
        .split(',')
        .all(|part| is_host_and_port(part.trim()))
}

/// Returns what is wrong with a folder if nodes on other machines need it: only one process can open one.
/// Nodes on one machine are allowed to share it, because they may run in one process.
fn beyond_this_machine(config: &Config) -> Option<String> {
    let address = others_reach(config).filter(|address| !address.ip().is_loopback())?;
    Some(format!(
        "is a folder of this machine, and nodes on others ({address}) cannot use it"
    ))
}

/// Returns what is wrong with a folder in or around the cache's, which deletes unknown files and counts all.
fn in_the_cache(folder: &Path, config: &Config) -> Option<String> {
    let cache = &config.store.path;
    nested(folder, cache).then(|| format!("lies in or around [store] path ({})", cache.display()))
}

/// Returns true if one folder contains the other, or both are the same.
fn nested(one: &Path, other: &Path) -> bool {
    let (one, other) = (resolved(one), resolved(other));
    one.starts_with(&other) || other.starts_with(&one)
}

/// Returns the absolute path with symbolic links resolved, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    for ancestor in absolute.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), absolute.strip_prefix(ancestor)) {
            return real.join(rest);
        }
    }
    absolute
}

/// Returns true if two URLs name the same server.
fn is_same_server(one: &str, other: &str) -> bool {
    let server = |url: &str| {
        let uri: Uri = url.parse().ok()?;
        let is_https = uri.scheme_str()? == "https";
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        Some((uri.host()?.to_ascii_lowercase(), port))
    };
    server(one).is_some_and(|one| server(other) == Some(one))
}
