//! A parsed GET or HEAD of an object, and its response if this node has the answer.

use std::sync::Arc;

use http::{Response, StatusCode};
use shoal_cache::exchange::record::Record;
use shoal_cache::exchange::respond::{self, CacheStatus, CallerHeaders, Wishes};
use shoal_cache::exchange::{Admitted, ResponseBody};
use shoal_cache::freshness::Reuse;
use shoal_cache::lake::{ReadRequest, errors};
use shoal_cache::read::{HeadAnswer, KnownAnswer};
use shoal_cache::read_context::ReadContext;
use shoal_net::clock;
use shoal_net::endpoint::Endpoint;
use shoal_s3::auth::Credentials;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::object::{ObjectName, Uncacheable};
use shoal_s3::range::RangeRequest;
use shoal_s3::read_head::{Question, ReadHead};

/// A parsed read.
pub(super) struct Wanted {
    /// The object, range and conditions.
    pub(super) request: ReadRequest,
    /// The client's options for the form of the response.
    pub(super) wishes: Wishes,
    /// The reason if only the lake can answer.
    pub(super) reason: Option<Uncacheable>,
}

impl Wanted {
    /// Parses a GET or HEAD of `name`. `reuse` says which permissions of `lake` may be reused.
    pub(super) fn parse(
        admitted: &Admitted,
        name: ObjectName,
        lake: &Endpoint,
        reuse: Reuse,
    ) -> Result<Self, S3Error> {
        let head = ReadHead::parse(&admitted.parts.headers);
        let wishes = Wishes::parse(&admitted.classified.query, head.checksum_mode)?;
        let reason = uncacheable(admitted, &head, &wishes);
        let caller = &admitted.verified.caller;
        let plain = match head.question {
            Question::Plain => true,
            Question::Referred => admitted.verified.credentials == Credentials::Header,
            Question::Particular | Question::Foreign => false,
        };
        let reusable = plain && !head.cache_control.no_cache;
        let context = ReadContext::new(
            lake.account_for(caller),
            caller.clone(),
            Arc::clone(&admitted.parts),
            name.clone(),
        );
        let request = ReadRequest {
            caller: caller.id(),
            object: name.id(lake.url()),
            range: head.range.unwrap_or(RangeRequest::Whole),
            conditions: head.conditions,
            context: Arc::new(context),
            reuse: if reusable { reuse } else { Reuse::NEVER },
            only_if_cached: head.cache_control.only_if_cached,
            checksum_mode: head.checksum_mode,
            plain,
            question: head.question,
            name,
        };
        Ok(Self {
            request,
            wishes,
            reason,
        })
    }

    /// Returns true if the read is about a part of the object. S3 answers a HEAD of a part like a GET of it,
    /// without its bytes.
    pub(super) fn is_about_a_part(&self) -> bool {
        self.request.range != RangeRequest::Whole
    }

    /// Returns the response to a GET of `path`.
    pub(super) fn respond(
        &self,
        known: KnownAnswer,
        caller_headers: CallerHeaders,
        path: &str,
        record: &mut Record,
    ) -> Response<ResponseBody> {
        record.cache = Some(CacheStatus::Hit);
        let mut response = match known {
            KnownAnswer::Object(reading) => {
                record.cache = Some(CacheStatus::of(&reading, caller_headers.is_some()));
                return respond::object(reading, caller_headers, self.request.range, &self.wishes);
            }
            KnownAnswer::NotModified(version) => respond::not_modified(&version),
            KnownAnswer::PreconditionFailed(condition) => {
                let error = errors::precondition_failed().with("Condition", condition);
                respond::error(&error, path, record.request_id)
            }
            KnownAnswer::Unsatisfiable(size) => {
                respond::unsatisfiable(self.request.range, size, path, record.request_id)
            }
            KnownAnswer::NotCached => respond::error(&not_cached(), path, record.request_id),
        };
        if let Some(caller_headers) = caller_headers {
            respond::tell_page(response.headers_mut(), &caller_headers);
        }
        response
    }

    /// Returns the response to a HEAD.
    pub(super) fn respond_to_head(&self, answer: HeadAnswer, record: &mut Record) -> Response<ResponseBody> {
        record.cache = Some(CacheStatus::Hit);
        match answer {
            HeadAnswer::Object(version, range) => {
                respond::head(&version, range, self.request.range, &self.wishes)
            }
            HeadAnswer::NotModified(version) => respond::not_modified(&version),
            HeadAnswer::PreconditionFailed => respond::empty(StatusCode::PRECONDITION_FAILED),
            HeadAnswer::Unsatisfiable(size) => respond::unsatisfiable_head(size),
        }
    }
}

/// Returns the reason if only the lake may answer this GET or HEAD.
fn uncacheable(admitted: &Admitted, head: &ReadHead, wishes: &Wishes) -> Option<Uncacheable> {
    let unsigned = admitted.verified.credentials == Credentials::None;
    if http_body::Body::size_hint(&admitted.body).exact() != Some(0) {
        Some(Uncacheable::RequestBody)
    } else if head.sse_c {
        Some(Uncacheable::SseC)
    } else if admitted.classified.query.has("partNumber") {
        Some(Uncacheable::PartNumber)
    } else if head.range.is_none()
        || (!head.conditions.is_empty() && head.conditions.is_dialect(clock::utc_now()))
        || wishes.overrides.iter().any(|(_, value)| value.is_empty())
    {
        Some(Uncacheable::Dialect)
    } else if unsigned && !wishes.overrides.is_empty() {
        Some(Uncacheable::UnsignedOverride)
    } else if head.cache_control.no_store {
        Some(Uncacheable::NoStore)
    } else {
        None
    }
}

fn not_cached() -> S3Error {
    S3Error::new(
        ErrorCode::NotCached,
        "Only a cached answer was asked for, and some of it is not cached.",
    )
}
