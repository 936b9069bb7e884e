//! Notices for an operator about this node among others: which datagrams it rejects, whether any seed
//! answers, and which nodes are configured differently.
//!
//! The membership collects them and warns; the admin pages and the metrics show them.

mod agreement;
mod rejected;
mod seeds;

use std::sync::Arc;

pub use self::agreement::{Agreement, SettingDigest, SettingsDigests, SharedSetting};
pub(super) use self::rejected::ClockDifference;
pub use self::rejected::RejectedSenders;
pub use self::seeds::Seeds;

/// All notices. Each part has its own lock, which is held for a moment and never on the path of a read.
#[derive(Debug, Default)]
pub struct Notices {
    /// Rejected datagrams.
    pub rejected: RejectedSenders,
    /// The nodes that should lead to the others.
    pub seeds: Seeds,
    /// The nodes whose configuration differs.
    pub agreement: Agreement,
}

impl Notices {
    /// Creates empty notices.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
}
