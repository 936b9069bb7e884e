//! Records of the requests that the lake received.

use http::{HeaderMap, Method, StatusCode};
use percent_encoding::percent_decode_str;

/// A request as it came, and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Path bytes as sent.
    pub(crate) path: String,
    /// Query bytes as sent.
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    /// First segment of the path.
    pub(crate) bucket: String,
    /// The rest of the path, percent-decoded once.
    pub(crate) key: Vec<u8>,
    /// Access key of the signer, `None` for an anonymous request. The signature is checked before the answer.
    pub(crate) access_key: Option<String>,
    /// Bytes of its body as they came, chunk signatures included.
    pub(crate) body_received: u64,
    /// The body came to its announced end.
    pub(crate) body_complete: bool,
    /// Status that was answered; none while it is being thought about, or when the connection was reset.
    pub(crate) status: Option<StatusCode>,
    /// Bytes of the response body handed to the socket.
    pub(crate) body_sent: u64,
    /// The response body was sent to its end.
    pub(crate) answered: bool,
    /// The response body ended before that: the reader left, or a fault cut it.
    pub(crate) abandoned: bool,
}

impl Request {
    pub(super) fn new(head: &http::request::Parts) -> Self {
        let path = head.uri.path().to_owned();
        let (bucket, key) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
        Self {
            bucket: bucket.to_owned(),
            key: percent_decode_str(key).collect(),
            method: head.method.clone(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers: head.headers.clone(),
            access_key: None,
            body_received: 0,
            body_complete: false,
            status: None,
            body_sent: 0,
            answered: false,
            abandoned: false,
            path,
        }
    }

    /// A GET of an object's bytes.
    pub(crate) fn is_get(&self) -> bool {
        self.method == Method::GET && self.is_of_object()
    }

    /// A HEAD of an object.
    pub(crate) fn is_head(&self) -> bool {
        self.method == Method::HEAD && self.is_of_object()
    }

    /// A PUT of an object's bytes.
    pub(crate) fn is_put(&self) -> bool {
        self.method == Method::PUT && self.is_of_object()
    }

    /// Returns true if a node sent it in its own name, to learn whether the lake answers and accepts its
    /// accounts.
    pub(super) fn is_of_a_node(&self) -> bool {
        let is_named = self
            .header("user-agent")
            .is_some_and(|name| name.starts_with("shoal/"));
        matches!(self.path.as_str(), "/" | "/shoal-probe") && is_named
    }

    /// Concerns an object itself and not one of its sub-resources.
    pub(crate) fn is_of_object(&self) -> bool {
        let of_object =
            |name: &str| matches!(name, "versionId" | "partNumber" | "x-id") || name.starts_with("response-");
        let of_presigned = |name: &str| name.starts_with("X-Amz-");
        !self.key.is_empty()
            && self
                .parameters()
                .all(|(name, _)| of_object(&name) || of_presigned(&name))
    }

    /// The value of a request header, if there is one and it is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The value of a query parameter; empty for `?name` alone.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        self.parameters()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value)
    }

    fn parameters(&self) -> impl Iterator<Item = (String, String)> {
        decoded_query(&self.query)
    }
}

/// Name and value of each query parameter, percent-decoded; `+` is a blank, as S3 reads it.
pub(super) fn decoded_query(query: &str) -> impl Iterator<Item = (String, String)> {
    let decode = |text: &str| {
        percent_decode_str(&text.replace('+', " "))
            .decode_utf8_lossy()
            .into_owned()
    };
    query.split('&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    })
}
