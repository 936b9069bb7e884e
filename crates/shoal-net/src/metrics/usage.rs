//! Requests and bytes by a name that comes with a request, such as its bucket, for a bounded number of names.

use std::collections::{BTreeMap, HashMap};
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::Count;

/// The number of names that are counted separately.
const NAMES_MAX: usize = 100;

/// The name under which all others are counted.
const OTHER: &str = "other";

/// A name without a successful request for more hours than this gives its place back, if all are taken.
const IDLE_HOURS_MAX: u32 = 24;

/// Counts usage by name. Counting takes no lock and allocates nothing, except where a name gets its place.
#[derive(Debug, Default)]
pub struct UsageByName {
    /// Replaced as a whole when a name gets a place or gives it back.
    named: ArcSwap<Named>,
    other: Arc<Counters>,
    /// Counters that gave their places back, as long as requests may still add to them. The lock also
    /// admits one change of `named` at a time.
    ended: Mutex<Vec<Arc<Counters>>>,
}

type Named = HashMap<Arc<str>, Arc<Counters>>;

/// An amount of usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests of clients.
    pub requests: u64,
    /// Bytes of bodies sent to clients.
    pub sent_bytes: u64,
    /// Those of them that came from the lake.
    pub lake_bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: Count,
    sent_bytes: Count,
    lake_bytes: Count,
    idle_hours: AtomicU32,
}

impl UsageByName {
    /// Counts usage under a name that has a place. `succeeded` is true if the request was answered with
    /// success: only then the name gets a place, so that names which the lake does not have take none.
    pub fn add(&self, name: &str, succeeded: bool, usage: Usage) {
        let named = self.named.load();
        match named.get(name) {
            Some(counters) => {
                if succeeded && counters.idle_hours.load(Ordering::Relaxed) > 0 {
                    counters.idle_hours.store(0, Ordering::Relaxed);
                }
                counters.add(usage);
            }
            None if succeeded && named.len() < NAMES_MAX => self.place(name).add(usage),
            None => self.other.add(usage),
        }
    }

    /// Counts an hour for each name. If all places are taken, those of idle names become free: what was
    /// counted under such a name counts as [`OTHER`] from now on.
    pub fn end_idle(&self) {
        let mut ended = self.ended.lock();
        let named = self.named.load_full();
        let is_full = named.len() >= NAMES_MAX;
        let mut kept = Named::clone(&named);
        kept.retain(|_, counters| {
            let idle_hours = counters.idle_hours.fetch_add(1, Ordering::Relaxed) + 1;
            let stays = !is_full || idle_hours <= IDLE_HOURS_MAX;
            if !stays {
                ended.push(Arc::clone(counters));
            }
            stays
        });
        if kept.len() < named.len() {
            self.named.store(Arc::new(kept));
        }
        drop(named);
        ended.retain_mut(|counters| match Arc::get_mut(counters) {
            Some(unused) => {
                self.other.add(unused.usage());
                false
            }
            None => true,
        });
    }

    /// Returns the usage since the start by name. No count ever goes down, unless its name has given its
    /// place back in between.
    pub fn by_name(&self) -> BTreeMap<String, Usage> {
        let ended = self.ended.lock();
        let named = self.named.load();
        let counted = named.iter().map(|(name, counters)| (&**name, &**counters));
        let others = ended.iter().map(|counters| (OTHER, &**counters));
        let all = counted.chain(others).chain([(OTHER, &*self.other)]);
        let mut usages = BTreeMap::<_, Usage>::new();
        for (name, usage) in all.map(|(name, counters)| (name, counters.usage())) {
            if usage.requests > 0 {
                *usages.entry(name.to_owned()).or_default() += usage;
            }
        }
        usages
    }

    /// Returns the counters of a name that had no place, or those of all others if there is no place.
    fn place(&self, name: &str) -> Arc<Counters> {
        let _changing = self.ended.lock();
        let named = self.named.load();
        if let Some(counters) = named.get(name) {
            return Arc::clone(counters);
        }
        if named.len() >= NAMES_MAX {
            return Arc::clone(&self.other);
        }
        let counters = Arc::<Counters>::default();
        let mut more = Named::clone(&named);
        more.insert(name.into(), Arc::clone(&counters));
        self.named.store(Arc::new(more));
        counters
    }
}

impl Counters {
    fn add(&self, usage: Usage) {
        self.requests.add(usage.requests);
        self.sent_bytes.add(usage.sent_bytes);
        self.lake_bytes.add(usage.lake_bytes);
    }

