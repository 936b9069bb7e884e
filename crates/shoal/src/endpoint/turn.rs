//! Requests to an endpoint in the turns of their payers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use shoal_policy::fair::Payer;

use super::body::OutgoingBody;
use super::error::Errand;
use super::{Connection, Endpoint, EndpointError, Failure, Head, LakeBody, Setback};
use crate::fair::{Turn, Turns};

/// A turn ends with the answer's head, or after this time: a question that the store is slow to answer must
/// not keep the questions of others from it.
const TURN_MAX: Duration = Duration::from_millis(250);

/// The turn of a request with a body ends sooner: it may be its client that is slow.
pub(super) const WITH_BODY_MAX: Duration = Duration::from_millis(50);

impl Endpoint {
    /// Has payers take turns, at most so many requests at a time.
    #[must_use]
    pub fn in_turns(mut self, requests_max: usize) -> Self {
        self.turns = Some(Turns::new(requests_max));
        self
    }

    /// Where requests take turns, if they do.
    pub fn turns(&self) -> Option<&Arc<Turns>> {
        self.turns.as_ref()
    }

    /// Sends a request without a body, in the turn of its payer.
    pub(super) async fn exchange_in_turn(
        &self,
        head: &Head,
        request: Request<OutgoingBody>,
        connection: Connection,
    ) -> Result<Response<LakeBody>, Setback> {
        let turn = self.turn(&head.errand, head.payer).await?;
        let exchange = self.exchange(&head.errand, head.pace, request, connection);
        self.within_turn(turn, TURN_MAX, exchange).await
    }

    /// Waits for a turn of `payer`, where there are turns.
    pub(super) async fn turn(&self, errand: &Errand, payer: Payer) -> Result<Option<Turn>, EndpointError> {
        let Some(turns) = &self.turns else { return Ok(None) };
        let turn = turns.turn(payer, 1).await;
        turn.map(Some)
            .map_err(|error| errand.failed(Failure::Crowded, error))
    }

    /// Keeps the turn until the answer, but no longer than `turn_max`: then the next payer is let in.
    pub(super) async fn within_turn(
        &self,
        turn: Option<Turn>,
        turn_max: Duration,
        exchange: impl Future<Output = Result<Response<LakeBody>, Setback>>,
    ) -> Result<Response<LakeBody>, Setback> {
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
