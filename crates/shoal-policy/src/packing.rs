//! Which tables of a map are merged, which packs are rewritten, and what is removed from a lake (ADR 0048).
//!
//! Small objects are at the lake in *packs*, and the *tables* of a map say where. New rows come in new
//! tables, and old packs keep the bytes of objects that were overwritten or removed since. The functions here
//! bound the number of tables and the bytes that no name needs, and [`Leftovers`] says what no reader needs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// The number of tables of a size that are merged into one.
const MERGED: usize = 8;

/// Beyond this number of tables, those are merged that cost least, whatever their sizes: each look-up of an
/// absent name asks all of them.
const TABLES_MAX: usize = 64;

/// A table that is larger than this share of the largest merge stays as it is: eight such tables, and smaller
/// ones between them, would exceed it.
const FULL_SHARE: u64 = 16;

/// The age up to which an object stays that the keeper has never seen named: its writer may be about to
/// commit the table that names it.
pub const UNNAMED_STAYS: Duration = Duration::from_hours(24);

/// Returns which tables to merge next, or `None`: then a map has seven tables of each size at most, or
/// [`TABLES_MAX`] in all, or tables of an eighth of `bytes_max` on average.
///
/// `tables` are the sizes of the tables in bytes, newest first. A size may leave out the rows that newer
/// tables hide, which a merge drops. Tables that are merged follow one another, since the newest row of a
/// name is right, and have at most `bytes_max` bytes.
///
/// Two tables have one size if the same power of eight is next below them. So a row is written once for each
/// power of eight, and not once for each new table.
pub fn tables_to_merge(tables: &[u64], bytes_max: u64) -> Option<Range<usize>> {
    let full = bytes_max / FULL_SHARE;
    let mut sizes = 0..=size(full);
    let of_a_size = sizes.find_map(|of| eight_of(tables, of, full));
    let of_a_size = of_a_size.filter(|range| sum(&tables[range.clone()]) <= bytes_max);
    let is_too_many = || tables.len() > TABLES_MAX;
    of_a_size.or_else(|| is_too_many().then(|| cheapest(tables, bytes_max))?)
}

/// The power of eight that is next below `bytes`.
fn size(bytes: u64) -> u32 {
    bytes.checked_ilog(MERGED as u64).unwrap_or(0)
}

/// Returns the newest eight tables of the size `of`, with those of smaller sizes between them, unless one of
/// a larger size is between them.
fn eight_of(tables: &[u64], of: u32, full: u64) -> Option<Range<usize>> {
    let mut found = Vec::with_capacity(MERGED);
    for (at, bytes) in tables.iter().enumerate() {
        if *bytes > full || size(*bytes) > of {
            found.clear();
        } else if size(*bytes) == of {
            found.push(at);
        }
        if found.len() == MERGED {
            return Some(found[0]..at + 1);
        }
    }
    None
}

/// Returns the eight neighbours with the fewest bytes, if `bytes_max` are enough for them.
fn cheapest(tables: &[u64], bytes_max: u64) -> Option<Range<usize>> {
    let bytes = tables.windows(MERGED).map(sum).enumerate();
    let (start, bytes) = bytes.min_by_key(|(_, bytes)| *bytes)?;
    (bytes <= bytes_max).then_some(start..start + MERGED)
}

fn sum(bytes: &[u64]) -> u64 {
    bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// A pack of which at least one object is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackUse<P> {
    /// Names the pack.
    pub pack: P,
    /// Its size in bytes.
    pub bytes: u64,
    /// The bytes that its living objects take in a pack, their headers and entries included.
    pub live_bytes: u64,
}

/// Returns which packs to rewrite, the emptiest first: those with less than half of their bytes alive, and
/// further ones until all packs together are smaller than 1.5 times what is alive.
pub fn packs_to_rewrite<P: Copy + Ord>(mut packs: Vec<PackUse<P>>) -> Vec<PackUse<P>> {
    let product = |live: &PackUse<P>, all: &PackUse<P>| u128::from(live.live_bytes) * u128::from(all.bytes);
    packs.sort_unstable_by(|one, other| {
        let shares = product(one, other).cmp(&product(other, one));
        shares.then(one.pack.cmp(&other.pack))
    });
    let total = |bytes: fn(&PackUse<P>) -> u64| packs.iter().map(|pack| u128::from(bytes(pack))).sum();
    let (mut all, live): (u128, u128) = (total(|pack| pack.bytes), total(|pack| pack.live_bytes));
    let stays = packs.iter().position(|pack| {
        let dead_bytes = pack.bytes.saturating_sub(pack.live_bytes);
        let is_half_dead = dead_bytes > pack.live_bytes;
        let is_too_much = all * 2 >= live * 3;
        all -= u128::from(dead_bytes);
        !is_half_dead && !is_too_much
    });
    packs.truncate(stays.unwrap_or(packs.len()));
    packs
}

