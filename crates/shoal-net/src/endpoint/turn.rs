//! Requests to an endpoint that are sent in the turns of their payers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use shoal_policy::fair::Payer;

use super::error::RequestContext;
use super::request_body::OutgoingBody;
use super::{ConnectionChoice, Endpoint, EndpointError, FailedAttempt, Failure, Head, LakeBody};
use crate::fair::{Turn, Turns};

/// Maximum length of a turn, which otherwise ends with the head of the response: a request that the store is
/// slow to answer must not block others' requests.
const TURN_MAX: Duration = Duration::from_millis(250);

/// The same for a request with a body, whose client may be the slow part.
pub(super) const WITH_BODY_MAX: Duration = Duration::from_millis(50);

impl Endpoint {
    /// Makes payers take turns, with at most `requests_max` requests at a time.
    #[must_use]
    pub fn in_turns(mut self, requests_max: usize) -> Self {
        self.turns = Some(Turns::new(requests_max));
        self
    }

    /// Returns the turns that requests take, if enabled.
    pub fn turns(&self) -> Option<&Arc<Turns>> {
        self.turns.as_ref()
    }

    /// Sends a request without a body, in the turn of its payer.
    pub(super) async fn exchange_in_turn(
        &self,
        head: &Head,
        request: Request<OutgoingBody>,
        connection: ConnectionChoice,
    ) -> Result<Response<LakeBody>, FailedAttempt> {
        let turn = self.turn(&head.context, head.payer).await?;
        let pool = self.pool_for(head.transfer.as_ref());
        let exchange = self.exchange(&head.context, head.class, request, (pool, connection));
        self.within_turn(turn, TURN_MAX, exchange).await
    }

    /// Waits for a turn of `payer`, if turns are enabled.
    pub(super) async fn turn(
        &self,
        context: &RequestContext,
        payer: Payer,
    ) -> Result<Option<Turn>, EndpointError> {
        let Some(turns) = &self.turns else { return Ok(None) };
        let turn = turns.turn(payer, 1).await;
        turn.map(Some)
            .map_err(|error| context.failed(Failure::Crowded, error))
    }

    /// Keeps the turn until the response, but no longer than `turn_max`; then the next payer gets it.
    pub(super) async fn within_turn(
        &self,
        turn: Option<Turn>,
        turn_max: Duration,
        exchange: impl Future<Output = Result<Response<LakeBody>, FailedAttempt>>,
    ) -> Result<Response<LakeBody>, FailedAttempt> {
        let Some(turn) = turn else { return exchange.await };
        let mut exchange = pin!(exchange);
        let in_time = tokio::time::timeout(turn_max, exchange.as_mut()).await;
        let answered = if let Ok(answered) = in_time {
            answered
        } else {
            drop(turn);
            exchange.await
        };
        if let (Ok(_), Some(turns)) = (&answered, &self.turns) {
            turns.answered();
        }
        answered
    }
}
