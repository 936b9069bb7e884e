//! The state of one map.

use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::engine::Revision;
use crate::entry::Owner;

/// The bits of a sequence that hold a revision of the registry.
const REVISION_BITS: u32 = 48;

/// The root of a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The number of the newest table that was committed; 0 if none was.
    pub number: u64,
    /// The number of the next reservation. A table at the lake has this number, or a greater one, only if the
    /// registry has lost changes.
    pub next: u64,
    /// The tables of the map, newest first.
    pub tables: Vec<MapTable>,
    /// The right of one node to commit the next table.
    pub reservation: Option<Reservation>,
    /// True if nothing is packed any more, because the rule is about to end.
    pub is_ending: bool,
    /// How often the map was made from what the lake has, because the registry had lost it.
    pub rebuilds: u16,
}

/// A table of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapTable {
    /// The number of the table.
    pub number: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its checksum.
    pub checksum: u64,
}

/// The right to commit the table with the next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The number of the table.
    pub number: u64,
    /// The node that has the right.
    pub owner: Owner,
    /// The id of this reservation.
    pub token: Ulid,
}

/// Returns how often the map had been rebuilt when an object got this sequence.
pub const fn rebuilds_in(sequence: u64) -> u16 {
    (sequence >> REVISION_BITS) as u16
}

impl Default for Root {
    /// The root of a map that has no table yet.
    fn default() -> Self {
        Self {
            number: 0,
            next: 1,
            tables: Vec::new(),
            reservation: None,
            is_ending: false,
            rebuilds: 0,
        }
    }
}

impl Root {
    /// Returns the sequence of an object whose flush began at `revision`. Of two objects of one name, the
    /// newer one has the greater sequence, also after the registry was lost.
    pub fn sequence(&self, revision: Revision) -> u64 {
        assert!(
            revision.0 >> REVISION_BITS == 0,
            "a registry has fewer changes than that"
        );
        u64::from(self.rebuilds) << REVISION_BITS | revision.0
    }

    /// Returns true if the map has a table of this number.
    pub(super) fn lists(&self, number: u64) -> bool {
        self.tables.iter().any(|table| table.number == number)
    }

    /// Returns the number that readers see.
    pub(super) fn named(&self) -> Option<u64> {
        (!self.tables.is_empty()).then_some(self.number)
    }

    /// Returns true if the map has ended. Its numbers are kept: none is used twice.
    pub(super) fn is_over(&self) -> bool {
        self.is_ending && self.tables.is_empty() && self.reservation.is_none()
    }
}
