//! Requests to the bucket that holds the pieces.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header, response};
use md5::{Digest as _, Md5};
use sha2::Sha256;
use shoal_s3::identity::NODE;
use shoal_s3::operation::COPY_SOURCE;
use shoal_s3::sigv4::PayloadHash;
use shoal_s3::target;
use shoal_s3::xml::{Deletion, Key};

use super::answer::{failed, read, refused};
use crate::endpoint::{Endpoint, EndpointRequest, LakeAccount, RequestBody};
use crate::tier::store::StoreError;

/// Prefix of the names of all objects that are pieces.
pub(super) const PREFIX: &str = "pieces/";

/// A query parameter: its name, and its value if it has one.
pub(super) type Parameter<'a> = (&'a str, Option<&'a [u8]>);

/// A bucket of an endpoint.
pub(super) struct Bucket {
    endpoint: Arc<Endpoint>,
    name: String,
}

impl Bucket {
    pub(super) fn new(endpoint: Arc<Endpoint>, name: &str) -> Self {
        let name = name.into();
        Self { endpoint, name }
    }

    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Returns the request that reads a piece (GET) or describes it (HEAD).
    pub(super) fn get(&self, method: Method, key: &str, headers: HeaderMap) -> EndpointRequest {
        let operation = if method == Method::HEAD {
            "head_object"
        } else {
            "get_object"
        };
        self.request(operation, method, Some(key), [], headers, RequestBody::Empty)
    }

    /// Returns true if requests are signed.
    pub(super) fn is_signed(&self) -> bool {
        self.account().signer().is_some()
    }

    /// Returns the request that writes a piece of `size_bytes`.
    pub(super) fn put(
        &self,
        key: &str,
        size_bytes: u64,
        mut headers: HeaderMap,
        body: RequestBody,
    ) -> EndpointRequest {
        if matches!(body, RequestBody::Seeded { .. }) {
            headers.insert("x-amz-decoded-content-length", size_bytes.into());
        }
        self.request("put_object", Method::PUT, Some(key), [], headers, body)
    }

    /// Returns the request that copies a piece. Keys need no encoding: see
    /// [`check_key`](crate::tier::store::check_key).
    pub(super) fn copy(&self, from: &str, to: &str, mut headers: HeaderMap) -> EndpointRequest {
        let source = HeaderValue::try_from(format!("{}/{PREFIX}{from}", self.name));
        headers.insert(&COPY_SOURCE, source.expect("buckets and keys are header values"));
        self.request(
            "put_object",
            Method::PUT,
            Some(to),
            [],
            headers,
            RequestBody::Empty,
        )
    }

    /// Removes one piece, or one version of it.
    pub(super) async fn delete(&self, key: &str, version: Option<&HeaderValue>) -> Result<(), StoreError> {
        let version = version.map(|version| ("versionId", Some(version.as_bytes())));
        let (method, headers) = (Method::DELETE, HeaderMap::new());
        let request = self.request(
            "delete_object",
            method,
            Some(key),
            version,
            headers,
            RequestBody::Empty,
        );
        match self.answer(request).await {
            Ok(_) | Err(StoreError::Missing) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes pieces with one request. Returns the store's response, which may cover only some of them.
    pub(super) async fn delete_many(&self, keys: &[Arc<str>]) -> Result<Bytes, StoreError> {
        let key = |key: &Arc<str>| Key {
            key: format!("{PREFIX}{key}"),
            ..Key::default()
        };
        let list = Deletion {
            keys: keys.iter().map(key).collect(),
            is_quiet: false,
        };
        let list = list.write();
        let digest = BASE64_STANDARD.encode(Md5::digest(&list));
        let headers = HeaderMap::from_iter([
            // Required by Ceph and others.
            (
                HeaderName::from_static("content-md5"),
                HeaderValue::try_from(digest).expect("base64 is a header value"),
            ),
            (header::CONTENT_TYPE, HeaderValue::from_static("application/xml")),
        ]);
        let body = RequestBody::Whole(list.into());
        let request = self.request(
            "delete_objects",
            Method::POST,
            None,
            [("delete", None)],
            headers,
            body,
        );
        Ok(self.answer(request).await?.1)
    }

    /// Sends a GET about the bucket itself.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        query: &[Parameter<'_>],
    ) -> Result<(response::Parts, Bytes), StoreError> {
        let (query, headers) = (query.iter().copied(), HeaderMap::new());
        self.answer(self.request(operation, Method::GET, None, query, headers, RequestBody::Empty))
            .await
    }

    /// Sends a request with a short response. Fails unless the store carries it out.
    async fn answer(&self, request: EndpointRequest) -> Result<(response::Parts, Bytes), StoreError> {
        let answer = self.endpoint.send(request).await;
        let (head, body) = read(answer.map_err(|error| failed(&error))?).await?;
        if head.status.is_success() {
            Ok((head, body))
        } else {
            Err(refused(head.status, &body))
        }
    }

    fn request<'a>(
        &self,
        operation: &'static str,
        method: Method,
        key: Option<&str>,
        query: impl IntoIterator<Item = Parameter<'a>>,
        headers: HeaderMap,
        body: RequestBody,
    ) -> EndpointRequest {
        let payload = match &body {
            RequestBody::Empty => PayloadHash::empty(),
            RequestBody::Whole(bytes) => PayloadHash::Sha256(Sha256::digest(bytes).into()),
            RequestBody::Seeded { .. } => PayloadHash::StreamingSigned,
            RequestBody::Stream { .. } => PayloadHash::Unsigned,
        };
        EndpointRequest {
            operation,
            method,
            target: self.target(key, query),
            headers,
            body,
            expects_continue: false,
            payload,
            account: self
                .endpoint
                .credentials()
                .own()
                .unwrap_or(LakeAccount::Anonymous),
            payer: NODE,
        }
    }

    fn account(&self) -> LakeAccount {
        self.endpoint
            .credentials()
            .own()
            .unwrap_or(LakeAccount::Anonymous)
    }

    fn target<'a>(&self, key: Option<&str>, query: impl IntoIterator<Item = Parameter<'a>>) -> PathAndQuery {
        let name = key.map(|key| format!("{PREFIX}{key}"));
        let path = target::path(Some(&self.name), name.as_deref().map(str::as_bytes));
        target::with_query(path, query).expect("buckets and keys are short")
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bucket {} of {}", self.name, self.endpoint.url())
    }
}
