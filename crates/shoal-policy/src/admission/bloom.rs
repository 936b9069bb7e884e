//! Remembers recently seen keys in bounded memory, with a low false-positive rate.

use std::hash::Hash;

use crate::hash::hash;

/// Two generations of a Bloom filter: keys are added to the younger, lookups check both, and when the younger
/// is full the older is discarded.
///
/// The filter remembers at least the last `keys` different keys, and at most twice as many. Its
/// false-positive rate is 1 in 200 (measured with both generations full), and it needs 3 bytes per key.
#[derive(Debug)]
pub(super) struct RotatingBloom {
    younger: Vec<u64>,
    older: Vec<u64>,
    /// The number of keys in the younger generation.
    len: usize,
    keys: usize,
}

const BITS_PER_KEY: usize = 12;

/// The number of bits set for each key. 0.7 times [`BITS_PER_KEY`] minimises false positives; fewer bits need
/// fewer look-ups and add hardly any false positives.
const PROBES: u64 = 6;

impl RotatingBloom {
    pub(super) fn new(keys: usize) -> Self {
        let words = (keys * BITS_PER_KEY).div_ceil(64).max(1);
        Self {
            younger: vec![0; words],
            older: vec![0; words],
            len: 0,
            keys,
        }
    }

    /// Records a key and returns whether it was seen before.
    pub(super) fn see(&mut self, key: &impl Hash) -> bool {
        let bits = bits(hash(key), self.younger.len());
        if is_set(&self.younger, bits.clone()) {
            return true;
        }
        let was_seen = is_set(&self.older, bits.clone());
        if self.len >= self.keys {
            std::mem::swap(&mut self.younger, &mut self.older);
            self.younger.fill(0);
            self.len = 0;
        }
        for (word, bit) in bits {
            self.younger[word] |= bit;
        }
        self.len += 1;
        was_seen
    }
}

fn is_set(words: &[u64], mut bits: impl Iterator<Item = (usize, u64)>) -> bool {
    bits.all(|(word, bit)| words[word] & bit != 0)
}

/// The places of a key, as word and bit. They are steps of one half of its hash from the other, which is as
/// good as a hash for each place (Kirsch and Mitzenmacher, 2006).
fn bits(hash: u64, words: usize) -> impl Iterator<Item = (usize, u64)> + Clone {
    let (start, step) = (hash, hash.rotate_left(32) | 1);
    (0..PROBES).map(move |probe| {
        let place = start.wrapping_add(probe.wrapping_mul(step));
        // The high bits choose the word, by multiplication instead of division; the low bits choose the bit
        // in it.
        let word = (u128::from(place) * words as u128) >> 64;
        (word as usize, 1 << (place % 64))
    })
}

#[cfg(test)]
mod tests {
    use super::RotatingBloom;

    #[test]
    fn the_last_keys_are_remembered_and_the_ones_long_ago_forgotten() {
        let mut seen = RotatingBloom::new(1_000);
        assert!((0..10_000u32).filter(|key| seen.see(key)).count() < 60);
        assert!((9_000..10_000u32).all(|key| seen.see(&key)));
        let remembered = (0..8_000u32).step_by(8).filter(|key| seen.see(key)).count();
        assert!(remembered < 20, "{remembered} of 1,000");
    }

    #[test]
    fn one_in_200_is_taken_for_seen() {
        let keys = 100_000usize;
        let mut seen = RotatingBloom::new(keys);
        let mistaken = (0..2 * keys).filter(|key| seen.see(key)).count();
        assert!(mistaken < 600, "while it fills: {mistaken} of 200,000");
        let mut mistaken = 0;
        for key in 2 * keys..3 * keys {
            mistaken += u32::from(seen.see(&key));
        }
        assert!(
            mistaken < 500,
            "while one generation is full and the other fills: {mistaken} of 100,000"
        );
    }
}
