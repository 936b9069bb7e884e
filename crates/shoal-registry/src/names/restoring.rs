//! Recovers a lost registry from receipts.
//!
//! Receipts come in any order, one name after the other is restored, and each step may be repeated: a
//! restoration that broke off is begun again.

use futures_util::TryStreamExt;

use super::{ChangeError, Found, Names, StoredEntry};
use crate::engine::{Change, EngineError, Outcome};
use crate::keys::{LIVES, Name, member};
use crate::receipts::restored;
use crate::version::{DirtyVersion, Trash};

/// What a receipt has done to the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// Its version is current now.
    Current,
    /// A newer version is current.
    Replaced,
    /// The registry had it already.
    Known,
}

impl Names {
    /// Enters the version of a receipt, with the bytes of an inline object, unless a newer one is current.
    ///
    /// # Errors
    ///
    /// The outcome is unknown, or the registry does not answer. This may be repeated.
    pub async fn restore(&self, name: &Name, version: &DirtyVersion) -> Result<Restored, ChangeError> {
        let receipt = version.receipt();
        // The lists of a node are its own, also if it never comes back.
        let names = Self {
            node: version.node,
            ..self.clone()
        };
        loop {
            let found = names.find_entry(name).await?;
            let Found { entry, receipts, .. } = &found;
            if receipts.of(receipt.id).is_some() {
                return Ok(Restored::Known);
            }
            let (entry, receipts) = restored((entry, receipts), version.clone(), receipt);
            let is_current = entry.current_id() == Some(version.id);
            let mut changes = vec![Change::put(member(version.node), bytes::Bytes::new())];
            if is_current {
                changes.push(Change::put(
                    version.list().key(version.node, version.id),
                    name.to_bytes(),
                ));
                changes.extend(names.discard(found.entry.current.as_ref()));
            } else if !version.data.is_empty() {
                changes.push(names.trashed(&Trash::Data(version.data.clone())));
            }
            let next = StoredEntry { entry, receipts };
            match names.replace(name, &found, Some(&next), changes).await {
                Ok(Outcome::Committed(_)) if is_current => return Ok(Restored::Current),
                Ok(Outcome::Committed(_)) => return Ok(Restored::Replaced),
                Ok(Outcome::Conflict) | Err(EngineError::Unknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns true if a node has a session with the registry.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn is_in_use(&self) -> Result<bool, EngineError> {
        let mut lives = std::pin::pin!(self.engine.all(bytes::Bytes::from_static(LIVES), 1));
        Ok(lives.try_next().await?.is_some())
    }
}
