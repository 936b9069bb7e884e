//! Passes requests for temporary keys on to the STS of the lake, and keeps the keys that it gives.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use http::header::{CONTENT_TYPE, DATE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use parking_lot::Mutex;
use shoal_cache::temporary_keys::SharedKeys;
use shoal_net::clock;
use shoal_net::endpoint::{
    Endpoint, EndpointError, EndpointRequest, LakeAccount, LakeConfig, NodeCredentials, RequestBody,
};
use shoal_net::metrics::{Metrics, Tally};
use shoal_s3::identity::{Caller, CallerId, NODE};
use shoal_s3::sigv4::STS;
use shoal_s3::sts::{Action, StsAnswer, StsError, StsRequest};
use shoal_s3::temporary_key::TemporaryKey;
use tokio::sync::Semaphore;

use crate::config::{RolePattern, StsConfig};
use crate::core::Core;

/// The longest answer of STS in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// The number of requests at STS at a time; further ones wait.
const AT_STS_MAX: usize = 32;

/// How long a request waits for one of these places.
const PATIENCE: Duration = Duration::from_secs(5);

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8");

/// What STS gave, and its answer as it was.
#[derive(Clone)]
pub(crate) struct Exchanged {
    pub(crate) key: TemporaryKey,
    /// The end of the key by the clock of STS, which clients go by.
    pub(crate) expiration: SystemTime,
    pub(crate) answer: Bytes,
}

/// Why a client gets no key. `message` is for the client and has no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoKey {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl NoKey {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.into(),
            message: message.into(),
        }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }
}

type Digest = [u8; 32];

type Exchange = Shared<BoxFuture<'static, Result<Exchanged, NoKey>>>;

/// Exchanges the proofs of clients for temporary keys.
pub(crate) struct Relay {
    sts: Endpoint,
    /// Knows the accounts with which identities sign.
    lake: Arc<Endpoint>,
    roles: Vec<RolePattern>,
    keys: Arc<SharedKeys>,
    metrics: Arc<Metrics>,
    places: Semaphore,
    /// Equal requests that are under way share one answer.
    under_way: Mutex<HashMap<(Digest, Option<CallerId>), Exchange>>,
}

impl Relay {
    /// Creates a relay to the STS that the configuration names.
    ///
    /// # Errors
    ///
    /// The URL is not valid, or the system has no trusted roots.
    pub(crate) fn new(core: &Core, keys: &Arc<SharedKeys>) -> Result<Self, EndpointError> {
        let (config, limits) = (&core.config, &core.config.limits);
        let StsConfig {
            roles,
            endpoint,
            ca_file,
            ..
        } = &config.sts;
        let at = LakeConfig {
            endpoint: endpoint.as_ref().unwrap_or(&config.lake.endpoint).clone(),
            ca_file: ca_file.clone(),
            bandwidth: None,
            ..config.lake.clone()
        };
        Ok(Self {
            sts: Endpoint::new(&at, limits, NodeCredentials::default())?.of_service(STS),
            lake: Arc::clone(&core.lake),
            roles: roles.clone(),
            keys: Arc::clone(keys),
            metrics: Arc::clone(&core.metrics),
            places: Semaphore::new(AT_STS_MAX),
            under_way: Mutex::default(),
        })
    }

