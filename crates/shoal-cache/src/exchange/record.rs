//! The record of one request and its response, from the head to the last byte.
//!
//! Outcomes become metrics and log lines here, at the edge; the read and write paths do not deal with either.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use shoal_base::causes;
use shoal_net::clock;
use shoal_net::fair::in_flight::InFlightPermit;
use shoal_net::http::tls::TlsSession;
use shoal_net::log_file::LogFile;
use shoal_net::log_throttle::LogThrottle;
use shoal_net::metrics::usage::Usage;
use shoal_net::metrics::{Metrics, RequestMetrics};
use shoal_net::trace::Span;
use shoal_net::words;
use shoal_policy::{Found, Source};
use shoal_s3::auth::Credentials;
use shoal_s3::error_xml::RequestId;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Uncacheable};
use shoal_s3::operation::{Classified, Operation};
use shoal_s3::range::ByteRange;

use crate::blocks::{ReadTally, Reading};
use crate::fetch::sent_range;

words! {
    /// How much of a response this node had, by the values of `X-Cache`.
    pub enum CacheStatus {
        /// All of it, without asking the lake.
        Hit = "HIT",
        /// None of it.
        Miss = "MISS",
        /// Some of its blocks.
        Partial = "PARTIAL",
        /// All of it; the lake confirmed permission and freshness.
        Revalidated = "REVALIDATED",
        /// Not cached. For a read, `X-Cache-Reason` has the reason.
        Bypass = "BYPASS",
    }
}

impl CacheStatus {
    /// Returns the status of a reading. `asked` is true if the node has asked the lake for this reading.
    pub fn of(reading: &Reading, asked: bool) -> Self {
        match (reading.cached, asked) {
            (Found::Complete, false) => Self::Hit,
            (Found::Complete, true) => Self::Revalidated,
            (Found::Partial, _) => Self::Partial,
            (Found::Nothing, _) => Self::Miss,
        }
    }
}

/// The caller and its request, for the access log. The log contains no secrets: an access key is public.
pub struct Subject {
    /// Time of arrival.
    pub at: SystemTime,
    /// Address of the client.
    pub peer: SocketAddr,
    /// The sender of the request.
    pub caller: Caller,
    /// The parsed request.
    pub classified: Classified,
    /// Head of the request.
    pub client: Arc<Parts>,
    /// Where the request carries its credentials.
    pub credentials: Credentials,
    /// The version and the cipher of its connection; `None` without TLS.
    pub tls: Option<TlsSession>,
    /// Gets the line in the form of Amazon S3; `None` if it is an event of the node's own log.
    pub s3_log: Option<Arc<LogFile>>,
}

/// The record of a request, written to the metrics and the log when the response's body ends.
pub struct Record {
    metrics: RequestMetrics,
    /// The time when the request began.
    pub started: Instant,
    /// `x-amz-request-id` of the response.
    pub request_id: RequestId,
    /// The operation that the client requested.
    pub operation: Operation,
    /// The bucket, if the request names one.
    pub bucket: Option<Arc<str>>,
    /// The object, if the client reads one.
    pub object: Option<ObjectName>,
    /// The status of the response.
    pub status: StatusCode,
    /// The error code, if the response is an error of this node.
    pub error: Option<&'static str>,
    /// Time until the head of the response.
    pub head_time: Duration,
    /// The bytes of an object that the response carries, and the object's size, for the access log.
    pub part: Option<(ByteRange, u64)>,
    /// How much of the response this node had.
    pub cache: Option<CacheStatus>,
    /// The reason why the response was not cached.
    pub reason: Option<Uncacheable>,
    /// Present if the access log is enabled.
    pub subject: Option<Box<Subject>>,
    /// The span of the request, if it is traced. The body of the response takes it.
    pub span: Option<Box<Span>>,
    /// Held until the request ends.
    pub permit: Option<InFlightPermit>,
    /// Bytes of the body that were handed to the connection.
    pub(super) sent_bytes: u64,
    /// True if these bytes come from the lake as they are.
    pub(super) is_relayed: bool,
}

