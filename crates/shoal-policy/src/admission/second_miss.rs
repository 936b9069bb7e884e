//! Refuses blocks that are requested only once.

use std::hash::Hash;

use super::bloom::RotatingBloom;
use super::{Admission, Arrival, Refusal};

/// Admits a block when it is missed for the second time in a while. Three quarters of the objects that a
/// content delivery network serves are requested once (Maggs and Sitaraman, *Algorithmic Nuggets in Content
/// Delivery*, 2015). Every block that is kept costs one more fetch.
///
/// The policy remembers keys in a filter of 3 bytes a key, which admits one in 200 too early.
#[derive(Debug)]
pub struct SecondMiss {
    missed: RotatingBloom,
}

impl SecondMiss {
    /// Remembers at least the last `keys` different keys missed; as many as the cache holds is a good start.
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
                object_bytes: 1,
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
