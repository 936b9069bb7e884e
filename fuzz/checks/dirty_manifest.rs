//! Promises about manifests of dirty objects, for any bytes of a disk or of another node.

use shoal_node::dirty::Manifest;

/// What is read can be written down again, and each block has one place. Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let Ok(read) = Manifest::of_bytes(data) else {
        return;
    };
    let again = Manifest::of_bytes(&read.to_bytes()).expect("what was read can be written down");
    assert_eq!(format!("{again:?}"), format!("{read:?}"));
    assert_eq!(read.placement.len(), read.version.block_count() as usize);
}
