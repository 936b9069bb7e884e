//! Recovers the lost registry of a tier, without a node.

use std::slice;

use shoal_writeback::configured;
pub use shoal_writeback::dirty::TierError;
use shoal_writeback::dirty::recovery::recover;
pub use shoal_writeback::dirty::recovery::{Listed, Recovery};

use crate::config::{Config, TierConfig};

/// Recovers the registry of a tier of this configuration from the receipts in its store. Nodes use the
/// registry once this has succeeded, also those that run already. Receipts that cannot be read are left out
/// if `skips_unreadable`.
///
/// # Errors
///
/// Its registry is not lost or is in use, or registry or store do not answer. This may be repeated.
pub async fn recover_tier(
    config: &Config,
    tier: &TierConfig,
    skips_unreadable: bool,
) -> Result<Recovery, TierError> {
    let opened = configured::open(slice::from_ref(tier), &config.limits).await?;
    let [(tier, store)] = &opened[..] else {
        unreachable!("one tier was opened")
    };
    let fence = configured::settings(&config.write, &config.lake).fence;
    recover(tier, store, fence, skips_unreadable).await
}
