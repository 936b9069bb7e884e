//! Writes spans as OTLP in protobuf: the message `ExportTraceServiceRequest`, with the few fields that the
//! node fills in.
//!
//! The numbers of the fields are those of `opentelemetry/proto/trace/v1/trace.proto`, which is stable: a
//! field never gets another number or type.

use super::span::{SpanRecord, Value};

/// The node that sends spans.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The node's name.
    pub node: String,
    /// The version of the program.
    pub version: &'static str,
}

/// The program, as the service that spans belong to and as the library that makes them.
const SERVICE: &str = "shoal";

/// The flag of a trace that is recorded.
const SAMPLED: u32 = 1;

/// The status code of a request that failed.
const ERROR: u64 = 2;

/// Writes one request with all `spans`.
pub fn batch(resource: &Resource, spans: &[SpanRecord]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.message(1, |attributes| {
            for (name, value) in [
                ("service.name", SERVICE),
                ("service.version", resource.version),
                ("service.instance.id", &resource.node),
            ] {
                attributes.message(1, |pair| pair.pair(name, &Value::Text(value.into())));
            }
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, SERVICE.as_bytes());
                scope.bytes(2, resource.version.as_bytes());
            });
            for span in spans {
                of_scope.message(2, |message| message.span(span));
            }
        });
    });
    request.0
}

/// The type of a field, as its key has it.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
    Fixed32 = 5,
}

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn span(&mut self, span: &SpanRecord) {
        self.bytes(1, &span.trace.to_be_bytes());
        self.bytes(2, &span.span.to_be_bytes());
        if span.parent != 0 {
            self.bytes(4, &span.parent.to_be_bytes());
        }
        self.bytes(5, span.name.as_bytes());
        self.number(6, span.kind as u64);
        self.fixed64(7, span.begin_ns);
        self.fixed64(8, span.end_ns);
        for (name, value) in &span.attributes {
            self.message(9, |pair| pair.pair(name, value));
        }
        if span.is_error {
            self.message(15, |status| status.number(3, ERROR));
        }
        self.fixed32(16, SAMPLED);
    }

    fn pair(&mut self, name: &str, value: &Value) {
        self.bytes(1, name.as_bytes());
        self.message(2, |any| match value {
            Value::Text(text) => any.bytes(1, text.as_bytes()),
            Value::Word(word) => any.bytes(1, word.as_bytes()),
            Value::Number(number) => any.number(3, *number),
        });
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, Wire::Bytes);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn number(&mut self, field: u32, number: u64) {
        self.key(field, Wire::Varint);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u32, number: u64) {
        self.key(field, Wire::Fixed64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u32, number: u32) {
        self.key(field, Wire::Fixed32);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn key(&mut self, field: u32, wire: Wire) {
        self.varint(u64::from(field << 3 | wire as u32));
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}
