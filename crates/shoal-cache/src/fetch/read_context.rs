//! Builds the requests to the lake for one read, on behalf of its caller.

use std::sync::{Arc, OnceLock};

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, header};
use shoal_s3::conditions::CONDITIONAL_HEADERS;
use shoal_s3::hop_by_hop::{JOB_HEADER, end_to_end};
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;
use shoal_s3::target;

use shoal_net::endpoint::{EndpointRequest, LakeAccount};
pub use shoal_net::link::Purpose;

/// The caller of a read, and the parts of the client's request that are forwarded to the lake. These are
/// computed lazily: a hit never needs them.
#[derive(Debug)]
pub struct ReadContext {
    account: LakeAccount,
    /// The caller of the read.
    pub caller: Caller,
    client: Arc<Parts>,
    is_of_peer: bool,
    /// The object being read; `None` if the lake must not be asked.
    pub name: Option<ObjectName>,
    /// The purpose of the read.
    pub purpose: Purpose,
    forwarded: OnceLock<Forwarded>,
}

#[derive(Clone, Debug)]
struct Forwarded {
    target: PathAndQuery,
    headers: HeaderMap,
}

impl ReadContext {
    /// Creates the context of a client's read of `name`. `client` is the head of its request; requests to the
    /// lake are signed by `account` on behalf of `caller`. Without a name the lake cannot be asked.
    pub fn new(
        account: LakeAccount,
        caller: Caller,
        client: Arc<Parts>,
        name: impl Into<Option<ObjectName>>,
    ) -> Self {
        Self {
            account,
            caller,
            client,
            is_of_peer: false,
            name: name.into(),
            purpose: Purpose::Client,
            forwarded: OnceLock::new(),
        }
    }

    /// Creates the context of a read for another node: `headers` are those that node would send to the lake.
    /// Without a name the lake cannot be asked.
    pub fn of_peer(
        account: LakeAccount,
        caller: Caller,
        name: Option<ObjectName>,
        headers: HeaderMap,
    ) -> Self {
        let (mut client, ()) = http::Request::new(()).into_parts();
        client.headers = headers;
        Self {
            is_of_peer: true,
            ..Self::new(account, caller, Arc::new(client), name)
        }
    }

    /// Returns the read with another purpose; the default is a client's read.
    #[must_use]
    pub fn with_purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }

    /// Returns true if the read is of a client of this node, and not of another node for one.
    pub fn is_of_client(&self) -> bool {
        !self.is_of_peer && self.purpose.is_client()
    }

    /// Returns the job that the client's request names.
    pub fn job(&self) -> Option<&str> {
        self.client.headers.get(JOB_HEADER)?.to_str().ok()
    }

    /// Returns true if the node can ask the lake for any part of the object: it may sign for the caller.
    pub fn is_signable(&self) -> bool {
        !matches!(self.account, LakeAccount::AsSent)
    }

    /// Returns the target of requests to the lake: the object in path style, with only its `versionId`.
    pub fn target(&self) -> &PathAndQuery {
        &self.forwarded().target
    }

    /// Returns the end-to-end headers to forward, without ranges and conditions.
    pub fn headers(&self) -> &HeaderMap {
        &self.forwarded().headers
    }

    fn forwarded(&self) -> &Forwarded {
        self.forwarded.get_or_init(|| Forwarded {
            target: match &self.name {
                Some(name) => target::of_object(name).expect("a name that is too long was refused"),
                None => PathAndQuery::from_static("/"),
            },
            headers: unconditional(end_to_end(&self.client.headers)),
        })
    }

    /// Returns a request for the object without a range or condition. End-to-end headers such as
    /// `x-amz-request-payer` are forwarded; `response-*` parameters and presigned credentials are not.
    pub fn request(&self, method: Method) -> EndpointRequest {
        let forwarded = self.forwarded();
        let operation = match method {
            Method::HEAD => "head_object",
            _ => "get_object",
        };
        let (target, payer) = (forwarded.target.clone(), self.caller.payer());
        let request = EndpointRequest::new(operation, method, target, self.account.clone(), payer);
        request.with_headers(forwarded.headers.clone())
    }

    /// Returns the client's conditional headers, for the lake to evaluate if this node does not know the
    /// object.
    pub fn conditions(&self) -> impl Iterator<Item = (http::HeaderName, http::HeaderValue)> + '_ {
        let client = &self.client.headers;
        CONDITIONAL_HEADERS.into_iter().flat_map(|name| {
            client
                .get_all(&name)
                .iter()
                .map(move |value| (name.clone(), value.clone()))
                .collect::<Vec<_>>()
        })
    }
}

/// Removes the headers that this node handles itself.
fn unconditional(mut headers: HeaderMap) -> HeaderMap {
    for own in CONDITIONAL_HEADERS
        .into_iter()
        .chain([header::RANGE, header::CACHE_CONTROL, header::PRAGMA])
    {
        headers.remove(own);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(version: Option<&str>, headers: &[(&'static str, &'static str)]) -> ReadContext {
        let mut request = http::Request::new(());
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let client = Arc::new(request.into_parts().0);
        let name = ObjectName {
            bucket: "b".into(),
            key: b"k/ %".as_slice().into(),
            version: version.map(Into::into),
        };
        ReadContext::new(LakeAccount::Anonymous, Caller::Anonymous, client, name)
    }

    #[test]
    fn the_lake_is_asked_for_the_version_that_this_node_names() {
        let target = |version| context(version, &[]).request(Method::GET).target;
        assert_eq!(target(Some("a+b&x")).as_str(), "/b/k/%20%25?versionId=a%2Bb%26x");
        assert_eq!(target(None).as_str(), "/b/k/%20%25");
    }

    #[test]
    fn headers_that_the_node_answers_itself_do_not_go_to_the_lake() {
        let context = context(
            None,
            &[
                ("range", "bytes=0-1"),
                ("if-match", "\"x\""),
                ("cache-control", "no-cache"),
                ("accept-encoding", "gzip"),
                ("authorization", "AWS4 …"),
                ("x-amz-request-payer", "requester"),
            ],
        );
        let request = context.request(Method::GET);
        let names: Vec<_> = request.headers.keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["x-amz-request-payer"]);
        let conditions: Vec<_> = context.conditions().map(|(name, _)| name).collect();
        assert_eq!(conditions, [header::IF_MATCH]);
    }
}
