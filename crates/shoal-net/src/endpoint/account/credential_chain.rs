//! Credentials from the sources that AWS tools use, renewed before they expire.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use aws_config::Region;
use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::meta::credentials::CredentialsProviderChain;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError as ChainError;
use aws_smithy_http_client::tls;
use shoal_base::chance;
use shoal_base::secret::Secret;
use shoal_s3::identity::Account;
use tokio::task::JoinSet;

use crate::time::clock;

/// Time limit for the whole chain.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long before their expiry credentials are renewed; AWS provides the next ones by then.
const AHEAD: Duration = Duration::from_mins(5);

/// Pause between two attempts to renew.
const RETRY: Duration = Duration::from_secs(30);

/// The reason why a node cannot determine its account at the lake.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// Only one half of a key pair is set.
    #[error("[lake] has only one half of a key pair: set both access_key and secret_key, or neither")]
    HalfAPair,
    /// A source of the AWS chain is configured but fails.
    #[error("the AWS credentials chain failed; set [lake] access_key and secret_key to do without it")]
    Chain(#[source] ChainError),
    /// The chain gave no answer.
    #[error(
        "the AWS credentials chain gave no answer within {0:?}; set [lake] access_key and secret_key to do without it"
    )]
    ChainTimedOut(Duration),
}

/// Credentials that are kept current. Dropping this value ends the renewal.
#[derive(Debug)]
pub(super) struct Chain {
    current: Arc<ArcSwap<Account>>,
    /// The renewal task, if the credentials expire.
    _renewal: JoinSet<()>,
}

impl Chain {
    /// Queries the provider once. Returns `None` if it has no credentials.
    pub(super) async fn start(
        provider: impl ProvideCredentials + 'static,
    ) -> Result<Option<Self>, CredentialsError> {
        let first = match resolve(&provider).await {
            Ok(credentials) => credentials,
            Err(CredentialsError::Chain(ChainError::CredentialsNotLoaded(_))) => return Ok(None),
            Err(error) => return Err(error),
        };
        let current = Arc::new(ArcSwap::from_pointee(account(&first)));
        let mut renewal = JoinSet::new();
        if let Some(expiry) = first.expiry() {
            renewal.spawn(renew(provider, Arc::clone(&current), expiry));
        }
        Ok(Some(Self {
            current,
            _renewal: renewal,
        }))
    }

    pub(super) fn account(&self) -> Arc<Account> {
        self.current.load_full()
    }
}

async fn resolve(provider: &impl ProvideCredentials) -> Result<Credentials, CredentialsError> {
    tokio::time::timeout(RESOLVE_TIMEOUT, provider.provide_credentials())
        .await
        .map_err(|_elapsed| CredentialsError::ChainTimedOut(RESOLVE_TIMEOUT))?
        .map_err(CredentialsError::Chain)
}

async fn renew(provider: impl ProvideCredentials, current: Arc<ArcSwap<Account>>, expiry: SystemTime) {
    let mut expiry = Some(expiry);
    while let Some(ends) = expiry {
        tokio::time::sleep(renew_in(ends, clock::utc_now(), chance::unit())).await;
        expiry = renew_once(&provider, &current, ends).await;
    }
}

/// Renews the credentials. Returns the expiry time of the current ones.
async fn renew_once(
    provider: &impl ProvideCredentials,
    current: &ArcSwap<Account>,
    expiry: SystemTime,
) -> Option<SystemTime> {
    match resolve(provider).await {
        Ok(credentials) => {
            current.store(Arc::new(account(&credentials)));
            credentials.expiry()
        }
        // The old credentials remain in use until they expire; then the lake refuses each client's requests.
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "lake credentials not renewed"
            );
            Some(expiry)
        }
    }
}

/// Returns the time until the next renewal, randomized so that a fleet does not renew at once. At least the
/// pause between two attempts, so that credentials that have already expired do not cause a busy loop.
fn renew_in(expiry: SystemTime, now: SystemTime, chance: f64) -> Duration {
    let left = expiry.duration_since(now).unwrap_or_default();
    let calm = left.saturating_sub(AHEAD).max(left / 2);
    calm.mul_f64(1.0 - chance / 10.0).max(RETRY)
}

fn account(credentials: &Credentials) -> Account {
    Account {
        access_key: credentials.access_key_id().to_owned(),
        secret_key: Secret::new(credentials.secret_access_key()),
        session_token: credentials.session_token().map(Secret::new),
    }
}

