//! Promises about the message by which one node asks another for a block, for any bytes.

use shoal_cache::BlockRequest;

/// Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let Ok(read) = BlockRequest::of_bytes(data) else {
        return;
    };
    let part = read.part;
    assert!(part.start < part.end && part.end <= read.version.block_len(read.index));
    assert!(read.index < read.version.block_count());
    // A request may be read from a longer encoding than the node's own, and never the other way round.
    let written = read.to_bytes().expect("a request that was read can be written");
    assert!(written.len() <= data.len());
    let again = BlockRequest::of_bytes(&written).expect("a written request can be read");
    assert_eq!(format!("{again:?}"), format!("{read:?}"));
}
