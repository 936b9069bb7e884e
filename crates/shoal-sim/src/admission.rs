//! What may enter a cache, by the names people call it.

use std::fmt;

use shoal_policy::admission::{Admission, Always, Arrival, Refusal, ScanResistant, SecondMiss};

use crate::block::Block;

/// An admission that can be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AdmissionName {
    /// Everything enters.
    #[default]
    Always,
    /// What is missed for the second time enters.
    SecondMiss,
    /// The first [`SCAN_BLOCKS`] blocks of a long sequential read enter, and the rest when it is missed for the second time.
    ScanResistant,
}

/// A sequential read is a scan beyond so many blocks: 64 MiB of a node's.
pub const SCAN_BLOCKS: u64 = 16;

/// An admission chosen at run time.
pub struct AnyAdmission(Box<dyn Admission<Block> + Send>);

impl AdmissionName {
    /// Every admission, in the order of the documentation.
    pub const ALL: &'static [Self] = &[Self::Always, Self::SecondMiss, Self::ScanResistant];

    /// The word for it on the command line and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::SecondMiss => "second-miss",
            Self::ScanResistant => "scan-resistant",
        }
    }

    /// The admission itself, for a cache with room for `blocks` of `block_bytes`; it remembers about as many that it refused.
    pub fn build(self, blocks: usize, block_bytes: u64) -> AnyAdmission {
        AnyAdmission(match self {
            Self::Always => Box::new(Always),
            Self::SecondMiss => Box::new(SecondMiss::new(blocks)),
            Self::ScanResistant => Box::new(ScanResistant::new(SCAN_BLOCKS * block_bytes, blocks)),
        })
    }
}

impl fmt::Display for AdmissionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Admission<Block> for AnyAdmission {
    fn admit(&mut self, arrival: &Arrival<Block>) -> Result<(), Refusal> {
        self.0.admit(arrival)
    }
}

impl fmt::Debug for AnyAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an admission")
    }
}
