//! Tables that real engines wrote: what this crate finds is what the engine reads.

#![expect(clippy::unwrap_used, reason = "a test stops where it cannot go on")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use shoal_s3::uri::S3Uri;
use shoal_tables::{LogFile, Snapshot, TableError, TableFormat, TableObject, TableSearch};

/// A table in `tests/tables`, see the README there.
struct Table {
    folder: PathBuf,
    location: S3Uri,
    /// The names of its objects, below its location.
    objects: Vec<String>,
    /// The names of files that its engine reads.
    current: BTreeSet<String>,
}

/// The tables, and their formats.
const TABLES: [(&str, TableFormat); 6] = [
    ("pyiceberg-v2", TableFormat::Iceberg),
    ("spark-iceberg-v1", TableFormat::Iceberg),
    ("spark-iceberg-v3", TableFormat::Iceberg),
    ("delta-rs", TableFormat::Delta),
    ("spark-delta-classic", TableFormat::Delta),
    ("spark-delta-v2", TableFormat::Delta),
];

const fn other(format: TableFormat) -> TableFormat {
    match format {
        TableFormat::Iceberg => TableFormat::Delta,
        TableFormat::Delta => TableFormat::Iceberg,
    }
}

/// The objects of a snapshot, below the location of their table.
struct Found {
    files: BTreeSet<String>,
    log: BTreeSet<String>,
    /// The names of the objects that were read for it.
    read: BTreeSet<String>,
}

impl Table {
    fn named(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/tables")
            .join(name);
        let lines = |file: &str| -> Vec<String> {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            text.lines().map(str::to_owned).collect()
        };
        Self {
            location: lines("location.txt")[0].parse().unwrap(),
            objects: lines("objects.txt"),
            current: lines("current.txt").into_iter().collect(),
            folder,
        }
    }

