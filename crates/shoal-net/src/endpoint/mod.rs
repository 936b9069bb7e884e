//! Client of the S3 stores that the node calls, such as the lake.
//!
//! [`Endpoint::send`] takes a request that is independent of any client connection: operation, target bytes,
//! end-to-end headers, body, and the account to sign with. It signs and sends the request, retries it where
//! that is allowed, and returns the store's response unchanged, with its body still streaming.

mod account;
mod account_check;
mod account_refusal;
mod config;
mod connect;
mod counters;
mod credential_chain;
mod error;
mod expectation;
mod health;
mod metering;
mod outcome;
mod permitted;
mod pool;
mod probe;
mod request;
mod request_body;
mod response_body;
mod resume;
mod retry;
pub mod s3;
mod socket;
mod stall;
mod timeouts;
mod turn;
mod url;
mod wake_filter;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt;
use shoal_base::chance;
use shoal_base::send_permit::SendPermit;
use shoal_policy::fair::Payer;
use shoal_s3::identity::Caller;
use shoal_s3::sigv4::{KeyCache, PayloadHash, SeedSignature, Signer};

pub use self::account::{LakeAccount, NodeCredentials};
pub use self::account_refusal::AccountRefusal;
pub use self::config::LakeConfig;
pub use self::counters::EndpointCounts;
pub use self::credential_chain::CredentialsError;
pub use self::error::{BoxError, EndpointError, Failure};
pub use self::error::{SharedError, causes};
pub use self::health::EndpointHealth;
pub use self::outcome::{is_undecided, is_undecided_code};
pub use self::probe::ProbeError;
pub use self::request::EndpointRequest;
pub use self::request_body::{RequestBody, RequestStream};
pub use self::response_body::LakeBody;
pub use self::resume::{OnContradiction, RepeatableGet, Resumption};
pub use self::retry::RetryBudget;

use self::connect::{ConnectError, Connector};
use self::counters::Counters;
use self::error::RequestContext;
use self::expectation::Expectation;
use self::metering::Metered;
use self::pool::{ExchangeError, Pool, PooledConnection};
use self::request_body::OutgoingBody;
use self::retry::AttemptOutcome;
use self::socket::PermitOver;
use self::timeouts::{RequestClass, RequestTimeouts, Timeouts};
use self::url::{address, host};
use crate::channel::Dialer;
use crate::clock;
use crate::fair::Turns;
use crate::limits::Limits;
use crate::link::{Link, Transfer};

