//! The receipts of versions, as names are written and changes end: [`crate::receipts`] has their rules.

use super::{BegunChange, ChangeError, Found, Names};
use crate::keys::Name;
use crate::moment::Moment;
use crate::receipts::{REPLACED_MAX, ReceiptError, ReceiptId, Receipts};
use crate::version::DirtyVersion;

/// A receipt whose version is about to be committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredReceipt {
    id: ReceiptId,
    /// From before it was stored.
    since: Moment,
}

impl Names {
    /// Stores the receipt of a version that is about to be committed, if versions get receipts.
    ///
    /// # Errors
    ///
    /// The version must not be committed. The outcome is unknown if the receipt may be there nevertheless.
    pub(crate) async fn with_receipt(
        &self,
        name: &Name,
        version: &DirtyVersion,
    ) -> Result<Option<StoredReceipt>, ChangeError> {
        let Some(receipts) = self.receipts.as_ref().filter(|store| store.are_written()) else {
            return Ok(None);
        };
        let (id, since) = (version.receipt(), Moment::now());
        let receipt = Some(StoredReceipt { id, since });
        match receipts.write(name, version).await {
            Ok(()) => Ok(receipt),
            Err(error) => Err(self.take_back(receipt, error.into()).await),
        }
    }

    /// Removes the receipt of a version that was not committed for this reason. Returns the reason, or that
    /// the outcome is unknown if the receipt may remain: until it is swept, a recovery would write the
    /// version.
    pub(crate) async fn take_back(&self, receipt: Option<StoredReceipt>, why: ChangeError) -> ChangeError {
        let Some(receipt) = receipt.filter(|_| why != ChangeError::OutcomeUnknown) else {
            return why;
        };
        match self.remove_receipts(&[receipt.id]).await {
            Ok(()) => why,
            Err(error) => {
                tracing::debug!(%error, %why, "the receipt of a write that did not happen was not removed");
                ChangeError::OutcomeUnknown
            }
        }
    }

    /// Removes receipts.
    pub(crate) async fn remove_receipts(&self, receipts: &[ReceiptId]) -> Result<(), ReceiptError> {
        match &self.receipts {
            Some(store) if !receipts.is_empty() => store.remove(receipts).await,
            _ => Ok(()),
        }
    }

    /// Returns the receipts that an entry has after another version is written over the found one. Removes
    /// those of versions that were replaced long ago if there are many.
    ///
    /// # Errors
    ///
    /// The id of the version is too small, its own receipt may be swept by now, or others were not removed.
    pub(crate) async fn receipts_after(
        &self,
        found: &Found,
        version: &DirtyVersion,
        receipt: Option<StoredReceipt>,
    ) -> Result<Receipts, ChangeError> {
        if receipt.is_some_and(|own| own.since.elapsed() >= self.fence) {
            return Err(ReceiptError("one was stored too long ago".into()).into());
        }
        let mut left = found.receipts.clone();
        if let Some(current) = found.entry.current_id() {
            if current >= version.id {
                return Err(ChangeError::Outdated(current));
            }
            let replaced = left.before(current);
            if replaced.ids().len() >= REPLACED_MAX {
                self.remove_receipts(replaced.ids()).await?;
                left = left.since(current);
            }
        }
        Ok(match receipt {
            Some(own) => left.with(own.id),
            None => left,
        })
    }

    /// Removes the receipts of versions up to those that the changes are about, which the lake has made
    /// superfluous: first those of replaced versions.
    ///
    /// # Errors
    ///
    /// Some may remain, and the changes must not end yet.
    pub(crate) async fn remove_receipts_of(&self, changes: &[BegunChange]) -> Result<(), ReceiptError> {
        let about = || {
            changes
                .iter()
                .filter_map(|change| Some((&change.found.receipts, change.busy.of?)))
        };
        let replaced: Vec<_> = about()
            .flat_map(|(all, of)| all.before(of).ids().to_vec())
            .collect();
        self.remove_receipts(&replaced).await?;
        let own: Vec<_> = about().filter_map(|(all, of)| all.of(of)).collect();
        self.remove_receipts(&own).await
    }
}
