//! The lake itself, with what this node remembers of its answers.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use shoal_net::clock;
use shoal_net::endpoint::{EndpointError, EndpointRequest, LakeBody, SendOptions};
use shoal_policy::ObjectId;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Uncacheable, Version, of_caller};
use shoal_s3::operation::{Classified, Operation};
use shoal_s3::range::{ByteRange, RangeRequest};
use shoal_s3::read_head::Question;
use shoal_s3::xml::ListedObject;

use super::{
    AsSent, Asked, Lake, LakeQuestion, LakeRefusal, PackPlace, PageRequest, PinOutcome, Pinned, ReadError,
    ReadRequest, Wanted, Write,
};
use crate::exchange::location::Addresses;
use crate::exchange::{Admitted, ResponseResult};
use crate::fetch::read_context::ReadContext;
use crate::fetch::{CacheParts, Fetcher, range_header, sent_range};
use crate::grants::freshness::Reuse;
use crate::grants::{Checksums, QuestionStamp, is_refusal};
use crate::nodes::coherence::Coherence;
use crate::nodes::obtain::KeptBytes;
use crate::single_flight::Underway;
use crate::write::{WriteMode, WriteThrough};

/// The lake, asked in the name of each caller.
pub struct PlainLake {
    /// Fetches blocks from peers and from the lake, with the parts that it uses.
    pub fetcher: Arc<Fetcher>,
    /// Tracks changes to coherent objects; `None` if no object is coherent.
    pub coherence: Option<Arc<Coherence>>,
    /// Caches the objects that are written through.
    pub through: Arc<WriteThrough>,
    /// The addresses at which clients reach this node.
    pub addresses: Arc<Addresses>,
    /// Objects that are opened for the first time, each by one read. Like nginx's `proxy_cache_lock`, other
    /// reads wait until it finishes.
    pub opening: Underway,
    /// Requests that the lake gets as they came.
    pub as_sent: AsSent,
}

impl Lake for PlainLake {
    fn reuse(&self, _: &ObjectName, reuse: Reuse) -> Reuse {
        reuse
    }

    fn granted(&self, request: &ReadRequest) -> Option<Arc<Version>> {
        // The tokens of a coherent object take a question to the directory.
        if request.reuse.coherent {
            return None;
        }
        self.granted_since(request, self.stamp_now(request))
    }

    fn pin<'a>(&'a self, request: &'a ReadRequest) -> BoxFuture<'a, Result<PinOutcome, ReadError>> {
        match &request.as_sent {
            Some(client) => self.pin_as_sent(request, client).boxed(),
            None => self.pin_now(request).boxed(),
        }
    }

