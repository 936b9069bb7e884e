//! Requests to an endpoint.

use std::sync::Arc;

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, EXPECT, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use sha2::{Digest as _, Sha256};
use shoal_base::send_permit::SendPermit;
use shoal_policy::fair::Payer;
use shoal_s3::auth::SignedHeaders;
use shoal_s3::sigv4::{KeyCache, PayloadHash, SeedSignature, Signer};

use super::account::LakeAccount;
use super::error::{EndpointError, Failure, RequestContext};
use super::expectation::Expectation;
use super::request_body::RequestBody;
use crate::link::{Flow, Transfer};
use crate::time::clock;
use crate::trace::Span;
use crate::words;

/// A request to an endpoint.
pub struct EndpointRequest {
    /// The name of the S3 operation, for metrics and errors.
    pub operation: &'static str,
    /// The method.
    pub method: Method,
    /// The target in path style (`/bucket/key?query`), sent unchanged.
    pub target: PathAndQuery,
    /// End-to-end headers, see [`end_to_end`](shoal_s3::hop_by_hop::end_to_end). `Endpoint::send` adds host,
    /// length, date and signature, and disables content encoding unless `Accept-Encoding` is set. A request
    /// [as the client sent it](LakeAccount::AsSent) brings its own.
    pub headers: HeaderMap,
    /// The body.
    pub body: RequestBody,
    /// True if the body must be held back until the endpoint requests it (`Expect: 100-continue`), for at
    /// most a second. If the response arrives first, the body is never polled.
    pub expects_continue: bool,
    /// The body's hash for the signature.
    pub payload: PayloadHash,
    /// The account to sign with.
    pub account: LakeAccount,
    /// The payer whose turn the request takes.
    pub payer: Payer,
}

impl EndpointRequest {
    /// Creates a request without headers and without a body.
    pub fn new(
        operation: &'static str,
        method: Method,
        target: PathAndQuery,
        account: LakeAccount,
        payer: Payer,
    ) -> Self {
        Self {
            operation,
            method,
            target,
            headers: HeaderMap::new(),
            body: RequestBody::Empty,
            expects_continue: false,
            payload: PayloadHash::empty(),
            account,
            payer,
        }
    }

    /// Returns the request with these headers and no others.
    #[must_use]
    pub fn with_headers(self, headers: HeaderMap) -> Self {
        Self { headers, ..self }
    }

    /// Returns the request with this body. The signature covers a body in memory, and the chunks of a seeded
    /// one; it does not cover a stream.
    #[must_use]
    pub fn with_body(self, body: RequestBody) -> Self {
        let payload = match &body {
            RequestBody::Empty => PayloadHash::empty(),
            RequestBody::Whole(bytes) => PayloadHash::Sha256(Sha256::digest(bytes).into()),
            RequestBody::Seeded { .. } => PayloadHash::StreamingSigned,
            RequestBody::Stream { .. } => PayloadHash::Unsigned,
        };
        Self {
            body,
            payload,
            ..self
        }
    }

    /// Splits the request into all but its body, completed for the endpoint at `url`, and the body.
    pub(super) fn split(
        self,
        url: &Arc<str>,
        host: &HeaderValue,
        options: SendOptions<'_>,
    ) -> (Box<Head>, RequestBody) {
        let mut headers = self.headers;
        // A signature of the client covers these headers as they came.
        if !matches!(self.account, LakeAccount::AsSent) {
            headers.insert(HOST, host.clone());
            headers.remove(CONTENT_LENGTH);
        }
        // The node reads most responses itself and supports no encoding. Without this header some lakes
        // compress them.
        headers
            .entry(ACCEPT_ENCODING)
            .or_insert(HeaderValue::from_static("identity"));
        if let Some(length) = self.body.content_length(&self.method) {
            headers.entry(CONTENT_LENGTH).or_insert(length.into());
        }
        if self.expects_continue {
            headers
                .entry(EXPECT)
                .or_insert(HeaderValue::from_static("100-continue"));
        }
        let head = Head {
            context: RequestContext {
                operation: self.operation,
                endpoint: Arc::clone(url),
                target: self.target,
            },
            class: RequestClass::of(&self.method, self.operation, &headers),
            method: self.method,
            headers,
            expectation: self.expects_continue.then(Expectation::default),
            payload: self.payload,
            account: self.account,
            payer: self.payer,
            transfer: options.transfer.cloned(),
            permit: options.permit.cloned(),
            answer: None,
            span: None,
        };
        (Box::new(head), self.body)
    }
}

