//! The receipts of versions, as names are written and changes end: [`crate::receipts`] has their rules.

use super::{BegunChange, ChangeError, Found, Names};
use crate::keys::Name;
use crate::receipts::{REPLACED_MAX, ReceiptError, ReceiptId, Receipts};
use crate::version::DirtyVersion;

impl Names {
    /// Stores the receipt of a version that is about to be committed, if versions get receipts.
    ///
    /// # Errors
    ///
    /// It is not stored, and the version must not be committed.
    pub(crate) async fn with_receipt(
        &self,
        name: &Name,
        version: &DirtyVersion,
    ) -> Result<Option<ReceiptId>, ChangeError> {
        let Some(receipts) = self.receipts.as_ref().filter(|store| store.are_written()) else {
            return Ok(None);
        };
        let receipt = version.receipt();
        let stored = receipts.write(name, version).await;
        self.unless_written(
            Some(receipt),
            stored.clone().map_err(ChangeError::from).err().as_ref(),
        )
        .await;
        Ok(stored.map(|()| Some(receipt))?)
    }

    /// Removes a receipt if its version was certainly not committed. One that remains is swept.
    pub(crate) async fn unless_written(&self, receipt: Option<ReceiptId>, error: Option<&ChangeError>) {
        let is_certain = error.is_some_and(|error| *error != ChangeError::OutcomeUnknown);
        if let (Some(receipt), true) = (receipt, is_certain)
            && let Err(error) = self.remove_receipts(&[receipt]).await
        {
            tracing::debug!(%error, "the receipt of a write that did not happen was not removed");
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
    /// The id of the version is too small, or the receipts were not removed.
    pub(crate) async fn receipts_after(
        &self,
        found: &Found,
        version: &DirtyVersion,
        receipt: Option<ReceiptId>,
    ) -> Result<Receipts, ChangeError> {
        let Some(current) = found.entry.current_id() else {
            return Ok(receipt.map_or_else(Receipts::default, |own| Receipts::default().with(own)));
        };
        if current >= version.id {
            return Err(ChangeError::Outdated(current));
        }
        let replaced = found.receipts.before(current);
        let mut left = found.receipts.clone();
        if replaced.ids().len() >= REPLACED_MAX {
            self.remove_receipts(replaced.ids()).await?;
            left = left.since(current);
        }
        Ok(receipt.map_or_else(|| left.clone(), |own| left.with(own)))
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
