//! Promises about the logs of tables: whatever they have, they are read or refused without a panic, and what
//! they name can be asked for.

use std::collections::BTreeSet;

use shoal_s3::uri::S3Uri;
use shoal_tables::{LogFile, TableFormat, TableSearch};

/// Metadata whose snapshot has one manifest, or a list of manifests.
const MANIFEST: &[u8] = br#"{"format-version": 1, "current-snapshot-id": 1,
    "snapshots": [{"snapshot-id": 1, "manifests": ["s3://lake/t/metadata/m.avro"]}]}"#;
const MANIFEST_LIST: &[u8] = br#"{"format-version": 2, "current-snapshot-id": 1,
    "snapshots": [{"snapshot-id": 1, "manifest-list": "s3a://lake/t/metadata/l.avro"}]}"#;

/// Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let log = ["v1.metadata.json", "version-hint.text"];
    search(TableFormat::Iceberg, &log, data, &[]);
    search(TableFormat::Iceberg, &["v1.gz.metadata.json"], data, &[]);
    search(TableFormat::Iceberg, &log, data, &[MANIFEST]);
    search(TableFormat::Iceberg, &log, data, &[MANIFEST_LIST]);
    let log = [
        "00000000000000000001.checkpoint.parquet",
        "00000000000000000002.json",
    ];
    search(TableFormat::Delta, &log, data, &[]);
    search(TableFormat::Delta, &["00000000000000000000.json"], data, &[]);
}

/// Searches a table the first objects of whose log are `first`, and all others `data`.
fn search(format: TableFormat, log: &[&str], data: &[u8], first: &[&[u8]]) {
    let log: Vec<LogFile> = log
        .iter()
        .map(|name| LogFile {
            name: (*name).to_owned(),
            written_ms: 0,
        })
        .collect();
    let location: S3Uri = "s3://lake/t".parse().unwrap();
    let mut search = TableSearch::new(format, &location, &log).unwrap().unwrap();
    let mut first = first.iter();
    // Data that names further objects of the log may do so a few times.
    for _ in 0..4 {
        let round = search.round().unwrap();
        if round.is_empty() {
            break;
        }
        for read in round.into_iter().take(20) {
            let bytes = first.next().copied().unwrap_or(data);
            if search.take(&read, bytes).is_err() {
                return;
            }
        }
    }
    let mut known = BTreeSet::new();
    for object in search.finish().objects {
        let S3Uri { bucket, key } = &object.object;
        assert!(!bucket.is_empty() && (1..=1024).contains(&key.len()));
        assert!(known.insert(object.object), "each object once");
    }
}
