//! Admission policies by name.

use std::fmt;

use shoal_policy::admission::{Admission, Always, ScanResistant, SecondMiss};

use crate::block::Block;

/// An admission policy that a user can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AdmissionName {
    /// Every block is admitted.
    #[default]
    Always,
    /// A block is admitted at its second miss.
    SecondMiss,
    /// The first [`SCAN_BLOCKS`] blocks of a long sequential read are admitted, later ones at their second
    /// miss.
    ScanResistant,
}

/// A sequential read becomes a scan after this many blocks: 64 MiB with a node's block size.
pub const SCAN_BLOCKS: u64 = 16;

/// An admission chosen at run time.
pub type AnyAdmission = Box<dyn Admission<Block> + Send>;

impl AdmissionName {
    /// Every admission, in the order of the documentation.
    pub const ALL: &'static [Self] = &[Self::Always, Self::SecondMiss, Self::ScanResistant];

    /// The name on the command line and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::SecondMiss => "second-miss",
            Self::ScanResistant => "scan-resistant",
        }
    }

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

impl fmt::Display for AdmissionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
