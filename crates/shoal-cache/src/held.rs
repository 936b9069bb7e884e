//! Objects of a tier that a run still reads: they are not brought to the lake meanwhile (dissertation 4.5.5).
//!
//! A *hold* is about the objects that one identity writes below a path. It delays the flush of no other's
//! objects, so it needs no permission but the one that each write has had. An object that is written while a
//! hold covers it is *marked*, in memory alone: a node that restarts, or flushes for a dead one, brings it to
//! the lake as it brings all others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Maximum number of paths at a time, and of marked objects. Further ones are not held.
const HOLDS_MAX: usize = 10_000;
const MARKED_MAX: usize = 1 << 16;

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The bucket.
    pub bucket: String,
    /// The object, or what is before the slash of all objects below it.
    pub key: String,
    /// The identity that writes them.
    pub writer: Arc<str>,
    /// The end of the hold, in milliseconds since 1970.
    pub until_ms: u64,
}

/// An object that is about to be written.
#[derive(Clone, Copy, Debug)]
pub struct TierObject<'a> {
    /// The unique id of the write.
    pub id: u128,
    /// The bucket.
    pub bucket: &'a [u8],
    /// The key.
    pub key: &'a [u8],
}

/// The holds in force, and the objects that were written below them.
#[derive(Debug, Default)]
pub struct HeldObjects {
    /// True if there is any hold. Otherwise a write only costs a load of this.
    has_any: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The orders that the holds are of.
    orders: Vec<u128>,
    /// The holds of each path, `bucket/key`.
    paths: HashMap<Vec<u8>, Vec<(Arc<str>, u64)>>,
    /// The marked objects.
    marked: HashMap<u128, Mark>,
    /// No mark ends earlier, in milliseconds since 1970; known while there are as many as there may be.
    first_end_ms: u64,
}

/// A marked object.
#[derive(Debug)]
struct Mark {
    writer: Arc<str>,
    /// `bucket/key`
    path: Box<[u8]>,
    /// The last end of the holds that covered it when it was written.
    until_ms: u64,
}

impl HeldObjects {
    /// Puts the holds of some orders in force, and no others. The holds of an order do not change, so they
    /// are asked for only if the orders have changed.
    pub fn set(&self, orders: Vec<u128>, holds: impl FnOnce() -> Vec<Hold>) {
        let mut inner = self.inner.lock();
        if inner.orders == orders {
            return;
        }
        let mut paths: HashMap<Vec<u8>, Vec<(Arc<str>, u64)>> = HashMap::new();
        for hold in holds().into_iter().take(HOLDS_MAX) {
            let path = path_of(hold.bucket.as_bytes(), hold.key.as_bytes());
            paths.entry(path).or_default().push((hold.writer, hold.until_ms));
        }
        self.has_any.store(!paths.is_empty(), Ordering::Relaxed);
        inner
            .marked
            .retain(|_, mark| holds_of(&paths, &mark.path, &mark.writer).next().is_some());
        (inner.orders, inner.paths, inner.first_end_ms) = (orders, paths, 0);
    }

    /// Marks an object that `writer` is about to write at `now_ms`, if a hold covers it. Returns true if it
    /// is marked.
    pub fn mark(&self, object: TierObject<'_>, writer: &str, now_ms: u64) -> bool {
        if !self.has_any.load(Ordering::Relaxed) {
            return false;
        }
        let mut inner = self.inner.lock();
        let path = path_of(object.bucket, object.key);
        let holds = holds_of(&inner.paths, &path, writer);
        let Some((writer, until_ms)) = holds.max_by_key(|(_, until_ms)| *until_ms) else {
            return false;
        };
        let (writer, until_ms) = (Arc::clone(writer), *until_ms);
        if until_ms <= now_ms || !inner.has_room(now_ms) {
            return false;
        }
        let path = path.into();
        let mark = Mark {
            writer,
            path,
            until_ms,
        };
        inner.marked.insert(object.id, mark);
        true
    }

    /// Returns true if the object of a write stays in its tier at `now_ms`, although it is due: it is marked,
    /// and a hold of its writer still covers it.
    pub fn has(&self, id: u128, now_ms: u64) -> bool {
        if !self.has_any.load(Ordering::Relaxed) {
            return false;
        }
        let inner = self.inner.lock();
        inner.marked.get(&id).is_some_and(|mark| {
            let mut holds = holds_of(&inner.paths, &mark.path, &mark.writer);
            now_ms < mark.until_ms && holds.any(|(_, until_ms)| now_ms < *until_ms)
        })
    }
}

impl Inner {
    /// Returns true if another object may be marked. Marks that have ended make room.
    fn has_room(&mut self, now_ms: u64) -> bool {
        if self.marked.len() >= MARKED_MAX && self.first_end_ms <= now_ms {
            self.marked.retain(|_, mark| now_ms < mark.until_ms);
            let ends = self.marked.values().map(|mark| mark.until_ms);
            self.first_end_ms = ends.min().unwrap_or_default();
        }
        self.marked.len() < MARKED_MAX
    }
}

