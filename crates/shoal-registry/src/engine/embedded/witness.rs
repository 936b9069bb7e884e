//! The newest acknowledged revision, in a file of its own.
//!
//! Two slots are written alternately, so that an interrupted write leaves the other one intact. A slot holds
//! the revision and its complement.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Hides the files of the registry from other users of the machine.
pub(super) const PRIVATE_FILE: u32 = 0o600;

/// Slots lie in different sectors of the disk.
const SLOT_BYTES: u64 = 4096;

/// The file with the newest revision.
#[derive(Debug)]
pub(super) struct Witness {
    file: File,
    next_slot: u64,
}

impl Witness {
    /// Creates the file, which must not exist.
    pub(super) fn create(path: &Path, revision: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(PRIVATE_FILE)
            .open(path)?;
        // Allocated now, so that a full disk does not matter later.
        file.write_all_at(&[0; 2 * SLOT_BYTES as usize], 0)?;
        let mut witness = Self { file, next_slot: 0 };
        witness.write(revision)?;
        witness.file.sync_all()?;
        Ok(witness)
    }

    /// Opens the file, with the revision that it knows; `None` if the file is damaged.
    pub(super) fn open(path: &Path) -> io::Result<Option<(Self, u64)>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() != 2 * SLOT_BYTES {
            return Ok(None);
        }
        let slots = [read_slot(&file, 0)?, read_slot(&file, 1)?];
        let Some(newest) = slots.into_iter().max().flatten() else {
            return Ok(None);
        };
        let next_slot = u64::from(slots[0] == Some(newest));
        Ok(Some((Self { file, next_slot }, newest)))
    }

    /// Writes the newest revision; it is on the disk when this returns.
    pub(super) fn write(&mut self, revision: u64) -> io::Result<()> {
        let mut slot = [0; 16];
        slot[..8].copy_from_slice(&revision.to_be_bytes());
        slot[8..].copy_from_slice(&(!revision).to_be_bytes());
        self.file.write_all_at(&slot, self.next_slot * SLOT_BYTES)?;
        self.file.sync_data()?;
        self.next_slot ^= 1;
        Ok(())
    }
}

/// The revision of a slot; `None` if it was never written, or not to its end.
fn read_slot(file: &File, slot: u64) -> io::Result<Option<u64>> {
    let (mut revision, mut complement) = ([0; 8], [0; 8]);
    file.read_exact_at(&mut revision, slot * SLOT_BYTES)?;
    file.read_exact_at(&mut complement, slot * SLOT_BYTES + 8)?;
    let (revision, complement) = (u64::from_be_bytes(revision), u64::from_be_bytes(complement));
    Ok((revision == !complement).then_some(revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_slot_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("newest");
        let mut witness = Witness::create(&path, 0).unwrap();
        for revision in [5, 6, 7] {
            witness.write(revision).unwrap();
            assert_eq!(Witness::open(&path).unwrap().unwrap().1, revision);
        }
        let (mut witness, _) = Witness::open(&path).unwrap().unwrap();
        // The slot of 7 is torn, so 6 remains; a torn slot is the next to be written.
        witness.next_slot ^= 1;
        witness
            .file
            .write_all_at(&[1; 4], witness.next_slot * SLOT_BYTES)
            .unwrap();
        let (mut witness, newest) = Witness::open(&path).unwrap().unwrap();
        assert_eq!(newest, 6);
        witness.write(8).unwrap();
        assert_eq!(Witness::open(&path).unwrap().unwrap().1, 8);
        witness.file.write_all_at(&[1; 4], 0).unwrap();
        witness.file.write_all_at(&[1; 4], SLOT_BYTES).unwrap();
        assert!(Witness::open(&path).unwrap().is_none());
    }
}