/// Objects of a lake that nothing names, each with the time at which the keeper saw this first.
///
/// Times are counted from an origin of the caller's choice. All of it is in memory: a new keeper waits again.
#[derive(Debug)]
pub struct Leftovers<T> {
    named: BTreeSet<T>,
    unnamed: BTreeMap<T, Unnamed>,
}

#[derive(Clone, Copy, Debug)]
struct Unnamed {
    since: Duration,
    was_named: bool,
}

/// The result of a look at the objects of a lake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked<T> {
    /// The objects to remove. They are found again until they are no longer there.
    pub removed: Vec<T>,
    /// The time at which the next object may be removed, if one waits for it.
    pub next: Option<Duration>,
}

impl<T> Default for Leftovers<T> {
    fn default() -> Self {
        Self {
            named: BTreeSet::new(),
            unnamed: BTreeMap::new(),
        }
    }
}

impl<T: Copy + Ord> Leftovers<T> {
    /// Takes in which objects are there, each with its age, and which ones the root names or may name soon.
    /// Both were read before `now`, what is there first. Finds those to remove. All of them have been seen
    /// without a name for twice `fence`: once for maps that nodes still use, once for readers that found them
    /// there. They were seen named before, or are older than [`UNNAMED_STAYS`].
    pub fn look(
        &mut self,
        there: &BTreeMap<T, Duration>,
        named: BTreeSet<T>,
        now: Duration,
        fence: Duration,
    ) -> Looked<T> {
        let unnamed = there
            .keys()
            .filter(|object| !named.contains(object))
            .map(|object| {
                let first = Unnamed {
                    since: now,
                    was_named: self.named.contains(object),
                };
                (*object, self.unnamed.get(object).copied().unwrap_or(first))
            });
        self.unnamed = unnamed.collect();
        self.named = named;
        let due = self.unnamed.iter().map(|(object, unnamed)| {
            let age = if unnamed.was_named {
                UNNAMED_STAYS
            } else {
                there[object]
            };
            let of_age = now + UNNAMED_STAYS.saturating_sub(age);
            (object, of_age.max(unnamed.since + fence * 2))
        });
        Looked {
            removed: due
                .clone()
                .filter(|(_, at)| *at <= now)
                .map(|(object, _)| *object)
                .collect(),
            next: due.map(|(_, at)| at).filter(|at| *at > now).min(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ops::Range;
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};

    use super::{
        Leftovers, Looked, PackUse, TABLES_MAX, UNNAMED_STAYS, packs_to_rewrite, size, sum, tables_to_merge,
    };

    const MIB: u64 = 1 << 20;
    const BYTES_MAX: u64 = 256 * MIB;
    const FENCE: Duration = Duration::from_secs(40);

    /// Merges until nothing is left to merge, as if no row hid another. Returns the bytes of the new tables.
    fn merge_all(tables: &mut Vec<u64>, bytes_max: u64) -> u64 {
        let mut written = 0;
        while let Some(range) = tables_to_merge(tables, bytes_max) {
            let merged = sum(&tables[range.clone()]);
            assert!(range.len() >= 8 && merged <= bytes_max, "{range:?} of {tables:?}");
            tables.splice(range, [merged]);
            written += merged;
        }
        written
    }

    #[test]
    fn eight_tables_of_a_size_are_merged_with_smaller_ones_between_them() {
        // tables, newest first → those to merge
        let cases: [(&[u64], Option<Range<usize>>); 7] = [
            (&[], None),
            (&[100; 7], None),
            (&[100; 9], Some(0..8)),
            (&[9000, 70, 511, 100, 64, 65, 66, 80, 90, 9000], Some(1..9)),
            (&[100, 100, 100, 9000, 100, 100, 100, 100, 100], None),
            (&[9000, 9000, 9000, 100, 9000, 9000, 9000, 9000, 9000], Some(0..9)),
            (&[9000, 9000, 9000, 9000, 9000, 9000, 9000, 100, 100], None),
        ];
        for (tables, expected) in cases {
            assert_eq!(tables_to_merge(tables, BYTES_MAX), expected, "{tables:?}");
        }
    }

    #[test]
    fn a_row_is_written_once_for_each_power_of_eight() {
        let (mut tables, mut written) = (Vec::new(), 0);
        for _ in 0..4096 {
            tables.insert(0, 1000);
            written += merge_all(&mut tables, BYTES_MAX);
        }
        assert_eq!(tables, [4_096_000]);
        assert_eq!(written, 4 * 4_096_000);
    }

    #[test]
    fn a_table_that_is_full_stays_until_newer_ones_hide_its_rows() {
        let full = BYTES_MAX / 16 + 1;
        assert_eq!(tables_to_merge(&[full; 20], BYTES_MAX), None);
        let mut tables = [full; 20];
        tables[12..].fill(1000);
        assert_eq!(tables_to_merge(&tables, BYTES_MAX), Some(12..20));
    }

    #[test]
    fn too_many_tables_are_merged_whatever_their_sizes() {
        let mut tables = vec![1; TABLES_MAX];
        for (at, bytes) in tables.iter_mut().enumerate() {
            *bytes = if at % 5 == 0 {
                BYTES_MAX / 15
            } else {
                1 << (at % 5 * 3)
            };
        }
        assert_eq!(tables_to_merge(&tables, BYTES_MAX), None);
        tables.push(1);
        assert!(tables_to_merge(&tables, BYTES_MAX).is_some());
        assert_eq!(tables_to_merge(&[BYTES_MAX / 7; 100], BYTES_MAX), None);
    }

    fn pack(pack: u32, live_bytes: u64) -> PackUse<u32> {
        let bytes = 100;
        PackUse {
            pack,
            bytes,
            live_bytes,
        }
    }

    fn rewritten(live: &[u64]) -> Vec<u32> {
        let packs = (0..).zip(live).map(|(name, live)| pack(name, *live));
        packs_to_rewrite(packs.collect())
            .iter()
            .map(|pack| pack.pack)
            .collect()
    }

    #[test]
    fn packs_below_half_are_rewritten_and_then_the_emptiest() {
        // living bytes of 100 in each pack → packs to rewrite
        let cases: [(&[u64], &[u32]); 7] = [
            (&[], &[]),
            (&[100, 100], &[]),
            (&[100, 100, 49], &[2]),
            (&[100, 100, 50], &[]),
            (&[60, 70, 65], &[0]),
            (&[60, 55, 50, 50], &[2, 3]),
            (&[49, 1, 100, 100], &[1, 0]),
        ];
        for (live, expected) in cases {
            assert_eq!(rewritten(live), expected, "{live:?}");
        }
    }

    const DAY: Duration = UNNAMED_STAYS;

    fn looked<const N: usize>(removed: [u32; N], next: impl Into<Option<Duration>>) -> Looked<u32> {
        Looked {
            removed: removed.into(),
            next: next.into(),
        }
    }

    #[test]
    fn what_was_named_is_removed_after_twice_fence() {
        let mut leftovers = Leftovers::default();
        let mut look = |there: &[u32], named: &[u32], now| {
            let there = there.iter().map(|object| (*object, Duration::ZERO)).collect();
            leftovers.look(&there, named.iter().copied().collect(), now, FENCE)
        };
        let nano = Duration::from_nanos(1);
        let removed_at = DAY + FENCE * 3;
        assert_eq!(look(&[1, 2], &[1, 2], DAY), looked([], None));
        assert_eq!(look(&[1, 2, 3], &[1], DAY + FENCE), looked([], removed_at));
        assert_eq!(
            look(&[1, 2], &[1], removed_at.saturating_sub(nano)),
            looked([], removed_at)
        );
        assert_eq!(look(&[1, 2], &[1], removed_at), looked([2], None));
        assert_eq!(
            look(&[1, 2], &[1], removed_at + nano),
            looked([2], None),
            "it is there"
        );
        assert_eq!(look(&[1, 3], &[1], DAY * 9), looked([], DAY * 10), "3 is young");
        assert_eq!(look(&[1], &[1], DAY * 9), looked([], None));
    }

    #[test]
    fn what_was_never_named_is_removed_after_a_day() {
        let mut leftovers = Leftovers::default();
        let mut look = |ages: &[(u32, Duration)], now| {
            leftovers.look(&ages.iter().copied().collect(), BTreeSet::new(), now, FENCE)
        };
        let half = DAY / 2;
        let first = look(&[(1, DAY), (2, half)], DAY);
        assert_eq!(
            first,
            looked([], DAY + FENCE * 2),
            "another keeper may have seen a name"
        );
        assert_eq!(
            look(&[(1, DAY), (2, half)], DAY + FENCE),
            looked([], DAY + FENCE * 2)
        );
        assert_eq!(
            look(&[(1, DAY), (2, half)], DAY + FENCE * 2),
            looked([1], DAY + FENCE * 2 + half)
        );
        assert_eq!(look(&[(2, DAY)], DAY + half), looked([2], None));
    }

    #[test]
    fn what_is_named_late_stays() {
        let mut leftovers = Leftovers::default();
        let there = BTreeMap::from([(1, DAY)]);
        let mut look = |named: &[u32], now| {
            leftovers
                .look(&there, named.iter().copied().collect(), now, FENCE)
                .removed
        };
        assert_eq!(look(&[], DAY), []);
        assert_eq!(look(&[1], DAY + FENCE * 2), []);
        assert_eq!(look(&[], DAY + FENCE * 3), [], "it was named until now");
        assert_eq!(look(&[], DAY + FENCE * 5), [1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_map_has_few_tables_however_its_tables_come(
            new in vec((0..20_u32, 1..8_u64), 0..600),
            bytes_max in 1..1000_u64,
        ) {
            let bytes_max = bytes_max * 10_000;
            let mut tables = Vec::new();
            for (power, times) in new {
                tables.insert(0, (times << power).min(bytes_max));
                merge_all(&mut tables, bytes_max);
                let all = sum(&tables) / bytes_max + 1;
                prop_assert!(tables.len() as u64 <= (TABLES_MAX as u64).max(all * 8 + 8), "{tables:?}");
            }
        }

        #[test]
        fn tables_of_one_size_cost_each_row_as_many_writes_as_there_are_sizes(
            count in 1..3000_u64,
            bytes in 1..10_000_u64,
        ) {
            let (mut tables, mut written) = (Vec::new(), 0);
            for _ in 0..count {
                tables.insert(0, bytes);
                written += merge_all(&mut tables, BYTES_MAX);
            }
            let sizes = u64::from(size(count * bytes) - size(bytes));
            prop_assert!(written <= sizes * count * bytes);
            prop_assert!(tables.len() as u64 <= (sizes + 1) * 7);
            prop_assert_eq!(sum(&tables), count * bytes);
        }

        #[test]
        fn rewriting_leaves_packs_half_full_and_little_dead_in_all(
            packs in vec((1..1000_u64, 0..1001_u64), 0..40),
        ) {
            let packs: Vec<_> = (0..).zip(packs).map(|(pack, (bytes, permille))| {
                let live_bytes = bytes * permille.max(1) / 1000;
                PackUse { pack, bytes, live_bytes }
            }).collect();
            let rewritten = packs_to_rewrite(packs.clone());
            let names: BTreeSet<_> = rewritten.iter().map(|pack| pack.pack).collect();
            let after = |names: &BTreeSet<u32>| -> u64 {
                let left = packs.iter().map(|pack| {
                    if names.contains(&pack.pack) { pack.live_bytes } else { pack.bytes }
                });
                left.sum()
            };
            let live: u64 = packs.iter().map(|pack| pack.live_bytes).sum();
            prop_assert!(after(&names) * 2 < live * 3 || live == after(&names));
            for pack in &packs {
                let is_half_dead = pack.live_bytes * 2 < pack.bytes;
                prop_assert!(names.contains(&pack.pack) || !is_half_dead);
                prop_assert!(!names.contains(&pack.pack) || pack.live_bytes < pack.bytes);
            }
            // None is rewritten without need.
            if let Some(last) = rewritten.last() {
                let mut fewer = names.clone();
                fewer.remove(&last.pack);
                prop_assert!(last.live_bytes * 2 < last.bytes || after(&fewer) * 2 >= live * 3);
            }
        }
    }
}
