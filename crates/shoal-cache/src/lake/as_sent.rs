//! Requests whose signatures only the lake can verify. The lake gets each as it came, and judges it.
//!
//! A read of a cached object carries the ETag of the cached version in an `If-None-Match` that the client has
//! not signed: a 304 then means that the lake permits the request and that the version is current, and the
//! bytes come from the cache. No yes is valid for another request, because this node cannot know who sends
//! that one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{
    ACCEPT_ENCODING, ETAG, HOST, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED, VIA,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use shoal_net::endpoint::{EndpointRequest, LakeAccount, LakeBody, RequestBody, SendOptions};
use shoal_net::http::connection::ClientBody;
use shoal_net::link::Transfer;
use shoal_s3::auth::SignedHeaders;
use shoal_s3::conditions::CONDITIONAL_HEADERS;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::hop_by_hop::with_signed;
use shoal_s3::identity::Caller;
use shoal_s3::object::{Uncacheable, Version, of_caller};
use shoal_s3::operation::Operation;
use shoal_s3::range::ByteRange;

use super::{PinOutcome, Pinned, PlainLake, ReadError, ReadRequest};
use crate::fetch::sent_range;
use crate::grants::{Checksums, QuestionStamp};
use crate::write::Spread;

/// The state of a node that sends requests to its lake as they came.
#[derive(Debug)]
pub struct AsSent {
    /// Names this node, so that it recognises its own requests.
    via: HeaderValue,
    /// True once the lake has ignored an `If-None-Match` beside an `If-Match`.
    ignores_pairs: AtomicBool,
    /// True once the lake has sent a 304 without a date.
    sends_no_dates: AtomicBool,
}

/// A request of a client, with the client's signature.
struct SignedRequest<'a> {
    parts: &'a Parts,
    signed: SignedHeaders<'a>,
    operation: Operation,
    /// The headers that the lake gets.
    headers: HeaderMap,
}

/// A question about a cached version.
struct Confirmation {
    request: EndpointRequest,
    /// True if it carries the client's `If-Match` beside the node's `If-None-Match`, which some lakes do not
    /// combine.
    is_pair: bool,
}

impl AsSent {
    /// Creates the state of a node whose requests carry `id`, which no other node has.
    pub fn new(id: u64) -> Self {
        let via = HeaderValue::try_from(format!("1.1 shoal-{id:016x}"));
        Self {
            via: via.expect("digits are a header value"),
            ignores_pairs: AtomicBool::new(false),
            sends_no_dates: AtomicBool::new(false),
        }
    }

    /// Prepares a request for the lake.
    ///
    /// # Errors
    ///
    /// This node has sent the request before: the lake's name leads back to it.
    fn prepare<'a>(&self, parts: &'a Parts, operation: Operation) -> Result<SignedRequest<'a>, S3Error> {
        let own = self.via.as_bytes();
        let has_passed = |via: &HeaderValue| {
            let mut hops = via.as_bytes().split(|byte| *byte == b',');
            hops.any(|hop| hop.trim_ascii() == own)
        };
        if parts.headers.get_all(VIA).iter().any(has_passed) {
            let message = "The name of the lake leads back to this node. Let the node resolve it otherwise \
                           than its clients.";
            return Err(S3Error::new(ErrorCode::BadGateway, message).undone());
        }
        let signed = SignedHeaders::of(&parts.headers, parts.uri.query());
        let signed = signed.expect("an unverified request is signed");
        let mut headers = with_signed(&parts.headers, |name| signed.contain(name));
        // HTTP/2 has the host in the target.
        if let (None, Some(authority)) = (headers.get(HOST), parts.uri.authority()) {
            let host = HeaderValue::try_from(authority.as_str());
            headers.insert(HOST, host.expect("an authority is made of visible characters"));
        }
        if !signed.contain(&VIA) {
            headers.append(VIA, self.via.clone());
        }
        Ok(SignedRequest {
            parts,
            signed,
            operation,
            headers,
        })
    }

    /// Returns a request for the lake with its body.
    ///
    /// # Errors
    ///
    /// This node has sent the request before.
    pub(super) fn request(
        &self,
        parts: &Parts,
        operation: Operation,
        body: ClientBody,
    ) -> Result<EndpointRequest, S3Error> {
        let length = http_body::Body::size_hint(&body).exact();
        let body = if length == Some(0) {
            RequestBody::Empty
        } else {
            RequestBody::Stream {
                length,
                body: body.map_err(Into::into).boxed_unsync(),
            }
        };
        Ok(self.prepare(parts, operation)?.request().with_body(body))
    }
}

