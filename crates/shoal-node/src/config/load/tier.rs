//! Reads one `[[tier]]`.

use std::path::PathBuf;

use shoal_base::tls::OwnCertificate;

use super::entries::EntryReader;
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

impl EntryReader<'_> {
    pub(super) fn tier(&mut self) -> Option<TierConfig> {
        let name = self.require("name");
        let store = self.store();
        let capacity_bytes = self.require("capacity");
        let registry = self.registry();
        let inline_bytes = self.optional("inline").unwrap_or(TierConfig::INLINE_BYTES);
        let receipts = self.optional("receipts").unwrap_or(false);
        Some(TierConfig {
            name: name?,
            store: store?,
            capacity_bytes: capacity_bytes?,
            registry: registry?,
            inline_bytes,
            receipts,
        })
    }

    fn store(&mut self) -> Option<TierStoreConfig> {
        match (self.entry.has("folder"), self.entry.has("endpoint")) {
            (true, false) => {
                let why = "only a store with an endpoint has it";
                self.refuse_beside("a folder", &S3_KEYS, why);
                self.optional("folder").map(TierStoreConfig::Folder)
            }
            (false, true) => self.s3_store().map(TierStoreConfig::S3),
            (true, true) => {
                let what = "has both folder and endpoint";
                self.refuse("endpoint", what, "keep one of the two");
                None
            }
            (false, false) => {
                let hint = "add endpoint and bucket of an S3 store; or folder, if all nodes are one process";
                self.refuse("folder", "has neither folder nor endpoint", hint);
                None
            }
        }
    }

    fn s3_store(&mut self) -> Option<S3StoreConfig> {
        let endpoint: Option<String> = self.optional("endpoint");
        let region: Option<String> = self.optional("region");
        let bucket = self.require("bucket");
        let store = S3StoreConfig {
            endpoint: endpoint?.trim_end_matches('/').into(),
            region: region.unwrap_or_else(|| S3StoreConfig::REGION.into()),
            ca_file: self.optional("ca_file"),
            keys: self.account(["access_key", "secret_key", "secret_key_file"]),
            bucket: bucket?,
            class_large: self.optional("class_large"),
        };
        Some(store)
    }

    fn registry(&mut self) -> Option<RegistryConfig> {
        let written: Option<String> = self.optional("registry");
        let registry = match written {
            Some(text) if text.contains("://") => return Some(RegistryConfig::Etcd(self.etcd(&text))),
            Some(folder) => RegistryConfig::Embedded(folder.into()),
            // An invalid value has already been reported.
            None if self.entry.has("registry") => return None,
            None => match self.optional::<PathBuf>("folder") {
                Some(folder) => RegistryConfig::within(&folder),
                None if self.entry.has("endpoint") => {
                    let hint = "add registry = \"https://etcd-1:2379\", all members with commas; or a folder, if all \
                                nodes are one process";
                    self.refuse("registry", "has no registry", hint);
                    return None;
                }
                None => return None,
            },
        };
        self.refuse_beside("a registry in a folder", &ETCD_KEYS, "only etcd has it");
        if self.entry.has("folder") {
            self.refuse_beside("a folder", &["ca_file"], "only servers have certificates");
        }
        Some(registry)
    }

    fn etcd(&mut self, endpoints: &str) -> EtcdConfig {
        for (one, other) in [CLIENT, (CLIENT.1, CLIENT.0)] {
            self.needs(one, &[other], &format!("add {other}"));
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
        let certificate: Option<PathBuf> = self.optional("registry_certificate");
        let key: Option<PathBuf> = self.optional("registry_key");
        let own_certificate = certificate.zip(key);
        let own_certificate = own_certificate.map(|(certificate, key)| OwnCertificate { certificate, key });
        EtcdConfig {
            ca_file: self.optional("ca_file"),
            client_certificate: own_certificate,
            user: self.etcd_user(user),
            quota_bytes: self.optional("registry_quota"),
            ..EtcdConfig::at(members.collect::<Vec<_>>().join(","))
        }
    }

    fn etcd_user(&mut self, name: Option<String>) -> Option<EtcdUser> {
        const FILE: &str = "registry_password_file";
        if name.as_ref().is_some_and(|name| name.contains(':')) {
            let hint = "write it into a file, and the path of that as registry_password_file";
            self.refuse("registry", "registry holds a password", hint);
        } else if name.is_some() && !self.entry.has(FILE) {
            let hint = "add registry_password_file";
            self.refuse("registry", "registry has a user without a password", hint);
        } else if name.is_none() && self.entry.has(FILE) {
            let hint = "write https://USER@HOST:PORT as registry";
            self.refuse(FILE, "registry_password_file has no user", hint);
        }
        let name = name?;
        let password_file: PathBuf = self.optional(FILE)?;
        let origin = self.entry.origin(FILE);
        Some(EtcdUser {
            password: self.loader.read_secret(FILE, &password_file, origin)?,
            name,
            password_file,
        })
    }

    /// Rejects keys that have no meaning next to another setting.
    fn refuse_beside(&mut self, beside: &str, keys: &[&str], why: &str) {
        for key in keys.iter().filter(|key| self.entry.has(key)) {
            let what = format!("{key} stands beside {beside}");
            self.refuse(key, &what, &format!("leave it out: {why}"));
        }
    }
}