    fn ask<'a>(
        &'a self,
        request: &'a ReadRequest,
        is_answerable: bool,
    ) -> BoxFuture<'a, Result<Asked, ReadError>> {
        let asked = async move {
            let stamp = self.stamp(request).await;
            // S3 answers a HEAD of a part like a GET of it, without its bytes; lakes differ in that.
            let is_answerable = is_answerable && request.range == RangeRequest::Whole;
            let granted = is_answerable
                .then(|| self.granted_since(request, stamp))
                .flatten();
            let granted = granted.filter(|version| request.follows_from(version));
            let unchanged = None;
            let at_lake = || Asked::AtLake(LakeQuestion { stamp, unchanged });
            Ok(granted.map_or_else(at_lake, Asked::Known))
        };
        asked.boxed()
    }

    fn learn_from_answer(
        &self,
        request: &ReadRequest,
        status: StatusCode,
        headers: &HeaderMap,
        stamp: QuestionStamp,
    ) {
        if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            self.learn(request, status, headers, stamp).ok();
        }
    }

    fn version<'a>(
        &'a self,
        caller: &'a Caller,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Arc<Version>, LakeRefusal>> {
        self.version_for(caller, name).boxed()
    }

    fn kept<'a>(
        &'a self,
        _: &'a ReadContext,
        _: &'a Version,
        _: Option<ObjectId>,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn KeptBytes>>, LakeRefusal>> {
        ready(Ok(None)).boxed()
    }

    fn may_be_packed(&self, _: &ObjectName) -> bool {
        false
    }

    fn places<'a>(
        &'a self,
        _: &'a Caller,
        wanted: &'a [Wanted<'a>],
    ) -> BoxFuture<'a, Vec<Option<PackPlace>>> {
        ready(vec![None; wanted.len()]).boxed()
    }

    fn list<'a>(
        &'a self,
        caller: &'a Caller,
        page: PageRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, LakeRefusal>> {
        self.list_for(caller, page).boxed()
    }

    fn keeps_upload(&self, _: &Classified) -> bool {
        false
    }

    fn of_upload<'a>(&'a self, admitted: Box<Admitted>, _: &'a ObjectName) -> BoxFuture<'a, ResponseResult> {
        self.forward(admitted)
    }

    fn put<'a>(&'a self, admitted: Box<Admitted>, write: Write<'a>) -> BoxFuture<'a, ResponseResult> {
        match write.mode {
            WriteMode::Around => self.forward(admitted),
            WriteMode::Through | WriteMode::Back => self.write(admitted, write.name).boxed(),
        }
    }

    fn delete<'a>(&'a self, admitted: Box<Admitted>, _: &'a ObjectName) -> BoxFuture<'a, ResponseResult> {
        self.forward(admitted)
    }

    fn delete_many<'a>(&'a self, admitted: Box<Admitted>, _: &'a str) -> BoxFuture<'a, ResponseResult> {
        self.forward(admitted)
    }

    fn list_objects<'a>(&'a self, admitted: Box<Admitted>, _: &'a str) -> BoxFuture<'a, ResponseResult> {
        self.forward(admitted)
    }

    fn list_uploads<'a>(&'a self, admitted: Box<Admitted>, _: &'a str) -> BoxFuture<'a, ResponseResult> {
        self.forward(admitted)
    }

    fn forward(&self, admitted: Box<Admitted>) -> BoxFuture<'_, ResponseResult> {
        let is_abort = admitted.classified.operation == Operation::AbortMultipartUpload;
        match admitted.classified.object.clone().filter(|_| is_abort) {
            Some(name) => async move { self.abort(admitted, &name).await }.boxed(),
            None => self.pass_on(admitted).boxed(),
        }
    }

    fn drain_round(&self) -> BoxFuture<'_, u64> {
        ready(0).boxed()
    }
}

impl PlainLake {
    /// Returns a stamp for a request to the lake that is about to be sent. It accompanies the response.
    async fn stamp(&self, request: &ReadRequest) -> QuestionStamp {
        let stamp = self.stamp_now(request);
        match &self.coherence {
            Some(coherence) if request.reuse.coherent => {
                stamp.with_tokens(coherence.tokens(request.name()).await)
            }
            _ => stamp,
        }
    }

    /// Returns the parts of the cache.
    pub(super) fn cache(&self) -> &CacheParts {
        &self.fetcher.parts
    }

    pub(super) fn stamp_now(&self, request: &ReadRequest) -> QuestionStamp {
        self.cache()
            .grants
            .stamp(request.caller, request.name(), request.object, clock::instant())
    }

    /// Asks the lake for the current version and the permission to read it.
    async fn pin_now(&self, request: &ReadRequest) -> Result<PinOutcome, ReadError> {
        let asked = self.stamp(request).await;
        let mut waited = false;
        loop {
            let stamp = self.stamp_now(request).with_tokens(asked.tokens);
            // Another request of this caller may have obtained a grant in the meantime.
            if let Some(version) = self.granted_since(request, stamp) {
                return Ok(PinOutcome::Version(Pinned::granted(version)));
            }
            // In a cluster, blocks are fetched through their homes, so the lake is asked only for the
            // version.
            if request.only_if_cached
                || !self.cache().cooperation.is_alone()
                || self.known_version(request.object).await.is_some()
            {
                return self.ask_for_version(request, stamp).await;
            }
            // Concurrent readers of one object share its bytes but not the permission: a reader that waited
            // still asks the lake itself.
            match self.opening.begin_alone(request.object) {
                Ok(_opening) => return self.open(request, stamp).await,
                Err(_) if waited => return self.open(request, stamp).await,
                Err(ended) => {
                    ended.wait().await;
                    waited = true;
                }
            }
        }
    }

