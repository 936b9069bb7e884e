//! Failures between this node and the store that it calls, and the status that a client gets for each.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use http::uri::PathAndQuery;
use shoal_base::causes::{self, find};
use shoal_s3::error::{ErrorCode, S3Error};

use crate::words;

/// Any error of a body or a connection.
pub type BoxError = Box<dyn Error + Send + Sync>;

macro_rules! failures {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $says:literal => $code:ident, $message:literal;)*) => {
        words! {
            /// Kinds of failure, with the answer that a client should get if the endpoint is the lake.
            pub enum Failure { $($(#[$doc])* $name = $word,)* }
        }

        impl Failure {
            /// Returns what the endpoint did, for the log.
            const fn says(self) -> &'static str {
                match self { $(Self::$name => $says,)* }
            }

            /// Returns the error for a client of the lake.
            pub fn answer(self) -> S3Error {
                match self { $(Self::$name => S3Error::new(ErrorCode::$code, $message),)* }
            }
        }
    };
}

failures! {
    /// 502: the connection failed (refused, unresolvable, no route).
    Unreachable = "unreachable", "cannot be reached"
        => BadGateway, "The lake cannot be reached.";
    /// 503: this node has no descriptor, port or memory for a connection.
    Exhausted = "exhausted", "was not asked, as this node has no descriptors, ports or memory left"
        => SlowDown, "This node has no descriptors, ports or memory left to ask the lake; please reduce your rate.";
    /// 502: the URL is `https://`, but the endpoint does not speak TLS.
    NoTls = "no-tls", "does not speak TLS there, though its URL begins with https://"
        => BadGateway, "The lake does not speak TLS, and this node expects it to.";
    /// 502: its certificate is not trusted, or belongs to another host.
    Untrusted = "untrusted", "has a certificate that this node does not trust"
        => BadGateway, "The lake's certificate is not trusted by this node.";
    /// 502: the TLS handshake failed for another reason.
    Tls = "tls", "and this node cannot agree on TLS"
        => BadGateway, "This node and the lake cannot agree on TLS.";
    /// 504: no connection within the time limit.
    ConnectTimedOut = "connect-timeout", "took no connection in time"
        => GatewayTimeout, "The lake took no connection in time.";
    /// 504: no response head within the time limit.
    TimedOut = "timeout", "gave no answer in time"
        => GatewayTimeout, "The lake gave no answer in time.";
    /// 502: the connection ended before a response head arrived.
    BrokenOff = "broken-off", "closed the connection before it answered"
        => BadGateway, "The lake broke off before the first byte.";
    /// 502: the response is not HTTP, or its head is too large.
    Unintelligible = "unintelligible", "answered with something that is not HTTP (does it speak TLS? then its URL begins with https://)"
        => BadGateway, "The lake's answer does not fit the request; perhaps it expects TLS.";
    /// 504, or a broken-off response: the body made no progress within the stall timeout.
    Stalled = "stalled", "stopped sending in the middle of the body"
        => GatewayTimeout, "The lake gave no answer in time: it stopped before the first byte.";
    /// 502, or a broken-off response: the body ended before its announced length.
    Truncated = "truncated", "ended the body before its announced length"
        => BadGateway, "The lake broke off before the first byte.";
    /// 502, or a broken-off response: the connection was reset in the middle of the body.
    Reset = "reset", "reset the connection in the middle of the body"
        => BadGateway, "The lake broke off before the first byte.";
    /// A broken-off response: the rest of the body belongs to another version of the object.
    Changed = "changed", "has another version of the object whose body broke off"
        => ServiceUnavailable, "The object changes faster than it can be read.";
    /// The request's own body failed while it was sent; the status is that of the underlying error.
    RequestBody = "request-body", "was sent a body that failed on our side"
        => BadGateway, "The body of the request could not be sent to the lake.";
    /// 503: this node's session with the registry ended before the request was sent and answered.
    SessionOver = "session-over", "was sent no more, as another node may now act for this one"
        => ServiceUnavailable, "It is not known whether the request was carried out; please look, and try again.";
    /// 500: the request cannot be signed (a header that is not text).
    Unsignable = "unsignable", "cannot be sent a request with headers that no signature covers"
        => InvalidRequest, "A header of the request cannot be signed for the lake.";
    /// 502: the endpoint rejects the account that this node signs with.
    AccountRefused = "account-refused", "does not accept the account of this node"
        => BadGateway, "The lake does not accept the account of this node. Your own key is not at fault; ask the operator.";
    /// 503: too many requests wait for the endpoint.
    Crowded = "crowded", "is asked too much"
        => SlowDown, "Too many requests wait for the lake; please reduce your rate.";
    /// At start only: the configured endpoint is invalid.
    Misconfigured = "misconfigured", "is not configured right"
        => InternalError, "This node has no usable lake.";
}

impl Failure {
    /// Returns the kind of a connection failure.
    pub(super) fn of_connecting(error: &(dyn Error + 'static)) -> Self {
        match find::<rustls::Error>(error) {
            Some(rustls::Error::InvalidMessage(_)) => Self::NoTls,
            Some(rustls::Error::InvalidCertificate(_)) => Self::Untrusted,
            Some(_) => Self::Tls,
            None if find::<io::Error>(error).is_some_and(is_exhaustion) || lacks_descriptors() => {
                Self::Exhausted
            }
            None => Self::Unreachable,
        }
    }

    /// Returns true if the endpoint may have carried out the request, or may still do so.
    pub fn may_be_carried_out(self) -> bool {
        matches!(
            self,
            Self::TimedOut
                | Self::BrokenOff
                | Self::Unintelligible
                | Self::Stalled
                | Self::Truncated
                | Self::Reset
                | Self::Changed
                | Self::SessionOver
        )
    }

    /// Returns true if the endpoint was too slow (504), rather than wrong (502).
    pub fn is_timeout(self) -> bool {
        matches!(self, Self::ConnectTimedOut | Self::TimedOut | Self::Stalled)
    }

    /// Returns true if the failure means that the endpoint does not answer, rather than that something is
    /// wrong with this node or with one body.
    pub fn is_silence(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::NoTls
                | Self::Untrusted
                | Self::Tls
                | Self::ConnectTimedOut
                | Self::TimedOut
                | Self::BrokenOff
                | Self::Unintelligible
        )
    }
}

/// Returns true if this node lacks a resource that a connection needs.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::EADDRNOTAVAIL)
    )
}