    fn usage(&self) -> Usage {
        Usage {
            requests: self.requests.get(),
            sent_bytes: self.sent_bytes.get(),
            lake_bytes: self.lake_bytes.get(),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.sent_bytes += more.sent_bytes;
        self.lake_bytes += more.lake_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Usage = Usage {
        requests: 1,
        sent_bytes: 30,
        lake_bytes: 10,
    };

    fn full() -> UsageByName {
        let names = UsageByName::default();
        for number in 0..NAMES_MAX {
            names.add(&format!("bucket-{number}"), true, ONE);
        }
        names
    }

    fn requests(names: &UsageByName, name: &str) -> Option<u64> {
        names.by_name().get(name).map(|usage| usage.requests)
    }

    #[test]
    fn requests_and_bytes_are_counted_by_name() {
        let names = UsageByName::default();
        names.add("sales", true, ONE);
        names.add("sales", true, ONE);
        names.add("logs", true, ONE);
        let mut twice = ONE;
        twice += ONE;
        let expected = [("logs", ONE), ("sales", twice)].map(|(name, usage)| (name.to_owned(), usage));
        assert_eq!(names.by_name(), expected.into());
    }

    #[test]
    fn a_name_without_a_success_takes_no_place_and_is_still_counted() {
        let names = UsageByName::default();
        names.add("no-such-bucket", false, ONE);
        assert_eq!(names.by_name(), [(OTHER.to_owned(), ONE)].into());
        names.add("sales", true, ONE);
        names.add("sales", false, ONE);
        assert_eq!(
            (requests(&names, "sales"), requests(&names, OTHER)),
            (Some(2), Some(1))
        );
    }

    #[test]
    fn a_bucket_called_other_is_counted_with_the_others() {
        let names = UsageByName::default();
        names.add(OTHER, true, ONE);
        names.add("no-such-bucket", false, ONE);
        assert_eq!(names.by_name().len(), 1);
        assert_eq!(requests(&names, OTHER), Some(2));
    }

    #[test]
    fn names_beyond_the_bound_are_counted_together() {
        let names = full();
        names.add("one-more", true, ONE);
        names.add("bucket-0", true, ONE);
        assert_eq!(names.by_name().len(), NAMES_MAX + 1);
        assert_eq!(
            (requests(&names, "bucket-0"), requests(&names, OTHER)),
            (Some(2), Some(1))
        );
    }

    #[test]
    fn an_idle_name_gives_its_place_and_its_counts_back_when_places_are_short() {
        let names = full();
        for _ in 0..IDLE_HOURS_MAX {
            names.end_idle();
        }
        assert_eq!(
            names.by_name().len(),
            NAMES_MAX,
            "it was idle for a day, and no longer"
        );
        names.add("bucket-0", true, ONE);
        names.add("bucket-1", false, ONE);
        names.end_idle();
        assert_eq!(requests(&names, "bucket-0"), Some(2));
        assert_eq!(requests(&names, "bucket-1"), None, "a refused request is no use");
        assert_eq!(requests(&names, OTHER), Some(NAMES_MAX as u64));
        names.add("one-more", true, ONE);
        assert_eq!(requests(&names, "one-more"), Some(1));
        assert!(names.ended.lock().is_empty());
    }

    #[test]
    fn an_idle_name_keeps_its_place_while_there_is_room() {
        let names = UsageByName::default();
        names.add("yearly", true, ONE);
        for _ in 0..10 * IDLE_HOURS_MAX {
            names.end_idle();
        }
        assert_eq!(requests(&names, "yearly"), Some(1));
    }

    #[test]
    fn a_request_that_ends_while_its_name_gives_its_place_back_is_counted() {
        let names = full();
        let before = names.named.load_full();
        for _ in 0..=IDLE_HOURS_MAX {
            names.end_idle();
        }
        assert_eq!(requests(&names, OTHER), Some(NAMES_MAX as u64));
        before["bucket-0"].add(ONE);
        assert_eq!(requests(&names, OTHER), Some(NAMES_MAX as u64 + 1));
        drop(before);
        names.end_idle();
        assert!(names.ended.lock().is_empty());
        assert_eq!(requests(&names, OTHER), Some(NAMES_MAX as u64 + 1));
    }

    #[test]
    fn all_threads_count_and_nothing_is_lost() {
        let names = UsageByName::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let names = &names;
                scope.spawn(move || {
                    for number in 0..3 * NAMES_MAX {
                        names.add(
                            &format!("bucket-{}", (number + thread) % (2 * NAMES_MAX)),
                            true,
                            ONE,
                        );
                        if number % 10 == 0 {
                            names.end_idle();
                        }
                    }
                });
            }
        });
        let all: u64 = names.by_name().values().map(|usage| usage.requests).sum();
        assert_eq!(all, 12 * NAMES_MAX as u64);
        assert!(names.named.load().len() <= NAMES_MAX);
    }
}
