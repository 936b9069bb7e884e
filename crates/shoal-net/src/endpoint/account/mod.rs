//! Selects the account that signs a client's requests to the lake.
//!
//! The first of these that exists is used:
//! 1. the account of the identity (`lake_access_key`),
//! 2. the account of `[lake]` (`access_key`),
//! 3. the account from the AWS chain (environment, profile, web identity, container, instance),
//! 4. the identity's own key pair.
//!
//! A request of an anonymous client is never signed, and that of a client whose signature the node cannot
//! verify keeps it.

mod check;
mod credential_chain;
mod health;
mod refusal;

use std::sync::Arc;

use shoal_s3::identity::{Account, Caller};
use shoal_s3::temporary_key::TemporaryKey;

pub use self::credential_chain::CredentialsError;
pub use self::health::EndpointHealth;
pub use self::refusal::AccountRefusal;

pub(super) use self::check::Verdict;

use self::credential_chain::Chain;
use super::LakeConfig;
use crate::time::clock;

/// The signature of a request to the endpoint.
#[derive(Clone, Debug)]
pub enum LakeAccount {
    /// Not signed.
    Anonymous,
    /// Signed by the client for the endpoint: the request is sent as it came.
    AsSent,
    /// Signed with the caller's own key pair.
    Signed(Arc<Account>),
    /// Signed with the caller's temporary key; once that has expired, with the next of its principal.
    Temporary(Arc<TemporaryKey>),
    /// Signed with a key pair that this node provides for the caller.
    Brought(Arc<Account>, Owner),
}

/// The owner of a key pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// `[lake] access_key`
    Lake,
    /// The AWS chain.
    Chain,
    /// `lake_access_key` of an `[[identity]]`.
    Identity,
    /// The client, which uses the same key pair at this node as at the endpoint.
    Client,
}

impl Owner {
    /// Returns true if clients do not know the key pair.
    pub fn is_the_nodes(self) -> bool {
        self != Self::Client
    }

    /// Returns a description from which an operator finds the key pair in the configuration.
    pub fn describe(self, access_key: &str) -> String {
        match self {
            Self::Lake => format!("[lake] access_key {access_key}"),
            Self::Chain => format!("{access_key} of the AWS chain"),
            Self::Identity => format!("[[identity]] lake_access_key {access_key}"),
            Self::Client => format!("[[identity]] access_key {access_key}"),
        }
    }
}

impl LakeAccount {
    /// Returns the key pair that signs a request now, and its owner, if the request is signed.
    pub fn signer(&self) -> Option<(Arc<Account>, Owner)> {
        match self {
            Self::Anonymous | Self::AsSent => None,
            Self::Signed(account) => Some((Arc::clone(account), Owner::Client)),
            Self::Temporary(key) => Some((key.account_at(clock::utc_now()), Owner::Client)),
            Self::Brought(account, owner) => Some((Arc::clone(account), *owner)),
        }
    }
}

/// The accounts that this node provides. Lookups are cheap; credentials are renewed in the background.
#[derive(Debug, Default)]
pub struct NodeCredentials {
    lake: Option<Arc<Account>>,
    chain: Option<Chain>,
}

impl NodeCredentials {
    /// Resolves the account of `[lake]` or, without one, that of the AWS chain. Takes at most ten seconds.
    ///
    /// The instance metadata service is only asked if no other source is configured and this is an EC2
    /// machine (or `AWS_EC2_METADATA_SERVICE_ENDPOINT` is set), and never with
    /// `AWS_EC2_METADATA_DISABLED=true`.
    ///
    /// # Errors
    ///
    /// `[lake]` has only one half of a key pair, or a configured source of the AWS chain fails or does not
    /// answer in time.
    pub async fn resolve(config: &LakeConfig) -> Result<Self, CredentialsError> {
        let credentials = Self::of_config(config)?;
        if credentials.lake.is_some() {
            return Ok(credentials);
        }
        let chain = Chain::start(credential_chain::default_provider(&config.region)).await?;
        Ok(Self { lake: None, chain })
    }