    fn granted_since(&self, request: &ReadRequest, stamp: QuestionStamp) -> Option<Arc<Version>> {
        let Reuse { within, coherent } = request.reuse;
        if within.is_zero() || (coherent && stamp.tokens.is_none()) {
            return None;
        }
        let grants = &self.cache().grants;
        let (version, checksums) = grants.granted(request.caller, request.object, stamp, within)?;
        let is_enough = checksums == Checksums::Requested || !request.wants_checksums();
        is_enough.then_some(version)
    }

    /// Returns a version of the object, of which some blocks may be cached, and how its headers were
    /// requested.
    pub(super) async fn known_version(&self, object: ObjectId) -> Option<(Arc<Version>, Checksums)> {
        let known = self.cache().grants.known(object);
        if known.is_some() {
            return known;
        }
        // Blocks of another size cannot be used; eviction removes them eventually.
        let stored = self.cache().store.describe(object).await?;
        (stored.block_bytes == self.cache().block_bytes).then_some((stored, Checksums::NotRequested))
    }

    /// Asks the lake in one request whether this caller may read the object, which version is current, and
    /// what its headers are.
    ///
    /// The request is unconditional. A 304 would cost the lake as much and carry less: tags, locks and
    /// metadata change without the ETag, and lakes differ in which of those headers a 304 repeats.
    async fn ask_for_version(
        &self,
        request: &ReadRequest,
        stamp: QuestionStamp,
    ) -> Result<PinOutcome, ReadError> {
        if is_of_page(request) && request.wants_checksums() {
            return self.open(request, stamp).await;
        }
        let head = self
            .send(request, permission_request(request))
            .await?
            .into_parts()
            .0;
        match head.status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                match self.learn(request, head.status, &head.headers, stamp) {
                    Ok((version, _)) => Ok(PinOutcome::Version(Pinned {
                        caller_headers: Some(Box::new(of_caller(&head.headers))),
                        ..Pinned::granted(version)
                    })),
                    Err(reason) => Ok(PinOutcome::Bypass(reason)),
                }
            }
            // Do not send a second request to an overloaded lake.
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Err(ReadError::LakeStatus(head.status))
            }
            // Only a GET returns the body of such a response. The client receives the response it would get
            // for an object that is not cached.
            _ => self.open(request, stamp).await,
        }
    }

    /// Sends a request to the lake on behalf of the caller. If the lake refuses it, revokes the caller's
    /// grants for the object.
    pub(super) async fn send(
        &self,
        request: &ReadRequest,
        lake_request: EndpointRequest,
    ) -> Result<Response<LakeBody>, EndpointError> {
        self.send_with(request, lake_request, SendOptions::default())
            .await
    }

    pub(super) async fn send_with(
        &self,
        request: &ReadRequest,
        lake_request: EndpointRequest,
        options: SendOptions<'_>,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let response = self.cache().lake.send_with(lake_request, options).await?;
        if is_refusal(response.status()) {
            self.cache().grants.revoke(request.caller, request.object);
        }
        Ok(response)
    }

    /// Opens an unknown object: one GET returns its metadata and first bytes.
    async fn open(&self, request: &ReadRequest, stamp: QuestionStamp) -> Result<PinOutcome, ReadError> {
        let mut lake_request = request.context.request(Method::GET);
        lake_request.headers.extend(request.context.conditions());
        if let Some(range) = opening_range(request.range, self.cache().block_bytes, self.cache().ahead) {
            lake_request.headers.insert(header::RANGE, range);
        }
        let transfer = self.fetcher.transfer(&request.context);
        let options = SendOptions::within(transfer.as_ref());
        let response = self.send_with(request, lake_request, options).await?;
        if !matches!(response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Ok(PinOutcome::Relay(Box::new(response)));
        }
        match self.learn(request, response.status(), response.headers(), stamp) {
            Ok((version, range)) => {
                let caller_headers = Some(Box::new(of_caller(response.headers())));
                let (body, context) = (response.into_body(), &request.context);
                let stream_handle = self.fetcher.stream(&version, range, body, context, transfer);
                Ok(PinOutcome::Version(Pinned {
                    caller_headers,
                    stream_handle,
                    opened: true,
                    ..Pinned::granted(version)
                }))
            }
            Err(reason) => Ok(PinOutcome::Bypass(reason)),
        }
    }

    /// Parses the version and the range of the body from a `200` or `206`, and grants the caller that
    /// version.
    pub(super) fn learn(
        &self,
        request: &ReadRequest,
        status: StatusCode,
        headers: &HeaderMap,
        stamp: QuestionStamp,
    ) -> Result<(Arc<Version>, ByteRange), Uncacheable> {
        let (range, size_bytes) = sent_range(status, headers).ok_or(Uncacheable::NoLength)?;
        debug_assert!(range.end <= size_bytes, "a response lies within its object");
        let version = Version::from_response(request.object, headers, size_bytes, self.cache().block_bytes)?;
        // Checksums in a `206` need not cover the whole object.
        let (version, checksums) = match (status, request.checksum_mode) {
            (StatusCode::PARTIAL_CONTENT, _) => (version.without_checksums(), Checksums::NotRequested),
            (_, true) => (version, Checksums::Requested),
            (_, false) => (version, Checksums::NotRequested),
        };
        let version = Arc::new(version);
        self.cache().grants.learn(
            request.caller,
            request.name(),
            &version,
            checksums,
            stamp,
            request.question == Question::Plain,
        );
        Ok((version, range))
    }
}

