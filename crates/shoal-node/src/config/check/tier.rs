//! Checks of `[[tier]]`.

use std::path::{Path, PathBuf};

use http::Uri;
use shoal_s3::uri::S3Uri;

use super::texts::{
    ACCESS_KEY_HINT, access_key_fault, address_for_others, endpoint_fault, is_host_and_port, is_name, is_own,
    unreadable,
};
use super::{Check, Entry};
use crate::config::{
    Config, CooperationMode, EtcdConfig, RegistryConfig, S3StoreConfig, TierConfig, TierStoreConfig,
};

const NAME_LENGTH_MAX: usize = 32;

/// One tier to check.
struct TierCheck<'c, 'a> {
    tier: &'a TierConfig,
    entry: &'a Entry,
    config: &'a Config,
    check: &'c mut Check<'a>,
}

/// A folder of a tier, with symbolic links resolved, and the key that names it.
struct Folder {
    key: &'static str,
    path: PathBuf,
}

impl Check<'_> {
    pub(super) fn tiers(&mut self) {
        let (tiers, config) = (&self.lists.tiers, self.config);
        for (position, (tier, entry)) in tiers.iter().enumerate() {
            let check = &mut *self;
            let mut one = TierCheck {
                tier,
                entry,
                config,
                check,
            };
            one.itself();
            for (other, other_entry) in &tiers[..position] {
                one.beside(other, other_entry);
            }
        }
    }
}

impl TierCheck<'_, '_> {
    fn refuse(&mut self, key: &str, what: &str, hint: &str) {
        self.check.refuse(self.entry, key, what, hint);
    }

    fn itself(&mut self) {
        let tier = self.tier;
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !(1..=NAME_LENGTH_MAX).contains(&tier.name.len()) || !tier.name.chars().all(allowed) {
            let what = format!("name cannot be {:?}", tier.name);
            let hint = format!("use 1 to {NAME_LENGTH_MAX} lower-case letters, digits and -");
            self.refuse("name", &what, &hint);
        }
        if tier.capacity_bytes == 0 {
            let hint = "write the room that dirty objects may take, such as \"100GiB\"";
            self.refuse("capacity", "capacity is 0", hint);
        }
        match &tier.store {
            TierStoreConfig::Folder(_) => self.one_process("folder"),
            TierStoreConfig::S3(store) => self.s3_store(store),
        }
        match &tier.registry {
            RegistryConfig::Embedded(path) => self.registry_folder(path),
            RegistryConfig::Etcd(etcd) => self.etcd(etcd),
        }
        let ca_file = match (&tier.store, &tier.registry) {
            (TierStoreConfig::S3(store), _) => store.ca_file.as_deref(),
            (_, RegistryConfig::Etcd(etcd)) => etcd.ca_file.as_deref(),
            _ => None,
        };
        self.readable("ca_file", ca_file);
        self.folders();
    }

    /// Only one process can open a folder. Nodes on one machine are allowed to share it, because they may run
    /// in one process.
    fn one_process(&mut self, key: &str) {
        let cooperation = &self.config.cooperation;
        let address = address_for_others(cooperation);
        if cooperation.mode == CooperationMode::Solo || address.ip().is_loopback() {
            return;
        }
        let what =
            format!("{key} is a folder of this machine, and nodes on others ({address}) cannot use it");
        let hint = "write endpoint and bucket of an S3 store that all nodes reach, and the URLs of an etcd as registry";
        self.refuse(key, &what, hint);
    }

    fn s3_store(&mut self, store: &S3StoreConfig) {
        if let Some(why) = endpoint_fault(&store.endpoint) {
            let hint = "write only scheme, host and port, such as https://store:9000";
            self.refuse("endpoint", &format!("endpoint {why}"), hint);
        } else if is_own(&store.endpoint, self.config) {
            let hint = "name the S3 store that keeps dirty objects";
            self.refuse("endpoint", "endpoint is an address of this node itself", hint);
        }
        if !is_name(&store.region) {
            let hint = "write a name such as us-east-1";
            self.refuse("region", "region is not a region", hint);
        }
        let is_bucket = format!("s3://{}", store.bucket).parse::<S3Uri>().is_ok();
        if !is_bucket || store.bucket.contains('/') {
            let what = format!("bucket cannot be {:?}", store.bucket);
            let hint = "write the name of one bucket, and nothing else";
            self.refuse("bucket", &what, hint);
        }
        if store.class_large.as_deref().is_some_and(|class| !is_name(class)) {
            let hint = "write a storage class that the store knows, such as \"STANDARD\"";
            self.refuse("class_large", "class_large is not a storage class", hint);
        }
        let keys = store.keys.as_ref();
        if let Some(why) = keys.and_then(|keys| access_key_fault(&keys.access_key)) {
            self.refuse("access_key", &format!("access_key {why}"), ACCESS_KEY_HINT);
        }
        if is_same_server(&store.endpoint, &self.config.lake.endpoint) {
            self.rules_of_clients(store);
        }
    }

