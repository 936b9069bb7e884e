//! A parsed GET or HEAD of an object, and its response if this node has the answer.

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use shoal_cache::exchange::record::Record;
use shoal_cache::exchange::respond::{self, CacheStatus, ResponseOptions};
use shoal_cache::exchange::{Admitted, ResponseBody};
use shoal_cache::freshness::Reuse;
use shoal_cache::lake::{NoBytes, ReadRequest, errors};
use shoal_cache::read_context::{Purpose, ReadContext};
use shoal_net::clock;
use shoal_net::endpoint::{Endpoint, LakeAccount};
use shoal_s3::auth::Credentials;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Uncacheable, Version};
use shoal_s3::range::RangeRequest;
use shoal_s3::read_head::{Question, ReadHead};

/// A parsed read.
pub(super) struct Wanted {
    /// The object, range and conditions.
    pub(super) request: ReadRequest,
    /// The client's options for the form of the response.
    pub(super) options: ResponseOptions,
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
        let options = ResponseOptions::parse(&admitted.classified.query, head.checksum_mode)?;
        let reason = uncacheable(admitted, &head, &options);
        let caller = &admitted.verified.caller;
        let question = match head.question {
            Question::Referred if admitted.verified.credentials == Credentials::Header => Question::Plain,
            question => question,
        };
        let is_unverified = matches!(caller, Caller::Unverified);
        let question = if is_unverified {
            // A yes is valid for this request only.
            question.max(Question::Particular)
        } else {
            question
        };
        let reusable = question == Question::Plain && !head.cache_control.no_cache;
        let object = name.id(lake.url());
        let context = if is_unverified {
            let account = lake.credentials.own().unwrap_or(LakeAccount::AsSent);
            ReadContext::of_peer(account, caller.clone(), Some(name), HeaderMap::new())
        } else {
            let client = Arc::clone(&admitted.parts);
            let context = ReadContext::new(lake.account_for(caller), caller.clone(), client, name);
            let rate = lake.promises().of_job(object, || context.job());
            context.with_purpose(rate.map_or(Purpose::Client, Purpose::Job))
        };
        let request = ReadRequest {
            caller: caller.id(),
            object,
            range: head.range.unwrap_or(RangeRequest::Whole),
            conditions: head.conditions,
            context: Arc::new(context),
            reuse: if reusable { reuse } else { Reuse::NEVER },
            only_if_cached: head.cache_control.only_if_cached,
            checksum_mode: head.checksum_mode,
            question,
            as_sent: is_unverified.then(|| Arc::clone(&admitted.parts)),
        };
        Ok(Self {
            request,
            options,
            reason,
        })
    }

    /// Returns true if the read is about a part of the object. S3 answers a HEAD of a part like a GET of it,
    /// without its bytes.
    pub(super) fn is_about_a_part(&self) -> bool {
        self.request.range != RangeRequest::Whole
    }

    /// Returns the response to a GET of `path` that carries no bytes of `version`.
    pub(super) fn respond_without_bytes(
        &self,
        why: NoBytes,
        version: &Version,
        path: &str,
        record: &mut Record,
    ) -> Response<ResponseBody> {
        record.cache = Some(CacheStatus::Hit);
        match why {
            NoBytes::NotModified => respond::not_modified(version),
            NoBytes::PreconditionFailed(condition) => {
                let error = errors::precondition_failed().with("Condition", condition);
                respond::error(&error, path, record.request_id)
            }
            NoBytes::Unsatisfiable => {
                respond::unsatisfiable(self.request.range, version.size_bytes, path, record.request_id)
            }
            NoBytes::NotCached => respond::error(&not_cached(), path, record.request_id),
            NoBytes::Dialect => unreachable!("the lake answers requests that stores disagree on"),
        }
    }

    /// Returns the response to a HEAD of `version`: the head of the response to a GET.
    pub(super) fn respond_to_head(&self, version: &Version, record: &mut Record) -> Response<ResponseBody> {
        record.cache = Some(CacheStatus::Hit);
        match self.request.locate(version) {
            Ok(range) => respond::head(version, range, self.request.range, &self.options),
            Err(NoBytes::NotModified) => respond::not_modified(version),
            Err(NoBytes::PreconditionFailed(_)) => respond::empty(StatusCode::PRECONDITION_FAILED),
            Err(NoBytes::Unsatisfiable) => respond::unsatisfiable_head(version.size_bytes),
            Err(NoBytes::NotCached | NoBytes::Dialect) => {
                unreachable!("the answer follows from a version that is known")
            }
        }
    }
}

/// Returns the reason if only the lake may answer this GET or HEAD.
fn uncacheable(admitted: &Admitted, head: &ReadHead, options: &ResponseOptions) -> Option<Uncacheable> {
    let unsigned = admitted.verified.credentials == Credentials::None;
    // Lakes differ in whether they judge a header that they refuse before a condition or after it.
    let is_unverified = matches!(admitted.verified.caller, Caller::Unverified);
    if http_body::Body::size_hint(&admitted.body).exact() != Some(0) {
        Some(Uncacheable::RequestBody)
    } else if head.sse_c {
        Some(Uncacheable::SseC)
    } else if admitted.classified.query.has("partNumber") {
        Some(Uncacheable::PartNumber)
    } else if head.range.is_none()
        || (!head.conditions.is_empty() && head.conditions.is_dialect(clock::utc_now()))
        || options.overrides.iter().any(|(_, value)| value.is_empty())
        || (is_unverified && head.question == Question::Foreign)
    {
        Some(Uncacheable::Dialect)
    } else if unsigned && !options.overrides.is_empty() {
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
