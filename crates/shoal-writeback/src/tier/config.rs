//! `[[tier]]`

use std::io;
use std::path::{Path, PathBuf};

use shoal_base::secret::Secret;
use shoal_base::small_file;
use shoal_registry::engine::etcd::Settings;
use shoal_s3::identity::Account;

/// A tier: a registry that orders dirty names, and a store of the bytes of dirty objects.
#[derive(Clone, Debug, PartialEq)]
pub struct TierConfig {
    /// The unique name by which rules refer to the tier.
    pub name: String,
    /// The store of the bytes.
    pub store: TierStoreConfig,
    /// Limit on the bytes of dirty objects in the store.
    pub capacity_bytes: u64,
    /// The engine that orders the names.
    pub registry: RegistryConfig,
}

/// The store of a tier's bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum TierStoreConfig {
    /// A folder on this machine, for the nodes of one process.
    Folder(PathBuf),
    /// A bucket of an S3 store.
    S3(S3StoreConfig),
}

/// A bucket for the bytes of a tier.
#[derive(Clone, Debug, PartialEq)]
pub struct S3StoreConfig {
    /// `http://` or `https://` URL of the store, without a path.
    pub endpoint: String,
    /// Region for signatures.
    pub region: String,
    /// The CA certificates for the store, in PEM; `None` for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The account at the store; `None` for the AWS credential chain.
    pub keys: Option<Account>,
    /// The bucket. Clients must not write to it.
    pub bucket: String,
    /// The storage class of objects of at least [`S3StoreConfig::LARGE_BYTES`]; `None` for the store's
    /// default, which smaller objects always have.
    pub class_large: Option<String>,
}

impl S3StoreConfig {
    /// The default of `region`.
    pub const REGION: &str = "us-east-1";
    /// The size at which an object counts as large: one block by default. Erasure coding, the usual class of
    /// large objects, costs more operations than it saves bytes below it.
    pub const LARGE_BYTES: u64 = 4 << 20;
}

/// The engine that orders the names of a tier.
#[derive(Clone, Debug, PartialEq)]
pub enum RegistryConfig {
    /// A database in a folder of this machine, for the nodes of one process.
    Embedded(PathBuf),
    /// A cluster of etcd.
    Etcd(EtcdConfig),
}

impl RegistryConfig {
    /// Returns the default registry of a tier in `folder`.
    pub fn within(folder: &Path) -> Self {
        Self::Embedded(folder.join("registry"))
    }
}

/// The address of etcd and a node's credentials for it.
#[derive(Clone, Debug, PartialEq)]
pub struct EtcdConfig {
    /// The client URLs of the members, separated by commas.
    pub endpoints: String,
    /// The CA certificates for the members, in PEM; `None` for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The client certificate and its key, in PEM, for members that request one.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// The user, if etcd has authentication enabled.
    pub user: Option<EtcdUser>,
    /// The members' `--quota-backend-bytes`; `None` for what they report, or their default.
    pub quota_bytes: Option<u64>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq)]
pub struct EtcdUser {
    /// The name of the user.
    pub name: String,
    /// The file that holds only the user's password.
    pub password_file: PathBuf,
}

/// The password of the etcd user could not be read.
#[derive(Debug, thiserror::Error)]
#[error("registry_password_file {} cannot be read: {error}", file.display())]
pub struct PasswordError {
    /// The file.
    pub file: PathBuf,
    /// The reason.
    pub error: io::Error,
}

impl EtcdConfig {
    /// Returns the engine's settings for the tier of this name. Several tiers can share one etcd, because
    /// their keys are prefixed with the tier's name. Reads the password file, so it blocks.
    ///
    /// # Errors
    ///
    /// The password cannot be read.
    pub fn settings(&self, tier: &str) -> Result<Settings, PasswordError> {
        let user = self.user.as_ref().map(EtcdUser::read).transpose()?;
        Ok(Settings {
            prefix: format!("shoal/{tier}/"),
            ca_file: self.ca_file.clone(),
            client_certificate: self.client_certificate.clone(),
            user,
            quota_bytes: self.quota_bytes,
            ..Settings::at(self.endpoints.clone())
        })
    }
}

impl EtcdUser {
    /// Returns the name and the password, without the newline that editors append.
    fn read(&self) -> Result<(String, Secret), PasswordError> {
        let text = small_file::read_text(&self.password_file).map_err(|error| PasswordError {
            file: self.password_file.clone(),
            error,
        })?;
        Ok((
            self.name.clone(),
            Secret::new(text.trim_end_matches(['\n', '\r'])),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etcd(password_file: PathBuf) -> EtcdConfig {
        let name = "shoal".into();
        EtcdConfig {
            endpoints: "https://etcd-1:2379,https://etcd-2:2379".into(),
            ca_file: None,
            client_certificate: None,
            user: Some(EtcdUser { name, password_file }),
            quota_bytes: None,
        }
    }

    #[test]
    fn tiers_in_one_etcd_have_keys_of_their_own_and_the_password_is_read_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "hush\n").unwrap();
        let etcd = etcd(file);
        let [a, b] = ["a", "b"].map(|tier| etcd.settings(tier).unwrap());
        assert_eq!((&*a.prefix, &*b.prefix), ("shoal/a/", "shoal/b/"));
        assert_eq!(a.endpoints, etcd.endpoints);
        let (name, password) = a.user.unwrap();
        assert_eq!((&*name, password.expose()), ("shoal", "hush"));
    }

    #[test]
    fn a_password_that_cannot_be_read_is_named_by_its_file() {
        let error = etcd("/absent/password".into()).settings("a").unwrap_err();
        assert!(error.to_string().contains("/absent/password"), "{error}");
    }
}