impl SignedRequest<'_> {
    /// Returns the request without a body.
    fn request(&self) -> EndpointRequest {
        let target = self.parts.uri.path_and_query();
        EndpointRequest::new(
            self.operation.as_str(),
            self.parts.method.clone(),
            target.expect("the request has been parsed").clone(),
            LakeAccount::AsSent,
            Caller::Unverified.payer(),
        )
        .with_headers(self.headers.clone())
    }

    /// Returns the request as a read whose response the node may cache: not encoded, unless the client has
    /// signed that it may be.
    fn read(&self) -> EndpointRequest {
        let mut request = self.request();
        if !self.signed.contain(&ACCEPT_ENCODING) {
            let identity = HeaderValue::from_static("identity");
            request.headers.insert(ACCEPT_ENCODING, identity);
        }
        request
    }

    /// Returns true if the client has signed that the response may be encoded.
    fn may_be_encoded(&self) -> bool {
        let accepted = self.headers.get(ACCEPT_ENCODING);
        self.signed.contain(&ACCEPT_ENCODING) && accepted.is_some_and(|accepted| accepted != "identity")
    }

    /// Returns the read with the question if the object is still `version`; `None` if the client has signed
    /// conditions that do not allow it. The node evaluates the conditions that the client has not signed.
    fn confirm(&self, version: &Version, lake: &AsSent) -> Option<Confirmation> {
        let mut request = self.read();
        let mut is_pair = false;
        for name in CONDITIONAL_HEADERS {
            if !self.signed.contain(&name) {
                request.headers.remove(&name);
            } else if name == IF_MATCH && request.headers.get(&name) == Some(&version.etag_header()) {
                is_pair = true;
            } else {
                return None;
            }
        }
        if is_pair && lake.ignores_pairs.load(Ordering::Relaxed) {
            return None;
        }
        request.headers.insert(IF_NONE_MATCH, version.etag_header());
        if lake.sends_no_dates.load(Ordering::Relaxed) {
            let date = version.headers.get(LAST_MODIFIED).cloned();
            request
                .headers
                .extend(date.map(|date| (IF_UNMODIFIED_SINCE, date)));
        }
        Some(Confirmation { request, is_pair })
    }
}

impl PlainLake {
    /// Pins the version that the lake permits the client to read.
    pub(super) async fn pin_as_sent(
        &self,
        request: &ReadRequest,
        client: &Parts,
    ) -> Result<PinOutcome, ReadError> {
        let stamp = self.stamp_now(request);
        let sent = self.as_sent.prepare(client, Operation::GetObject)?;
        if let Some(version) = self.version_to_confirm(request).await
            && let Some(outcome) = self.pin_confirmed(request, &sent, version, stamp).await?
        {
            return Ok(outcome);
        }
        let transfer = self.fetcher.transfer(&request.context);
        let options = SendOptions::within(transfer.as_ref());
        let response = self.send_with(request, sent.read(), options).await?;
        Ok(self.answered(request, response, stamp, &sent, transfer).await)
    }

