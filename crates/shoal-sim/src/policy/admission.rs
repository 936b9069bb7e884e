//! Admission policies by name.

use shoal_base::words;
use shoal_policy::admission::{Admission, Always, ScanResistant, SecondMiss};

use crate::block::Block;

words! {
    /// An admission policy that a user can choose.
    #[derive(Default)]
    pub enum AdmissionName {
        /// Every block is admitted.
        #[default]
        Always = "always",
        /// A block is admitted at its second miss.
        SecondMiss = "second-miss",
        /// The first [`SCAN_BLOCKS`] blocks of a long sequential read are admitted, later ones at their
        /// second miss.
        ScanResistant = "scan-resistant",
    }
}

/// A sequential read becomes a scan after this many blocks: 64 MiB with a node's block size.
pub const SCAN_BLOCKS: u64 = 16;

/// An admission chosen at run time.
pub type AnyAdmission = Box<dyn Admission<Block> + Send>;

impl AdmissionName {
    /// Builds the admission for a cache with room for `blocks` of `block_bytes`. It remembers about `blocks`
    /// blocks that it did not admit.
    pub fn build(self, blocks: usize, block_bytes: u64) -> AnyAdmission {
        match self {
            Self::Always => Box::new(Always),
            Self::SecondMiss => Box::new(SecondMiss::new(blocks)),
            Self::ScanResistant => Box::new(ScanResistant::new(SCAN_BLOCKS * block_bytes, blocks)),
        }
    }
}