/// An S3 store that the node calls.
pub struct Endpoint {
    url: Arc<str>,
    host: HeaderValue,
    region: String,
    keys: KeyCache,
    credentials: NodeCredentials,
    timeouts: Timeouts,
    pool: Arc<Pool>,
    /// The connections of background transfers, if the link is metered.
    background: Option<Arc<Pool>>,
    /// The link for requests, if it is metered.
    metered: Option<Metered>,
    budget: RetryBudget,
    counters: Arc<Counters>,
    health: EndpointHealth,
    /// Makes requests take turns, if enabled.
    turns: Option<Arc<Turns>>,
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
        let address = address(&config.endpoint).map_err(misconfigured)?;
        let host = host(&address);
        let timeouts = Timeouts::new(config);
        let ca_file = config.ca_file.as_deref();
        let counters = Arc::new(Counters::default());
        let pool = |window_bytes| {
            // The fence is twice this time; the other half is for the store to carry out what it has
            // received.
            let connector = Connector::new(address.clone(), ca_file, window_bytes, config.stall_timeout());
            let connector = connector.map_err(misconfigured)?;
            Ok(Arc::new(Pool::new(
                connector,
                window_bytes,
                Arc::clone(&counters),
            )))
        };
        let link = config.bandwidth.map(Link::new);
        let window_bytes = link.as_ref().map(|link| link.window_bytes());
        Ok(Self {
            url,
            host,
            region: config.region.clone(),
            keys: KeyCache::default(),
            credentials,
            timeouts,
            pool: pool(None)?,
            background: window_bytes.map(|bytes| pool(Some(bytes))).transpose()?,
            metered: link.map(Metered::of),
            budget: RetryBudget::new(limits.retry_budget_percent),
            counters,
            health: EndpointHealth::default(),
            turns: None,
        })
    }

    /// Creates the endpoint for another node. Its requests are not signed, because both ends authenticate
    /// when they connect, and not retried, because another source can be asked instead.
    pub fn to_node(dialer: Dialer) -> Self {
        let authority = dialer.address().to_string();
        let counters = Arc::new(Counters::default());
        let connector = Connector::Node(dialer);
        Self {
            url: format!("node://{authority}").into(),
            host: HeaderValue::try_from(authority).expect("an address is made of visible characters"),
            region: String::new(),
            keys: KeyCache::default(),
            credentials: NodeCredentials::default(),
            timeouts: Timeouts::with_a_node(),
            pool: Arc::new(Pool::new(connector, None, Arc::clone(&counters))),
            background: None,
            metered: None,
            budget: RetryBudget::new(0),
            counters,
            health: EndpointHealth::default(),
            turns: None,
        }
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
    pub fn counters(&self) -> EndpointCounts {
        self.counters.snapshot()
    }

    /// Returns the accounts that this node provides.
    pub fn credentials(&self) -> &NodeCredentials {
        &self.credentials
    }

    /// Returns the endpoint's health as this node sees it.
    pub fn health(&self) -> &EndpointHealth {
        &self.health
    }

    /// Signs and sends a request. Returns the response head, with the body still to come.
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
        self.send_for(request, None)
    }

    /// Sends a request that belongs to `transfer`, or for a waiting client if there is none.
    ///
    /// # Errors
    ///
    /// Fails as [`send`](Self::send) does.
    pub async fn send_for(
        &self,
        request: EndpointRequest,
        transfer: Option<&Transfer>,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let permitted = self.permitted(request, transfer).await;
        self.send_permitted(permitted).await
    }

    /// Sends a request that changes an object, while `permit` allows the node to. The permit is checked for
    /// every byte that is passed to the kernel. Without a `permit`, the request needs none.
    ///
    /// # Errors
    ///
    /// Fails as [`send`](Self::send) does, or with [`Failure::SessionOver`].
    pub async fn send_change(
        &self,
        request: EndpointRequest,
        permit: Option<&SendPermit>,
        transfer: Option<&Transfer>,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let mut permitted = self.permitted(request, transfer).await;
        permitted.needs(permit);
        self.send_permitted(permitted).await
    }

    async fn read(&self, head: Head, body: Bytes) -> Result<Response<LakeBody>, EndpointError> {
        self.budget.earn();
        let began = clock::instant();
        let mut tries = 1;
        let mut connection = ConnectionChoice::Any;
        loop {
            let request = head
                .clone()
                .sign(&self.region, &self.keys, clock::utc_now())?
                .with(OutgoingBody::whole(body.clone()));
            let outcome = match self.exchange_in_turn(&head, request, connection).await {
                Err(FailedAttempt { stale: true, .. }) if connection == ConnectionChoice::Any => {
                    connection = ConnectionChoice::New;
                    continue;
                }
                outcome => outcome.map_err(|failed| self.failed(failed)),
            };
            let ending = attempt_outcome(&outcome, clock::utc_now());
            let Some(pause) = retry::pause(ending, tries, chance::unit()) else {
                return outcome;
            };
            let elapsed = clock::instant().saturating_duration_since(began);
            if !self.timeouts.leaves_time_for_another_try(elapsed) || !self.budget.spend() {
                return outcome;
            }
            if let Ok(response) = outcome {
                drain(response.into_body()).await;
            }
            tokio::time::sleep(pause).await;
            self.counters.retry();
            tries += 1;
        }
    }

    async fn write(
        &self,
        head: Head,
        body: RequestBody,
        expectation: Option<Expectation>,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let (context, class, payer) = (head.context.clone(), head.class, head.payer);
        let upload = self.up(&head);
        let pool = Arc::clone(self.pool_for(head.transfer.as_ref()));
        let signed = head.sign(&self.region, &self.keys, clock::utc_now())?;
        let body = match body {
            RequestBody::Empty => OutgoingBody::EMPTY,
            RequestBody::Whole(bytes) => OutgoingBody::whole(bytes),
            RequestBody::Stream { body, .. } => OutgoingBody::stream(body),
            RequestBody::Seeded { body, .. } => {
                let seed = signed.seed.clone().ok_or_else(|| {
                    context.failed(Failure::Unsignable, "signed chunks need a signed request")
                })?;
                OutgoingBody::stream(body(seed))
            }
        };
        let mut request = signed.with(body);
        if let Some(upload) = upload {
            request.body_mut().paced_by(upload);
        }
        let turn = self.turn(&context, payer).await?;
        if let Some(expectation) = expectation {
            expectation.listen(&mut request);
            request.body_mut().held_for(expectation);
        }
        let exchange = self.exchange(&context, class, request, (&pool, ConnectionChoice::Any));
        let exchanged = self.within_turn(turn, turn::WITH_BODY_MAX, exchange).await;
        exchanged.map_err(|failed| self.failed(failed))
    }

    /// Sends a signed request and counts its response.
    async fn exchange(
        &self,
        context: &RequestContext,
        class: RequestClass,
        request: Request<OutgoingBody>,
        connection: (&Arc<Pool>, ConnectionChoice),
    ) -> Result<Response<LakeBody>, FailedAttempt> {
        self.counters.request(context.operation);
        let began = clock::instant();
        let outcome = self
            .exchange_over(context, self.timeouts.of_request(class), request, connection)
            .await;
        if let Ok(response) = &outcome {
            let elapsed = clock::instant().saturating_duration_since(began);
            self.counters
                .answer(context.operation, class, response.status(), elapsed);
            if let Some(link) = self.link().filter(|_| context.operation == "get_object") {
                link.answered(elapsed);
            }
        }
        outcome
    }

    /// Counts a request that got no response and is not retried at once.
    fn failed(&self, failed: FailedAttempt) -> EndpointError {
        self.counters.failure(failed.error.kind());
        failed.error
    }

    /// Sends a signed request over a connection of the pool. If that connection was closed in the meantime
    /// and nothing was sent, the request is sent on a new one.
    async fn exchange_over(
        &self,
        context: &RequestContext,
        timeouts: RequestTimeouts,
        mut request: Request<OutgoingBody>,
        (pool, choice): (&Arc<Pool>, ConnectionChoice),
    ) -> Result<Response<LakeBody>, FailedAttempt> {
        let connected = match choice {
            ConnectionChoice::Any => pool.checkout(timeouts).await,
            ConnectionChoice::New => pool.open(timeouts).await,
        };
        let mut connection = connected.map_err(|error| unconnected(context, error))?;
        let expectation = request.body().expectation().cloned();
        loop {
            request.body_mut().watched_by(&connection.upload);
            match connection.exchange(request, timeouts).await {
                Ok(response) => {
                    if let Some(expectation) = expectation {
                        expectation.answered();
                    }
                    return Ok(self.response(context, response, (pool, connection)));
                }
                Err(ExchangeError::Unsent(unsent)) if connection.reused => {
                    request = *unsent;
                    connection = pool
                        .open(timeouts)
                        .await
                        .map_err(|error| unconnected(context, error))?;
                }
                Err(error) => {
                    let error = unanswered(context, error);
                    return Err(FailedAttempt {
                        stale: connection.reused && error.kind() == Failure::BrokenOff,
                        error,
                    });
                }
            }
        }
    }

    fn response(
        &self,
        context: &RequestContext,
        response: Response<hyper::body::Incoming>,
        (pool, connection): (&Arc<Pool>, Box<PooledConnection>),
    ) -> Response<LakeBody> {
        response.map(|incoming| {
            let (pool, counters) = (Arc::clone(pool), Arc::clone(&self.counters));
            LakeBody::new(incoming, connection, pool, counters, context.clone())
        })
    }
}

