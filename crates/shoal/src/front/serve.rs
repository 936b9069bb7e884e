//! One request from its head to its answer: classify, verify, read or forward.

use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};

use crate::admin::metrics::Metrics;
use crate::catalog::Catalog;
use crate::endpoint::{Endpoint, LakeBody, end_to_end_of_response};
use crate::freshness::FreshnessRules;
use crate::front::auth::{Credentials, Gate, Verified};
use crate::front::body::ResponseBody;
use crate::front::conditions::Conditions;
use crate::front::connection::ClientBody;
use crate::front::error::{ErrorCode, S3Error};
use crate::front::forward::forward;
use crate::front::in_flight::InFlight;
use crate::front::lake_errors;
use crate::front::operation::{Classified, Operation, classify};
use crate::front::range::RangeRequest;
use crate::front::record::{Record, Subject};
use crate::front::respond::{self, CacheStatus, Wishes, X_CACHE_REASON};
use crate::object::{ObjectName, Uncacheable};
use crate::origin::Origin;
use crate::read::{Answer, Ask, HeadAnswer, Reader};
use crate::{chance, clock};

/// Headers of a read that change neither who may read nor what comes back; any other `x-amz-*` header is a question that only
/// the lake can answer, so a remembered yes does not do.
const PLAIN_AMZ_HEADERS: [&str; 6] = [
    "x-amz-date",
    "x-amz-content-sha256",
    "x-amz-checksum-mode",
    "x-amz-user-agent",
    "x-amz-security-token",
    "x-amz-te",
];

/// Answers S3 requests.
pub struct Front {
    /// Who gets in.
    pub gate: Gate,
    /// The store behind us.
    pub lake: Arc<Endpoint>,
    /// What we know about objects.
    pub catalog: Arc<Catalog>,
    /// GETs of objects.
    pub reader: Reader,
    /// How long a yes of the lake holds.
    pub freshness: FreshnessRules,
    /// Bounds.
    pub in_flight: InFlight,
    /// Where outcomes are counted.
    pub metrics: Arc<Metrics>,
    /// Domain of virtual-host style requests.
    pub domain: Option<String>,
    /// Whether to write the access log.
    pub access_log: bool,
}

/// A request whose head is understood and whose sender is known.
struct Admitted {
    parts: Arc<Parts>,
    body: ClientBody,
    classified: Classified,
    verified: Verified,
}

