//! One request and its answer, from head to last byte, as operators see it.
//!
//! This is the edge where outcomes become metrics and log lines; the read and write paths know of neither.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use shoal_policy::Source;

use crate::admin::metrics::Metrics;
use crate::blocks::Tally;
use crate::clock;
use crate::front::access_log::{self, AccessLine};
use crate::front::in_flight::Place;
use crate::front::operation::Operation;
use crate::front::respond::CacheStatus;
use crate::object::Uncacheable;

/// What is known of an exchange so far; it is recorded when the response body ends.
#[derive(Debug)]
pub struct Exchange {
    metrics: Arc<Metrics>,
    started: Instant,
    /// `x-amz-request-id` of the answer.
    pub request_id: String,
    /// What was asked.
    pub operation: Operation,
    /// What was answered.
    pub status: StatusCode,
    /// How much of it was here.
    pub cache: Option<CacheStatus>,
    /// Why it was not cached.
    pub reason: Option<Uncacheable>,
    /// Where the bytes of blocks came from.
    pub tally: Option<Arc<Tally>>,
    /// Present when the access log is on.
    pub subject: Option<Subject>,
    /// Held until the end.
    pub places: Vec<Place>,
    sent_bytes: u64,
}

/// Who asked for what, for the access log.
#[derive(Debug, Default)]
pub struct Subject {
    /// Address of the client.
    pub peer: String,
    /// Access key, or `-` for a stranger.
    pub access_key: String,
    /// Bucket, or empty.
    pub bucket: String,
    /// Key, or empty.
    pub key: String,
}

impl Exchange {
    /// An exchange that began now.
    pub fn begin(metrics: Arc<Metrics>, request_id: String) -> Self {
        Self {
            metrics,
            started: clock::instant(),
            request_id,
            operation: Operation::OtherRead,
            status: StatusCode::INTERNAL_SERVER_ERROR,
            cache: None,
            reason: None,
            tally: None,
            subject: None,
            places: Vec::with_capacity(2),
            sent_bytes: 0,
        }
    }

    /// When it began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Counts body bytes handed to the connection.
    pub fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
    }

    /// Notes why the body broke off; the connection is aborted.
    pub fn broke_off(&mut self, error: &(dyn std::error::Error + 'static)) {
        tracing::warn!(request_id = self.request_id, operation = self.operation.as_str(), %error, "response broken off");
    }

    /// Records the exchange. `complete`: the whole body went to the connection.
    pub fn end(self: Box<Self>, complete: bool) {
        let duration = clock::instant().saturating_duration_since(self.started);
        self.metrics.request(self.operation.as_str(), self.status.as_u16(), duration);
        let by_source = |source| self.tally.as_ref().map_or(0, |tally| tally.bytes(source));
        for source in [Source::Local, Source::Lake] {
            self.metrics.read_bytes(source, by_source(source));
        }
        if let Some(reason) = self.reason {
            self.metrics.uncached(reason.as_str());
        }
        if let Some(subject) = &self.subject {
            access_log::write(&AccessLine {
                request_id: &self.request_id,
                peer: &subject.peer,
                access_key: &subject.access_key,
                operation: self.operation.as_str(),
                bucket: &subject.bucket,
                key: &subject.key,
                status: self.status.as_u16(),
                sent_bytes: self.sent_bytes,
                complete,
                duration,
                cache: self.cache.map_or("-", CacheStatus::as_str),
                local_bytes: by_source(Source::Local),
                lake_bytes: by_source(Source::Lake),
            });
        }
    }
}
