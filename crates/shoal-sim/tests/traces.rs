//! Recordings of others, as they come.

use std::path::Path;

use shoal_sim::Granularity;
use shoal_sim::trace::{Access, Format, Operation, Trace};

#[test]
fn the_beginning_of_a_swim_workload_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/swim/FB-2010-with-input-paths.tsv");
    assert_eq!(Format::of_file(&path).unwrap(), Format::Swim);
    let accesses: Vec<Access> = Trace::open(&path, None, Granularity::Objects)
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
