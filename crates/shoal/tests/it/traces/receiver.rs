//! A collector of OpenTelemetry for stories: it takes OTLP over HTTP, or misbehaves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::net::TcpListener;

use crate::lake::Lake;
use crate::waiting::value;

/// The kind of the span of a server.
pub(crate) const SERVER: i32 = 2;

/// A collector, and the requests that it got.
pub(crate) struct Collector {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<Bytes>>>,
    /// The number of requests that were refused for want of the right header.
    refused: Arc<AtomicUsize>,
    /// Holds a port at which nobody answers.
    silent: Option<TcpListener>,
}

/// A span as it came.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) node: String,
    pub(crate) name: String,
    pub(crate) kind: i32,
    pub(crate) trace: u128,
    pub(crate) id: u64,
    /// 0 without one.
    pub(crate) parent: u64,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) is_error: bool,
    attributes: BTreeMap<String, String>,
}

impl Span {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// It is of the request of a client.
    pub(crate) fn is_root(&self) -> bool {
        self.kind == SERVER && !self.name.starts_with("serve_")
    }

    /// It is of a request to this lake.
    pub(crate) fn is_at_lake(&self, lake: &Lake, name: &str) -> bool {
        let host = self.attribute("server.address");
        self.name == name && host.is_some_and(|host| lake.url().ends_with(host))
    }
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self::answering(StatusCode::OK, None).await
    }

    /// Answers 401 to requests without this value of `authorization`.
    pub(crate) async fn asking_for(authorization: &'static str) -> Self {
        Self::answering(StatusCode::OK, Some(authorization)).await
    }

    /// Refuses all spans.
    pub(crate) async fn refusing() -> Self {
        Self::answering(StatusCode::SERVICE_UNAVAILABLE, None).await
    }

    /// Nothing listens there.
    pub(crate) async fn absent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            address: listener.local_addr().unwrap(),
            bodies: Arc::default(),
            refused: Arc::default(),
            silent: None,
        }
    }

    /// Accepts connections and never answers.
    pub(crate) async fn silent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            address: listener.local_addr().unwrap(),
            bodies: Arc::default(),
            refused: Arc::default(),
            silent: Some(listener),
        }
    }

    async fn answering(status: StatusCode, authorization: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let refused = Arc::<AtomicUsize>::default();
        let (taken, turned_away) = (Arc::clone(&bodies), Arc::clone(&refused));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (taken, turned_away) = (Arc::clone(&taken), Arc::clone(&turned_away));
                let service = service_fn(move |request: Request<Incoming>| {
                    let shown = request.headers().get("authorization");
                    let may = authorization.is_none_or(|asked| shown.is_some_and(|value| value == asked));
                    let status = if may { status } else { StatusCode::UNAUTHORIZED };
                    if !may {
                        turned_away.fetch_add(1, Ordering::Relaxed);
                    }
                    answer(request, status, Arc::clone(&taken))
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            address,
            bodies,
            refused,
            silent: None,
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent.is_some()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests were refused for want of the right header.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// All that came, as bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bodies.lock().concat()
    }

    /// All spans that came.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let bodies = self.bodies.lock().clone();
        bodies.iter().flat_map(spans_of).collect()
    }

    /// Waits until the spans of a trace are right.
    pub(crate) async fn of_trace(&self, trace: u128, are_right: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let spans = async || {
            let mut spans = self.spans();
            spans.retain(|span| span.trace == trace);
            spans
        };
        value("the spans have come", spans, |spans| are_right(spans)).await
    }
}

async fn answer(
    request: Request<Incoming>,
    status: StatusCode,
    bodies: Arc<Mutex<Vec<Bytes>>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    assert_eq!(request.uri().path(), "/v1/traces");
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let body = request.into_body().collect().await?.to_bytes();
    if status != StatusCode::UNAUTHORIZED {
        bodies.lock().push(body);
    }
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    Ok(response)
}

fn spans_of(body: &Bytes) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
    let mut all = Vec::new();
    for of_resource in request.resource_spans {
        let resource = texts(of_resource.resource.unwrap().attributes);
        assert_eq!(resource["service.name"], "shoal");
        let node = &resource["service.instance.id"];
        for span in of_resource
            .scope_spans
            .into_iter()
            .flat_map(|of_scope| of_scope.spans)
        {
            let id = |bytes: &[u8]| bytes.iter().fold(0, |id: u128, byte| id << 8 | u128::from(*byte));
            assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
            all.push(Span {
                node: node.clone(),
                kind: span.kind,
                trace: id(&span.trace_id),
                id: id(&span.span_id) as u64,
                parent: id(&span.parent_span_id) as u64,
                begin_ns: span.start_time_unix_nano,
                end_ns: span.end_time_unix_nano,
                is_error: span.status.is_some_and(|status| status.code == 2),
                attributes: texts(span.attributes),
                name: span.name,
            });
        }
    }
    all
}

fn texts(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |pair: KeyValue| {
        let text = match pair.value.unwrap().value.unwrap() {
            Value::StringValue(text) => text,
            Value::IntValue(number) => number.to_string(),
            other => panic!("{other:?} in an attribute"),
        };
        (pair.key, text)
    };
    pairs.into_iter().map(text).collect()
}