    /// The tier may be in the lake, in a bucket of its own.
    fn rules_of_clients(&mut self, store: &S3StoreConfig) {
        for (rule, entry) in &self.check.lists.write_rules {
            let uri = rule.prefix.parse::<S3Uri>();
            if uri.is_ok_and(|uri| uri.bucket == store.bucket) {
                let (prefix, tier) = (&rule.prefix, &self.tier.name);
                let what = format!("prefix {prefix:?} is in the bucket of the [[tier]] {tier}");
                let hint = "give the tier a bucket that no client writes to";
                self.check.refuse(entry, "prefix", &what, hint);
            }
        }
    }

    fn registry_folder(&mut self, path: &Path) {
        let text = path.to_string_lossy();
        if text.split(',').all(|part| is_host_and_port(part.trim())) {
            let hint = format!("write https://{text} or http://{text} for an etcd, ./{text} for a folder");
            return self.refuse("registry", "registry is neither a URL nor a folder", &hint);
        }
        // A folder tier without a setting for its registry keeps the registry in the same folder.
        if self.entry.has("registry") {
            self.one_process("registry");
        }
        if let TierStoreConfig::Folder(folder) = &self.tier.store
            && self.tier.registry != RegistryConfig::within(folder)
            && nested(&resolved(folder), &resolved(path))
        {
            let hint = "leave it out, which means the folder registry in that folder, or name one elsewhere";
            let what = "registry lies in or around the folder of its tier";
            self.refuse("registry", what, hint);
        }
    }

    fn etcd(&mut self, etcd: &EtcdConfig) {
        const HINT: &str =
            "write the URLs of all members with commas, such as \"https://etcd-1:2379,https://etcd-2:2379\"";
        for member in etcd.endpoints.split(',') {
            if let Some(why) = endpoint_fault(member) {
                let what = format!("registry names {member:?}, which {why}");
                self.refuse("registry", &what, HINT);
            }
        }
        if let Some((certificate, key)) = &etcd.client_certificate {
            self.readable("registry_certificate", Some(certificate));
            self.readable("registry_key", Some(key));
        }
    }

    fn readable(&mut self, key: &str, path: Option<&Path>) {
        if let Some(why) = unreadable(path) {
            let hint = "name a PEM file that shoal may read";
            self.refuse(key, &format!("{key} {why}"), hint);
        }
    }

    /// The cache deletes unknown files in its folder, and counts all files there.
    fn folders(&mut self) {
        let store = &self.config.store.path;
        let cache = resolved(store);
        let mut folders = folders_of(self.tier).into_iter();
        if let Some(Folder { key, .. }) = folders.find(|folder| nested(&folder.path, &cache)) {
            let what = format!("{key} lies in or around [store] path ({})", store.display());
            let hint = "give the tier a folder of its own: the cache may lose its folder, the tier may not";
            self.refuse(key, &what, hint);
        }
    }

    /// Checks the tier against an earlier one.
    fn beside(&mut self, other: &TierConfig, other_entry: &Entry) {
        let tier = self.tier;
        if tier.name == other.name {
            let what = format!("name {:?} is written twice", tier.name);
            let hint = format!("the first stands at {}", other_entry.origin("name"));
            self.refuse("name", &what, &hint);
        }
        if let (TierStoreConfig::S3(one), TierStoreConfig::S3(two)) = (&tier.store, &other.store)
            && one.bucket == two.bucket
            && is_same_server(&one.endpoint, &two.endpoint)
        {
            let what = format!(
                "bucket {:?} is that of the [[tier]] {}, too",
                one.bucket, other.name
            );
            self.refuse("bucket", &what, "give each tier a bucket of its own");
        }
        let others = folders_of(other);
        let is_shared = |folder: &Folder| others.iter().any(|other| nested(&folder.path, &other.path));
        if let Some(Folder { key, .. }) = folders_of(tier).into_iter().find(is_shared) {
            let what = format!("{key} lies in or around a folder of the [[tier]] {}", other.name);
            self.refuse(key, &what, "give each tier folders of its own");
        }
    }
}

/// Returns the folders of a tier, without those nested in another.
fn folders_of(tier: &TierConfig) -> Vec<Folder> {
    let mut folders = Vec::new();
    let mut within = None;
    if let TierStoreConfig::Folder(path) = &tier.store {
        within = Some(RegistryConfig::within(path));
        folders.push(("folder", path));
    }
    if let RegistryConfig::Embedded(path) = &tier.registry
        && within.as_ref() != Some(&tier.registry)
    {
        folders.push(("registry", path));
    }
    let folder = |(key, path): (&'static str, &PathBuf)| Folder {
        key,
        path: resolved(path),
    };
    folders.into_iter().map(folder).collect()
}

/// Returns true if one folder contains the other, or both are the same.
fn nested(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
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
    matches!((server(one), server(other)), (Some(one), Some(other)) if one == other)
}