/// Returns true if the request comes from a web page, so that the lake's CORS rules apply.
fn is_of_page(request: &ReadRequest) -> bool {
    request.context.headers().contains_key(header::ORIGIN)
}

/// Returns the cheapest request whose response has all headers that the client receives. For a web page this
/// is a GET of one byte, because a lake may apply other CORS rules to HEAD.
fn permission_request(request: &ReadRequest) -> EndpointRequest {
    if !is_of_page(request) {
        return request.context.request(Method::HEAD);
    }
    let mut lake_request = request.context.request(Method::GET);
    let first_byte = ByteRange { start: 0, end: 1 };
    lake_request
        .headers
        .insert(header::RANGE, range_header(first_byte));
    lake_request
}

/// Returns the range that opens an unknown object: from the first requested byte to the end of the last
/// requested block, at most `ahead` blocks. Returns `None` for the whole object.
fn opening_range(wanted: RangeRequest, block_bytes: u64, ahead: usize) -> Option<HeaderValue> {
    let floor = |byte: u64| byte - byte % block_bytes;
    let blocks_from = |first: u64, blocks: u64| {
        let end = floor(first).saturating_add(blocks.saturating_mul(block_bytes));
        let start = first.min(end - 1);
        range_header(ByteRange { start, end })
    };
    Some(match wanted {
        RangeRequest::Whole => return None,
        RangeRequest::FirstLast(first, last) => {
            let touched = (floor(last) - floor(first)) / block_bytes + 1;
            blocks_from(first, touched.min(ahead as u64))
        }
        RangeRequest::From(first) => blocks_from(first, 1),
        RangeRequest::Suffix(length) => {
            let length = length.min(block_bytes * ahead as u64);
            HeaderValue::try_from(format!("bytes=-{length}")).expect("digits are a header value")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_object_is_opened_by_the_blocks_it_is_wanted_for() {
        let block = 100;
        let table = [
            (RangeRequest::Whole, None),
            (RangeRequest::FirstLast(0, 0), Some("bytes=0-99")),
            (RangeRequest::FirstLast(150, 249), Some("bytes=150-299")),
            (RangeRequest::FirstLast(150, 100_000), Some("bytes=150-499")),
            (RangeRequest::From(350), Some("bytes=350-399")),
            (RangeRequest::Suffix(8), Some("bytes=-8")),
            (RangeRequest::Suffix(150), Some("bytes=-150")),
            (RangeRequest::Suffix(u64::MAX), Some("bytes=-400")),
            (
                RangeRequest::From(u64::MAX),
                Some("bytes=18446744073709551614-18446744073709551614"),
            ),
        ];
        for (wanted, expected) in table {
            let range = opening_range(wanted, block, 4);
            assert_eq!(
                range.as_ref().map(|range| range.to_str().unwrap()),
                expected,
                "{wanted:?}"
            );
        }
    }
}