    /// Asks the lake if a version is current. Returns `None` if its answer does not say so, and brings no
    /// bytes either.
    async fn pin_confirmed(
        &self,
        request: &ReadRequest,
        sent: &SignedRequest<'_>,
        version: Arc<Version>,
        stamp: QuestionStamp,
    ) -> Result<Option<PinOutcome>, ReadError> {
        let lake = &self.as_sent;
        // A lake that sends no dates is asked once more, with a condition about the date.
        for _ in 0..2 {
            let Some(question) = sent.confirm(&version, lake) else {
                return Ok(None);
            };
            let is_dated = question.request.headers.contains_key(IF_UNMODIFIED_SINCE);
            let transfer = self.fetcher.transfer(&request.context);
            let options = SendOptions::within(transfer.as_ref());
            let response = self.send_with(request, question.request, options).await?;
            let headers = response.headers();
            match response.status() {
                StatusCode::NOT_MODIFIED if !is_dated && !headers.contains_key(LAST_MODIFIED) => {
                    lake.sends_no_dates.store(true, Ordering::Relaxed);
                }
                StatusCode::NOT_MODIFIED if confirms(&version, headers) => {
                    if !self.may_bring(request, &version).await {
                        return Ok(Some(PinOutcome::Bypass(Uncacheable::NodeAccount)));
                    }
                    self.remember(request, &version, stamp);
                    return Ok(Some(PinOutcome::Version(Pinned {
                        caller_headers: Some(Box::new(of_caller(headers))),
                        ..Pinned::granted(version)
                    })));
                }
                // Its headers have changed, or the lake took two conditions in its own way.
                StatusCode::NOT_MODIFIED | StatusCode::PRECONDITION_FAILED => return Ok(None),
                status => {
                    let is_same = headers.get(ETAG) == Some(&version.etag_header());
                    if question.is_pair && status.is_success() && is_same {
                        lake.ignores_pairs.store(true, Ordering::Relaxed);
                    }
                    return Ok(Some(
                        self.answered(request, response, stamp, sent, transfer).await,
                    ));
                }
            }
        }
        Ok(None)
    }

    /// Returns true if the node can bring all bytes of a read: it has them, or its own account may read the
    /// version. A response that begins with cached bytes would otherwise break off behind them.
    async fn may_bring(&self, request: &ReadRequest, version: &Version) -> bool {
        match request.locate(version) {
            Ok(range) if !self.holds(version, range).all(|is_held| is_held) => {
                let own = self.version_of_own_account(request).await;
                own.is_some_and(|own| own.id == version.id)
            }
            Ok(_) | Err(_) => true,
        }
    }

    /// Returns the version that is probably current, if a confirmation by the lake would be enough to answer
    /// from the cache.
    async fn version_to_confirm(&self, request: &ReadRequest) -> Option<Arc<Version>> {
        let known = self.known_version(request.object).await;
        let is_new = known.is_none();
        // A version that was written here has no headers that would answer a read.
        let described = known.filter(|(version, checksums)| {
            version.last_modified.is_some()
                && !version.is_recent()
                && (*checksums == Checksums::Requested || !request.wants_checksums())
        });
        let described = described.map(|(version, _)| version);
        if !request.context.is_signable() {
            return described.filter(|version| {
                let range = request.locate(version);
                range.is_ok_and(|range| self.holds(version, range).all(|is_held| is_held))
            });
        }
        match described {
            Some(version) => Some(version),
            // A node that caches alone gets a new object's version with its bytes.
            None if is_new && self.cache().cooperation.is_alone() => None,
            None => {
                let own = self.version_of_own_account(request).await;
                own.filter(|version| !version.is_recent())
            }
        }
    }

    /// Asks the lake for the version in the account of this node, so that nodes that cache together fetch its
    /// bytes once. Nothing is remembered before the lake has permitted the client to read it.
    async fn version_of_own_account(&self, request: &ReadRequest) -> Option<Arc<Version>> {
        let mut question = request.context.request(Method::HEAD);
        if request.wants_checksums() {
            let enabled = HeaderValue::from_static("ENABLED");
            question
                .headers
                .insert(HeaderName::from_static("x-amz-checksum-mode"), enabled);
        }
        let head = self.cache().lake.send(question).await.ok()?.into_parts().0;
        let (_, size_bytes) = sent_range(head.status, &head.headers)?;
        let block_bytes = self.cache().block_bytes;
        let version = Version::from_response(request.object, &head.headers, size_bytes, block_bytes);
        version.ok().map(Arc::new)
    }

