//! The search for the objects of a table's current snapshot, step by step.

use std::collections::HashSet;

use shoal_s3::uri::S3Uri;

use crate::bounds::{Budget, FILES_MAX, NAME_BYTES_MAX, READ_BYTES_MAX, READS_MAX};
use crate::delta::DeltaSearch;
use crate::error::TableError;
use crate::iceberg::IcebergSearch;

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// Apache Iceberg.
    Iceberg,
    /// Delta Lake.
    Delta,
}

impl TableFormat {
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Delta, Self::Iceberg];

    /// Returns the name of the format, for messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Iceberg => "Iceberg",
            Self::Delta => "Delta",
        }
    }

    /// Returns the folder of a table that has its log.
    pub const fn log_folder(self) -> &'static str {
        match self {
            Self::Iceberg => "metadata",
            Self::Delta => "_delta_log",
        }
    }
}

/// An object below the folder of a log, as the lake lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// Its name below the folder.
    pub name: String,
    /// When it was written, in milliseconds since 1970; 0 if the lake does not say.
    pub written_ms: u64,
}

/// An object of a log that is to be read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRead {
    /// The object.
    pub object: S3Uri,
    pub(crate) role: Role,
}

/// The meaning of an object of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Of Iceberg: the root of everything.
    Metadata,
    /// Of Iceberg: names manifests.
    ManifestList,
    /// Of Iceberg: names files.
    Manifest,
    /// Of Delta: the files at some version, or a part of them, or where those parts are.
    Checkpoint,
    /// Of Delta: what a version adds and removes.
    Commit,
}

/// An object that belongs to the current snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableObject {
    /// The object.
    pub object: S3Uri,
    /// Its size in bytes, as the table has it; `None` for an object of the log.
    pub size_bytes: Option<u64>,
}

/// The objects of a snapshot: first those of the log that an engine reads, then the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The objects, each once.
    pub objects: Vec<TableObject>,
}

/// Finds the objects of the current snapshot of a table.
#[derive(Debug)]
pub struct TableSearch {
    format: FormatSearch,
    reads: Budget,
    read_bytes: Budget,
}

#[derive(Debug)]
enum FormatSearch {
    Iceberg(IcebergSearch),
    Delta(DeltaSearch),
}

impl TableSearch {
    /// Begins a search in the table at `location`, of whose log these objects are listed. Returns `None` if
    /// they are no log of this format.
    ///
    /// # Errors
    ///
    /// Fails if the log cannot be read.
    pub fn new(format: TableFormat, location: &S3Uri, log: &[LogFile]) -> Result<Option<Self>, TableError> {
        let format = match format {
            TableFormat::Iceberg => IcebergSearch::new(location, log)?.map(FormatSearch::Iceberg),
            TableFormat::Delta => DeltaSearch::new(location, log)?.map(FormatSearch::Delta),
        };
        Ok(format.map(|format| Self {
            format,
            reads: Budget::new(READS_MAX, "too many objects"),
            read_bytes: Budget::new(READ_BYTES_MAX, "too many bytes"),
        }))
    }

    /// Returns the objects to read next, in the order in which [`take`](Self::take) needs them. None are left
    /// if there is none.
    ///
    /// # Errors
    ///
    /// Fails if there are too many.
    pub fn round(&mut self) -> Result<Vec<TableRead>, TableError> {
        let round = match &mut self.format {
            FormatSearch::Iceberg(search) => search.round(),
            FormatSearch::Delta(search) => search.round(),
        };
        self.reads.take(round.len())?;
        Ok(round)
    }

    /// Takes the bytes of an object of the last round.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be read, or name too much.
    pub fn take(&mut self, read: &TableRead, bytes: &[u8]) -> Result<(), TableError> {
        self.read_bytes.take(bytes.len())?;
        match &mut self.format {
            FormatSearch::Iceberg(search) => search.take(read, bytes),
            FormatSearch::Delta(search) => search.take(read, bytes),
        }
    }

    /// Returns the snapshot, once no round has an object.
    pub fn finish(self) -> Snapshot {
        match self.format {
            FormatSearch::Iceberg(search) => search.finish(),
            FormatSearch::Delta(search) => search.finish(),
        }
    }
}

/// The bounds of what a search keeps.
#[derive(Debug)]
pub(crate) struct FileBudget {
    files: Budget,
    name_bytes: Budget,
}

impl Default for FileBudget {
    fn default() -> Self {
        Self {
            files: Budget::new(FILES_MAX, "too many files"),
            name_bytes: Budget::new(NAME_BYTES_MAX, "names that are too long"),
        }
    }
}

impl FileBudget {
    /// Takes the room for a file whose names have these bytes.
    pub(crate) fn take(&mut self, name_bytes: usize) -> Result<(), TableError> {
        self.files.take(1)?;
        self.name_bytes.take(name_bytes)
    }

    /// Gives the room of a file back.
    pub(crate) const fn give(&mut self, name_bytes: usize) {
        self.files.give(1);
        self.name_bytes.give(name_bytes);
    }
}

/// Collects the objects of a snapshot, each once.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    objects: Vec<TableObject>,
    known: HashSet<S3Uri>,
}

impl Collected {
    pub(crate) fn add(&mut self, object: S3Uri, size_bytes: Option<u64>) {
        if self.known.insert(object.clone()) {
            self.objects.push(TableObject { object, size_bytes });
        }
    }

    pub(crate) fn has(&self, object: &S3Uri) -> bool {
        self.known.contains(object)
    }

    pub(crate) fn into_snapshot(self) -> Snapshot {
        Snapshot {
            objects: self.objects,
        }
    }
}