    /// Uses only the account of `[lake]`, if it has one. Nothing outside the configuration is queried.
    ///
    /// # Errors
    ///
    /// Fails with [`CredentialsError::HalfAPair`] if `[lake]` has only one half of a key pair.
    pub fn of_config(config: &LakeConfig) -> Result<Self, CredentialsError> {
        let lake = match (&config.access_key, &config.secret_key) {
            (Some(access_key), Some(secret_key)) => Some(Arc::new(Account {
                access_key: access_key.clone(),
                secret_key: secret_key.clone(),
                session_token: None,
            })),
            (None, None) => None,
            _ => return Err(CredentialsError::HalfAPair),
        };
        Ok(Self { lake, chain: None })
    }

    /// Returns the account that signs the requests of `caller`.
    pub fn account_for(&self, caller: &Caller) -> LakeAccount {
        let identity = match caller {
            Caller::Anonymous => return LakeAccount::Anonymous,
            Caller::Unverified => return LakeAccount::AsSent,
            Caller::Identity(identity) => identity,
        };
        if let Some(key) = &identity.temporary {
            return LakeAccount::Temporary(Arc::clone(key));
        }
        if let Some(account) = &identity.lake_account {
            return LakeAccount::Brought(Arc::clone(account), Owner::Identity);
        }
        self.own().unwrap_or_else(|| {
            LakeAccount::Signed(Arc::new(Account {
                access_key: identity.access_key.clone(),
                secret_key: identity.secret_key.clone(),
                session_token: None,
            }))
        })
    }

    /// Returns the account that signs for identities without one.
    pub fn own(&self) -> Option<LakeAccount> {
        let lake = self.lake.clone().map(|account| (account, Owner::Lake));
        let chain = || Some((self.chain.as_ref()?.account(), Owner::Chain));
        lake.or_else(chain)
            .map(|(account, owner)| LakeAccount::Brought(account, owner))
    }
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;
    use shoal_base::secret::Secret;
    use shoal_s3::identity::Identity;

    use super::{Account, Arc, Caller, Chain, CredentialsError, LakeConfig, NodeCredentials};

    fn account(access_key: &str) -> Arc<Account> {
        Arc::new(Account::new(access_key, "s"))
    }

    fn caller(lake_account: Option<Arc<Account>>) -> Caller {
        Caller::Identity(Arc::new(Identity {
            lake_account,
            ..Identity::new("own", "s")
        }))
    }

    fn signer(credentials: &NodeCredentials, caller: &Caller) -> String {
        let signer = credentials.account_for(caller).signer();
        signer.map_or("nobody".into(), |(account, _)| account.access_key.clone())
    }

    #[tokio::test]
    async fn the_nearest_account_signs() {
        let chain = Chain::start(Credentials::new("chain", "s", None, None, "test"))
            .await
            .unwrap();
        let with_lake = NodeCredentials {
            lake: Some(account("lake")),
            chain,
        };
        assert_eq!(signer(&with_lake, &caller(Some(account("brought")))), "brought");
        assert_eq!(signer(&with_lake, &caller(None)), "lake");

        let with_chain = NodeCredentials {
            lake: None,
            ..with_lake
        };
        assert_eq!(signer(&with_chain, &caller(None)), "chain");
        assert_eq!(signer(&NodeCredentials::default(), &caller(None)), "own");
    }

    #[tokio::test]
    async fn a_stranger_is_never_signed_for() {
        let credentials = NodeCredentials {
            lake: Some(account("lake")),
            chain: None,
        };
        assert_eq!(signer(&credentials, &Caller::Anonymous), "nobody");
        assert_eq!(signer(&credentials, &Caller::Unverified), "nobody");
    }

    #[tokio::test]
    async fn a_key_pair_in_the_configuration_is_whole_and_spares_the_chain() {
        let mut lake = LakeConfig {
            access_key: Some("lake".into()),
            ..LakeConfig::default()
        };
        assert!(matches!(
            NodeCredentials::resolve(&lake).await,
            Err(CredentialsError::HalfAPair)
        ));
        lake.secret_key = Some(Secret::new("s"));
        let credentials = NodeCredentials::resolve(&lake).await.unwrap();
        assert!(credentials.chain.is_none());
        assert_eq!(signer(&credentials, &caller(None)), "lake");
    }
}