    /// Returns for each block of a range if this node has it.
    fn holds(&self, version: &Version, range: ByteRange) -> impl Iterator<Item = bool> {
        let first = (range.start / version.block_bytes) as u32;
        let end = range.end.div_ceil(version.block_bytes) as u32;
        (first..end).map(|index| self.fetcher.holds(version.block(index)))
    }

    /// Remembers a version that the lake has confirmed, as one to ask about. Grants nothing.
    fn remember(&self, request: &ReadRequest, version: &Arc<Version>, stamp: QuestionStamp) {
        let checksums = if request.wants_checksums() {
            Checksums::Requested
        } else {
            match self.cache().grants.known(request.object) {
                Some((known, checksums)) if known.id == version.id => checksums,
                _ => Checksums::NotRequested,
            }
        };
        let (grants, name) = (&self.cache().grants, request.name());
        grants.learn(request.caller, name, version, checksums, stamp, false);
    }

    /// Passes the lake's answer on, by way of the cache if it brings whole blocks. `transfer` carries it if
    /// it keeps a rate.
    async fn answered(
        &self,
        request: &ReadRequest,
        response: Response<LakeBody>,
        stamp: QuestionStamp,
        sent: &SignedRequest<'_>,
        transfer: Option<Transfer>,
    ) -> PinOutcome {
        let (status, headers) = (response.status(), response.headers());
        if !matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) || sent.may_be_encoded() {
            return PinOutcome::Relay(Box::new(response));
        }
        let Ok((version, range)) = self.learn(request, status, headers, stamp) else {
            return PinOutcome::Relay(Box::new(response));
        };
        // The node fetches the bytes that the response lacks of its blocks in its own account.
        let ends_with_block =
            range.end.is_multiple_of(version.block_bytes) || range.end == version.size_bytes;
        if !request.context.is_signable() {
            return PinOutcome::Relay(Box::new(self.copied(request, version, range, response)));
        }
        let has_some = self.holds(&version, range).any(|is_held| is_held);
        if !ends_with_block || (has_some && !self.may_bring(request, &version).await) {
            return PinOutcome::Relay(Box::new(response));
        }
        let headers = response.headers();
        let caller_headers = Some(Box::new(of_caller(headers)));
        let stream_handle =
            self.fetcher
                .stream(&version, range, response.into_body(), &request.context, transfer);
        PinOutcome::Version(Pinned {
            caller_headers,
            stream_handle,
            opened: true,
            ..Pinned::granted(version)
        })
    }
}

impl PlainLake {
    /// Copies a response that has all of a version into the cache while it passes.
    fn copied(
        &self,
        request: &ReadRequest,
        version: Arc<Version>,
        range: ByteRange,
        response: Response<LakeBody>,
    ) -> Response<LakeBody> {
        let is_whole = range.len() == version.size_bytes;
        let (caller, name) = (&request.context.caller, request.name());
        let copy = self.through.copy(version.size_bytes, caller, name);
        let Some(copy) = copy.ok().filter(|_| is_whole) else {
            return response;
        };
        let through = Arc::clone(&self.through);
        let mut missing_bytes = version.size_bytes;
        response.map(|body| {
            body.copied_by(Box::new(move |piece| {
                missing_bytes = missing_bytes.saturating_sub(piece.len() as u64);
                copy.add(vec![piece]);
                if missing_bytes == 0
                    && let Ok(copied) = copy.finish()
                {
                    through.cache(copied, Arc::clone(&version), Spread::Homes);
                }
            }))
        })
    }
}

/// Returns true if a 304 confirms all of a version: lakes keep the ETag when only the metadata changes.
fn confirms(version: &Version, headers: &HeaderMap) -> bool {
    let is_same = headers.get(ETAG).is_none_or(|etag| etag == version.etag_header());
    let others = [LAST_MODIFIED, HeaderName::from_static("x-amz-version-id")];
    is_same
        && others.into_iter().all(|name| {
            let now = headers.get(&name);
            now.is_none() || now == version.headers.get(&name)
        })
}
