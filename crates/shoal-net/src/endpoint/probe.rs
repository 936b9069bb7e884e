//! The node's own request to the endpoint: checks that it answers, and that it accepts an account.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::header::{HOST, HeaderValue, USER_AGENT};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, Method, Response, StatusCode};
use shoal_s3::identity::NODE;
use shoal_s3::sigv4::PayloadHash;

use super::account_check::Verdict;
use super::connect::{ConnectError, Connector};
use super::error::{EndpointError, Failure, RequestContext};
use super::request_body::OutgoingBody;
use super::timeouts::RequestClass;
use super::{ConnectionChoice, Endpoint, Head, LakeAccount, LakeBody};
use crate::clock;

/// The operation's name in metrics and errors.
const OPERATION: &str = "ask_lake";

/// Some lakes verify the region of a signature only if the request names a bucket. This one need not exist.
const IN_A_BUCKET: &str = "/shoal-probe?list-type=2&max-keys=1";

/// The node's user agent, by which the lake's log distinguishes the node's own requests from clients'.
const OWN_NAME: HeaderValue = HeaderValue::from_static(concat!("shoal/", env!("CARGO_PKG_VERSION")));

/// The other scheme responds at once or not at all.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The endpoint did not answer the probe.
#[derive(Debug)]
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

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
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
                let in_a_bucket = self.context_of(IN_A_BUCKET);
                let (response, verdict) = Verdict::of(self.ask(account, &in_a_bucket).await?).await?;
                if matches!(verdict, Verdict::Refused(..)) {
                    self.health.answered();
                    return self
                        .check_refusal(response, verdict, account, &in_a_bucket)
                        .map(drop);
                }
            }
            let list = self.context_of("/");
            let outcome = self.ask(account, &list).await;
            let response = self.check_account(outcome, account, &list).await?;
            // The list of buckets may be long and is not read, so its connection is closed.
            if response.status() == StatusCode::BAD_REQUEST {
                // A TLS server may respond with 400 to a request that is not encrypted.
                return Err(list.failed(Failure::Unintelligible, "it answered 400 Bad Request"));
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

    fn context_of(&self, target: &'static str) -> RequestContext {
        RequestContext {
            operation: OPERATION,
            endpoint: self.url.clone(),
            target: PathAndQuery::from_static(target),
        }
    }

    async fn ask(
        &self,
        account: &LakeAccount,
        context: &RequestContext,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, self.host.clone());
        headers.insert(USER_AGENT, OWN_NAME);
        let head = Head {
            context: context.clone(),
            class: RequestClass::Read,
            method: Method::GET,
            headers,
            payload: PayloadHash::empty(),
            account: account.clone(),
            payer: NODE,
            transfer: None,
            permit: None,
        };
        let request = head
            .sign(&self.region, &self.keys, clock::utc_now())?
            .with(OutgoingBody::EMPTY);
        // An idle connection of the pool would show nothing about the endpoint's present state.
        let choice = (&self.pool, ConnectionChoice::New);
        self.exchange(context, RequestClass::Read, request, choice)
            .await
            .map_err(|failed| self.failed(failed))
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
            None => tls_error(error).is_some_and(is_garbage).then_some("http"),
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
        Err(ConnectError::Failed(error)) => tls_error(&*error).is_some_and(|error| !is_garbage(error)),
        Err(ConnectError::TimedOut) => false,
    }
}

/// Returns the TLS error in a chain of causes. An I/O error hides the error that it wraps from the chain.
fn tls_error<'a>(mut error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    loop {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        error = match held {
            Some(held) => held,
            None => error.source()?,
        };
    }
}

/// Returns true if the received bytes were not TLS at all.
fn is_garbage(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidMessage(_))
}
