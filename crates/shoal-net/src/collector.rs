//! Sends spans to a collector of OpenTelemetry, by OTLP over HTTP. No request waits for it.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use shoal_base::causes;
use shoal_s3::identity::NODE;

use crate::endpoint::{
    Endpoint, EndpointError, EndpointRequest, LakeAccount, LakeConfig, NodeCredentials, RequestBody,
    split_url,
};
use crate::limits::Limits;
use crate::secret_headers;
use crate::time::clock;
use crate::time::log_throttle::LogThrottle;
use crate::time::shutdown::Shutdown;
use crate::trace::{Resource, SpanOutcome, SpanRecord, TraceConfig, Tracer, batch};

/// The path of OTLP below the URL of a collector.
const PATH: &str = "/v1/traces";

/// How long a span waits for others, so that they are sent together.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// How long the collector may take to accept a batch.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a node that stops sends the last spans.
const FLUSH_PATIENCE: Duration = Duration::from_secs(3);

/// Maximum number of bytes of an answer that are read, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The collector of a node.
pub struct Collector {
    /// Begins the spans that the collector gets.
    pub tracer: Arc<Tracer>,
    endpoint: Endpoint,
    target: PathAndQuery,
    /// The headers of each request, some of them secret.
    headers: HeaderMap,
    resource: Resource,
}

/// Why the collector has not accepted a batch.
#[derive(Debug, thiserror::Error)]
enum NotSent {
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("it gave no answer in time")]
    Slow,
}

impl Collector {
    /// Opens the collector of a configuration, for the node of this name; `None` if nothing is traced.
    ///
    /// # Errors
    ///
    /// The URL is not valid, or the CA certificates cannot be read.
    pub fn open(
        config: &TraceConfig,
        node: &str,
        limits: &Limits,
    ) -> Result<Option<Arc<Self>>, EndpointError> {
        let Some(url) = &config.endpoint else {
            return Ok(None);
        };
        let (server, path) = split_url(url);
        let at = LakeConfig {
            endpoint: server.into(),
            ca_file: config.ca_file.clone(),
            answer_timeout: PATIENCE,
            write_timeout: PATIENCE,
            long_write_timeout: PATIENCE,
            ..LakeConfig::default()
        };
        let target = format!("{}{PATH}", path.trim_end_matches('/'));
        let mut headers = secret_headers::of(config.headers.as_ref());
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        headers.insert(header::CONTENT_TYPE, protobuf);
        Ok(Some(Arc::new(Self {
            tracer: Arc::new(Tracer::new(config.sample)),
            endpoint: Endpoint::new(&at, limits, NodeCredentials::default())?,
            target: target.parse().expect("the URL has been checked"),
            headers,
            resource: Resource {
                node: node.into(),
                version: env!("CARGO_PKG_VERSION"),
            },
        })))
    }

    /// Sends spans until the node stops, and then the last ones, for a few seconds at most.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        // Kept here, because a node that stops sends a batch that is under way once more.
        let mut spans = Vec::new();
        let sending = async {
            loop {
                self.tracer.batch(BATCH_WAIT).await;
                self.send_all(&mut spans).await;
            }
        };
        stopping.limits(sending).await;
        // Spans that are left after this time are lost with the node.
        let _ = tokio::time::timeout(FLUSH_PATIENCE, self.send_all(&mut spans)).await;
    }

    /// Sends all spans that have ended, those in `spans` first.
    async fn send_all(&self, spans: &mut Vec<SpanRecord>) {
        loop {
            if spans.is_empty() {
                *spans = self.tracer.take();
            }
            if spans.is_empty() {
                return;
            }
            let sent = tokio::time::timeout(PATIENCE, self.send(spans)).await;
            let outcome = match sent.unwrap_or(Err(NotSent::Slow)) {
                Ok(()) => SpanOutcome::Sent,
                Err(error) => {
                    self.warn(&error);
                    SpanOutcome::Failed
                }
            };
            self.tracer.outcomes.add(outcome, spans.len() as u64);
            spans.clear();
        }
    }

    async fn send(&self, spans: &[SpanRecord]) -> Result<(), NotSent> {
        let headers = self.headers.clone();
        let body = RequestBody::Whole(batch(&self.resource, spans).into());
        let (target, account) = (self.target.clone(), LakeAccount::Anonymous);
        let request = EndpointRequest::new("export_spans", Method::POST, target, account, NODE);
        let response = self
            .endpoint
            .send(request.with_headers(headers).with_body(body))
            .await?;
        let status = response.status();
        // The answer says nothing that the node could act on.
        drop(
            Limited::new(response.into_body(), ANSWER_BYTES_MAX)
                .collect()
                .await,
        );
        status.is_success().then_some(()).ok_or(NotSent::Status(status))
    }

    fn warn(&self, error: &NotSent) {
        static LINES: LogThrottle = LogThrottle::every(Duration::from_mins(1));
        if let Some(unsaid) = LINES.admit(clock::instant()) {
            tracing::warn!(
                collector = self.endpoint.url(),
                error = causes::line(error),
                unsaid,
                "the collector of traces has not accepted spans, which are lost"
            );
        }
    }
}
