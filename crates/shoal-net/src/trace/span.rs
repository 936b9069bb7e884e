//! A span: one request or one wait, with its place in a trace.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderValue, StatusCode};

use super::current::Parent;
use super::traceparent::TraceParent;
use super::tracer::Tracer;
use crate::time::clock;

/// Longest text of an attribute, in bytes. The names of buckets and hosts come from clients and settings.
const TEXT_BYTES_MAX: usize = 255;

/// The side of a request that a span describes, by the numbers of OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// A wait within the node.
    #[default]
    Internal = 1,
    /// A request that this node serves.
    Server = 2,
    /// A request that this node sends.
    Client = 3,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Box<str>),
    /// A word that the program knows.
    Word(&'static str),
    /// A number.
    Number(u64),
}

/// A span as it is sent to the collector.
#[derive(Clone, Debug, Default)]
pub struct SpanRecord {
    pub(super) trace: u128,
    pub(super) span: u64,
    /// The span that caused this one; 0 without one.
    pub(super) parent: u64,
    pub(super) kind: SpanKind,
    pub(super) name: &'static str,
    /// Nanoseconds since 1970.
    pub(super) begin_ns: u64,
    /// Nanoseconds since 1970.
    pub(super) end_ns: u64,
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// True if the request failed.
    pub(super) is_error: bool,
}

/// A span under way. It ends, and is queued for the collector, when it is dropped.
pub struct Span {
    tracer: Arc<Tracer>,
    record: SpanRecord,
    started: Instant,
    /// True if a client or a node has decided to record the trace, and not this node.
    is_followed: bool,
    body_bytes: u64,
}

impl Span {
    /// Begins a span with `record`, which began at `started`.
    pub(super) fn begin(
        tracer: Arc<Tracer>,
        mut record: SpanRecord,
        started: Instant,
        is_followed: bool,
    ) -> Box<Self> {
        let age = clock::instant().saturating_duration_since(started);
        let since_epoch = clock::utc_now().duration_since(SystemTime::UNIX_EPOCH);
        let began = since_epoch.unwrap_or(Duration::ZERO).saturating_sub(age);
        record.begin_ns = began.as_nanos() as u64;
        Box::new(Self {
            tracer,
            record,
            started,
            is_followed,
            body_bytes: 0,
        })
    }

    /// Returns the parent of the spans that this one causes.
    pub fn parent(&self) -> Parent {
        Parent {
            tracer: Arc::clone(&self.tracer),
            trace: self.record.trace,
            span: self.record.span,
            is_followed: self.is_followed,
        }
    }

    /// Returns the header of requests that belong to this span.
    pub fn header(&self) -> HeaderValue {
        let (trace, span) = (self.record.trace, self.record.span);
        TraceParent {
            trace,
            span,
            is_sampled: true,
        }
        .to_header()
    }

    /// Adds an attribute with a text, of which the first 255 bytes are kept.
    pub fn text(&mut self, name: &'static str, text: &str) {
        let end = text.floor_char_boundary(TEXT_BYTES_MAX);
        self.add(name, Value::Text(text[..end].into()));
    }

    /// Adds an attribute with a word of the program.
    pub fn word(&mut self, name: &'static str, word: &'static str) {
        self.add(name, Value::Word(word));
    }

    /// Adds an attribute with a number.
    pub fn number(&mut self, name: &'static str, number: u64) {
        self.add(name, Value::Number(number));
    }

    /// Records the status of the response. A span of a server fails by a status of its own failure (5xx), one
    /// of a client by any refusal.
    pub fn answered(&mut self, status: StatusCode) {
        self.number("http.response.status_code", u64::from(status.as_u16()));
        let is_client = self.record.kind == SpanKind::Client;
        self.record.is_error |= status.is_server_error() || (is_client && status.is_client_error());
    }

    /// Records the reason why there is no complete response.
    pub fn failed(&mut self, reason: &'static str) {
        self.word("error.type", reason);
        self.record.is_error = true;
    }

    /// Counts bytes of the body of the response.
    pub fn body_bytes(&mut self, bytes: usize) {
        self.body_bytes += bytes as u64;
    }

    fn add(&mut self, name: &'static str, value: Value) {
        self.record.attributes.push((name, value));
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.record.kind != SpanKind::Internal {
            self.number("http.response.body.size", self.body_bytes);
        }
        let took = clock::instant().saturating_duration_since(self.started);
        let mut record = mem::take(&mut self.record);
        record.end_ns = record.begin_ns.saturating_add(took.as_nanos() as u64);
        self.tracer.ended(record);
    }
}