impl Record {
    /// Begins the record of a request that arrives now.
    pub fn begin(metrics: &Arc<Metrics>, request_id: RequestId) -> Self {
        Self {
            metrics: metrics.request_began(),
            started: clock::instant(),
            request_id,
            operation: Operation::OtherRead,
            bucket: None,
            object: None,
            status: StatusCode::INTERNAL_SERVER_ERROR,
            error: None,
            head_time: Duration::ZERO,
            part: None,
            cache: None,
            reason: None,
            subject: None,
            span: None,
            permit: None,
            sent_bytes: 0,
            is_relayed: false,
        }
    }

    /// Records the status of the response and, for the access log, the part of an object that it carries.
    pub fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.status = status;
        if self.subject.is_some() && self.operation == Operation::GetObject {
            self.part = sent_range(status, headers);
        }
    }

    /// Counts bytes of the body that were handed to the connection.
    pub fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
    }

    /// Describes the response in the span of the request, when the body has ended.
    pub(super) fn describe(&self, span: &mut Span, tally: ReadTally) {
        span.answered(self.status);
        span.text("aws.request_id", self.request_id.as_str());
        if let Some(cache) = self.cache {
            span.word("shoal.cache", cache.as_str());
        }
        for (source, name) in [
            (Source::Local, "shoal.bytes.local"),
            (Source::Peer, "shoal.bytes.peer"),
            (Source::Tier, "shoal.bytes.tier"),
            (Source::Lake, "shoal.bytes.lake"),
        ] {
            let bytes = tally.bytes(source);
            if bytes > 0 {
                span.number(name, bytes);
            }
        }
    }

    /// Logs why the body ended early; the connection is aborted.
    pub fn broke_off(&mut self, error: &(dyn std::error::Error + 'static)) {
        static LINES: LogThrottle = LogThrottle::new();
        if let Some(unsaid) = LINES.admit(clock::instant()) {
            let (request_id, operation) = (self.request_id.as_str(), self.operation.as_str());
            tracing::warn!(
                request_id,
                operation,
                error = causes::line(error),
                unsaid,
                "response broken off"
            );
        }
    }

    /// Writes the metrics and the log line when the body has ended, sent or not. `tally` counts the sources
    /// of its blocks.
    pub fn end(&self, tally: ReadTally) {
        let duration = clock::instant().saturating_duration_since(self.started);
        self.metrics
            .request(self.operation, self.status.as_u16(), duration);
        let mut all = 0;
        for source in [Source::Local, Source::Peer, Source::Tier, Source::Lake] {
            let bytes = tally.bytes(source);
            if bytes > 0 {
                self.metrics.read(source, bytes);
                all += bytes;
            }
        }
        if let Some(object) = self.object.as_ref().filter(|_| all > 0) {
            self.metrics.read_of(object, all, tally.bytes(Source::Lake));
        }
        if let Some(permit) = &self.permit {
            let relayed = if self.is_relayed { self.sent_bytes } else { 0 };
            let usage = Usage {
                requests: 1,
                sent_bytes: self.sent_bytes,
                lake_bytes: tally.bytes(Source::Lake) + relayed,
            };
            self.metrics.used(
                self.bucket.as_deref(),
                permit.payer_name(),
                self.succeeded(),
                usage,
            );
        }
        if let Some((found, are_several)) = tally.found() {
            self.metrics.object_read(found, are_several);
        }
        if let Some(reason) = self.reason {
            self.metrics.uncached.count(reason.as_str());
        }
        if let Some(subject) = &self.subject {
            match &subject.s3_log {
                Some(file) => self.log_s3(file, subject, duration),
                None => self.log_access(subject, tally, duration),
            }
        }
    }

    /// Returns true if the status says that the lake has the bucket and allows the request. That of a removal
    /// of many objects does not: the lake may refuse each of them in its document.
    fn succeeded(&self) -> bool {
        let is_success = self.status.is_success() || self.status == StatusCode::NOT_MODIFIED;
        is_success && self.operation != Operation::DeleteObjects
    }
}
