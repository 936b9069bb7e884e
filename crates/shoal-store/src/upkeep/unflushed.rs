//! Dirty objects that an earlier build stored and did not flush to the lake.
//!
//! That build kept dirty objects in the stores of nodes: for each version or part, its blocks, and a record
//! in the folder `dirty` with the version's ID as its name. This build cannot read the records. It leaves the
//! records and their blocks untouched and unindexed, so that the earlier build still finds them.

use std::collections::HashSet;
use std::fs;
use std::io;

use shoal_policy::VersionId;

use crate::files::disk::{self, Disk};

/// The files that an earlier build left behind.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    /// The versions with a record.
    pub(crate) versions: HashSet<VersionId>,
    /// Disk space of the folder and the records.
    pub(crate) charge_bytes: u64,
}

impl Unflushed {
    /// Lists the records, and removes their folder if it is empty.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be listed.
    pub(crate) fn find(disk: &Disk) -> io::Result<Self> {
        let folder = disk.unflushed_folder();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            entries => entries?,
        };
        let mut found = Self::default();
        for entry in entries {
            let entry = entry?;
            found.charge_bytes += disk.charge_bytes(entry.metadata()?.len());
            found.versions.extend(disk::parse_version(&entry.file_name()));
        }
        // Removing the folder fails if it is not empty.
        if fs::remove_dir(&folder).is_err() {
            found.charge_bytes += disk::allocated_bytes(&fs::metadata(&folder)?);
        }
        Ok(found)
    }
}