/// Returns true if this process is out of descriptors. A resolver without descriptors only reports that a
/// name is temporarily unknown.
fn lacks_descriptors() -> bool {
    File::open("/dev/null").is_err_and(|error| is_exhaustion(&error))
}

/// The error of a request without a complete response. It shows the request's path, but never its query or
/// headers.
#[derive(thiserror::Error)]
#[error("{} {}: {} {}", context.operation, context.target.path(), context.endpoint, kind.says())]
pub struct EndpointError {
    kind: Failure,
    context: RequestContext,
    source: Option<BoxError>,
}

impl EndpointError {
    /// Returns the kind of failure.
    pub fn kind(&self) -> Failure {
        self.kind
    }

    /// Returns the same error, of kind [`Failure::Changed`].
    pub(super) fn of_another_version(mut self) -> Self {
        self.kind = Failure::Changed;
        self
    }

    /// Returns the error of type `E` among the causes, for instance that of the request's own body.
    pub fn cause<E: Error + 'static>(&self) -> Option<&E> {
        find(self.source()?)
    }
}

impl fmt::Debug for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?}", self.kind)?;
        self.source
            .as_ref()
            .map_or(Ok(()), |source| write!(f, ": {source:?}"))?;
        f.write_str(")")
    }
}

/// An [`EndpointError`] that can be cloned, for callers that share the failure of one request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct SharedError {
    kind: Failure,
    what: Arc<str>,
}

impl SharedError {
    /// Returns the kind of failure.
    pub fn kind(&self) -> Failure {
        self.kind
    }
}

impl From<EndpointError> for SharedError {
    fn from(error: EndpointError) -> Self {
        Self {
            kind: error.kind,
            what: causes::line(&error).into(),
        }
    }
}

impl From<&str> for SharedError {
    /// Creates the error for a response that is not the expected one.
    fn from(what: &str) -> Self {
        Self {
            kind: Failure::Unintelligible,
            what: what.into(),
        }
    }
}

/// The operation and target of a request, for its errors.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub(super) operation: &'static str,
    pub(super) endpoint: Arc<str>,
    pub(super) target: PathAndQuery,
}

impl RequestContext {
    pub(super) fn failed(&self, kind: Failure, source: impl Into<BoxError>) -> EndpointError {
        EndpointError {
            kind,
            context: self.clone(),
            source: Some(source.into()),
        }
    }

    pub(super) fn timed_out(&self, kind: Failure) -> EndpointError {
        EndpointError {
            kind,
            context: self.clone(),
            source: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use http::uri::PathAndQuery;

    use super::{Failure, RequestContext, SharedError, causes};

    fn context() -> RequestContext {
        RequestContext {
            operation: "get_object",
            endpoint: "http://lake".into(),
            target: PathAndQuery::from_static("/b/k?X-Amz-Signature=secret"),
        }
    }

    #[test]
    fn an_error_names_its_causes_down_to_the_operating_system_and_no_query() {
        let refused = io::Error::from_raw_os_error(111);
        let error = context().failed(Failure::Unreachable, refused);
        let line = causes::line(&error);
        assert_eq!(
            line,
            "get_object /b/k: http://lake cannot be reached: Connection refused (os error 111)"
        );
        assert_eq!(SharedError::from(error).to_string(), line);
    }

    #[test]
    fn failures_while_connecting_have_different_names() {
        let of = |error: io::Error| Failure::of_connecting(&error);
        let nested = |error: rustls::Error| io::Error::other(io::Error::other(error));
        for errno in [libc::EMFILE, libc::ENFILE, libc::EADDRNOTAVAIL] {
            assert_eq!(of(io::Error::from_raw_os_error(errno)), Failure::Exhausted);
        }
        assert_eq!(
            of(io::Error::from_raw_os_error(libc::ECONNREFUSED)),
            Failure::Unreachable
        );
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert_eq!(of(nested(plain)), Failure::NoTls);
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert_eq!(of(nested(unknown)), Failure::Untrusted);
        assert_eq!(of(nested(rustls::Error::HandshakeNotComplete)), Failure::Tls);
    }

    #[test]
    fn every_failure_has_a_word_of_its_own() {
        let words: std::collections::HashSet<_> =
            Failure::ALL.iter().map(|failure| failure.as_str()).collect();
        assert_eq!(words.len(), Failure::ALL.len());
    }
}
