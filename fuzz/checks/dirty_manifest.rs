//! What must hold of manifests of dirty objects, whatever a disk or another node gives.

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
