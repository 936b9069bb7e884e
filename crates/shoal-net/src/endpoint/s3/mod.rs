//! The S3 requests that the node makes itself: how they are written, and how their responses are read.
//!
//! A request is built first and then sent with [`S3Client::send`] or, if its response is long, with
//! [`S3Client::open`]. Callers decide what a refusal means to them.

mod multipart;
mod outcome;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, response};
use http_body_util::{BodyExt as _, Collected, Limited};
use md5::{Digest as _, Md5};
use shoal_policy::fair::Payer;
use shoal_s3::identity::{Caller, NODE};
use shoal_s3::target::{self, TooLong};
use shoal_s3::xml::{Deletion, ErrorDocument, Key, Listing};

pub use self::multipart::Multipart;
pub use self::outcome::{is_undecided, is_undecided_code};
pub use super::SendOptions;
use super::{BoxError, Endpoint, EndpointError, EndpointRequest, LakeAccount, LakeBody, RequestBody};

/// Maximum length of a response that is read to its end. The longest is a page of a listing: a thousand keys
/// of a kilobyte, percent-encoded.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// Maximum number of objects on a page of a listing.
pub const PAGE_KEYS: usize = 1000;

/// The digest that a store compares with that of the body.
pub const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// Sends requests of one account to one store.
#[derive(Clone)]
pub struct S3Client {
    /// The store.
    pub endpoint: Arc<Endpoint>,
    /// The account that signs.
    pub account: LakeAccount,
    /// The payer whose turns the requests take.
    pub payer: Payer,
}

/// A page of a listing to request.
#[derive(Clone, Copy)]
pub struct PageRequest<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The beginning of all keys; may be empty.
    pub prefix: &'a [u8],
    /// The key before the first one.
    pub after: Option<&'a [u8]>,
    /// Maximum number of keys, at most [`PAGE_KEYS`].
    pub keys_max: usize,
}

/// A response, read to its end.
pub struct Answer {
    /// Status and headers.
    pub head: response::Parts,
    /// The body, or the reason why not all of it could be read.
    pub body: Result<Bytes, BoxError>,
}

/// A response that is an error.
#[derive(Debug)]
pub struct Refusal {
    /// Its status; 200 if the store sent that early and reports an error in the body.
    pub status: StatusCode,
    /// The body, if it is an error document.
    pub error: Option<ErrorDocument>,
}

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The target would be too long.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// No response arrived.
    #[error(transparent)]
    Unanswered(#[from] EndpointError),
    /// The response is an error.
    #[error("it answered {}", .0.status)]
    Refused(Refusal),
    /// The response ended early, or is too long.
    #[error("its answer broke off: {0}")]
    BrokenOff(BoxError),
    /// The response is not that of S3: it "is not ...".
    #[error("its answer {0}")]
    Misunderstood(&'static str),
}

impl S3Client {
    /// Sends requests of the node itself, with the endpoint's own account.
    pub fn of_node(endpoint: &Arc<Endpoint>) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            account: endpoint.credentials.own().unwrap_or(LakeAccount::Anonymous),
            payer: NODE,
        }
    }

    /// Sends requests on behalf of `caller`.
    pub fn of_caller(endpoint: &Arc<Endpoint>, caller: &Caller) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            account: endpoint.account_for(caller),
            payer: caller.payer(),
        }
    }

    /// Sends a request and reads the response to its end, so that the connection can be reused.
    ///
    /// # Errors
    ///
    /// No response arrives. A response with an error status is not an error.
    pub async fn send(
        &self,
        request: EndpointRequest,
        options: SendOptions<'_>,
    ) -> Result<Answer, EndpointError> {
        let response = self.endpoint.send_with(request, options).await?;
        Ok(Answer::read(response).await)
    }

    /// Sends a request. Returns its response, with the body still to come.
    ///
    /// # Errors
    ///
    /// No response arrives, or it is an error.
    pub async fn open(&self, request: EndpointRequest) -> Result<Response<LakeBody>, CallError> {
        self.open_with(request, SendOptions::default()).await
    }

    /// Like [`Self::open`], but the request belongs to a transfer, or needs a permit.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`].
    pub async fn open_with(
        &self,
        request: EndpointRequest,
        options: SendOptions<'_>,
    ) -> Result<Response<LakeBody>, CallError> {
        let response = self.endpoint.send_with(request, options).await?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(Answer::read(response).await.refusal())
        }
    }

    /// Builds a request without headers and without a body.
    pub fn request(&self, operation: &'static str, method: Method, target: PathAndQuery) -> EndpointRequest {
        EndpointRequest::new(operation, method, target, self.account.clone(), self.payer)
    }

    /// Describes an object.
    pub fn head(&self, target: PathAndQuery) -> EndpointRequest {
        self.request("head_object", Method::HEAD, target)
    }

    /// Reads an object.
    pub fn get(&self, target: PathAndQuery) -> EndpointRequest {
        self.request("get_object", Method::GET, target)
    }

    /// Writes an object, or copies one.
    pub fn put(&self, target: PathAndQuery) -> EndpointRequest {
        self.request("put_object", Method::PUT, target)
    }

    /// Removes an object, or one version of it.
    pub fn delete(&self, target: PathAndQuery) -> EndpointRequest {
        self.request("delete_object", Method::DELETE, target)
    }

    /// Removes at most a thousand objects. The store reports the result of each.
    pub fn delete_many(&self, bucket: &str, keys: Vec<Key>) -> EndpointRequest {
        let is_quiet = false;
        let list = Deletion { keys, is_quiet }.write();
        let headers = HeaderMap::from_iter([
            // Required by Ceph and others.
            (CONTENT_MD5, content_md5(&Md5::digest(&list).into())),
            (header::CONTENT_TYPE, HeaderValue::from_static("application/xml")),
        ]);
        let target = of_bucket(bucket, "delete");
        let request = self.request("delete_objects", Method::POST, target);
        request
            .with_headers(headers)
            .with_body(RequestBody::Whole(list.into()))
    }

    /// Reads a setting of a bucket, such as `versioning`.
    pub fn setting(&self, bucket: &str, name: &str) -> EndpointRequest {
        self.request("other_read", Method::GET, of_bucket(bucket, name))
    }

    /// Lists objects. Returns the head of the response and the page, whose keys are greater than
    /// [`PageRequest::after`] and in order. Only an empty page is known to be the last one: some lakes call a
    /// page the last one although others follow, such as `MinIO` of February 2026 if objects in another
    /// folder follow.
    ///
    /// # Errors
    ///
    /// The request fails, or the response is not such a page.
    pub async fn list(&self, page: PageRequest<'_>) -> Result<(response::Parts, Listing), CallError> {
        let keys_max = page.keys_max.to_string();
        let prefix = Some(page.prefix).filter(|prefix| !prefix.is_empty());
        let query = [
            Some(("encoding-type", &b"url"[..])),
            Some(("list-type", b"2")),
            Some(("max-keys", keys_max.as_bytes())),
            prefix.map(|prefix| ("prefix", prefix)),
            page.after.map(|after| ("start-after", after)),
        ];
        let query = query
            .into_iter()
            .flatten()
            .map(|(name, value)| (name, Some(value)));
        let target = target::with_query(target::path(Some(page.bucket), None), query)?;
        let request = self.request("list_objects", Method::GET, target);
        let Answer { head, body } = self.send(request, SendOptions::default()).await?.ok()?;
        let listing = Listing::read(&body.map_err(CallError::BrokenOff)?);
        let listing = listing.map_err(|_| CallError::Misunderstood("is not one of S3"))?;
        let before = page.after.unwrap_or_default();
        let keys = std::iter::once(before).chain(listing.objects.iter().map(|object| &*object.key));
        // Otherwise the next page might omit some, or repeat this one.
        if !keys.is_sorted_by(|one, other| one < other) {
            return Err(CallError::Misunderstood("is not in the order of its keys"));
        }
        Ok((head, listing))
    }

    /// Creates a multipart upload; [`Multipart::created`] reads the response.
    pub fn create_upload(&self, target: &PathAndQuery, headers: HeaderMap) -> EndpointRequest {
        let target = with_query(target, [("uploads", None)]);
        let request = self.request("create_multipart_upload", Method::POST, target);
        request.with_headers(headers)
    }
}

