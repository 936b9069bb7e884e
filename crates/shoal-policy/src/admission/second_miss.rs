//! Refuses blocks that are requested only once.

use std::hash::Hash;

use super::bloom::RotatingBloom;
use super::{Admission, Arrival, Refusal};

/// Admits a block on its second recent miss. Three quarters of the objects that a content delivery network
/// serves are requested once (Maggs and Sitaraman, *Algorithmic Nuggets in Content Delivery*, 2015). Every
/// cached block costs one extra fetch.
///
/// The policy remembers keys in a Bloom filter of 3 bytes per key, which admits one key in 200 on its first
/// miss.
#[derive(Debug)]
pub struct SecondMiss {
    missed: RotatingBloom,
}

impl SecondMiss {
    /// Remembers at least the last `keys` distinct keys missed; the number of keys in the cache is a good
    /// start.
    pub fn new(keys: usize) -> Self {
        Self {
            missed: RotatingBloom::new(keys),
        }
    }
}

impl<K: Hash> Admission<K> for SecondMiss {
    fn admit(&mut self, arrival: &Arrival<K>) -> Result<(), Refusal> {
        let was_missed = self.missed.see(&arrival.key);
        if was_missed || !arrival.is_crowded {
            Ok(())
        } else {
            Err(Refusal::SeenOnce)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, Arrival, Refusal, SecondMiss};

    #[test]
    fn the_second_miss_enters_and_the_first_while_there_is_room() {
        let mut policy = SecondMiss::new(100);
        let mut admit = |key: u32, is_crowded| {
            policy.admit(&Arrival {
                key,
                bytes: 1,
                is_crowded,
            })
        };
        assert_eq!(admit(1, true), Err(Refusal::SeenOnce));
        assert_eq!(admit(1, true), Ok(()));
        assert_eq!(admit(2, false), Ok(()));
        assert_eq!(admit(2, true), Ok(()), "a miss with room counts");
        assert_eq!(admit(3, true), Err(Refusal::SeenOnce));
    }
}
