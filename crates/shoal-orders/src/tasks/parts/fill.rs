//! Brings one block to this node because a task wants it here.

use std::sync::Arc;

use http::StatusCode;
use shoal_cache::fetch::Fetcher;
use shoal_cache::obtain::Obtain;
use shoal_cache::read_context::ReadContext;
use shoal_cache::single_flight::FetchError;
use shoal_policy::Source;
use shoal_policy::admission::Refusal;
use shoal_s3::object::Version;
use shoal_store::{Absence, Store};

/// Why a block is not on a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFilled {
    /// The node has readers to serve: it is to be asked again.
    #[error("the node is busy")]
    Busy,
    /// The store does not take it.
    #[error("not stored: {}", .0.as_str())]
    Refused(Refusal),
    /// The lake refuses the identity, or has no such object.
    #[error("the lake answered {0}")]
    Denied(StatusCode),
    /// The object is another version by now.
    #[error("it has changed")]
    Changed,
    /// It did not come, for this reason.
    #[error("{0}")]
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

    /// Brings a block here in this way. Returns when it is on disk, with the source from which it came;
    /// `None`: it was there.
    ///
    /// # Errors
    ///
    /// Says why the block is not here.
    pub async fn fill(
        &self,
        version: &Arc<Version>,
        index: u32,
        obtain: Obtain,
        context: &Arc<ReadContext>,
    ) -> Result<Option<Source>, NotFilled> {
        let block = version.block(index);
        let joined = loop {
            if self.store.contains(block) {
                return Ok(None);
            }
            if self.fetcher.memory().is_busy() {
                return Err(NotFilled::Busy);
            }
            if let Some(joined) = self.fetcher.join(version, index, context, obtain.clone()) {
                break joined;
            }
        };
        Err(match joined.waiter.is_stored().await {
            Ok(true) => return Ok(Some(joined.waiter.source())),
            Ok(false) => NotFilled::Refused(match self.store.absence(block) {
                Some(Absence::Refused(refusal)) => refusal,
                _ => Refusal::NoRoom,
            }),
            Err(
                FetchError::Status(StatusCode::TOO_MANY_REQUESTS) | FetchError::Busy | FetchError::Abandoned,
            ) => NotFilled::Busy,
            Err(FetchError::Status(status)) if status.is_client_error() => NotFilled::Denied(status),
            Err(FetchError::Changed) => NotFilled::Changed,
            Err(error) => NotFilled::Failed(error.to_string()),
        })
    }
}
