//! Client of the S3 stores that the node calls, such as the lake.
//!
//! [`Endpoint::send`] takes a request that is independent of any client connection: operation, target bytes,
//! end-to-end headers, body, and the account to sign with. It signs and sends the request, retries it where
//! that is allowed, and returns the store's response unchanged, with its body still streaming.
//!
//! [`transport`] brings a signed request to the store and its response back, [`account`] has the accounts
//! that sign and what the store says of them, and [`s3`] are the requests that the node makes itself.

mod account;
mod config;
mod error;
mod expectation;
mod probe;
mod request;
mod request_body;
mod resume;
mod retry;
pub mod s3;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Response};
use shoal_base::chance;
use shoal_s3::identity::Caller;

pub use self::account::{AccountRefusal, CredentialsError, EndpointHealth, LakeAccount, NodeCredentials};
pub use self::config::LakeConfig;
pub use self::error::{BoxError, EndpointError, Failure, SharedError};
pub use self::probe::ProbeError;
pub use self::request::{EndpointRequest, SendOptions};
pub use self::request_body::{RequestBody, RequestStream};
pub use self::resume::{OnContradiction, RepeatableGet, Resumption};
pub use self::retry::RetryBudget;
pub use self::s3::{is_undecided, is_undecided_code};
pub(crate) use self::transport::split_url;
pub use self::transport::{EndpointCounters, LakeBody};

use self::error::RequestContext;
use self::request::{Head, RequestClass, Signing};
use self::request_body::OutgoingBody;
use self::transport::{
    ConnectionChoice, FailedAttempt, PermitOver, Transport, WITH_BODY_MAX, WITHOUT_BODY_MAX, expected_bytes,
};
use crate::channel::Dialer;
use crate::fair::Turns;
use crate::limits::Limits;
use crate::link::{Link, Promises};
use crate::time::clock;
use crate::trace::{self, SpanKind, TRACEPARENT};

/// Pause between two checks that the node may still send.
const PERMIT_PAUSE: Duration = Duration::from_millis(100);

/// An S3 store that the node calls.
pub struct Endpoint {
    url: Arc<str>,
    host: HeaderValue,
    signing: Signing,
    /// The accounts that this node provides.
    pub credentials: NodeCredentials,
    transport: Transport,
    budget: RetryBudget,
    /// The endpoint's health as this node sees it.
    pub health: EndpointHealth,
}

impl Endpoint {
    /// Creates an endpoint. Connections are made on demand.
    ///
    /// # Errors
    ///
    /// Fails with [`Failure::Misconfigured`] if the URL is not valid for a store, or the system has no
    /// trusted roots.
    pub fn new(
        config: &LakeConfig,
        limits: &Limits,
        credentials: NodeCredentials,
    ) -> Result<Self, EndpointError> {
        let url: Arc<str> = config.endpoint.trim_end_matches('/').into();
        let context = RequestContext {
            operation: "configure",
            endpoint: Arc::clone(&url),
            target: PathAndQuery::from_static("/"),
        };
        let misconfigured = |source: BoxError| context.failed(Failure::Misconfigured, source);
        let (transport, host) = Transport::to_store(config).map_err(misconfigured)?;
        Ok(Self {
            url,
            host,
            signing: Signing::new(config.region.clone()),
            credentials,
            transport,
            budget: RetryBudget::new(limits.retry_budget_percent),
            health: EndpointHealth::default(),
        })
    }

    /// Creates the endpoint for another node. Its requests are not signed, because both ends authenticate
    /// when they connect, and not retried, because another source can be asked instead.
    pub fn to_node(dialer: Dialer) -> Self {
        let authority = dialer.address.to_string();
        Self {
            url: format!("node://{authority}").into(),
            host: HeaderValue::try_from(authority).expect("an address is made of visible characters"),
            signing: Signing::new(String::new()),
            credentials: NodeCredentials::default(),
            transport: Transport::to_node(dialer),
            budget: RetryBudget::new(0),
            health: EndpointHealth::default(),
        }
    }