/// The circumstances in which a request is sent; by default, it needs no permit and belongs to no transfer.
#[derive(Clone, Copy, Default)]
pub struct SendOptions<'a> {
    /// The right to send a change, which is checked for every byte.
    pub permit: Option<&'a SendPermit>,
    /// The transfer that is charged for the bytes; `None` if a client waits for them, at no rate.
    pub transfer: Option<&'a Transfer>,
}

impl<'a> SendOptions<'a> {
    /// The right to send a change is needed, if it is given.
    pub fn permitted_by(permit: Option<&'a SendPermit>) -> Self {
        let transfer = None;
        Self { permit, transfer }
    }

    /// The request belongs to this transfer, if it is given.
    pub fn within(transfer: Option<&'a Transfer>) -> Self {
        let permit = None;
        Self { permit, transfer }
    }
}

words! {
    /// The kind of work that a request causes at an endpoint.
    pub(super) enum RequestClass {
        /// A read, answered at once.
        Read = "read",
        /// A write, answered once the bytes are durable.
        Write = "write",
        /// The endpoint moves data itself before it answers (copies, completed uploads), possibly for
        /// minutes.
        Long = "long-write",
    }
}

impl RequestClass {
    pub(super) fn of(method: &Method, operation: &str, headers: &HeaderMap) -> Self {
        if method.is_safe() {
            Self::Read
        } else if headers.contains_key("x-amz-copy-source")
            || (*method == Method::POST && operation != "create_multipart_upload")
        {
            Self::Long
        } else {
            Self::Write
        }
    }
}

/// All of a request except its body.
pub(super) struct Head {
    pub(super) context: RequestContext,
    pub(super) class: RequestClass,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) expectation: Option<Expectation>,
    payload: PayloadHash,
    pub(super) account: LakeAccount,
    pub(super) payer: Payer,
    pub(super) transfer: Option<Transfer>,
    pub(super) permit: Option<SendPermit>,
    /// Paces the body of the response.
    pub(super) answer: Option<Box<Flow>>,
    /// The span of the request, if it is traced.
    pub(super) span: Option<Box<Span>>,
}

impl Head {
    /// Returns true if a client has waited for the answer from the start.
    pub(super) fn is_of_client(&self) -> bool {
        self.transfer.as_ref().is_none_or(Transfer::is_of_client)
    }

    /// Returns true if the request is sent with the signature of a client that covers this header.
    pub(super) fn client_has_signed(&self, name: &HeaderName) -> bool {
        matches!(self.account, LakeAccount::AsSent)
            && SignedHeaders::of(&self.headers, self.context.target.query())
                .is_none_or(|signed| signed.contain(name))
    }

    /// Returns true if the client has signed the request.
    fn is_signed(&self) -> bool {
        let query = self.context.target.query().unwrap_or_default();
        self.headers.contains_key(AUTHORIZATION) || query.contains("Signature=")
    }
}

/// Signs requests for one region.
pub(super) struct Signing {
    region: String,
    keys: KeyCache,
}

impl Signing {
    pub(super) fn new(region: String) -> Self {
        let keys = KeyCache::default();
        Self { region, keys }
    }

    /// Signs for another service than S3.
    pub(super) fn of_service(self, service: &'static str) -> Self {
        let keys = KeyCache::of(service);
        Self { keys, ..self }
    }

    /// Signs a request at the current time. Returns it without its body, and the seed for signed chunks.
    pub(super) fn sign(&self, head: &Head) -> Result<(Request<()>, Option<SeedSignature>), EndpointError> {
        let (target, mut headers) = (&head.context.target, head.headers.clone());
        if matches!(head.account, LakeAccount::AsSent) && !head.is_signed() {
            let reason = "the node has no account at the lake for a client whose key it does not know";
            return Err(head.context.failed(Failure::Unsignable, reason));
        }
        let signed = head.account.signer().map(|(account, _)| {
            let signer = Signer {
                account: &account,
                region: &self.region,
                keys: &self.keys,
            };
            signer.sign(&head.method, target, &mut headers, head.payload, clock::utc_now())
        });
        let seed = signed
            .transpose()
            .map_err(|error| head.context.failed(Failure::Unsignable, error))?;
        let mut request = Request::new(());
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = Uri::from(target.clone());
        *request.headers_mut() = headers;
        // The permit stays with the request until a connection takes it.
        if let Some(permit) = &head.permit {
            request.extensions_mut().insert(permit.clone());
        }
        Ok((request, seed))
    }
}
