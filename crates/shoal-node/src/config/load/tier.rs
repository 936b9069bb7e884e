//! Reads one `[[tier]]`.

use std::path::PathBuf;

use super::{Entry, Loader};
use crate::config::{EtcdConfig, EtcdUser, RegistryConfig, S3StoreConfig, TierConfig, TierStoreConfig};

/// The keys of a store with an endpoint.
const S3_KEYS: [&str; 6] = [
    "region",
    "access_key",
    "secret_key",
    "secret_key_file",
    "bucket",
    "class_large",
];

/// The keys of a registry in etcd.
const ETCD_KEYS: [&str; 4] = [
    "registry_certificate",
    "registry_key",
    "registry_password_file",
    "registry_quota",
];

/// The certificate that a client shows to etcd, and its key.
const CLIENT: (&str, &str) = ("registry_certificate", "registry_key");

impl Loader {
    pub(super) fn tier(&mut self, entry: &Entry) -> Option<TierConfig> {
        let name = self.require(entry, "name");
        let store = self.store(entry);
        let capacity_bytes = self.require(entry, "capacity");
        let registry = self.registry(entry);
        Some(TierConfig {
            name: name?,
            store: store?,
            capacity_bytes: capacity_bytes?,
            registry: registry?,
        })
    }

    fn store(&mut self, entry: &Entry) -> Option<TierStoreConfig> {
        match (entry.has("folder"), entry.has("endpoint")) {
            (true, false) => {
                let why = "only a store with an endpoint has it";
                self.refuse_beside(entry, "a folder", &S3_KEYS, why);
                self.optional(entry, "folder").map(TierStoreConfig::Folder)
            }
            (false, true) => self.s3_store(entry).map(TierStoreConfig::S3),
            (true, true) => {
                let what = "has both folder and endpoint";
                self.refuse(entry, "endpoint", what, "keep one of the two");
                None
            }
            (false, false) => {
                let hint = "add endpoint and bucket of an S3 store; or folder, if all nodes are one process";
                self.refuse(entry, "folder", "has neither folder nor endpoint", hint);
                None
            }
        }
    }

    fn s3_store(&mut self, entry: &Entry) -> Option<S3StoreConfig> {
        let endpoint: Option<String> = self.optional(entry, "endpoint");
        let region: Option<String> = self.optional(entry, "region");
        let bucket = self.require(entry, "bucket");
        let store = S3StoreConfig {
            endpoint: endpoint?.trim_end_matches('/').into(),
            region: region.unwrap_or_else(|| S3StoreConfig::REGION.into()),
            ca_file: self.optional(entry, "ca_file"),
            keys: self.account(entry, ["access_key", "secret_key", "secret_key_file"]),
            bucket: bucket?,
            class_large: self.optional(entry, "class_large"),
        };
        Some(store)
    }

    fn registry(&mut self, entry: &Entry) -> Option<RegistryConfig> {
        let written: Option<String> = self.optional(entry, "registry");
        let registry = match written {
            Some(text) if text.contains("://") => return Some(RegistryConfig::Etcd(self.etcd(entry, &text))),
            Some(folder) => RegistryConfig::Embedded(folder.into()),
            // An invalid value has already been reported.
            None if entry.has("registry") => return None,
            None => match self.optional::<PathBuf>(entry, "folder") {
                Some(folder) => RegistryConfig::within(&folder),
                None if entry.has("endpoint") => {
                    let hint = "add registry = \"https://etcd-1:2379\", all members with commas; or a folder, if all \
                                nodes are one process";
                    self.refuse(entry, "registry", "has no registry", hint);
                    return None;
                }
                None => return None,
            },
        };
        self.refuse_beside(entry, "a registry in a folder", &ETCD_KEYS, "only etcd has it");
        if entry.has("folder") {
            self.refuse_beside(entry, "a folder", &["ca_file"], "only servers have certificates");
        }
        Some(registry)
    }

    fn etcd(&mut self, entry: &Entry, endpoints: &str) -> EtcdConfig {
        for (one, other) in [CLIENT, (CLIENT.1, CLIENT.0)] {
            self.needs(entry, one, &[other], &format!("add {other}"));
        }
        // A user may stand before the first host.
        let (user, endpoints) = match endpoints.split_once('@') {
            Some((before, rest)) => {
                let (scheme, user) = before.split_once("://").unwrap_or(("", before));
                (Some(user.to_owned()), format!("{scheme}://{rest}"))
            }
            None => (None, endpoints.to_owned()),
        };
        let members = endpoints.split(',').map(|url| url.trim().trim_end_matches('/'));
        let certificate: Option<PathBuf> = self.optional(entry, "registry_certificate");
        let key: Option<PathBuf> = self.optional(entry, "registry_key");
        EtcdConfig {
            endpoints: members.collect::<Vec<_>>().join(","),
            ca_file: self.optional(entry, "ca_file"),
            client_certificate: certificate.zip(key),
            user: self.etcd_user(entry, user),
            quota_bytes: self.optional(entry, "registry_quota"),
        }
    }

    fn etcd_user(&mut self, entry: &Entry, name: Option<String>) -> Option<EtcdUser> {
        const FILE: &str = "registry_password_file";
        if name.as_ref().is_some_and(|name| name.contains(':')) {
            let hint = "write it into a file, and the path of that as registry_password_file";
            self.refuse(entry, "registry", "registry holds a password", hint);
        } else if name.is_some() && !entry.has(FILE) {
            let hint = "add registry_password_file";
            self.refuse(entry, "registry", "registry has a user without a password", hint);
        } else if name.is_none() && entry.has(FILE) {
            let hint = "write https://USER@HOST:PORT as registry";
            self.refuse(entry, FILE, "registry_password_file has no user", hint);
        }
        let name = name?;
        let password_file: PathBuf = self.optional(entry, FILE)?;
        // The node reads the password when it starts; an unusable file is reported now.
        self.read_secret(FILE, &password_file, entry.origin(FILE))?;
        Some(EtcdUser { name, password_file })
    }

    /// Rejects keys that have no meaning next to another setting.
    fn refuse_beside(&mut self, entry: &Entry, beside: &str, keys: &[&str], why: &str) {
        for key in keys.iter().filter(|key| entry.has(key)) {
            let what = format!("{key} stands beside {beside}");
            self.refuse(entry, key, &what, &format!("leave it out: {why}"));
        }
    }
}
