//! Algorithm 1: a file's time-varying fetch rate as blocks that are each fetched at a constant rate (4.3).

/// Blocks that are fetched one after the other at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// The start of the first block.
    pub start_s: f64,
    /// The end of the last block.
    pub end_s: f64,
    /// The rate.
    pub bytes_per_second: f64,
    /// The position of the first block in the list of blocks.
    pub first: u64,
    /// The number of blocks.
    pub blocks: u64,
}

/// A rate that changes at the edges of slots.
#[derive(Clone, Debug, PartialEq)]
pub struct Skyline {
    /// The start of the first slot.
    pub start_s: f64,
    /// The length of a slot.
    pub slot_s: f64,
    /// The rate in each slot.
    pub rates: Vec<f64>,
}

/// Assigns `blocks` blocks of `block_bytes` to the area below a skyline.
///
/// As printed: the first interval without a gap is found, then its least rate; a rectangle of that rate over
/// the interval takes as many blocks as it has room for, rounded up; the area above the rectangle is treated
/// in the same way, and then the area after the interval. The blocks of a rectangle follow each other, each
/// at the full rate.
///
/// *Rounding.* The last block of a rectangle may end after it, by less than the time of one block. So at any
/// time the blocks exceed the skyline by the rectangles that end late; their bytes beyond it are less than
/// one block a rectangle. Where rounding up leaves no blocks for the end of the skyline, that end stays
/// empty.
///
/// *Misprints.* The last line of the listing passes `X` on and not the `X'` computed before it. That is
/// right, as `X'` is less by `r` outside of the interval, too; `r` must only be taken away inside. If the
/// skyline has less room than the blocks need (the bytes of a block that was cached in part, or rounding of
/// the solver), the last rectangle takes the blocks that are left.
pub fn translate(skyline: &Skyline, block_bytes: f64, blocks: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut left = blocks;
    let mut rates = skyline.rates.clone();
    // A rate below this counts as zero: it is the difference of equal rates.
    let least = rates.iter().copied().fold(0.0, f64::max) * 1e-9;
    // Intervals that are to be done, the next one last: the recursion of the listing, with a stack of its
    // own.
    let mut todo = vec![(0, rates.len())];
    while let Some((start, end)) = todo.pop() {
        if left == 0 {
            break;
        }
        let Some(begin) = (start..end).find(|&slot| rates[slot] > least) else {
            continue;
        };
        let stop = (begin..end).find(|&slot| rates[slot] <= least).unwrap_or(end);
        let rate = rates[begin..stop].iter().copied().fold(f64::INFINITY, f64::min);
        let seconds = skyline.slot_s * (stop - begin) as f64;
        #[expect(clippy::cast_sign_loss, reason = "rates and times are positive")]
        let room = (rate * seconds / block_bytes - 1e-6).ceil().max(1.0) as u64;
        let count = room.min(left);
        let start_s = skyline.start_s + skyline.slot_s * begin as f64;
        runs.push(Run {
            start_s,
            end_s: start_s + count as f64 * block_bytes / rate,
            bytes_per_second: rate,
            first: blocks - left,
            blocks: count,
        });
        left -= count;
        rates[begin..stop].iter_mut().for_each(|left| *left -= rate);
        todo.push((stop, end));
        todo.push((begin, stop));
    }
    if let Some(last) = runs.last_mut() {
        last.blocks += left;
        last.end_s += left as f64 * block_bytes / last.bytes_per_second;
    }
    runs
}
