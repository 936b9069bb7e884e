//! The memory of a node's structures, as the allocator sees it: at their creation and at their worst moment.

mod counting;

use counting::counted;
use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::mrc::{Reach, ReuseDistances};

const BLOCK_BYTES: u64 = 4 << 20;
const REACH: Reach = Reach::of_full_blocks(1_000_000 * BLOCK_BYTES, BLOCK_BYTES);

/// One test, as the allocator counts for the whole process.
#[test]
fn two_layers_of_a_million_blocks_stay_within_their_memory() {
    let ((), _, exact) = counted(|| two_lists(ReuseDistances::exact));
    assert!(exact <= 100_000_000, "exact: {exact} bytes");
    let ((), _, sampled) = counted(|| two_lists(ReuseDistances::sampled));
    assert!(sampled <= 4_000_000, "sampled: {sampled} bytes");
    println!("two layers of a million blocks: exact {exact} bytes, sampled {sampled} bytes");
    assert!(
        exact > 80_000_000 && sampled > 2_000_000,
        "the allocator was asked"
    );
}

/// Enough accesses for the lists to be full and to be renumbered.
fn two_lists(distances: fn(Reach) -> ReuseDistances) {
    let mut layers = [distances(REACH), distances(REACH)];
    for time in 0..1_800_000 {
        for layer in &mut layers {
            layer.record(Fingerprint::of_number(time), BLOCK_BYTES);
        }
    }
}
