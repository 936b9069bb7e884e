//! Recordings of others, as they come.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use shoal_sim::Granularity;
use shoal_sim::trace::{Access, Format, Operation, Trace};

#[test]
fn the_beginning_of_a_swim_workload_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/swim/FB-2010-with-input-paths.tsv");
    assert_eq!(Format::of_file(&path).unwrap(), Format::Swim);
    let accesses: Vec<Access> = Trace::open(&path, Format::Swim, Granularity::Objects)
        .unwrap()
        .accesses()
        .map(Result::unwrap)
        .collect();
    let reads = accesses
        .iter()
        .filter(|access| access.operation == Operation::Read);
    let first: Vec<_> = reads
        .take(2)
        .map(|access| (access.at.as_secs_f64(), access.bytes))
        .collect();
    assert_eq!(first, [(1.0, 2_267_942), (2.0, 20_791_551_476)]);
    let written = accesses
        .iter()
        .find(|access| access.operation == Operation::Write)
        .unwrap();
    assert_eq!(written.bytes, 1_937_944);
}

#[test]
fn a_packed_trace_is_read_and_one_of_another_packer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("t.csv.gz");
    let mut file = GzEncoder::new(File::create(&packed).unwrap(), Compression::fast());
    file.write_all(b"object,bytes\na,5\n").unwrap();
    file.finish().unwrap();
    assert_eq!(Format::of_file(&packed).unwrap(), Format::Csv);
    let trace = Trace::open(&packed, Format::Csv, Granularity::Objects).unwrap();
    let bytes: Vec<_> = trace.accesses().map(|access| access.unwrap().bytes).collect();
    assert_eq!(bytes, [5]);

    let other = folder.path().join("t.csv.xz");
    fs::write(&other, b"\xfd7zXZ\0...").unwrap();
    let refused = Trace::open(&other, Format::Csv, Granularity::Objects)
        .err()
        .unwrap();
    assert!(
        refused.to_string().contains("unpack it first: xz -dc"),
        "{refused}"
    );
}
