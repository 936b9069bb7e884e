//! The system's allocator, counting.

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

/// Does `work`. Returns its result, the bytes that it holds at the end, and the most that it held at once.
pub(crate) fn counted<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = HELD_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    let done = work();
    let held = HELD_BYTES.load(Relaxed) - before;
    (done, held, PEAK_BYTES.load(Relaxed) - before)
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