/// Returns the holds of a writer that cover a path, with their ends.
fn holds_of<'a>(
    paths: &'a HashMap<Vec<u8>, Vec<(Arc<str>, u64)>>,
    path: &'a [u8],
    writer: &'a str,
) -> impl Iterator<Item = &'a (Arc<str>, u64)> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let ends = slashes.map(|(end, _)| end).chain([path.len()]);
    let holds = ends.filter_map(|end| paths.get(&path[..end])).flatten();
    holds.filter(move |(of, _)| **of == *writer)
}

fn path_of(bucket: &[u8], key: &[u8]) -> Vec<u8> {
    [bucket, b"/", key].concat()
}

#[cfg(test)]
mod tests {
    use super::{HOLDS_MAX, HeldObjects, Hold, MARKED_MAX, TierObject};

    fn hold(key: &str, until_ms: u64) -> Hold {
        Hold {
            bucket: "b".into(),
            key: key.into(),
            writer: "writer".into(),
            until_ms,
        }
    }

    fn object(id: u128, key: &str) -> TierObject<'_> {
        TierObject {
            id,
            bucket: b"b",
            key: key.as_bytes(),
        }
    }

    #[test]
    fn what_the_identity_of_a_hold_writes_below_its_path_stays_and_nothing_else() {
        let held = HeldObjects::default();
        assert!(!held.mark(object(0, "tmp/k"), "writer", 0), "nothing is held");
        held.set(vec![1], || vec![hold("tmp", 10), hold("a/file", 10)]);
        for (id, key, writer, is_held) in [
            (1, "tmp/k", "writer", true),
            (2, "tmp/a/b", "writer", true),
            (3, "a/file", "writer", true),
            (4, "tmp/k", "other", false),
            (5, "tmp2", "writer", false),
            (6, "tm", "writer", false),
            (7, "a/file2", "writer", false),
        ] {
            assert_eq!(
                held.mark(object(id, key), writer, 9),
                is_held,
                "{key} of {writer}"
            );
            assert_eq!(held.has(id, 9), is_held, "{key} of {writer}");
            assert!(!held.has(id, 10), "the hold has ended");
        }
        assert!(!held.has(99, 9), "it was written before the hold");
    }

    #[test]
    fn an_object_stays_until_the_last_of_its_holds_has_ended() {
        let held = HeldObjects::default();
        held.set(vec![1, 2], || vec![hold("tmp", 10), hold("tmp/a", 20)]);
        assert!(held.mark(object(1, "tmp/a/k"), "writer", 0));
        held.set(vec![2], || vec![hold("tmp/a", 20)]);
        assert!(held.has(1, 15));
        held.set(Vec::new(), Vec::new);
        assert!(!held.has(1, 15));
        // Its mark is forgotten.
        held.set(vec![3], || vec![hold("tmp", 20)]);
        assert!(!held.has(1, 15));
    }

    #[test]
    fn holds_and_marks_are_bounded_and_end_with_their_orders() {
        let held = HeldObjects::default();
        held.set(vec![1], || {
            (0..=HOLDS_MAX)
                .map(|number| hold(&number.to_string(), 10))
                .collect()
        });
        assert!(held.mark(object(0, &(HOLDS_MAX - 1).to_string()), "writer", 0));
        assert!(!held.mark(object(1, &HOLDS_MAX.to_string()), "writer", 0));
        for id in 1..MARKED_MAX as u128 {
            assert!(held.mark(object(id, "0"), "writer", 0));
        }
        assert!(!held.mark(object(MARKED_MAX as u128, "0"), "writer", 0));
        held.set(Vec::new(), Vec::new);
        held.set(vec![2], || vec![hold("0", 10)]);
        assert!(held.mark(object(MARKED_MAX as u128, "0"), "writer", 0));
    }

    #[test]
    fn marks_end_while_their_writer_goes_on_with_other_runs() {
        let held = HeldObjects::default();
        let mark = |id: u128, key: &str, now_ms| held.mark(object(id, key), "writer", now_ms);
        // Of a run that ends, below a path of its own.
        held.set(vec![1], || vec![hold("first", 10)]);
        assert!((0..MARKED_MAX as u128).all(|id| mark(id, "first/k", 0)));
        held.set(vec![2], || vec![hold("second", 20)]);
        assert!(
            (0..MARKED_MAX as u128).all(|id| mark(id, "second/k", 0)),
            "they made room"
        );
        assert!(!mark(MARKED_MAX as u128, "second/k", 0));
        // Of runs that follow each other without an end, below one path.
        held.set(vec![2, 3], || vec![hold("second", 20), hold("second", 30)]);
        assert!(!mark(MARKED_MAX as u128, "second/k", 19));
        assert!(
            mark(MARKED_MAX as u128, "second/k", 20),
            "the former marks have ended"
        );
        assert!(!held.has(0, 20), "it was written for the former run");
    }
}
