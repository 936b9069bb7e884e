//! Tables of Iceberg: metadata, manifest list, manifests, files. Versions 1 to 3.

use serde::Deserialize;
use shoal_s3::uri::S3Uri;

use crate::avro::{self, Value};
use crate::error::TableError;
use crate::names::{absolute, below};
use crate::search::{Collected, FileBudget, LogFile, Role, Snapshot, TableFormat, TableRead};
use crate::unpack::{Codec, Unpacker};

/// The file in which tables without a catalog keep the number of their version.
const VERSION_HINT: &str = "version-hint.text";

/// The status of an entry whose file is no longer in the snapshot.
const DELETED: i64 = 2;

/// The greatest version of the format whose files are found by this reader.
const FORMAT_VERSION_MAX: u64 = 3;

/// The search in a table of Iceberg.
#[derive(Debug)]
pub(crate) struct IcebergSearch {
    /// Objects to read next.
    next: Vec<TableRead>,
    log: Collected,
    files: Collected,
    budget: FileBudget,
}

impl IcebergSearch {
    /// Begins a search. Returns `None` if nothing in the folder is the metadata of a table.
    pub(crate) fn new(location: &S3Uri, log: &[LogFile]) -> Result<Option<Self>, TableError> {
        let Some(metadata) = current(log) else {
            return Ok(None);
        };
        let folder = below(location, TableFormat::Iceberg.log_folder())?;
        let mut search = Self {
            next: Vec::new(),
            log: Collected::default(),
            files: Collected::default(),
            budget: FileBudget::default(),
        };
        if log.iter().any(|file| file.name == VERSION_HINT) {
            search.log.add(below(&folder, VERSION_HINT)?, None);
        }
        search.read(below(&folder, metadata)?, Role::Metadata)?;
        Ok(Some(search))
    }

    pub(crate) fn round(&mut self) -> Vec<TableRead> {
        std::mem::take(&mut self.next)
    }

    pub(crate) fn take(&mut self, read: &TableRead, bytes: &[u8]) -> Result<(), TableError> {
        match read.role {
            Role::Metadata => self.take_metadata(&read.object, bytes),
            Role::ManifestList => self.take_manifest_list(bytes),
            Role::Manifest => self.take_manifest(bytes),
            Role::Checkpoint | Role::Commit => unreachable!("Iceberg has neither"),
        }
    }

    pub(crate) fn finish(self) -> Snapshot {
        let Self { mut log, files, .. } = self;
        for file in files.into_snapshot().objects {
            log.add(file.object, file.size_bytes);
        }
        log.into_snapshot()
    }

    /// Notes an object of the log, which is to be read once.
    fn read(&mut self, object: S3Uri, role: Role) -> Result<(), TableError> {
        if !self.log.has(&object) {
            self.budget.take(object.key.len())?;
            self.log.add(object.clone(), None);
            self.next.push(TableRead { object, role });
        }
        Ok(())
    }

    fn take_metadata(&mut self, object: &S3Uri, bytes: &[u8]) -> Result<(), TableError> {
        let codec = if is_packed(&object.key) {
            Codec::Gzip
        } else {
            Codec::Plain
        };
        let bytes = Unpacker::new(codec)
            .unpack(bytes)
            .map(std::borrow::Cow::into_owned)?;
        let metadata: Metadata = serde_json::from_slice(&bytes)
            .map_err(|_| TableError::Damaged("the metadata is not that of a table"))?;
        if !(1..=FORMAT_VERSION_MAX).contains(&metadata.format_version) {
            return Err(TableError::Unknown("a version of Iceberg"));
        }
        // A table without rows has no snapshot, or the number -1 for it.
        let Some(current) = metadata.current_snapshot_id.filter(|id| *id != -1) else {
            return Ok(());
        };
        let mut snapshots = metadata.snapshots.into_iter();
        let snapshot = snapshots.find(|snapshot| snapshot.snapshot_id == current);
        let snapshot = snapshot.ok_or(TableError::Lacks("the current snapshot"))?;
        if let Some(list) = snapshot.manifest_list {
            return self.read(absolute(&list)?, Role::ManifestList);
        }
        for manifest in snapshot.manifests {
            self.read(absolute(&manifest)?, Role::Manifest)?;
        }
        Ok(())
    }