    /// Makes signatures count for another service than S3.
    #[must_use]
    pub fn of_service(mut self, service: &'static str) -> Self {
        self.signing = self.signing.of_service(service);
        self
    }

    /// Makes payers take turns, with at most `requests_max` requests at a time.
    #[must_use]
    pub fn in_turns(mut self, requests_max: usize) -> Self {
        self.transport.turns = Some(Turns::new(requests_max));
        self
    }

    /// Returns the turns that requests take, if enabled.
    pub fn turns(&self) -> Option<&Arc<Turns>> {
        self.transport.turns.as_ref()
    }

    /// Returns the URL, which identifies the endpoint, for instance in the digests of its objects.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the account that signs the requests of `caller`.
    pub fn account_for(&self, caller: &Caller) -> LakeAccount {
        self.credentials.account_for(caller)
    }

    /// Returns the counters of requests and responses since the node started.
    pub fn counters(&self) -> &EndpointCounters {
        &self.transport.counters
    }

    /// Returns the link for requests, if it is metered.
    pub fn link(&self) -> Option<&Arc<Link>> {
        self.transport.link.as_ref()
    }

    /// Returns the rates of jobs that read by plan.
    pub fn promises(&self) -> &Promises {
        &self.transport.promises
    }

    /// Signs and sends a request of a waiting client. Returns the response head, with the body still to come.
    ///
    /// Reads (a GET or HEAD without a body, a QUERY with a whole one) are retried, within a budget, if no
    /// part of a response has arrived or it is a transient error (500, 502, 503, 504), as long as the client
    /// can be expected to wait. A persistent error is returned unchanged.
    ///
    /// # Errors
    ///
    /// No response arrives; the [`Failure`] has the kind. A response with an error status is not an error.
    pub fn send(
        &self,
        request: EndpointRequest,
    ) -> impl Future<Output = Result<Response<LakeBody>, EndpointError>> {
        self.send_with(request, SendOptions::default())
    }

    /// Sends a request that belongs to a transfer, or needs a permit, which is checked for every byte that is
    /// passed to the kernel.
    ///
    /// # Errors
    ///
    /// Fails as [`send`](Self::send) does, or with [`Failure::SessionOver`].
    pub async fn send_with(
        &self,
        request: EndpointRequest,
        options: SendOptions<'_>,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let (head, body) = self.permitted(request, options).await;
        self.send_permitted(head, body).await
    }

    /// Waits until the link and the transfer's plan permit a read to begin. A client's read and all writes
    /// begin at once.
    async fn permitted(
        &self,
        request: EndpointRequest,
        options: SendOptions<'_>,
    ) -> (Box<Head>, RequestBody) {
        let (mut head, body) = request.split(&self.url, &self.host, options);
        self.trace(&mut head);
        head.answer = self.transport.down(&head);
        if head.class == RequestClass::Read
            && let Some(flow) = &mut head.answer
        {
            trace::wait("wait_for_link", flow.begins(expected_bytes(&head.headers))).await;
        }
        (head, body)
    }

    /// Begins the span of a request, if the task has one. The span of the lake descends from it by the header
    /// `traceparent`, unless the client has signed another one.
    fn trace(&self, head: &mut Head) {
        let Some(of_task) = trace::header() else {
            return;
        };
        head.span = trace::child(SpanKind::Client, head.context.operation);
        if !head.client_has_signed(&TRACEPARENT) {
            let own = head.span.as_ref().map(|span| span.header());
            head.headers.insert(TRACEPARENT, own.unwrap_or(of_task));
        }
        if let Some(span) = &mut head.span {
            span.text("http.request.method", head.method.as_str());
            span.text("server.address", self.host.to_str().unwrap_or_default());
        }
    }

