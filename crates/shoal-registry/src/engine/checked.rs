//! A registry that nodes use only while it is the one that their dirty objects are in.
//!
//! A registry that has just been set up, beside a store with receipts, replaces one that was lost. Until it
//! is made anew from them, nothing is read from it: it would send readers to the lake for objects that are
//! newer in the tier. Nodes look when they begin, and after each request that the registry has not answered:
//! a registry does not go without that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Engine, EngineError, Outcome, Page, Range, Room, SessionId, Stored, Transaction};
use crate::names::Names;
use crate::receipts::ReceiptStore;
use crate::session::new_id;

/// The engine of a registry, and the store of its receipts.
#[derive(Debug)]
pub struct Checked {
    /// The names in the engine itself.
    names: Names,
    receipts: Arc<dyn ReceiptStore>,
    /// The words with which an operator makes the registry anew.
    remedy: String,
    is_whole: AtomicBool,
}

impl Checked {
    /// Wraps an engine. `remedy` is the command that makes a lost registry anew.
    pub fn new(engine: Arc<dyn Engine>, receipts: Arc<dyn ReceiptStore>, remedy: String) -> Self {
        Self {
            names: Names::new(engine, 0, Duration::ZERO),
            receipts,
            remedy,
            is_whole: AtomicBool::new(false),
        }
    }

    /// Returns the engine itself, if the registry may be used.
    async fn engine(&self) -> Result<&dyn Engine, EngineError> {
        if !self.is_whole.load(Ordering::Acquire) {
            self.check().await?;
            self.is_whole.store(true, Ordering::Release);
        }
        Ok(&**self.names.engine())
    }

    /// Has the next request look at the registry again if this one has no answer, or the registry does not
    /// know the session of this node any more.
    fn noted<T>(&self, answer: Result<T, EngineError>) -> Result<T, EngineError> {
        if let Err(EngineError::Unavailable(_) | EngineError::Unknown(_) | EngineError::SessionEnded) =
            &answer
        {
            self.is_whole.store(false, Ordering::Release);
        }
        answer
    }

    async fn check(&self) -> Result<(), EngineError> {
        if self.names.beginning().await?.is_some() {
            return Ok(());
        }
        let unavailable = |error: crate::receipts::ReceiptError| EngineError::Unavailable(error.to_string());
        if self.receipts.exist().await.map_err(unavailable)? {
            return Err(EngineError::Refused(format!(
                "it is new, and the tier's store has receipts of objects that another registry had: if that one is \
                 lost, run `{}`; else correct the settings",
                self.remedy
            )));
        }
        self.names.began(new_id()).await.map(drop)
    }
}

#[async_trait]
impl Engine for Checked {
    async fn get_together(&self, keys: &[Bytes]) -> Result<Vec<Option<Stored>>, EngineError> {
        self.noted(self.engine().await?.get_together(keys).await)
    }

    async fn range(&self, range: Range) -> Result<Page, EngineError> {
        self.noted(self.engine().await?.range(range).await)
    }

    async fn count(&self, prefix: &[u8]) -> Result<u64, EngineError> {
        self.noted(self.engine().await?.count(prefix).await)
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, EngineError> {
        self.noted(self.engine().await?.commit(transaction).await)
    }

    async fn room(&self) -> Result<Room, EngineError> {
        self.noted(self.names.engine().room().await)
    }

    async fn open_session(&self, time_to_live: Duration) -> Result<SessionId, EngineError> {
        self.noted(self.engine().await?.open_session(time_to_live).await)
    }

    async fn renew_session(&self, session: SessionId) -> Result<(), EngineError> {
        self.noted(self.names.engine().renew_session(session).await)
    }

    async fn close_session(&self, session: SessionId) -> Result<(), EngineError> {
        self.names.engine().close_session(session).await
    }
}