    fn log(&self, format: TableFormat) -> Vec<LogFile> {
        let folder = format!("{}/", format.log_folder());
        let names = self.objects.iter().filter_map(|name| name.strip_prefix(&folder));
        names
            .map(|name| LogFile {
                name: name.to_owned(),
                written_ms: 0,
            })
            .collect()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let path = self.folder.join("log").join(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Finds the current snapshot. `bytes` may change what is read of the log.
    fn find(
        &self,
        format: TableFormat,
        bytes: impl Fn(&str, Vec<u8>) -> Vec<u8>,
    ) -> Result<Option<Found>, TableError> {
        let Some(mut search) = TableSearch::new(format, &self.location, &self.log(format))? else {
            return Ok(None);
        };
        let mut read = BTreeSet::new();
        loop {
            let round = search.round()?;
            if round.is_empty() {
                break;
            }
            for wanted in round {
                let name = self.name(&wanted.object);
                search.take(&wanted, &bytes(&name, self.bytes(&name)))?;
                read.insert(name);
            }
        }
        Ok(Some(self.found(search.finish(), read)))
    }

    fn found(&self, snapshot: Snapshot, read: BTreeSet<String>) -> Found {
        let is_log = |object: &TableObject| object.size_bytes.is_none();
        let (log, files): (Vec<_>, Vec<_>) = snapshot.objects.into_iter().partition(is_log);
        let names =
            |objects: Vec<TableObject>| objects.iter().map(|object| self.name(&object.object)).collect();
        Found {
            files: names(files),
            log: names(log),
            read,
        }
    }

    /// Returns the name of an object below the location.
    fn name(&self, object: &S3Uri) -> String {
        assert_eq!(object.bucket, self.location.bucket);
        let name = object.key.strip_prefix(&format!("{}/", self.location.key));
        name.unwrap_or_else(|| panic!("{object} is in the table"))
            .to_owned()
    }
}

#[test]
fn the_current_snapshot_of_a_table_has_the_files_that_its_engine_reads() {
    for (name, format) in TABLES {
        let table = Table::named(name);
        let found = table.find(format, |_, bytes| bytes).unwrap();
        let found = found.expect("it is a table");
        assert_eq!(found.files, table.current, "{name}");
        assert!(
            found.read.is_subset(&found.log),
            "{name}: an engine reads the log, too"
        );
        let all: BTreeSet<String> = table.objects.iter().cloned().collect();
        assert!(found.log.is_subset(&all) && found.files.is_subset(&all), "{name}");
        let old = all.len() - found.log.len() - found.files.len();
        assert!(old > 2, "{name}: the table has old files");
        assert!(
            table.find(other(format), |_, bytes| bytes).unwrap().is_none(),
            "{name}"
        );
    }
}

#[test]
fn an_engine_that_finds_the_log_by_a_pointer_finds_the_pointer_in_the_cache() {
    for (name, format, pointers) in [
        (
            "spark-iceberg-v1",
            TableFormat::Iceberg,
            &["metadata/version-hint.text"][..],
        ),
        ("pyiceberg-v2", TableFormat::Iceberg, &[]),
        ("delta-rs", TableFormat::Delta, &["_delta_log/_last_checkpoint"]),
        (
            "spark-delta-v2",
            TableFormat::Delta,
            &[
                "_delta_log/00000000000000000004.crc",
                "_delta_log/_last_checkpoint",
            ],
        ),
    ] {
        let found = Table::named(name)
            .find(format, |_, bytes| bytes)
            .unwrap()
            .unwrap();
        let unread: Vec<&String> = found.log.difference(&found.read).collect();
        assert_eq!(unread, pointers, "{name}");
    }
}

#[test]
fn a_log_that_is_cut_off_anywhere_is_refused_and_never_names_a_file_that_is_not_current() {
    for (name, format) in TABLES {
        let table = Table::named(name);
        let whole = table.find(format, |_, bytes| bytes).unwrap().unwrap();
        for cut_name in &whole.read {
            let length = table.bytes(cut_name).len();
            for keep in (0..length).step_by(length / 40 + 1) {
                let cut = |name: &str, mut bytes: Vec<u8>| {
                    bytes.truncate(if name == cut_name { keep } else { bytes.len() });
                    bytes
                };
                // The lines of a commit that are left are whole.
                let has_lines = Path::new(cut_name)
                    .extension()
                    .is_some_and(|extension| extension == "json");
                let is_in_lines = has_lines && format == TableFormat::Delta;
                match table.find(format, cut) {
                    Ok(found) if is_in_lines => assert!(found.is_some()),
                    Ok(Some(found)) => panic!("{name}, {cut_name} cut at {keep}: {:?}", found.files),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn a_table_of_a_later_version_or_outside_s3_is_refused() {
    let table = Table::named("pyiceberg-v2");
    let changed = |from: &'static str, to: &'static str| {
        move |name: &str, bytes: Vec<u8>| {
            if name.ends_with(".metadata.json") {
                String::from_utf8(bytes).unwrap().replace(from, to).into_bytes()
            } else {
                bytes
            }
        }
    };
    let find = |from, to| {
        table
            .find(TableFormat::Iceberg, changed(from, to))
            .map(|found| found.is_some())
    };
    assert_eq!(find("", ""), Ok(true));
    assert_eq!(
        find("\"format-version\":2", "\"format-version\":4"),
        Err(TableError::Unknown("a version of Iceberg"))
    );
    assert_eq!(find("s3://", "gs://"), Err(TableError::Elsewhere));
    assert_eq!(
        find("\"current-snapshot-id\":", "\"current-snapshot-id\":1,\"other\":"),
        Err(TableError::Lacks("the current snapshot"))
    );
}

#[test]
fn a_table_of_iceberg_without_rows_has_no_files() {
    let table = Table::named("spark-iceberg-v3");
    let empty = br#"{"format-version": 2, "current-snapshot-id": -1, "snapshots": []}"#;
    let found = table
        .find(TableFormat::Iceberg, |_, _| empty.to_vec())
        .unwrap()
        .unwrap();
    assert!(found.files.is_empty() && found.read.len() == 1);
}