    /// Returns the temporary key that STS gives for a request.
    ///
    /// # Errors
    ///
    /// The role is not one of the configuration, STS refuses, or it cannot be asked.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        request: StsRequest,
        asker: Option<Caller>,
    ) -> Result<Exchanged, NoKey> {
        let role = request.role();
        let is_of_role = request.action() != Action::SessionToken;
        if is_of_role && !self.roles.iter().any(|pattern| pattern.matches(role)) {
            let message =
                format!("This node gets no keys for the role {role:?}: [sts] roles does not list it.");
            self.outcomes().count("unlisted");
            return Err(NoKey::new(StatusCode::FORBIDDEN, "AccessDenied", message));
        }
        let account = match &asker {
            None => LakeAccount::Anonymous,
            Some(asker) => self.own_account(asker)?,
        };
        let key = (request.digest(), asker.as_ref().map(Caller::id));
        let exchange = {
            let mut under_way = self.under_way.lock();
            let exchange = under_way.entry(key).or_insert_with(|| {
                let relay = Arc::clone(self);
                let exchanging = async move {
                    let exchanged = relay.ask(request, asker, account).await;
                    relay.under_way.lock().remove(&key);
                    exchanged
                };
                // It goes on if the client that began it leaves, as others may wait for it.
                let task = tokio::spawn(exchanging);
                let ended = task.map(|ended| {
                    ended.unwrap_or_else(|_| {
                        Err(NoKey::unavailable("The request to STS ended early. Try again."))
                    })
                });
                ended.boxed().shared()
            });
            exchange.clone()
        };
        exchange.await
    }

    /// Returns the account of an identity whose key pair is one of the lake itself. A key that another
    /// account gets would be more than the identity has here: with it, the client could do at the lake
    /// whatever that account may.
    fn own_account(&self, asker: &Caller) -> Result<LakeAccount, NoKey> {
        let account = self.lake.account_for(asker);
        let is_its_own = match (asker, account.signer()) {
            (Caller::Identity(identity), Some((signer, _))) => signer.access_key == identity.access_key,
            _ => false,
        };
        if is_its_own {
            return Ok(account);
        }
        self.outcomes().count("foreign");
        let message = "The access key is known at this node only: requests with it go to the lake in the name of \
                       another account, and the node gives no keys of that account.";
        Err(NoKey::new(StatusCode::FORBIDDEN, "AccessDenied", message))
    }

    async fn ask(
        &self,
        request: StsRequest,
        asker: Option<Caller>,
        account: LakeAccount,
    ) -> Result<Exchanged, NoKey> {
        let place = tokio::time::timeout(PATIENCE, self.places.acquire()).await;
        let _place = place.map_err(|_| {
            self.outcomes().count("crowded");
            NoKey::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "SlowDown",
                "Too many clients ask for keys. Try again.",
            )
        })?;
        let mut answered = self.send(&request, account.clone()).await;
        // Ceph makes a user of each new subject, and two nodes may ask for the same one.
        if matches!(&answered, Ok((head, _)) if head.status == StatusCode::CONFLICT) {
            answered = self.send(&request, account).await;
        }
        let (head, answer) = answered.map_err(|why| {
            self.outcomes().count("unanswered");
            tracing::warn!(endpoint = self.sts.url(), error = why, "STS gave no answer");
            NoKey::unavailable("STS, which this node asked, gave no answer. Try again.")
        })?;
        if !head.status.is_success() {
            self.outcomes().count("refused");
            return Err(refused(head.status, &answer));
        }
        let read = StsAnswer::read(&answer).map_err(|_| {
            self.outcomes().count("unanswered");
            tracing::warn!(
                endpoint = self.sts.url(),
                "the answer of STS holds no temporary key"
            );
            NoKey::new(
                StatusCode::BAD_GATEWAY,
                "InternalError",
                "The answer of STS holds no temporary key.",
            )
        })?;
        let (now, expiration) = (clock::utc_now(), read.expiration);
        let date = head
            .headers
            .get(DATE)
            .and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        let key = read.key(
            &request,
            asker.as_ref().map_or("", Caller::name),
            now,
            date.unwrap_or(now),
        );
        tracing::info!(
            principal = key.principal.name(),
            access_key = key.account.access_key,
            "got a temporary key"
        );
        if !self.keys.share(key.clone()).await {
            self.outcomes().count("crowded");
            return Err(NoKey::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "SlowDown",
                "The nodes know as many temporary keys as they may. Try again when some have expired.",
            ));
        }
        self.outcomes().count("given");
        Ok(Exchanged {
            key,
            expiration,
            answer,
        })
    }

    fn outcomes(&self) -> &Tally<&'static str> {
        &self.metrics.temporary_keys
    }

    async fn send(
        &self,
        request: &StsRequest,
        account: LakeAccount,
    ) -> Result<(http::response::Parts, Bytes), String> {
        let mut asked = EndpointRequest::new(
            request.action().as_str(),
            Method::POST,
            PathAndQuery::from_static("/"),
            account,
            NODE,
        )
        .with_body(RequestBody::Whole(request.form().into()));
        asked.headers = HeaderMap::from_iter([(CONTENT_TYPE, FORM)]);
        let answer = self.sts.send(asked).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?;
        Ok((head, body.to_bytes()))
    }
}

/// Returns what STS said in place of a key. The client gets its words: it knows why it asked.
fn refused(status: StatusCode, answer: &[u8]) -> NoKey {
    if !status.is_client_error() && !status.is_server_error() {
        let message = format!("STS answered {status}, and the node goes nowhere else: check [sts] endpoint.");
        return NoKey::new(StatusCode::BAD_GATEWAY, "InternalError", message);
    }
    let said = StsError::read(answer).filter(|error| !error.code.is_empty());
    match said {
        Some(error) => NoKey::new(status, &error.code, error.message),
        None => NoKey::new(
            status,
            "AccessDenied",
            format!("STS answered {status} and did not say why."),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{NoKey, StatusCode, refused};

    #[test]
    fn the_client_gets_the_words_of_sts() {
        let document = shoal_s3::sts::error_document("ExpiredTokenException", "Token expired", true, "1");
        let expected = NoKey::new(StatusCode::BAD_REQUEST, "ExpiredTokenException", "Token expired");
        assert_eq!(refused(StatusCode::BAD_REQUEST, document.as_bytes()), expected);
        assert_eq!(refused(StatusCode::FORBIDDEN, b"<html>").code, "AccessDenied");
        let redirect = refused(StatusCode::TEMPORARY_REDIRECT, b"");
        assert_eq!(redirect.status, StatusCode::BAD_GATEWAY);
    }
}
