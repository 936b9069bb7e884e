//! A registry that nodes use only while it is the one that their dirty objects are in.
//!
//! A registry that has just been set up, beside a store with receipts, replaces one that was lost. Until it
//! is recovered from them, nothing is read from it: it would send readers to the lake for objects that are
//! newer in the tier. Nodes look when they begin, and after each request that the registry has not answered.
//!
//! An engine asks several servers in turn, so a request may begin before the registry is lost and end in the
//! next one. Where versions get receipts, each request therefore finds out if it was answered by the registry
//! that the node knows: reads bring the registry's beginning along, and transactions have it as a condition.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::{
    Condition, Engine, EngineError, Outcome, Page, Range, Revision, Room, SessionId, Stored, Transaction,
};
use crate::keys::BEGAN;
use crate::names::Names;
use crate::receipts::{ReceiptError, ReceiptStore};
use crate::session::new_id;

/// The engine of a registry, and the store of its receipts.
#[derive(Debug)]
pub struct Checked {
    engine: Arc<dyn Engine>,
    receipts: Arc<dyn ReceiptStore>,
    /// The command that recovers the registry.
    remedy: String,
    /// The revision of the beginning of the registry that may be used; `None` until it is looked at.
    began: Mutex<Option<Revision>>,
}

impl Checked {
    /// Wraps an engine. `remedy` is the command that recovers a lost registry.
    pub fn new(engine: Arc<dyn Engine>, receipts: Arc<dyn ReceiptStore>, remedy: String) -> Self {
        Self {
            engine,
            receipts,
            remedy,
            began: Mutex::default(),
        }
    }

    /// Returns the revision of the registry's beginning, if it may be used.
    async fn began(&self) -> Result<Revision, EngineError> {
        let known = *self.began.lock();
        if let Some(known) = known {
            return Ok(known);
        }
        loop {
            if let Some(stored) = self.engine.get(BEGAN).await? {
                *self.began.lock() = Some(stored.revision);
                return Ok(stored.revision);
            }
            let unavailable = |error: ReceiptError| EngineError::Unavailable(error.to_string());
            if self.receipts.exist().await.map_err(unavailable)? {
                return Err(EngineError::Refused(format!(
                    "it is new, and the tier's store has receipts of objects that another registry had: if that one \
                     is lost, run `{}`; else correct the settings",
                    self.remedy
                )));
            }
            let names = Names::new(Arc::clone(&self.engine), 0, Duration::ZERO);
            names.began(new_id()).await?;
        }
    }

    /// Returns true if the registry still has this beginning. Otherwise the next request looks at it again.
    async fn is_as_it_began(&self, began: Revision) -> Result<bool, EngineError> {
        let stored = self.noted(self.engine.get(BEGAN).await)?;
        Ok(self.is_same(began, stored.as_ref()))
    }

    fn is_same(&self, began: Revision, stored: Option<&Stored>) -> bool {
        let is_same = stored.is_some_and(|stored| stored.revision == began);
        if !is_same {
            *self.began.lock() = None;
        }
        is_same
    }

    /// Has the next request look at the registry again if this one has no answer, or the registry does not
    /// know the session of this node any more.
    fn noted<T>(&self, answer: Result<T, EngineError>) -> Result<T, EngineError> {
        if let Err(EngineError::Unavailable(_) | EngineError::Unknown(_) | EngineError::SessionEnded) =
            &answer
        {
            *self.began.lock() = None;
        }
        answer
    }
}

#[async_trait]
impl Engine for Checked {
    async fn get_together(&self, keys: &[Bytes]) -> Result<Vec<Option<Stored>>, EngineError> {
        if !self.receipts.are_written() {
            self.began().await?;
            return self.noted(self.engine.get_together(keys).await);
        }
        let with_beginning = [keys, &[Bytes::from_static(BEGAN)]].concat();
        loop {
            let began = self.began().await?;
            let mut stored = self.noted(self.engine.get_together(&with_beginning).await)?;
            let beginning = stored.pop().flatten();
            if self.is_same(began, beginning.as_ref()) {
                return Ok(stored);
            }
        }
    }

    async fn range(&self, range: Range) -> Result<Page, EngineError> {
        loop {
            let began = self.began().await?;
            let page = self.noted(self.engine.range(range.clone()).await)?;
            if !self.receipts.are_written() || self.is_as_it_began(began).await? {
                return Ok(page);
            }
        }
    }

    async fn count(&self, prefix: &[u8]) -> Result<u64, EngineError> {
        self.began().await?;
        self.noted(self.engine.count(prefix).await)
    }

    async fn commit(&self, mut transaction: Transaction) -> Result<Outcome, EngineError> {
        let began = self.began().await?;
        if !self.receipts.are_written() {
            return self.noted(self.engine.commit(transaction).await);
        }
        transaction.conditions.push(Condition {
            key: Bytes::from_static(BEGAN),
            revision: Some(began),
        });
        let outcome = self.noted(self.engine.commit(transaction).await)?;
        if outcome == Outcome::Conflict && !self.is_as_it_began(began).await? {
            self.began().await?;
        }
        Ok(outcome)
    }

    async fn room(&self) -> Result<Room, EngineError> {
        self.noted(self.engine.room().await)
    }

    async fn open_session(&self, time_to_live: Duration) -> Result<SessionId, EngineError> {
        self.began().await?;
        self.noted(self.engine.open_session(time_to_live).await)
    }

    async fn renew_session(&self, session: SessionId) -> Result<(), EngineError> {
        self.noted(self.engine.renew_session(session).await)
    }

    async fn close_session(&self, session: SessionId) -> Result<(), EngineError> {
        self.engine.close_session(session).await
    }
}
