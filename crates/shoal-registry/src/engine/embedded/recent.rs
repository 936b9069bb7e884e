//! A cache of recently read keys. A read that hits it needs neither the file nor a blocking thread.
//!
//! Reads stay linearizable: before a transaction becomes visible, its keys are dropped from the cache, and
//! from then on no value read from an older state is cached. So a cached value is that of the newest state.

use bytes::Bytes;
use lru::LruCache;

use crate::engine::{Revision, Stored};

/// Maximum total size of cached values.
const BYTES_MAX: usize = 8 << 20;
/// Approximate memory per entry in addition to its key and value.
const OVERHEAD_BYTES: usize = 128;

/// The key is not cached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown;

/// The cached values.
pub(super) struct Recent {
    answers: LruCache<Bytes, Option<Stored>>,
    bytes: usize,
    /// Changes up to this revision are visible or about to be, so values of older states may be stale.
    newest: Revision,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            answers: LruCache::unbounded(),
            bytes: 0,
            newest: Revision(0),
        }
    }
}

impl Recent {
    /// Looks up a key; [`Unknown`] if the file has to be read.
    pub(super) fn find(&mut self, key: &[u8]) -> Result<Option<Stored>, Unknown> {
        self.answers.get(key).cloned().ok_or(Unknown)
    }

    /// Caches the value of a key at a revision, unless a later state is about to become visible.
    pub(super) fn keep(&mut self, revision: Revision, key: Bytes, found: Option<Stored>) {
        let bytes = weight(&key, found.as_ref());
        if revision < self.newest || bytes > BYTES_MAX / 64 {
            return;
        }
        self.forget(&key);
        self.bytes += bytes;
        self.answers.put(key, found);
        while self.bytes > BYTES_MAX
            && let Some((key, found)) = self.answers.pop_lru()
        {
            self.bytes -= weight(&key, found.as_ref());
        }
        assert!(self.bytes <= BYTES_MAX, "cached values take bounded room");
    }

    /// Invalidates the keys that a revision changes; it becomes visible after this call.
    pub(super) fn change<'a>(&mut self, revision: Revision, keys: impl IntoIterator<Item = &'a Bytes>) {
        self.newest = revision;
        for key in keys {
            self.forget(key);
        }
    }

    /// Clears the cache.
    pub(super) fn clear(&mut self) {
        self.answers.clear();
        self.bytes = 0;
    }

    fn forget(&mut self, key: &Bytes) {
        if let Some(found) = self.answers.pop(key) {
            self.bytes -= weight(key, found.as_ref());
        }
    }
}

fn weight(key: &Bytes, found: Option<&Stored>) -> usize {
    OVERHEAD_BYTES + key.len() + found.map_or(0, |stored| stored.value.len())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{BYTES_MAX, Recent, Unknown};
    use crate::engine::{Revision, Stored};

    fn stored(revision: u64, bytes: usize) -> Stored {
        Stored {
            value: vec![0; bytes].into(),
            revision: Revision(revision),
        }
    }

    fn key(number: usize) -> Bytes {
        number.to_string().into()
    }

    #[test]
    fn an_answer_is_kept_until_its_key_changes() {
        let mut recent = Recent::default();
        recent.keep(Revision(1), key(1), Some(stored(1, 3)));
        recent.keep(Revision(1), key(2), None);
        assert_eq!(recent.find(b"1"), Ok(Some(stored(1, 3))));
        assert_eq!(recent.find(b"2"), Ok(None));
        assert_eq!(recent.find(b"3"), Err(Unknown));
        recent.change(Revision(2), [&key(2), &key(3)]);
        assert_eq!(recent.find(b"1"), Ok(Some(stored(1, 3))));
        assert_eq!(recent.find(b"2"), Err(Unknown));
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let mut recent = Recent::default();
        recent.change(Revision(2), [&key(1)]);
        recent.keep(Revision(1), key(1), Some(stored(1, 3)));
        assert_eq!(recent.find(b"1"), Err(Unknown));
        recent.keep(Revision(2), key(1), Some(stored(2, 3)));
        assert_eq!(recent.find(b"1"), Ok(Some(stored(2, 3))));
    }

    #[test]
    fn answers_take_bounded_room_and_the_least_recent_goes_first() {
        let mut recent = Recent::default();
        recent.keep(Revision(1), key(0), Some(stored(1, BYTES_MAX / 32)));
        assert_eq!(recent.find(b"0"), Err(Unknown), "too large");
        for number in 1..=1000 {
            recent.keep(Revision(1), key(number), Some(stored(1, BYTES_MAX / 100)));
            recent.keep(Revision(1), key(number), Some(stored(1, BYTES_MAX / 100)));
            assert!(recent.find(b"1").is_ok(), "it was used a moment ago");
            assert!(recent.bytes <= BYTES_MAX);
        }
        assert_eq!(recent.find(b"2"), Err(Unknown));
        assert!(recent.find(b"1000").is_ok());
        let keys: Vec<Bytes> = (1..=1000).map(key).collect();
        recent.change(Revision(2), &keys);
        assert_eq!((recent.bytes, recent.answers.len()), (0, 0));
        recent.keep(Revision(2), key(1), Some(stored(2, 9)));
        recent.clear();
        assert_eq!((recent.bytes, recent.answers.len()), (0, 0));
    }
}
