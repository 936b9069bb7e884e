//! Brings one block to this node because a task wants it here.

use std::sync::Arc;

use http::StatusCode;
use shoal_policy::Source;
use shoal_policy::admission::Refusal;
use shoal_s3::object::Version;
use shoal_store::{Absence, Store};

use crate::fetch::Fetcher;
use crate::obtain::Obtain;
use crate::read_context::ReadContext;
use crate::single_flight::FetchError;

/// Outcome of bringing a block to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillOutcome {
    /// It was there.
    Held,
    /// It is there, and came from this source.
    Brought(Source),
    /// The node has readers to serve: it is to be asked again.
    Busy,
    /// The store does not take it.
    Refused(Refusal),
    /// The lake refuses the identity, or has no such object.
    Denied(StatusCode),
    /// The object is another version by now.
    Changed,
    /// It did not come, for this reason.
    Failed(String),
}

/// Brings blocks to this node.
#[derive(Clone)]
pub struct Filler {
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
}

impl Filler {
    /// Brings blocks to `store` by `fetcher`.
    pub fn new(store: &Arc<Store>, fetcher: &Arc<Fetcher>) -> Self {
        Self {
            store: Arc::clone(store),
            fetcher: Arc::clone(fetcher),
        }
    }

    /// Brings a block here in this way. Returns when it is on disk.
    pub async fn fill(
        &self,
        version: &Arc<Version>,
        index: u32,
        obtain: Obtain,
        context: &Arc<ReadContext>,
    ) -> FillOutcome {
        let block = version.block(index);
        let joined = loop {
            if self.store.contains(block) {
                return FillOutcome::Held;
            }
            if self.fetcher.memory().is_busy() {
                return FillOutcome::Busy;
            }
            if let Some(joined) = self.fetcher.join(version, index, context, obtain.clone()) {
                break joined;
            }
        };
        match joined.waiter.is_stored().await {
            Ok(true) => FillOutcome::Brought(joined.waiter.source()),
            Ok(false) => FillOutcome::Refused(match self.store.absence(block) {
                Some(Absence::Refused(refusal)) => refusal,
                _ => Refusal::NoRoom,
            }),
            Err(
                FetchError::Status(StatusCode::TOO_MANY_REQUESTS) | FetchError::Busy | FetchError::Abandoned,
            ) => FillOutcome::Busy,
            Err(FetchError::Status(status)) if status.is_client_error() => FillOutcome::Denied(status),
            Err(FetchError::Changed) => FillOutcome::Changed,
            Err(error) => FillOutcome::Failed(error.to_string()),
        }
    }
}
