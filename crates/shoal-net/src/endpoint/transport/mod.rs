//! Brings signed requests to a store or a node, and their responses back: over pooled connections, in the
//! turns of their payers, and at the pace of the link.

mod connect;
mod counters;
mod metering;
mod pool;
mod response_body;
mod socket;
mod timeouts;
mod url;
mod wake_filter;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use shoal_base::causes::find;
use tokio::time::error::Elapsed;

pub(super) use self::connect::Connector;
pub use self::counters::EndpointCounters;
pub(super) use self::metering::expected_bytes;
pub use self::response_body::LakeBody;
pub(super) use self::socket::PermitOver;
pub(crate) use self::url::split_url;

use self::pool::{ExchangeError, Pool};
use self::timeouts::Timeouts;
use self::url::{address, host};
use super::LakeConfig;
use super::error::{BoxError, EndpointError, Failure, RequestContext};
use super::request::Head;
use super::request_body::OutgoingBody;
use crate::channel::Dialer;
use crate::fair::Turns;
use crate::link::{Link, Promises};
use crate::time::clock;
use crate::trace;

/// Maximum length of the turn of a request without a body, which otherwise ends with the head of the
/// response: a request that the store is slow to answer must not block others' requests.
pub(super) const WITHOUT_BODY_MAX: Duration = Duration::from_millis(250);

/// The same for a request with a body, whose client may be the slow part.
pub(super) const WITH_BODY_MAX: Duration = Duration::from_millis(50);

/// The way to one store or node.
pub(super) struct Transport {
    pub(super) timeouts: Timeouts,
    pool: Arc<Pool>,
    /// The connections of background transfers, if the link is metered.
    background: Option<Arc<Pool>>,
    /// The link for requests, if it is metered.
    pub(super) link: Option<Arc<Link>>,
    /// The rates of jobs that read by plan.
    pub(super) promises: Promises,
    pub(super) counters: Arc<EndpointCounters>,
    /// Makes requests take turns, if enabled.
    pub(super) turns: Option<Arc<Turns>>,
}

/// The connection that a request may use: any from the pool, or a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionChoice {
    Any,
    New,
}

/// An attempt without a response.
pub(super) struct FailedAttempt {
    pub(super) error: EndpointError,
    /// True if the connection was kept open after an earlier request and closed before the response. Stores
    /// close idle connections, so this is no evidence about their health.
    pub(super) stale: bool,
}

impl From<EndpointError> for FailedAttempt {
    fn from(error: EndpointError) -> Self {
        Self { error, stale: false }
    }
}

impl Transport {
    /// Creates the way to a store, and returns the `Host` header of requests to it.
    ///
    /// # Errors
    ///
    /// The URL is not valid for a store, or the system has no trusted roots.
    pub(super) fn to_store(config: &LakeConfig) -> Result<(Self, HeaderValue), BoxError> {
        let address = address(&config.endpoint)?;
        let host = host(&address);
        let counters = Arc::new(EndpointCounters::default());
        let pool = |window_bytes| {
            let (address, ca_file) = (address.clone(), config.ca_file.as_deref());
            // The fence is twice this time; the other half is for the store to carry out what it has
            // received.
            let connector = Connector::new(address, ca_file, window_bytes, config.stall_timeout())?;
            let pool = Pool::new(connector, window_bytes, Arc::clone(&counters));
            Ok::<_, BoxError>(Arc::new(pool))
        };
        let link = config.bandwidth.map(Link::new);
        let window_bytes = link.as_ref().map(|link| link.window_bytes);
        let transport = Self {
            timeouts: Timeouts::new(config),
            pool: pool(None)?,
            background: window_bytes.map(|bytes| pool(Some(bytes))).transpose()?,
            link,
            promises: Promises::default(),
            counters: Arc::clone(&counters),
            turns: None,
        };
        Ok((transport, host))
    }

    /// Creates the way to another node.
    pub(super) fn to_node(dialer: Dialer) -> Self {
        let counters = Arc::new(EndpointCounters::default());
        let connector = Connector::Node(dialer);
        Self {
            timeouts: Timeouts::with_a_node(),
            pool: Arc::new(Pool::new(connector, None, Arc::clone(&counters))),
            background: None,
            link: None,
            promises: Promises::default(),
            counters,
            turns: None,
        }
    }

