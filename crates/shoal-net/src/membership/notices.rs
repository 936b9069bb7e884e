//! Notices for operators about this node and its cluster: rejected datagrams, seeds that do not answer, and
//! nodes that are configured differently.
//!
//! The membership records them and logs warnings; the admin pages and the metrics show them.

mod agreement;
mod rejected;
mod seeds;

use std::sync::Arc;

pub use self::agreement::{Agreement, SettingDigest, SettingsDigests, SharedSetting};
pub(super) use self::rejected::ClockDifference;
pub use self::rejected::RejectedSenders;
pub use self::seeds::Seeds;

/// All notices. Each part has its own lock, held briefly and never while serving a read.
#[derive(Debug, Default)]
pub struct Notices {
    /// Rejected datagrams.
    pub rejected: RejectedSenders,
    /// Seeds without an address or an answer.
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
