//! The memory of a node's structures, as the allocator sees it: at their creation and at their worst moment.

use counting::peak_bytes;
use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::mrc::{Reach, ReuseDistances};

const BLOCK_BYTES: u64 = 4 << 20;
const REACH: Reach = Reach::of_full_blocks(1_000_000 * BLOCK_BYTES, BLOCK_BYTES);

/// One test, as the allocator counts for the whole process.
#[test]
fn two_layers_of_a_million_blocks_stay_within_their_memory() {
    let exact = peak_bytes(|| two_lists(ReuseDistances::exact));
    assert!(exact <= 24_000_000, "exact: {exact} bytes");
    let sampled = peak_bytes(|| two_lists(ReuseDistances::sampled));
    assert!(sampled <= 1_000_000, "sampled: {sampled} bytes");
    println!("two layers of a million blocks: exact {exact} bytes, sampled {sampled} bytes");
    assert!(exact > 20_000_000 && sampled > 500_000, "the allocator was asked");
}

/// Enough accesses for the lists to be full and to be renumbered.
fn two_lists(distances: fn(Reach) -> ReuseDistances) {
    let mut layers = [distances(REACH), distances(REACH)];
    for time in 0..1_800_000 {
        for layer in &mut layers {
            layer.record(Fingerprint::of_number(time), BLOCK_BYTES);
        }
    }
    let said: usize = layers.iter().map(ReuseDistances::memory_bytes).sum();
    assert!(said >= 2 * 390_000);
}

/// The system's allocator, counting.
mod counting {
    #![expect(
        unsafe_code,
        reason = "an allocator is unsafe to write; this one hands everything to the system's"
    )]

    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);
    static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    /// The most that `work` held at once.
    pub(crate) fn peak_bytes(work: impl FnOnce()) -> usize {
        let before = HELD_BYTES.load(Relaxed);
        PEAK_BYTES.store(before, Relaxed);
        work();
        PEAK_BYTES.load(Relaxed) - before
    }

    struct Counting;

    // SAFETY: every call goes to the system's allocator as it came; counting does not touch the memory. Other
    // requests (zeroed, reallocated) come here by way of these two.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let held = HELD_BYTES.fetch_add(layout.size(), Relaxed) + layout.size();
            PEAK_BYTES.fetch_max(held, Relaxed);
            // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`, which are those of the system's.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            HELD_BYTES.fetch_sub(layout.size(), Relaxed);
            // SAFETY: `memory` came from `alloc` above and so from the system, with this layout.
            unsafe { System.dealloc(memory, layout) }
        }
    }
}