impl Answer {
    async fn read(response: Response<LakeBody>) -> Self {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, DOCUMENT_BYTES_MAX).collect().await;
        let body = body.map(Collected::to_bytes);
        Self { head, body }
    }

    /// Returns the body if it is an error document.
    pub fn error(&self) -> Option<ErrorDocument> {
        ErrorDocument::read(self.body.as_ref().ok()?).ok().flatten()
    }

    /// Returns the response if its status is 200.
    ///
    /// # Errors
    ///
    /// Its status is another one.
    pub fn ok(self) -> Result<Self, CallError> {
        let is_ok = self.head.status == StatusCode::OK;
        if is_ok { Ok(self) } else { Err(self.refusal()) }
    }

    /// Returns the response if its status is that of a success.
    ///
    /// # Errors
    ///
    /// Its status is another one.
    pub fn success(self) -> Result<Self, CallError> {
        let is_success = self.head.status.is_success();
        if is_success { Ok(self) } else { Err(self.refusal()) }
    }

    /// Returns the body of a successful response. A store may send a status of 200 early, to keep the
    /// connection open, and report an error in the body.
    ///
    /// # Errors
    ///
    /// The body is an error document, or incomplete.
    pub fn settled(self) -> Result<Bytes, CallError> {
        if self.error().is_some() {
            return Err(self.refusal());
        }
        self.body.map_err(CallError::BrokenOff)
    }

    fn refusal(&self) -> CallError {
        CallError::Refused(Refusal {
            status: self.head.status,
            error: self.error(),
        })
    }
}

impl Refusal {
    /// Returns the error code; empty if the store sent none.
    pub fn code(&self) -> &str {
        self.error.as_ref().map_or("", |error| &error.code)
    }
}

/// Returns the value of [`CONTENT_MD5`].
pub fn content_md5(md5: &[u8; 16]) -> HeaderValue {
    HeaderValue::try_from(STANDARD.encode(md5)).expect("base 64 is a header value")
}

/// Returns `target` with this query instead of its own.
pub fn with_query<'a>(
    target: &PathAndQuery,
    query: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
) -> PathAndQuery {
    let target = target::with_query(target.path().to_owned(), query);
    target.expect("the target leaves room for a short query")
}

fn of_bucket(bucket: &str, parameter: &str) -> PathAndQuery {
    let target = target::with_query(target::path(Some(bucket), None), [(parameter, None)]);
    target.expect("the name of a bucket is short")
}
