//! What can go wrong between us and the store we call, and what to tell the client.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use http::uri::PathAndQuery;

/// Any error, as bodies and connections hand it up.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Kinds of failure; each names the status a client should see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// 502: no connection could be made (refused, unresolvable, certificate not trusted).
    Unreachable,
    /// 504: no connection or no response head within the time allowed.
    TimedOut,
    /// 502: the connection ended before a response head came.
    BrokenOff,
    /// 502: what came back is not HTTP, or its head is too large.
    Unintelligible,
    /// 504, or a broken-off response: the body made no progress for the stall timeout.
    Stalled,
    /// 502, or a broken-off response: the body ended before its announced length.
    Truncated,
    /// 502, or a broken-off response: the connection was reset in the middle of the body.
    Reset,
    /// A broken-off response: the rest of the body belongs to another version of the object.
    Changed,
    /// The request's own body failed while it was sent; the source says why, and its status holds.
    RequestBody,
    /// 500: the request cannot be signed (a header that is not text).
    Unsignable,
    /// 502: the endpoint does not accept the account that this node signs with.
    AccountRefused,
    /// 503: too many requests wait for their turn at the endpoint.
    Crowded,
    /// Only at start: the configuration names no usable endpoint.
    Misconfigured,
}

impl Failure {
    /// Whether the endpoint was too slow (504) rather than wrong (502).
    pub fn is_timeout(self) -> bool {
        matches!(self, Self::TimedOut | Self::Stalled)
    }

    /// Whether the endpoint itself gave no answer, or none that can be understood.
    pub fn is_silence(self) -> bool {
        matches!(
            self,
            Self::Unreachable | Self::TimedOut | Self::BrokenOff | Self::Unintelligible
        )
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "cannot be reached",
            Self::TimedOut => "gave no answer in time",
            Self::BrokenOff => "closed the connection before it answered",
            Self::Unintelligible => "answered with something that is not HTTP",
            Self::Stalled => "stopped sending in the middle of the body",
            Self::Truncated => "ended the body before its announced length",
            Self::Reset => "reset the connection in the middle of the body",
            Self::Changed => "has another version of what it broke off",
            Self::RequestBody => "was sent a body that failed on our side",
            Self::Unsignable => "cannot be sent a request with headers that no signature covers",
            Self::AccountRefused => "does not accept the account of this node",
            Self::Crowded => "is asked too much",
            Self::Misconfigured => "is not configured right",
        }
    }
}

/// A request to an endpoint that has no complete response. Names the request's path, never its query or headers.
pub struct EndpointError {
    kind: Failure,
    errand: Errand,
    source: Option<BoxError>,
}

impl EndpointError {
    /// What kind of failure it is.
    pub fn kind(&self) -> Failure {
        self.kind
    }

    /// The same, when the rest of the body turned out to be another version's.
    pub(super) fn of_another_version(mut self) -> Self {
        self.kind = Failure::Changed;
        self
    }

    /// The error of type `E` beneath, for instance the one that the request's own body ended with.
    pub fn cause<E: Error + 'static>(&self) -> Option<&E> {
        find(self.source()?)
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Errand {
            operation,
            endpoint,
            target,
        } = &self.errand;
        write!(
            f,
            "{operation} {}: {endpoint} {}",
            target.path(),
            self.kind.as_str()
        )
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

impl Error for EndpointError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}

/// What went wrong with an endpoint, for those who share the failure of one request.
#[derive(Clone, Debug)]
pub struct Trouble {
    kind: Failure,
    what: Arc<str>,
}

impl Trouble {
    /// What kind of failure it is.
    pub fn kind(&self) -> Failure {
        self.kind
    }
}

impl From<EndpointError> for Trouble {
    fn from(error: EndpointError) -> Self {
        Self {
            kind: error.kind,
            what: causes(&error).into(),
        }
    }
}

impl From<&str> for Trouble {
    /// The endpoint answered, and not what it was asked for.
    fn from(what: &str) -> Self {
        Self {
            kind: Failure::Unintelligible,
            what: what.into(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// An error and all that caused it, in one line.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Some errors repeat what caused them.
        if !line.ends_with(&said) {
            line = format!("{line}: {said}");
        }
        cause = error.source();
    }
    line
}

/// What we are doing, and where: the part of an error that is known before anything fails.
#[derive(Clone)]
pub(super) struct Errand {
    pub(super) operation: &'static str,
    pub(super) endpoint: Arc<str>,
    pub(super) target: PathAndQuery,
}

impl Errand {
    pub(super) fn failed(&self, kind: Failure, source: impl Into<BoxError>) -> EndpointError {
        EndpointError {
            kind,
            errand: self.clone(),
            source: Some(source.into()),
        }
    }

    pub(super) fn timed_out(&self, kind: Failure) -> EndpointError {
        EndpointError {
            kind,
            errand: self.clone(),
            source: None,
        }
    }
}

/// The first error of type `E` in a chain of causes.
pub(super) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io;

    use http::uri::PathAndQuery;

    use super::{Errand, Failure, Trouble, causes};

    fn errand() -> Errand {
        Errand {
            operation: "get_object",
            endpoint: "http://lake".into(),
            target: PathAndQuery::from_static("/b/k?X-Amz-Signature=secret"),
        }
    }

    #[test]
    fn an_error_names_its_causes_down_to_the_operating_system_and_no_query() {
        let refused = io::Error::from_raw_os_error(111);
        let error = errand().failed(Failure::Unreachable, refused);
        let line = causes(&error);
        assert_eq!(
            line,
            "get_object /b/k: http://lake cannot be reached: Connection refused (os error 111)"
        );
        assert_eq!(Trouble::from(error).to_string(), line);
    }

    #[test]
    fn a_cause_that_is_said_already_is_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("it failed: {0}")]
        struct Outer(#[source] io::Error);
        let error = Outer(io::Error::from_raw_os_error(111));
        assert_eq!(causes(&error), "it failed: Connection refused (os error 111)");
    }
}
