//! The admissions to a cache, by name.

use std::fmt;

use shoal_policy::admission::{Admission, Always, Arrival, Refusal, ScanResistant, SecondMiss};

use crate::block::Block;

/// An admission policy that a user can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AdmissionName {
    /// Every block enters.
    #[default]
    Always,
    /// A block enters when it is missed for the second time.
    SecondMiss,
    /// The first [`SCAN_BLOCKS`] blocks of a long sequential read enter, and the others when they are missed
    /// for the second time.
    ScanResistant,
}

/// A sequential read becomes a scan after this many blocks: 64 MiB with a node's block size.
pub const SCAN_BLOCKS: u64 = 16;

/// An admission chosen at run time.
pub struct AnyAdmission(Box<dyn Admission<Block> + Send>);

impl AdmissionName {
    /// Every admission, in the order of the documentation.
    pub const ALL: &'static [Self] = &[Self::Always, Self::SecondMiss, Self::ScanResistant];

    /// The word for the admission on the command line and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::SecondMiss => "second-miss",
            Self::ScanResistant => "scan-resistant",
        }
    }

    /// Builds the admission for a cache with room for `blocks` of `block_bytes`. It remembers about `blocks`
    /// refusals.
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
