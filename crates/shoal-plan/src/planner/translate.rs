//! Algorithm 1: a file's time-varying fetch rate as blocks that are each fetched at a constant rate (4.3).

use crate::plan::TransferPlan;

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

/// Blocks of a file that follow each other, and that a skyline fetches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blocks {
    /// The position of the first one in the file.
    pub first: u64,
    /// Their number.
    pub count: u64,
    /// The size of each but the last, which may be short.
    pub block_bytes: f64,
    /// The bytes of all of them.
    pub bytes: f64,
    /// Bytes of the first block that the cache holds already, so that the skyline has no room for them.
    pub cached_bytes: f64,
}

/// This share of a block, or of all bytes, is rounding.
const ROUNDING: f64 = 1e-6;

impl Blocks {
    /// Returns the number of blocks that are nearest to the first `bytes` of all: a block counts from its
    /// middle on.
    #[expect(clippy::cast_sign_loss, reason = "bytes are positive")]
    fn nearest(&self, bytes: f64) -> u64 {
        if bytes >= self.bytes * (1.0 - ROUNDING) {
            return self.count;
        }
        let whole = ((bytes / self.block_bytes).floor() as u64).min(self.count);
        let (begin, end) = (self.bytes_of(whole), self.bytes_of(whole + 1));
        let is_past_middle = bytes - begin >= (end - begin) * (0.5 - ROUNDING);
        (whole + u64::from(is_past_middle)).min(self.count)
    }

    /// Returns the number of blocks for which `bytes` have room, rounded up.
    #[expect(clippy::cast_sign_loss, reason = "bytes are positive")]
    fn rounded_up(&self, bytes: f64) -> u64 {
        (bytes / self.block_bytes - ROUNDING).ceil().max(0.0) as u64
    }

    /// Returns the bytes of the first `count` blocks.
    fn bytes_of(&self, count: u64) -> f64 {
        (count as f64 * self.block_bytes).min(self.bytes)
    }
}

/// The area of a rate over some slots.
#[derive(Clone, Copy, Debug)]
struct Rectangle {
    begin: usize,
    stop: usize,
    rate: f64,
}

/// Assigns blocks to the area below a skyline.
///
/// As printed: the first interval without a gap is found, then its least rate, and a rectangle of that rate
/// over the interval takes the blocks that it has room for. The area above the rectangle is treated in the
/// same way, and then the area after the interval. The blocks of a rectangle follow each other, each at the
/// full rate.
///
/// *Rounding.* The paper rounds the blocks of each rectangle up, so that the last one ends after its
/// rectangle: by months, if a rectangle with room for 200 bytes takes 4 MiB. Here the blocks are rounded to
/// the nearest number over all rectangles so far, and a rectangle takes at most as many as the paper's. One
/// with room for a few bytes takes none, and the next one has them. A rectangle whose blocks need more room
/// than it has gets a higher rate, at which the last one ends with it. So no block ends after the slots in
/// which the skyline has no gap, and a rectangle of `s` seconds exceeds its part of the skyline by less than
/// the bytes of one block in `s` seconds.
///
/// *Misprints.* The last line of the listing passes `X` on and not the `X'` computed before it. That is
/// right, as `X'` is less by `r` outside of the interval, too; `r` must only be taken away inside. If the
/// skyline has less room than the blocks need (rounding of the solver), the last rectangle takes the blocks
/// that are left.
pub fn translate(skyline: &Skyline, blocks: &Blocks) -> Vec<TransferPlan> {
    let rectangles = rectangles(&skyline.rates);
    let (mut transfers, mut first) = (Vec::new(), 0_u64);
    let mut room_so_far = blocks.cached_bytes;
    for (number, rectangle) in rectangles.iter().enumerate() {
        let start_s = skyline.start_s + skyline.slot_s * rectangle.begin as f64;
        let stop_s = skyline.start_s + skyline.slot_s * rectangle.stop as f64;
        let seconds = stop_s - start_s;
        let room = rectangle.rate * seconds;
        room_so_far += room;
        let is_last = number + 1 == rectangles.len();
        let end = if is_last {
            blocks.count
        } else {
            let most = first.saturating_add(blocks.rounded_up(room));
            blocks.nearest(room_so_far).min(most)
        };
        if end <= first {
            continue;
        }
        let bytes = blocks.bytes_of(end) - blocks.bytes_of(first);
        let bytes_per_second = rectangle.rate.max(bytes / seconds);
        transfers.push(TransferPlan {
            start_s,
            end_s: (start_s + bytes / bytes_per_second).min(stop_s),
            bytes_per_second,
            first_block: blocks.first + first,
            blocks: end - first,
        });
        first = end;
    }
    debug_assert!(
        rectangles.is_empty() || first == blocks.count,
        "each block has its time"
    );
    transfers
}

/// Returns the rectangles below a skyline, in the order of the listing.
fn rectangles(rates: &[f64]) -> Vec<Rectangle> {
    let mut rates = rates.to_vec();
    let mut rectangles = Vec::new();
    // A rate below this counts as zero: it is the difference of equal rates.
    let least = rates.iter().copied().fold(0.0, f64::max) * 1e-9;
    // Intervals that are to be done, the next one last: the recursion of the listing, with a stack of its
    // own.
    let mut todo = vec![(0, rates.len())];
    while let Some((start, end)) = todo.pop() {
        let Some(begin) = (start..end).find(|&slot| rates[slot] > least) else {
            continue;
        };
        let stop = (begin..end).find(|&slot| rates[slot] <= least).unwrap_or(end);
        let rate = rates[begin..stop].iter().copied().fold(f64::INFINITY, f64::min);
        rectangles.push(Rectangle { begin, stop, rate });
        rates[begin..stop].iter_mut().for_each(|left| *left -= rate);
        todo.push((stop, end));
        todo.push((begin, stop));
    }
    rectangles
}