    /// Sends the request. Fails as [`send_with`](Self::send_with) does.
    async fn send_permitted(
        &self,
        mut head: Box<Head>,
        body: RequestBody,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let mut span = head.span.take();
        let outcome = match body {
            RequestBody::Empty if matches!(head.method, Method::GET | Method::HEAD) => {
                self.read(&head, Bytes::new()).await
            }
            RequestBody::Whole(body) if head.method == Method::QUERY => self.read(&head, body).await,
            body => {
                let writing = Box::pin(self.write(&head, body));
                within(&head, writing).await
            }
        };
        let outcome = match head.answer {
            None => outcome,
            flow => outcome.map(|response| response.map(|body| body.paced_by(flow))),
        };
        if let Some(span) = &mut span {
            match &outcome {
                Ok(response) => span.answered(response.status()),
                Err(error) => span.failed(error.kind().as_str()),
            }
        }
        let outcome = outcome.map(|response| response.map(|body| body.traced_by(span)));
        self.health.check(outcome, &head.account, &head.context).await
    }

    async fn read(&self, head: &Head, body: Bytes) -> Result<Response<LakeBody>, EndpointError> {
        self.budget.earn();
        let began = clock::instant();
        let mut tries = 1;
        let mut connection = ConnectionChoice::Any;
        loop {
            let (request, _seed) = self.signing.sign(head)?;
            let request = request.map(|()| OutgoingBody::whole(body.clone()));
            let exchange = self
                .transport
                .exchange(head, request, connection, WITHOUT_BODY_MAX);
            let outcome = match exchange.await {
                Err(FailedAttempt { stale: true, .. }) if connection == ConnectionChoice::Any => {
                    connection = ConnectionChoice::New;
                    continue;
                }
                outcome => outcome.map_err(|failed| self.transport.failed(failed)),
            };
            let ending = outcome.as_ref().map_err(EndpointError::kind);
            let Some(pause) = retry::pause(ending, clock::utc_now(), tries, chance::unit()) else {
                return outcome;
            };
            let elapsed = clock::instant().saturating_duration_since(began);
            if elapsed >= self.transport.timeouts.answer || !self.budget.spend() {
                return outcome;
            }
            if let Ok(response) = outcome {
                response.into_body().drain().await;
            }
            tokio::time::sleep(pause).await;
            self.transport.counters.retries.add(1);
            tries += 1;
        }
    }

    async fn write(&self, head: &Head, body: RequestBody) -> Result<Response<LakeBody>, EndpointError> {
        let upload = self.transport.up(head);
        let (request, seed) = self.signing.sign(head)?;
        let body = match body {
            RequestBody::Empty => OutgoingBody::default(),
            RequestBody::Whole(bytes) => OutgoingBody::whole(bytes),
            RequestBody::Stream { body, .. } => OutgoingBody::stream(body),
            RequestBody::Seeded { body, .. } => {
                let seed = seed.ok_or_else(|| {
                    let reason = "signed chunks need a signed request";
                    head.context.failed(Failure::Unsignable, reason)
                })?;
                OutgoingBody::stream(body(seed))
            }
        };
        let mut request = request.map(|()| body);
        if let Some(upload) = upload {
            request.body_mut().paced_by(upload);
        }
        if let Some(expectation) = &head.expectation {
            expectation.listen(&mut request);
            request.body_mut().held_for(expectation.clone());
        }
        let any = ConnectionChoice::Any;
        let exchange = self.transport.exchange(head, request, any, WITH_BODY_MAX);
        exchange.await.map_err(|failed| self.transport.failed(failed))
    }
}

/// Cancels a request when the node may no longer send it, which resets its connection.
async fn within(
    head: &Head,
    writing: impl Future<Output = Result<Response<LakeBody>, EndpointError>> + Unpin,
) -> Result<Response<LakeBody>, EndpointError> {
    let Some(permit) = &head.permit else {
        return writing.await;
    };
    let over = async {
        while permit.may_send() {
            tokio::time::sleep(PERMIT_PAUSE).await;
        }
    };
    tokio::select! {
        biased;
        outcome = writing => outcome,
        () = over => Err(head.context.failed(Failure::SessionOver, PermitOver)),
    }
}
