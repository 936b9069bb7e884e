//! Answers to looks at keys, kept in memory until their keys change: a look that finds one needs neither the
//! file nor a thread that may wait for it.
//!
//! Looks stay linearizable. Before a transaction of the file becomes visible, the answers about its keys are
//! forgotten, and from then on no answer is kept that was read from a state before it. So an answer that is
//! here is that of the newest state.

use bytes::Bytes;
use lru::LruCache;

use crate::engine::{Revision, Stored};

/// The room of all answers together.
const BYTES_MAX: usize = 8 << 20;
/// The memory that an answer takes beside its key and its value, roughly.
const OVERHEAD_BYTES: usize = 128;

/// No answer about a key is kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown;

/// Answers that hold.
pub(super) struct Recent {
    answers: LruCache<Bytes, Option<Stored>>,
    bytes: usize,
    /// Changes up to this revision are visible, or on their way. Older answers may be out of date.
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
    /// The answer about a key; [`Unknown`] if the file has to be read.
    pub(super) fn find(&mut self, key: &[u8]) -> Result<Option<Stored>, Unknown> {
        self.answers.get(key).cloned().ok_or(Unknown)
    }

    /// Keeps what the state at a revision has under a key, if no later state is on its way.
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
    }

    /// These keys change with a revision, which becomes visible after this call.
    pub(super) fn change<'a>(&mut self, revision: Revision, keys: impl IntoIterator<Item = &'a Bytes>) {
        self.newest = revision;
        for key in keys {
            self.forget(key);
        }
    }

    /// Forgets all answers.
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
