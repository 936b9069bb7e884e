//! A cache that decides when a job starts: LRU, and PACMan's LIFE. Files are cached whole.

use std::collections::HashMap;

/// How the file that leaves is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Lru,
    Life,
}

/// Files in the cache.
#[derive(Clone, Debug)]
pub(super) struct Reactive {
    order: Order,
    left_bytes: f64,
    files: HashMap<usize, Entry>,
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    size: f64,
    /// Cached bytes; fewer than `size` while a job or a fetch brings the file. A job adds its bytes when it
    /// is done.
    bytes: f64,
    /// Jobs and fetches that use it now. It is not evicted while there are any.
    users: u32,
    /// True if it is being fetched, so that a job can read the bytes that have arrived.
    is_fetched: bool,
    used: u64,
}

impl Reactive {
    pub(super) fn new(order: Order, capacity_bytes: f64) -> Self {
        Self {
            order,
            left_bytes: capacity_bytes,
            files: HashMap::new(),
            uses: 0,
        }
    }

    /// The bytes that a starting job can read from the cache. The file stays until [`Reactive::release`].
    pub(super) fn open(&mut self, file: usize) -> f64 {
        self.uses += 1;
        let Some(entry) = self.files.get_mut(&file) else {
            return 0.0;
        };
        entry.users += 1;
        entry.used = self.uses;
        if entry.is_fetched || entry.bytes >= entry.size {
            entry.bytes
        } else {
            0.0
        }
    }

    /// Returns true if anything of the file is here or on its way.
    pub(super) fn knows(&self, file: usize) -> bool {
        self.files.contains_key(&file)
    }

    /// Makes room for a file that a job (or a fetch) is about to bring. `false` if files that are in use
    /// leave none.
    pub(super) fn admit(&mut self, file: usize, size: f64, is_fetched: bool) -> bool {
        while self.left_bytes < size {
            let unused = self.files.iter().filter(|(_, entry)| entry.users == 0);
            let victim =
                unused.max_by(|(a, x), (b, y)| self.leaves(x).total_cmp(&self.leaves(y)).then(b.cmp(a)));
            let Some((&victim, entry)) = victim else {
                return false;
            };
            self.left_bytes += entry.size;
            self.files.remove(&victim);
        }
        self.left_bytes -= size;
        self.uses += 1;
        self.files.insert(
            file,
            Entry {
                size,
                bytes: 0.0,
                users: 1,
                is_fetched,
                used: self.uses,
            },
        );
        true
    }

    /// The greater, the sooner it leaves.
    fn leaves(&self, entry: &Entry) -> f64 {
        match self.order {
            Order::Lru => -(entry.used as f64),
            Order::Life if entry.bytes < entry.size => f64::MAX,
            Order::Life => entry.size,
        }
    }

    /// A fetch has brought more bytes of the file.
    pub(super) fn fetched(&mut self, file: usize, bytes: f64) {
        if let Some(entry) = self.files.get_mut(&file) {
            entry.bytes = (entry.bytes + bytes).min(entry.size);
        }
    }

    /// A job has brought the rest of the file.
    pub(super) fn complete(&mut self, file: usize) {
        if let Some(entry) = self.files.get_mut(&file) {
            entry.bytes = entry.size;
        }
    }

    /// A job or a fetch no longer uses the file.
    pub(super) fn release(&mut self, file: usize) {
        if let Some(entry) = self.files.get_mut(&file) {
            entry.users = entry.users.saturating_sub(1);
        }
    }
}