/// All of a request except its body.
#[derive(Clone)]
struct Head {
    context: RequestContext,
    class: RequestClass,
    method: Method,
    headers: HeaderMap,
    payload: PayloadHash,
    account: LakeAccount,
    payer: Payer,
    transfer: Option<Transfer>,
    permit: Option<SendPermit>,
}

struct SignedHead {
    request: Request<()>,
    seed: Option<SeedSignature>,
}

impl Head {
    fn sign(mut self, region: &str, keys: &KeyCache, now: SystemTime) -> Result<SignedHead, EndpointError> {
        let target = &self.context.target;
        let seed = match self.account.signer() {
            None => None,
            Some((account, _)) => {
                let signer = Signer {
                    account,
                    region,
                    keys,
                };
                let seed = signer
                    .sign(&self.method, target, &mut self.headers, self.payload, now)
                    .map_err(|error| self.context.failed(Failure::Unsignable, error))?;
                Some(seed)
            }
        };
        let mut request = Request::new(());
        *request.method_mut() = self.method;
        *request.uri_mut() = Uri::from(target.clone());
        *request.headers_mut() = self.headers;
        // The permit stays with the request until a connection takes it.
        if let Some(permit) = self.permit {
            request.extensions_mut().insert(permit);
        }
        Ok(SignedHead { request, seed })
    }
}

