//! Services that know the secrets of clients: a node asks them for an access key that it does not know, so
//! that users who are made while it runs are known at once.
//!
//! An answer holds for a time. Then the service is asked again, at the next request with that key.

mod answer;
mod config;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use shoal_base::causes;
use shoal_s3::identity::{Identities, Identity, NODE};

pub use self::config::{KeySourceConfig, KeySourceKind};

use crate::endpoint::{
    Endpoint, EndpointError, EndpointRequest, LakeAccount, LakeConfig, NodeCredentials, split_url,
};
use crate::key_lookup::{Found, KeyLookup};
use crate::limits::Limits;
use crate::secret_headers;
use crate::time::clock;
use crate::time::log_throttle::LogThrottle;
use crate::time::shutdown::Shutdown;

/// The longest answer in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// How long a request waits for the answer about its key.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest access key that is asked for.
const ACCESS_KEY_BYTES_MAX: usize = 128;

/// How often identities whose time has passed are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// The services of a node.
pub struct KeySources {
    sources: Vec<KeySource>,
    identities: Arc<Identities>,
    lookup: KeyLookup,
}

/// One service.
struct KeySource {
    endpoint: Arc<Endpoint>,
    /// The path of its URL.
    path: String,
    headers: HeaderMap,
    config: KeySourceConfig,
}

/// Why a service gives no usable answer. It has no secret.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("its answer is too long, or breaks off")]
    Body,
    #[error("{0}")]
    Malformed(&'static str),
}

impl KeySources {
    /// Creates the services of a configuration, which add to `identities`; `None` without any.
    ///
    /// # Errors
    ///
    /// A URL is not valid, or the system has no trusted roots.
    pub fn new(
        configs: &[KeySourceConfig],
        lake: &LakeConfig,
        limits: &Limits,
        identities: &Arc<Identities>,
    ) -> Result<Option<Arc<Self>>, EndpointError> {
        let source = |config: &KeySourceConfig| KeySource::new(config, lake, limits);
        let sources: Vec<_> = configs.iter().map(source).collect::<Result<_, _>>()?;
        let is_any = !sources.is_empty();
        Ok(is_any.then(|| {
            Arc::new(Self {
                sources,
                identities: Arc::clone(identities),
                lookup: KeyLookup::new(identities, PATIENCE),
            })
        }))
    }

    /// Asks the services for an access key. The first that knows it counts.
    pub async fn find(&self, access_key: &str) -> Found {
        if !may_be_asked_for(access_key) {
            return Found::Unknown;
        }
        self.lookup.find(access_key, self.ask(access_key)).await
    }

    async fn ask(&self, access_key: &str) -> Found {
        let answers = join_all(self.sources.iter().map(|source| source.ask(access_key))).await;
        let mut is_sure = true;
        for (source, answer) in self.sources.iter().zip(answers) {
            match answer {
                Ok(Some(identity)) => {
                    let until = clock::utc_now() + source.config.cache_time;
                    self.identities.learn_sourced(identity, until);
                    return Found::Known;
                }
                Ok(None) => {}
                Err(error) => {
                    is_sure = false;
                    source.warn(&error);
                }
            }
        }
        if !is_sure {
            return Found::Unsure;
        }
        self.identities.forget_sourced(access_key);
        Found::Unknown
    }

    /// Ends the time of identities until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(SWEEP) => {}
                () = stopping.begun() => return,
            }
            self.identities.expire_sourced(clock::utc_now());
        }
    }
}

/// Returns true if a key may stand in a path as it is. Keys with other characters are in no service.
fn may_be_asked_for(access_key: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    (1..=ACCESS_KEY_BYTES_MAX).contains(&access_key.len())
        && access_key.bytes().all(is_plain)
        && !access_key.bytes().all(|byte| byte == b'.')
}

impl KeySource {
    fn new(config: &KeySourceConfig, lake: &LakeConfig, limits: &Limits) -> Result<Self, EndpointError> {
        let url = config.url.as_deref().unwrap_or(&lake.endpoint);
        let (server, path) = split_url(url);
        let at = LakeConfig {
            endpoint: server.into(),
            ca_file: config.ca_file.clone(),
            bandwidth: None,
            answer_timeout: PATIENCE,
            ..lake.clone()
        };
        Ok(Self {
            endpoint: Arc::new(Endpoint::new(&at, limits, NodeCredentials::default())?),
            path: path.trim_end_matches('/').into(),
            headers: secret_headers::of(config.headers.as_ref()),
            config: config.clone(),
        })
    }

    /// Asks for an access key. Returns `None` if the service does not know it, or has suspended it.
    async fn ask(&self, access_key: &str) -> Result<Option<Identity>, NoAnswer> {
        match (self.ask_once(access_key).await, &self.config.account) {
            // Ceph refuses a question about an unknown key as it refuses an account without the capability.
            // An account that may ask about itself has it.
            (Err(NoAnswer::Status(StatusCode::FORBIDDEN)), Some(account)) => {
                self.ask_once(&account.access_key).await.map(|_| None)
            }
            (answer, _) => answer,
        }
    }

    async fn ask_once(&self, access_key: &str) -> Result<Option<Identity>, NoAnswer> {
        let KeySourceConfig { kind, account, .. } = &self.config;
        let target = match kind {
            KeySourceKind::Http => format!("{}/{access_key}", self.path),
            KeySourceKind::Ceph => format!("{}/admin/user?access-key={access_key}&format=json", self.path),
        };
        let target =
            PathAndQuery::try_from(target).map_err(|_| NoAnswer::Malformed("its URL is not valid"))?;
        let account = account.clone().map(Arc::new);
        let account = account.map_or(LakeAccount::Anonymous, LakeAccount::Signed);
        let request = EndpointRequest::new("find_key", Method::GET, target, account, NODE);
        let response = self
            .endpoint
            .send(request.with_headers(self.headers.clone()))
            .await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => {
                let body = body.map_err(|_| NoAnswer::Body)?.to_bytes();
                answer::read(*kind, access_key, &body).map_err(NoAnswer::Malformed)
            }
            status => Err(NoAnswer::Status(status)),
        }
    }

    fn warn(&self, error: &NoAnswer) {
        static LINES: LogThrottle = LogThrottle::new();
        if let Some(unsaid) = LINES.admit(clock::instant()) {
            tracing::warn!(
                source = self.endpoint.url(),
                error = causes::line(error),
                unsaid,
                "a key source gives no answer, and clients with keys of it get 503"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::may_be_asked_for;

    #[test]
    fn a_key_that_could_lead_elsewhere_is_not_asked_for() {
        for key in ["AKIA1", "a.b-c_d~e", &"k".repeat(128)] {
            assert!(may_be_asked_for(key), "{key}");
        }
        for key in ["", "..", ".", "a/b", "a?b", "a%2e", "a b", "é", &"k".repeat(129)] {
            assert!(!may_be_asked_for(key), "{key}");
        }
    }
}
