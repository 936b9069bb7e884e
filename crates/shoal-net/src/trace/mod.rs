//! Traces: what one request causes, on this node and on others, as spans for a collector of OpenTelemetry.
//!
//! [`Tracer`] decides which requests are traced, and [`child`] begins a span below that of the task. Spans
//! have no key of an object, no header and no query, so that they can have no secret.

mod current;
mod otlp;
mod span;
mod traceparent;
mod tracer;

pub use self::current::{Parent, child, header, spawn, wait};
pub use self::otlp::{Resource, batch};
pub use self::span::{Span, SpanKind, SpanRecord, Value};
pub use self::traceparent::{TRACEPARENT, TraceParent};
pub use self::tracer::{Arrival, Share, SpanOutcome, TraceConfig, Tracer};