impl SignedHead {
    fn with(self, body: OutgoingBody) -> Request<OutgoingBody> {
        self.request.map(|()| body)
    }
}

/// The connection that a request may use: any from the pool, or a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionChoice {
    Any,
    New,
}

/// An attempt without a response.
struct FailedAttempt {
    error: EndpointError,
    /// True if the connection was kept open after an earlier request and closed before the response. Stores
    /// close idle connections, so this is no evidence about their health.
    stale: bool,
}

impl From<EndpointError> for FailedAttempt {
    fn from(error: EndpointError) -> Self {
        Self { error, stale: false }
    }
}

fn unconnected(context: &RequestContext, error: ConnectError) -> EndpointError {
    match error {
        ConnectError::TimedOut => context.timed_out(Failure::ConnectTimedOut),
        ConnectError::Failed(source) => context.failed(Failure::of_connecting(&*source), source),
    }
}

fn unanswered(context: &RequestContext, error: ExchangeError) -> EndpointError {
    match error {
        ExchangeError::Stalled => context.timed_out(Failure::TimedOut),
        ExchangeError::Unsent(_) => context.failed(Failure::BrokenOff, "closed before the request was sent"),
        ExchangeError::Broken(error) if error::find::<PermitOver>(&error).is_some() => {
            context.failed(Failure::SessionOver, error)
        }
        ExchangeError::Broken(error) if error.is_user() => context.failed(Failure::RequestBody, error),
        ExchangeError::Broken(error) if is_closed(&error) => context.failed(Failure::BrokenOff, error),
        ExchangeError::Broken(error) => context.failed(Failure::Unintelligible, error),
    }
}

fn is_closed(error: &hyper::Error) -> bool {
    error.is_incomplete_message()
        || error.is_closed()
        || error.is_canceled()
        || error::find::<std::io::Error>(error).is_some()
}

fn attempt_outcome(outcome: &Result<Response<LakeBody>, EndpointError>, now: SystemTime) -> AttemptOutcome {
    match outcome {
        Ok(response) => AttemptOutcome::Answered {
            status: response.status(),
            retry_after: retry_after(response.headers(), now),
        },
        Err(error) => AttemptOutcome::Failed(error.kind()),
    }
}

/// Parses `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(value)
            .ok()
            .map(|date| date.duration_since(now).unwrap_or_default()),
    }
}

/// Reads an error body that no client will see, so that its connection can be reused. Gives up on a long or
/// slow body.
async fn drain(mut body: LakeBody) {
    const BYTES_MAX: usize = 64 << 10;
    const TIME_MAX: Duration = Duration::from_millis(200);
    let reading = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, bytes::Bytes::len);
            if seen > BYTES_MAX {
                return;
            }
        }
    };
    // Read to the end or given up: nothing is left to do.
    drop(tokio::time::timeout(TIME_MAX, reading).await);
}

#[cfg(test)]
mod tests {
    use super::{Duration, HeaderMap, HeaderValue, RETRY_AFTER, clock, retry_after};

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let now = clock::utc_now();
        let read = |value: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(value).unwrap())]);
            retry_after(&headers, now)
        };
        assert_eq!(read("2"), Some(Duration::from_secs(2)));
        let in_a_minute = read(&httpdate::fmt_http_date(now + Duration::from_mins(1))).unwrap();
        assert!((59..=60).contains(&in_a_minute.as_secs()), "{in_a_minute:?}");
        assert_eq!(read("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("soon"), None);
    }
}
