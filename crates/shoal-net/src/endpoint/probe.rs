//! The node's own request to the endpoint: checks that it answers, and that it accepts an account.

use std::net::SocketAddr;
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, Method, Response, StatusCode};
use shoal_base::causes::find;
use shoal_s3::identity::NODE;

use super::account::Verdict;
use super::error::{EndpointError, Failure};
use super::request::Head;
use super::request_body::OutgoingBody;
use super::transport::Connector;
use super::{Endpoint, EndpointRequest, LakeAccount, LakeBody, SendOptions};

/// The operation's name in metrics and errors.
const OPERATION: &str = "ask_lake";

/// Some lakes verify the region of a signature only if the request names a bucket. This one need not exist.
const IN_A_BUCKET: &str = "/shoal-probe?list-type=2&max-keys=1";

/// The node's user agent, by which the lake's log distinguishes the node's own requests from clients'.
const OWN_NAME: HeaderValue = HeaderValue::from_static(concat!("shoal/", env!("CARGO_PKG_VERSION")));

/// The other scheme responds at once or not at all.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The endpoint did not answer the probe.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ProbeError {
    /// The error.
    pub error: EndpointError,
    /// The scheme that the endpoint speaks, if it is not that of the URL.
    pub speaks: Option<&'static str>,
}

impl ProbeError {
    /// Returns the hint for operators.
    pub fn hint(&self) -> String {
        match self.speaks {
            Some(scheme) => format!("the endpoint speaks {scheme}: begin [lake] endpoint with {scheme}://"),
            None => {
                "check [lake] endpoint, and that the store runs and can be reached from this machine".into()
            }
        }
    }
}

impl Endpoint {
    /// Requests a bucket and the list of buckets as `account`, which changes nothing. A refusal counts as an
    /// answer. [`EndpointHealth`](super::EndpointHealth) records if the account is accepted, which it is
    /// unless one of the two responses refuses it.
    ///
    /// # Errors
    ///
    /// The lake does not answer, or speaks `https` instead of `http` or vice versa.
    pub async fn probe(&self, account: &LakeAccount) -> Result<(), ProbeError> {
        let asked = async {
            if account.signer().is_some() {
                let in_a_bucket = self.question(account, IN_A_BUCKET);
                let (response, verdict) = Verdict::of(self.ask(&in_a_bucket).await?).await?;
                if matches!(verdict, Verdict::Refused(..)) {
                    self.health.answered();
                    let checked = self
                        .health
                        .check_refusal(response, verdict, account, &in_a_bucket.context);
                    return checked.map(drop);
                }
            }
            let list = self.question(account, "/");
            let outcome = self.ask(&list).await;
            let response = self.health.check(outcome, account, &list.context).await?;
            // The list of buckets may be long and is not read, so its connection is closed.
            if response.status() == StatusCode::BAD_REQUEST {
                // A TLS server may respond with 400 to a request that is not encrypted.
                return Err(list
                    .context
                    .failed(Failure::Unintelligible, "it answered 400 Bad Request"));
            }
            Ok(())
        };
        let error = match asked.await {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == Failure::AccountRefused => return Ok(()),
            Err(error) => error,
        };
        if error.kind().is_silence() {
            self.health.unanswered();
        }
        let speaks = self.other_scheme(&error).await;
        if speaks.is_none() && !self.health.is_silent() {
            return Ok(());
        }
        self.health.unanswered();
        Err(ProbeError { error, speaks })
    }

    fn question(&self, account: &LakeAccount, target: &'static str) -> Box<Head> {
        let target = PathAndQuery::from_static(target);
        let request = EndpointRequest::new(OPERATION, Method::GET, target, account.clone(), NODE);
        let request = request.with_headers(HeaderMap::from_iter([(USER_AGENT, OWN_NAME)]));
        request.split(&self.url, &self.host, SendOptions::default()).0
    }

    async fn ask(&self, question: &Head) -> Result<Response<LakeBody>, EndpointError> {
        let (request, _seed) = self.signing.sign(question)?;
        let request = request.map(|()| OutgoingBody::default());
        self.transport.exchange_now(question, request).await
    }

    /// Returns the other scheme, if it explains the failure of the request and the endpoint does speak it.
    async fn other_scheme(&self, error: &EndpointError) -> Option<&'static str> {
        if !matches!(
            error.kind(),
            Failure::Unreachable
                | Failure::NoTls
                | Failure::Tls
                | Failure::BrokenOff
                | Failure::Unintelligible
        ) {
            return None;
        }
        match self.url.strip_prefix("http://") {
            Some(address) => speaks_tls(address).await.then_some("https"),
            // The first bytes from a server without TLS are not a TLS record.
            None => find::<rustls::Error>(error)
                .is_some_and(is_garbage)
                .then_some("http"),
        }
    }
}

/// Returns true if a server speaks TLS at `host[:port]`, whatever its certificate.
async fn speaks_tls(address: &str) -> bool {
    let with_port = if address.parse::<SocketAddr>().is_ok() || address.rsplit_once(':').is_some() {
        address.to_owned()
    } else {
        format!("{address}:80")
    };
    let Ok(uri) = format!("https://{with_port}").parse::<Uri>() else {
        return false;
    };
    let Ok(connector) = Connector::new(uri, None, None, TIMEOUT) else {
        return false;
    };
    match connector.connect(TIMEOUT).await {
        Ok(_) => true,
        // An untrusted certificate still proves TLS.
        Err(error) => find::<rustls::Error>(&*error).is_some_and(|error| !is_garbage(error)),
    }
}

/// Returns true if the received bytes were not TLS at all.
fn is_garbage(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidMessage(_))
}
