//! Checks of `[[tier]]`.

use std::path::{Path, PathBuf};

use http::Uri;
use shoal_s3::uri::S3Uri;

use super::{
    ACCESS_KEY_HINT, Check, Entry, address_for_others, check_access_key, check_endpoint, is_name, is_own,
};
use crate::config::{
    CooperationMode, EtcdConfig, RegistryConfig, S3StoreConfig, TierConfig, TierStoreConfig,
};

const NAME_LENGTH_MAX: usize = 32;

/// A folder of a tier, with symbolic links resolved, and the key that names it.
struct Folder {
    key: &'static str,
    path: PathBuf,
}

impl Check<'_> {
    pub(super) fn tiers(&mut self) {
        let tiers = self.located.tiers;
        for (position, (tier, entry)) in tiers.iter().enumerate() {
            self.tier_name(tier, entry);
            if tier.capacity_bytes == 0 {
                let hint = "write the room that dirty objects may take, such as \"100GiB\"";
                self.refuse_entry(entry, "capacity", "capacity is 0", hint);
            }
            match &tier.store {
                TierStoreConfig::Folder(_) => self.one_process(entry, "folder"),
                TierStoreConfig::S3(store) => self.s3_store(store, tier, entry),
            }
            match &tier.registry {
                RegistryConfig::Embedded(path) => self.registry_folder(path, tier, entry),
                RegistryConfig::Etcd(etcd) => self.etcd(etcd, entry),
            }
            let ca_file = match (&tier.store, &tier.registry) {
                (TierStoreConfig::S3(store), _) => store.ca_file.as_deref(),
                (_, RegistryConfig::Etcd(etcd)) => etcd.ca_file.as_deref(),
                _ => None,
            };
            self.readable(entry, "ca_file", ca_file);
            self.folders(tier, entry);
            for (other, other_entry) in &tiers[..position] {
                self.two_tiers(tier, entry, other, other_entry);
            }
        }
    }

    fn tier_name(&mut self, tier: &TierConfig, entry: &Entry) {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !(1..=NAME_LENGTH_MAX).contains(&tier.name.len()) || !tier.name.chars().all(allowed) {
            let what = format!("name cannot be {:?}", tier.name);
            let hint = format!("use 1 to {NAME_LENGTH_MAX} lower-case letters, digits and -");
            self.refuse_entry(entry, "name", &what, &hint);
        }
    }

    /// Only one process can open a folder. Nodes on one machine are allowed to share it, because they may run
    /// in one process.
    fn one_process(&mut self, entry: &Entry, key: &str) {
        let cooperation = &self.config.cooperation;
        let address = address_for_others(cooperation);
        if cooperation.mode == CooperationMode::Solo || address.ip().is_loopback() {
            return;
        }
        let what =
            format!("{key} is a folder of this machine, and nodes on others ({address}) cannot use it");
        let hint = "write endpoint and bucket of an S3 store that all nodes reach, and the URLs of an etcd as registry";
        self.refuse_entry(entry, key, &what, hint);
    }

    fn s3_store(&mut self, store: &S3StoreConfig, tier: &TierConfig, entry: &Entry) {
        let own = [self.config.s3.listen, self.config.admin.listen];
        if let Err(why) = check_endpoint(&store.endpoint) {
            let hint = "write only scheme, host and port, such as https://store:9000";
            self.refuse_entry(entry, "endpoint", &format!("endpoint {why}"), hint);
        } else if own.iter().any(|own| is_own(&store.endpoint, *own)) {
            let hint = "name the S3 store that keeps dirty objects";
            let what = "endpoint is an address of this node itself";
            self.refuse_entry(entry, "endpoint", what, hint);
        }
        if !is_name(&store.region) {
            let hint = "write a name such as us-east-1";
            self.refuse_entry(entry, "region", "region is not a region", hint);
        }
        let is_bucket = format!("s3://{}", store.bucket).parse::<S3Uri>().is_ok();
        if !is_bucket || store.bucket.contains('/') {
            let what = format!("bucket cannot be {:?}", store.bucket);
            self.refuse_entry(
                entry,
                "bucket",
                &what,
                "write the name of one bucket, and nothing else",
            );
        }
        if store.class_large.as_deref().is_some_and(|class| !is_name(class)) {
            let hint = "write a storage class that the store knows, such as \"STANDARD\"";
            self.refuse_entry(entry, "class_large", "class_large is not a storage class", hint);
        }
        let access_key = store.keys.as_ref().map(|keys| check_access_key(&keys.access_key));
        if let Some(Err(why)) = access_key {
            self.refuse_entry(entry, "access_key", &format!("access_key {why}"), ACCESS_KEY_HINT);
        }
        if is_same_server(&store.endpoint, &self.config.lake.endpoint) {
            self.rules_of_clients(store, tier);
        }
    }

    /// The tier may be in the lake, in a bucket of its own.
    fn rules_of_clients(&mut self, store: &S3StoreConfig, tier: &TierConfig) {
        for (rule, entry) in self.located.write_rules {
            let uri = rule.prefix.parse::<S3Uri>();
            if uri.is_ok_and(|uri| uri.bucket == store.bucket) {
                let what = format!(
                    "prefix {:?} is in the bucket of the [[tier]] {}",
                    rule.prefix, tier.name
                );
                let hint = "give the tier a bucket that no client writes to";
                self.refuse_entry(entry, "prefix", &what, hint);
            }
        }
    }

    fn registry_folder(&mut self, path: &Path, tier: &TierConfig, entry: &Entry) {
        let text = path.to_string_lossy();
        if text.split(',').all(|part| super::is_host_and_port(part.trim())) {
            let hint = format!("write https://{text} or http://{text} for an etcd, ./{text} for a folder");
            self.refuse_entry(entry, "registry", "registry is neither a URL nor a folder", &hint);
            return;
        }
        // A folder tier without a setting for its registry keeps the registry in the same folder.
        if entry.has("registry") {
            self.one_process(entry, "registry");
        }
        if let TierStoreConfig::Folder(folder) = &tier.store
            && tier.registry != RegistryConfig::within(folder)
            && nested(&resolved(folder), &resolved(path))
        {
            let hint = "leave it out, which means the folder registry in that folder, or name one elsewhere";
            let what = "registry lies in or around the folder of its tier";
            self.refuse_entry(entry, "registry", what, hint);
        }
    }

    fn etcd(&mut self, etcd: &EtcdConfig, entry: &Entry) {
        const HINT: &str =
            "write the URLs of all members with commas, such as \"https://etcd-1:2379,https://etcd-2:2379\"";
        for member in etcd.endpoints.split(',') {
            if let Err(why) = check_endpoint(member) {
                let what = format!("registry names {member:?}, which {why}");
                self.refuse_entry(entry, "registry", &what, HINT);
            }
        }
        let (certificate, key) = etcd
            .client_certificate
            .as_ref()
            .map(|(one, other)| (&**one, &**other))
            .unzip();
        self.readable(entry, "registry_certificate", certificate);
        self.readable(entry, "registry_key", key);
    }

    fn readable(&mut self, entry: &Entry, key: &str, path: Option<&Path>) {
        if let Some(Err(error)) = path.map(std::fs::File::open) {
            let what = format!("{key} cannot be read: {error}");
            self.refuse_entry(entry, key, &what, "name a PEM file that shoal may read");
        }
    }

    /// The cache deletes unknown files in its folder, and counts all files there.
    fn folders(&mut self, tier: &TierConfig, entry: &Entry) {
        let store = &self.config.store.path;
        let folders = folders_of(tier);
        if let Some(folder) = folders
            .iter()
            .find(|folder| nested(&folder.path, &resolved(store)))
        {
            let what = format!(
                "{} lies in or around [store] path ({})",
                folder.key,
                store.display()
            );
            let hint = "give the tier a folder of its own: the cache may lose its folder, the tier may not";
            self.refuse_entry(entry, folder.key, &what, hint);
        }
    }

    fn two_tiers(&mut self, tier: &TierConfig, entry: &Entry, other: &TierConfig, other_entry: &Entry) {
        if tier.name == other.name {
            let what = format!("name {:?} is written twice", tier.name);
            let hint = format!("the first stands at {}", other_entry.origin("name"));
            self.refuse_entry(entry, "name", &what, &hint);
        }
        if let (TierStoreConfig::S3(one), TierStoreConfig::S3(two)) = (&tier.store, &other.store)
            && one.bucket == two.bucket
            && is_same_server(&one.endpoint, &two.endpoint)
        {
            let what = format!(
                "bucket {:?} is that of the [[tier]] {}, too",
                one.bucket, other.name
            );
            self.refuse_entry(entry, "bucket", &what, "give each tier a bucket of its own");
        }
        let others = folders_of(other);
        let is_shared = |folder: &&Folder| others.iter().any(|other| nested(&folder.path, &other.path));
        if let Some(folder) = folders_of(tier).iter().find(is_shared) {
            let what = format!(
                "{} lies in or around a folder of the [[tier]] {}",
                folder.key, other.name
            );
            self.refuse_entry(entry, folder.key, &what, "give each tier folders of its own");
        }
    }
}

/// Returns the folders of a tier, without those nested in another.
fn folders_of(tier: &TierConfig) -> Vec<Folder> {
    let store = match &tier.store {
        TierStoreConfig::Folder(path) => Some(("folder", path)),
        TierStoreConfig::S3(_) => None,
    };
    let within = store.map(|(_, path)| RegistryConfig::within(path));
    let registry = match &tier.registry {
        RegistryConfig::Embedded(path) if within.as_ref() != Some(&tier.registry) => Some(("registry", path)),
        RegistryConfig::Embedded(_) | RegistryConfig::Etcd(_) => None,
    };
    let folders = store.into_iter().chain(registry);
    folders
        .map(|(key, path)| Folder {
            key,
            path: resolved(path),
        })
        .collect()
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