impl Front {
    /// Answers one request; errors become answers, too.
    pub async fn serve(&self, request: Request<ClientBody>) -> Response<ResponseBody> {
        let request_id = format!("{:016X}", chance::bits());
        let mut record = Box::new(Record::begin(Arc::clone(&self.metrics), request_id));
        let is_head = request.method() == Method::HEAD;
        let closes = expects_to_send_nothing(&request);
        let path = request.uri().path().to_owned();

        let mut response = match self.answer(request, &mut record).await {
            Ok(response) => response,
            Err(error) => {
                let mut response = respond::error(&error, &path, &record.request_id);
                if is_head {
                    response.body_mut().without_content();
                    response.headers_mut().remove(header::CONTENT_TYPE);
                }
                response
            }
        };
        if closes {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let head_time = clock::instant().saturating_duration_since(record.started());
        respond::stamp(
            response.headers_mut(),
            &record.request_id,
            record.cache,
            head_time,
        );
        record.status = response.status();
        response.map(|body| body.recorded(record))
    }

    async fn answer(
        &self,
        request: Request<ClientBody>,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        record.places[0] = Some(self.in_flight.enter()?);
        let admitted = self.admit(request, record)?;
        record.places[1] = Some(self.in_flight.enter_as(admitted.verified.caller.id())?);
        match (admitted.classified.operation, admitted.classified.object.clone()) {
            (Operation::GetObject, Some(name)) => self.get(admitted, &name, record).await,
            (Operation::HeadObject, Some(name)) => self.head(admitted, &name, record).await,
            _ => self.pass_on(admitted).await,
        }
    }

    /// The one gate: what is asked, and who asks.
    fn admit(&self, request: Request<ClientBody>, record: &mut Record) -> Result<Admitted, S3Error> {
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().cloned().ok_or_else(no_target)?;
        let is_copy = parts.headers.contains_key("x-amz-copy-source");
        let classified = classify(
            &parts.method,
            &target,
            host(&parts),
            is_copy,
            self.domain.as_deref(),
        )?;
        record.operation = classified.operation;
        let now = clock::utc_now();
        let verified = self.gate.verify(&parts, now)?;
        let parts = Arc::new(parts);
        if self.access_log {
            record.subject = Some(Box::new(Subject::new(now, &parts, &classified, &verified.caller)));
        }
        Ok(Admitted {
            parts,
            body,
            classified,
            verified,
        })
    }

    async fn get(
        &self,
        admitted: Admitted,
        name: &ObjectName,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let wishes = Wishes::parse(&admitted.classified.query, checksum_mode(&admitted.parts.headers))?;
        if let Some(reason) = uncacheable(&admitted, &wishes) {
            return self.bypass(admitted, reason, record).await;
        }
        let ask = self.ask(&admitted, name);
        let answer = self
            .reader
            .read(&ask)
            .await
            .map_err(|error| lake_errors::unread(&error))?;
        let path = admitted.parts.uri.path();
        record.cache = Some(CacheStatus::Hit);
        Ok(match answer {
            Answer::Object(reading) => {
                record.cache = Some(CacheStatus::of(&reading));
                record.tally = Some(reading.blocks.tally());
                respond::object(reading, ask.range, &wishes)
            }
            Answer::NotModified(version) => respond::not_modified(&version),
            Answer::PreconditionFailed => respond::error(&precondition_failed(), path, &record.request_id),
            Answer::Unsatisfiable(size) => respond::unsatisfiable(size, path, &record.request_id),
            Answer::NotCached => respond::error(&not_cached(), path, &record.request_id),
            Answer::Relay(response) => {
                record.cache = Some(CacheStatus::Miss);
                relay(response)
            }
            Answer::Bypass(reason) => return self.bypass(admitted, reason, record).await,
        })
    }

    /// A HEAD is one body-less request to the lake anyway, so it goes there unless a yes is remembered.
    async fn head(
        &self,
        admitted: Admitted,
        name: &ObjectName,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let wishes = Wishes::parse(&admitted.classified.query, checksum_mode(&admitted.parts.headers))?;
        if uncacheable(&admitted, &wishes).is_some() || admitted.parts.headers.contains_key(header::RANGE) {
            return self.pass_on(admitted).await;
        }
        let ask = self.ask(&admitted, name);
        if let Some(answer) = self.reader.head(&ask) {
            record.cache = Some(CacheStatus::Hit);
            return Ok(match answer {
                HeadAnswer::Object(version) => respond::head(&version, &wishes),
                HeadAnswer::NotModified(version) => respond::not_modified(&version),
                HeadAnswer::PreconditionFailed => respond::empty(StatusCode::PRECONDITION_FAILED),
            });
        }
        record.cache = Some(CacheStatus::Miss);
        let asked = self.reader.asking(&ask);
        let plain = ask.conditions.is_empty() && wishes.overrides.is_empty();
        let response = self.send_on(admitted).await?;
        if plain {
            self.reader.learn_from_head(&ask, &response, asked);
        }
        Ok(relay(response))
    }

    async fn bypass(
        &self,
        admitted: Admitted,
        reason: Uncacheable,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        record.cache = Some(CacheStatus::Bypass);
        record.reason = Some(reason);
        let mut response = self.pass_on(admitted).await?;
        response
            .headers_mut()
            .insert(X_CACHE_REASON, HeaderValue::from_static(reason.as_str()));
        Ok(response)
    }

    async fn pass_on(&self, admitted: Admitted) -> Result<Response<ResponseBody>, S3Error> {
        self.send_on(admitted).await.map(relay)
    }

    async fn send_on(&self, admitted: Admitted) -> Result<Response<LakeBody>, S3Error> {
        let Admitted {
            parts,
            body,
            classified,
            verified,
        } = admitted;
        forward(&self.lake, &self.catalog, &parts, body, verified, &classified).await
    }

    fn ask(&self, admitted: &Admitted, name: &ObjectName) -> Ask {
        let headers = &admitted.parts.headers;
        let directives = CacheControl::parse(headers);
        let reusable = !directives.no_cache && headers.keys().all(is_plain);
        Ask {
            caller: admitted.verified.caller.id(),
            name: name.clone(),
            object: name.id(self.lake.url()),
            range: RangeRequest::parse(range_header(headers)).unwrap_or(RangeRequest::Whole),
            conditions: Conditions::parse(headers),
            origin: Arc::new(Origin::new(
                self.lake.account_for(&admitted.verified.caller),
                Arc::clone(&admitted.parts),
                admitted.classified.target.clone(),
            )),
            reuse: if reusable {
                self.freshness.reuse(name)
            } else {
                Duration::ZERO
            },
            only_if_cached: directives.only_if_cached,
            checksum_mode: checksum_mode(headers),
        }
    }
}

/// Whether a client waits for `100 Continue` before it sends no bytes at all, which HTTP libraries then never say.
///
/// botocore takes the final status in its stead, keeps it, and misreads the next answer on the same connection: it waits
/// for ever. A connection that ends has no next answer.
fn expects_to_send_nothing(request: &Request<ClientBody>) -> bool {
    request.version() == http::Version::HTTP_11
        && request.headers().contains_key(header::EXPECT)
        && http_body::Body::size_hint(request.body()).exact() == Some(0)
}

/// Why this GET or HEAD is the lake's alone.
fn uncacheable(admitted: &Admitted, wishes: &Wishes) -> Option<Uncacheable> {
    let headers = &admitted.parts.headers;
    let unsigned = admitted.verified.credentials == Credentials::None;
    if http_body::Body::size_hint(&admitted.body).exact() != Some(0) {
        Some(Uncacheable::RequestBody)
    } else if headers.contains_key("x-amz-server-side-encryption-customer-algorithm") {
        Some(Uncacheable::SseC)
    } else if admitted.classified.query.has("partNumber") {
        Some(Uncacheable::PartNumber)
    } else if headers.contains_key(header::IF_RANGE)
        || RangeRequest::parse(range_header(headers)).is_none()
        || Conditions::parse(headers).is_dialect(clock::utc_now())
    {
        Some(Uncacheable::Dialect)
    } else if unsigned && !wishes.overrides.is_empty() {
        Some(Uncacheable::UnsignedOverride)
    } else if CacheControl::parse(headers).no_store {
        Some(Uncacheable::NoStore)
    } else {
        None
    }
}

/// What a client says about caches in general.
#[derive(Clone, Copy, Debug, Default)]
struct CacheControl {
    no_cache: bool,
    no_store: bool,
    only_if_cached: bool,
}

impl CacheControl {
    fn parse(headers: &HeaderMap) -> Self {
        let mut directives = Self::default();
        let values = headers
            .get_all(header::CACHE_CONTROL)
            .iter()
            .filter_map(|value| value.to_str().ok());
        for directive in values.flat_map(|value| value.split(',')).map(str::trim) {
            match directive.to_ascii_lowercase().as_str() {
                "no-cache" | "max-age=0" => directives.no_cache = true,
                "no-store" => directives.no_store = true,
                "only-if-cached" => directives.only_if_cached = true,
                _ => {}
            }
        }
        directives.no_cache |= headers
            .get(header::PRAGMA)
            .is_some_and(|pragma| pragma == "no-cache");
        directives
    }
}

/// The `Range` header; one that is not text is not well-formed either.
fn range_header(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(header::RANGE)
        .map(|range| range.to_str().unwrap_or_default())
}

fn is_plain(name: &HeaderName) -> bool {
    !name.as_str().starts_with("x-amz-") || PLAIN_AMZ_HEADERS.contains(&name.as_str())
}

fn checksum_mode(headers: &HeaderMap) -> bool {
    headers
        .get("x-amz-checksum-mode")
        .is_some_and(|mode| mode.as_bytes().eq_ignore_ascii_case(b"enabled"))
}

/// HTTP/2 names the host in the target.
fn host(parts: &Parts) -> Option<&str> {
    let header = parts
        .headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    header.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str))
}

fn relay(response: Response<LakeBody>) -> Response<ResponseBody> {
    let (parts, body) = response.into_parts();
    let mut relayed = Response::new(ResponseBody::lake(body));
    *relayed.status_mut() = parts.status;
    *relayed.headers_mut() = end_to_end_of_response(&parts.headers);
    relayed
}

fn no_target() -> S3Error {
    S3Error::new(ErrorCode::InvalidUri, "The request names no path.")
}

fn precondition_failed() -> S3Error {
    let message = "At least one of the pre-conditions you specified did not hold";
    S3Error::new(ErrorCode::PreconditionFailed, message)
}

fn not_cached() -> S3Error {
    S3Error::new(
        ErrorCode::NotCached,
        "Only a cached answer was asked for, and some of it is not cached.",
    )
}