    fn take_manifest_list(&mut self, bytes: &[u8]) -> Result<(), TableError> {
        avro::read(bytes, &["manifest_path"], |values| match values {
            [Some(Value::Bytes(path))] => self.read(object(path)?, Role::Manifest),
            _ => Err(TableError::Damaged("a manifest list without manifests")),
        })
    }

    fn take_manifest(&mut self, bytes: &[u8]) -> Result<(), TableError> {
        let wanted = ["status", "data_file.file_path", "data_file.file_size_in_bytes"];
        avro::read(bytes, &wanted, |values| {
            let [Some(Value::Number(status)), Some(Value::Bytes(path)), size] = values else {
                return Err(TableError::Damaged("a manifest without files"));
            };
            if *status == DELETED {
                return Ok(());
            }
            let object = object(path)?;
            if self.files.has(&object) {
                return Ok(());
            }
            self.budget.take(object.key.len())?;
            let size_bytes = match size {
                Some(Value::Number(bytes)) => u64::try_from(*bytes).ok(),
                _ => None,
            };
            self.files.add(object, size_bytes);
            Ok(())
        })
    }
}

/// The metadata of a table, as far as its files need it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    format_version: u64,
    current_snapshot_id: Option<i64>,
    #[serde(default)]
    snapshots: Vec<MetadataSnapshot>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MetadataSnapshot {
    snapshot_id: i64,
    manifest_list: Option<String>,
    /// Of version 1, in place of a list.
    #[serde(default)]
    manifests: Vec<String>,
}

fn object(path: &[u8]) -> Result<S3Uri, TableError> {
    let path = std::str::from_utf8(path);
    absolute(path.map_err(|_| TableError::Damaged("a name that is no UTF-8"))?)
}

/// Returns the name of the current metadata among the objects of a log: that of the greatest version. Of
/// several writers of one version only one has succeeded, and the catalog knows which one: the last is taken.
fn current(log: &[LogFile]) -> Option<&str> {
    let versions = log.iter().filter_map(|file| Some((version(&file.name)?, file)));
    let current = versions.max_by_key(|(version, file)| (*version, file.written_ms));
    current.map(|(_, file)| &*file.name)
}

/// Returns the version of metadata by its name: `v3.metadata.json` without a catalog, else
/// `00003-UUID.metadata.json`.
fn version(name: &str) -> Option<u64> {
    let stem = name
        .strip_suffix(".metadata.json")
        .or_else(|| name.strip_suffix(".metadata.json.gz"))?;
    let stem = stem.strip_suffix(".gz").unwrap_or(stem);
    let number = match stem.strip_prefix('v') {
        Some(number) => number,
        None => stem.split_once('-')?.0,
    };
    number.parse().ok()
}

/// Returns true if metadata of this name is packed by gzip.
fn is_packed(name: &str) -> bool {
    name.ends_with(".gz.metadata.json") || name.ends_with(".metadata.json.gz")
}

#[cfg(test)]
mod tests {
    use super::{LogFile, current};

    /// Objects of a log, each with the time when it was written.
    type Log<'a> = &'a [(&'a str, u64)];

    #[test]
    fn the_metadata_of_the_greatest_version_is_current() {
        let file = |(name, written_ms): &(&str, u64)| LogFile {
            name: (*name).into(),
            written_ms: *written_ms,
        };
        let cases: [(Log<'_>, Option<&str>); 5] = [
            (
                &[("v9.metadata.json", 9), ("v10.metadata.json", 1)],
                Some("v10.metadata.json"),
            ),
            (
                &[("v1.metadata.json", 1), ("v2.gz.metadata.json", 2)],
                Some("v2.gz.metadata.json"),
            ),
            (
                &[
                    ("00002-b.metadata.json", 5),
                    ("00002-a.metadata.json", 6),
                    ("00001-c.metadata.json", 9),
                ],
                Some("00002-a.metadata.json"),
            ),
            (
                &[("00003-x.metadata.json.gz", 0)],
                Some("00003-x.metadata.json.gz"),
            ),
            (
                &[
                    ("snap-1-1-x.avro", 1),
                    ("version-hint.text", 1),
                    ("x.metadata.json", 1),
                ],
                None,
            ),
        ];
        for (log, expected) in cases {
            let log: Vec<LogFile> = log.iter().map(file).collect();
            assert_eq!(current(&log), expected);
        }
    }
}