/// Builds the chain in the AWS order: environment, profile, web identity, container and, if this machine has
/// one, the instance metadata service.
pub(super) fn default_provider(lake_region: &str) -> impl ProvideCredentials + 'static {
    let environment = |name| std::env::var(name).ok();
    let region = environment("AWS_REGION").or_else(|| environment("AWS_DEFAULT_REGION"));
    let http = aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https();
    let config = ProviderConfig::without_region()
        .with_http_client(http)
        .with_region(Some(Region::new(
            region.unwrap_or_else(|| lake_region.to_owned()),
        )));

    let chain =
        CredentialsProviderChain::first_try("environment", EnvironmentVariableCredentialsProvider::new())
            .or_else(
                "profile",
                ProfileFileCredentialsProvider::builder()
                    .configure(&config)
                    .build(),
            )
            .or_else(
                "web identity",
                WebIdentityTokenCredentialsProvider::builder()
                    .configure(&config)
                    .build(),
            )
            .or_else(
                "container",
                EcsCredentialsProvider::builder().configure(&config).build(),
            );
    let machine = |path| std::fs::read_to_string(path).unwrap_or_default();
    let on_instance = has_instance_metadata(
        environment("AWS_EC2_METADATA_DISABLED").as_deref(),
        environment("AWS_EC2_METADATA_SERVICE_ENDPOINT").as_deref(),
        &machine("/sys/class/dmi/id/sys_vendor"),
        &machine("/sys/hypervisor/uuid"),
    );
    if !on_instance {
        return chain;
    }
    chain.or_else(
        "instance",
        ImdsCredentialsProvider::builder().configure(&config).build(),
    )
}

/// Returns true if the instance metadata service may be asked. Outside EC2, its link-local address is unused
/// or belongs to someone else: a request would delay every start by seconds or, worse, be answered.
fn has_instance_metadata(
    disabled: Option<&str>,
    endpoint: Option<&str>,
    system_vendor: &str,
    hypervisor_uuid: &str,
) -> bool {
    let disabled = disabled.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let on_ec2 = system_vendor.trim() == "Amazon EC2" || hypervisor_uuid.starts_with("ec2");
    !disabled && (endpoint.is_some() || on_ec2)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::UNIX_EPOCH;

    use aws_credential_types::provider::future;

    use super::{
        Arc, Chain, ChainError, Credentials, CredentialsError, Duration, ProvideCredentials, SystemTime,
        clock, has_instance_metadata, renew_in, renew_once,
    };

    /// Returns `key-1`, `key-2` and so on, each valid for an hour. The second call fails.
    #[derive(Clone, Debug, Default)]
    struct Rotating(Arc<AtomicU32>);

    impl ProvideCredentials for Rotating {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let asked = self.0.fetch_add(1, Ordering::Relaxed) + 1;
            if asked == 2 {
                return future::ProvideCredentials::ready(Err(ChainError::provider_error("not now")));
            }
            let expiry = clock::utc_now() + Duration::from_hours(1);
            let token = Some("token".to_owned());
            let credentials = Credentials::new(format!("key-{asked}"), "s", token, Some(expiry), "test");
            future::ProvideCredentials::ready(Ok(credentials))
        }
    }

    #[tokio::test]
    async fn credentials_are_renewed_and_a_failure_is_survived() {
        let provider = Rotating::default();
        let chain = Chain::start(provider.clone()).await.unwrap().unwrap();
        assert_eq!(chain.account().access_key, "key-1");
        assert_eq!(chain.account().session_token.as_ref().unwrap().expose(), "token");

        let first_expiry = clock::utc_now();
        let failed = renew_once(&provider, &chain.current, first_expiry).await;
        assert_eq!(
            (failed, chain.account().access_key.as_str()),
            (Some(first_expiry), "key-1")
        );
        let renewed = renew_once(&provider, &chain.current, first_expiry).await;
        assert!(renewed > Some(first_expiry));
        assert_eq!(chain.account().access_key, "key-3");
        let Chain {
            _renewal: renewal, ..
        } = chain;
        assert_eq!(renewal.len(), 1, "the credentials are renewed");
    }

    #[tokio::test]
    async fn an_empty_chain_is_no_error_and_a_broken_one_is() {
        let empty = CredentialsResult(ChainError::not_loaded_no_source);
        assert!(Chain::start(empty).await.unwrap().is_none());
        let broken = CredentialsResult(|| ChainError::invalid_configuration("no such profile"));
        assert!(matches!(
            Chain::start(broken).await,
            Err(CredentialsError::Chain(_))
        ));
    }

    #[derive(Debug)]
    struct CredentialsResult(fn() -> ChainError);

    impl ProvideCredentials for CredentialsResult {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::ready(Err((self.0)()))
        }
    }

    #[test]
    fn renewal_comes_ahead_of_expiry_and_never_without_pause() {
        let now = UNIX_EPOCH + Duration::from_hours(300);
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(renew_in(after(3600), now, 0.0), Duration::from_mins(55));
        assert_eq!(renew_in(after(3600), now, 1.0), Duration::from_secs(2970));
        assert_eq!(renew_in(after(400), now, 0.0), Duration::from_secs(200));
        assert_eq!(
            renew_in(SystemTime::UNIX_EPOCH, now, 0.0),
            Duration::from_secs(30)
        );
    }

    #[test]
    fn the_metadata_service_is_asked_only_on_an_instance_or_by_name() {
        assert!(has_instance_metadata(None, None, "Amazon EC2\n", ""));
        assert!(has_instance_metadata(None, None, "Xen", "ec2e1916\n"));
        assert!(has_instance_metadata(
            None,
            Some("http://127.0.0.1:1"),
            "QEMU",
            ""
        ));
        assert!(!has_instance_metadata(None, None, "QEMU", ""));
        assert!(!has_instance_metadata(
            Some("TRUE"),
            Some("http://127.0.0.1:1"),
            "Amazon EC2",
            ""
        ));
    }
}
