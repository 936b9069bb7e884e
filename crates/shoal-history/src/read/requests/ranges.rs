//! The ranges of an object that a run read, each byte counted once.

use std::collections::BTreeMap;

use crate::stats::sum;

/// Maximum number of ranges kept per object. Beyond it, the two nearest are merged.
const RANGES_MAX: usize = 64;

/// Ranges of one object.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    /// End (exclusive) of each range by its start, without overlaps.
    ends: BTreeMap<u64, u64>,
    /// Bytes of responses whose range is not logged.
    unplaced_bytes: u64,
    /// Size of the object, if logged.
    object_bytes: Option<u64>,
}

impl Ranges {
    /// Adds a response of `bytes` bytes, starting at `offset` if that is logged.
    pub(super) fn add(&mut self, offset: Option<u64>, bytes: u64, object_bytes: Option<u64>) {
        self.object_bytes = self.object_bytes.max(object_bytes);
        match offset {
            _ if bytes == 0 => {}
            None => self.unplaced_bytes = self.unplaced_bytes.saturating_add(bytes),
            Some(first) => self.insert(first, first.saturating_add(bytes)),
        }
    }

    /// Returns the distinct bytes read, at most the size of the object.
    pub(super) fn bytes(&self) -> u64 {
        let placed = sum(self.ends.iter().map(|(first, end)| end - first));
        let all = placed.saturating_add(self.unplaced_bytes);
        self.object_bytes
            .map_or(all, |object_bytes| all.min(object_bytes))
    }

    fn insert(&mut self, mut first: u64, mut end: u64) {
        // The range that starts before, and all that start within.
        let before = self
            .ends
            .range(..=first)
            .next_back()
            .map(|(&first, &end)| (first, end));
        if let Some((before, before_end)) = before.filter(|&(_, before_end)| before_end >= first) {
            (first, end) = (before, end.max(before_end));
        }
        let within: Vec<u64> = self.ends.range(first..=end).map(|(&first, _)| first).collect();
        for range in within {
            end = end.max(self.ends.remove(&range).unwrap_or(end));
        }
        debug_assert!(first <= end, "a range ends after it begins");
        self.ends.insert(first, end);
        if self.ends.len() > RANGES_MAX {
            self.join_nearest();
        }
    }

    fn join_nearest(&mut self) {
        let pairs = self.ends.iter().zip(self.ends.iter().skip(1));
        let nearest = pairs
            .map(|((&first, &end), (&next, &next_end))| (next - end, first, next, next_end))
            .min();
        if let Some((_, first, next, next_end)) = nearest {
            self.ends.remove(&next);
            self.ends.insert(first, next_end);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    use super::{RANGES_MAX, Ranges};

    fn bytes(reads: &[(u64, u64)]) -> u64 {
        let mut ranges = Ranges::default();
        for &(offset, bytes) in reads {
            ranges.add(Some(offset), bytes, None);
        }
        ranges.bytes()
    }

    #[test]
    fn bytes_that_are_read_twice_count_once() {
        assert_eq!(bytes(&[(0, 10), (5, 10), (20, 5)]), 20);
        assert_eq!(bytes(&[(0, 5), (5, 5), (0, 10)]), 10);
        assert_eq!(bytes(&[(10, 5), (0, 100)]), 100);
        assert_eq!(bytes(&[(3, 0)]), 0);
        assert_eq!(bytes(&[(u64::MAX, 5)]), 0);
    }

    #[test]
    fn without_ranges_an_object_is_not_read_more_than_once() {
        let mut ranges = Ranges::default();
        for _ in 0..3 {
            ranges.add(None, 60, Some(100));
        }
        assert_eq!(ranges.bytes(), 100);
    }

    proptest! {
        #[test]
        fn ranges_count_every_byte_once(reads in prop::collection::vec((0..500_u64, 0..60_u64), 0..40)) {
            let mut seen = [false; 600];
            for &(first, bytes) in &reads {
                (first..first + bytes).for_each(|byte| seen[usize::try_from(byte).unwrap()] = true);
            }
            prop_assert_eq!(bytes(&reads), seen.iter().filter(|seen| **seen).count() as u64);
        }

        #[test]
        fn many_ranges_take_bounded_memory(reads in prop::collection::vec((0..1_000_000_u64, 1..20_u64), 0..400)) {
            let mut ranges = Ranges::default();
            for &(first, bytes) in &reads {
                ranges.add(Some(first), bytes, None);
                prop_assert!(ranges.ends.len() <= RANGES_MAX);
            }
            let exact = reads.len() as u64;
            prop_assert!(ranges.bytes() >= exact.min(1));
        }
    }
}