    /// Sends a request in the turn of its payer. The turn ends with the response, and lasts no longer than
    /// `turn_max`; then the next payer gets it.
    pub(super) async fn exchange(
        &self,
        head: &Head,
        request: Request<OutgoingBody>,
        connection: ConnectionChoice,
        turn_max: Duration,
    ) -> Result<Response<LakeBody>, FailedAttempt> {
        let Some(turns) = &self.turns else {
            return self.exchange_counted(head, request, connection).await;
        };
        let turn = trace::wait("wait_for_turn", turns.turn(head.payer, 1)).await;
        let turn = turn.map_err(|error| head.context.failed(Failure::Crowded, error))?;
        let mut exchange = pin!(self.exchange_counted(head, request, connection));
        let in_time = tokio::time::timeout(turn_max, exchange.as_mut()).await;
        let answered = if let Ok(answered) = in_time {
            answered
        } else {
            drop(turn);
            exchange.await
        };
        if answered.is_ok() {
            turns.answered();
        }
        answered
    }

    /// Sends a request at once, over a new connection: an idle one would show nothing about the present state
    /// of the store.
    pub(super) async fn exchange_now(
        &self,
        head: &Head,
        request: Request<OutgoingBody>,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let exchange = self.exchange_counted(head, request, ConnectionChoice::New);
        exchange.await.map_err(|failed| self.failed(failed))
    }

    /// Counts a request that got no response and is not retried at once.
    pub(super) fn failed(&self, failed: FailedAttempt) -> EndpointError {
        self.counters.failure(failed.error.kind());
        failed.error
    }

    /// Sends a request, and counts its response.
    async fn exchange_counted(
        &self,
        head: &Head,
        request: Request<OutgoingBody>,
        connection: ConnectionChoice,
    ) -> Result<Response<LakeBody>, FailedAttempt> {
        let (operation, class) = (head.context.operation, head.class);
        self.counters.requests.count(operation);
        let began = clock::instant();
        let response = self.exchange_uncounted(head, request, connection).await?;
        let elapsed = clock::instant().saturating_duration_since(began);
        self.counters.answer(operation, class, response.status(), elapsed);
        if let Some(link) = self.link.as_ref().filter(|_| operation == "get_object") {
            link.answered(elapsed);
        }
        Ok(response)
    }

    /// If the connection was closed in the meantime and nothing was sent, the request is sent on a new one.
    async fn exchange_uncounted(
        &self,
        head: &Head,
        mut request: Request<OutgoingBody>,
        choice: ConnectionChoice,
    ) -> Result<Response<LakeBody>, FailedAttempt> {
        let (context, timeouts) = (&head.context, self.timeouts.of_request(head.class));
        let pool = self.pool_for(head.transfer.as_ref());
        let idle = match choice {
            ConnectionChoice::Any => pool.pop(),
            ConnectionChoice::New => None,
        };
        let connected = match idle {
            Some(connection) => Ok(connection),
            None => pool.open(timeouts).await,
        };
        let mut connection = connected.map_err(|error| unconnected(context, error))?;
        loop {
            request.body_mut().upload = Some(connection.upload.clone());
            match connection.exchange(request, timeouts).await {
                Ok(response) => {
                    if let Some(expectation) = &head.expectation {
                        expectation.answered();
                    }
                    return Ok(response.map(|incoming| {
                        let (pool, counters) = (Arc::clone(pool), Arc::clone(&self.counters));
                        LakeBody::new(incoming, connection, pool, counters, context.clone())
                    }));
                }
                Err(ExchangeError::Unsent(unsent)) if connection.reused => {
                    request = *unsent;
                    let opened = pool.open(timeouts).await;
                    connection = opened.map_err(|error| unconnected(context, error))?;
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
}

fn unconnected(context: &RequestContext, error: BoxError) -> EndpointError {
    if error.is::<Elapsed>() {
        return context.timed_out(Failure::ConnectTimedOut);
    }
    context.failed(Failure::of_connecting(&*error), error)
}

fn unanswered(context: &RequestContext, error: ExchangeError) -> EndpointError {
    match error {
        ExchangeError::Stalled => context.timed_out(Failure::TimedOut),
        ExchangeError::Unsent(_) => context.failed(Failure::BrokenOff, "closed before the request was sent"),
        ExchangeError::Broken(error) if find::<PermitOver>(&error).is_some() => {
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
        || find::<std::io::Error>(error).is_some()
}
