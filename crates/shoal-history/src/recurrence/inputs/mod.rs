//! Learns the inputs of a job's next run from its earlier runs.
//!
//! An input is explained at the first level that recurs in at least half of the runs: the object itself,
//! otherwise its prefix, otherwise the parent prefix, and so on. At each level, a path recurs either
//! unchanged or by its dates relative to the due time of the run: `dt=2026-11-19` in the run of the 20th is
//! "the day before". Objects with ids in their names (`part-00000-faf65e55….parquet`) do not recur, but their
//! prefix does.
//!
//! A set of dates with a fixed start (all partitions up to yesterday), or the dates of a month, are a range
//! that grows from run to run.

mod ranges;
mod sample;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter;

use shoal_base::forecast::Extent;

pub(crate) use self::ranges::month_begin;
use self::ranges::ranges;
use self::sample::{items, sample};
use crate::moment::{Moment, SECOND_MS};
use crate::path::{DATES_MAX, Grain, Padding, PathDate, PathId, Paths};
use crate::run::StoredRun;
use crate::stats::{Spread, sum};

/// An input is expected if at least one in this many runs had it.
const SHARE_OF: usize = 2;
/// Maximum objects of one prefix that are listed individually; otherwise the prefix is expected.
const OBJECTS_MAX: usize = 32;
/// Maximum dates of one prefix that are listed individually; otherwise the prefix is expected.
pub(crate) const DATES_LISTED_MAX: usize = 366;
/// Maximum number of enclosing prefixes that are tried.
const LEVELS_MAX: usize = 4;
/// Maximum fraction of a prefix's objects that may look selected if runs read all of the prefix.
const CHOSEN_MAX: f64 = 0.1;
/// Maximum distance, in units, from a run to a date that probably moves along with the runs.
const NEAR_UNITS: i64 = 40;

/// The location of an input of the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// The same path every time.
    Fixed(PathId),
    /// A path whose dates are at these offsets from the time at which the run is due.
    Dated {
        shape: u32,
        offsets: [Option<Offset>; DATES_MAX],
    },
    /// One path for each date of a range.
    Range {
        shape: u32,
        grain: Grain,
        begin: RangeBegin,
        last: i64,
    },
}

/// A date relative to the due time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Offset {
    pub(crate) grain: Grain,
    /// Units from the due time to the date; negative for earlier dates.
    pub(crate) units: i64,
}

/// The first date of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RangeBegin {
    /// The same date every time.
    At(i64),
    /// The first of the month of the last date.
    Month,
}

/// An input that the next run is expected to read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InputModel {
    pub(crate) place: Place,
    /// Digits of the dates of its paths.
    pub(crate) padding: Padding,
    pub(crate) extent: Extent,
    /// Fraction of runs that had it.
    pub(crate) share: f64,
    /// Bytes of it that a run reads; of a range, the bytes per date.
    pub(crate) bytes: Spread,
    /// Number of its objects that a run reads, if the history lists objects.
    pub(crate) objects: Option<u64>,
    /// Rate at which a run reads it.
    pub(crate) bytes_per_s: Option<Spread>,
}

/// A run, and its due time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occurrence<'history> {
    pub(crate) due: Moment,
    pub(crate) run: &'history StoredRun,
}

/// One input of one run.
struct Item {
    occurrence: usize,
    path: PathId,
    /// The path, or its prefix at the current level; `None` above the topmost one.
    at: Option<PathId>,
    bytes: u64,
    bytes_per_s: u64,
    /// Index of the candidate that explains it.
    explained_by: Option<usize>,
}

/// The runs that contain a place.
#[derive(Clone, Copy)]
struct Seen {
    runs: usize,
    first: usize,
    last: usize,
}

impl Place {
    /// Returns the dates of a dated place, relative to the due time.
    fn offsets(&self) -> impl Iterator<Item = &Offset> {
        let offsets = match self {
            Self::Dated { offsets, .. } => offsets.as_slice(),
            Self::Fixed(_) | Self::Range { .. } => &[],
        };
        offsets.iter().flatten()
    }
}

struct Candidate {
    place: Place,
    padding: Padding,
    level: usize,
}

/// Learns the inputs of the next run from runs in order of their due times.
pub(crate) fn learn(occurrences: &[Occurrence<'_>], paths: &Paths) -> Vec<InputModel> {
    debug_assert!(
        occurrences.is_sorted_by_key(|of| of.due),
        "runs are in the order of their due times"
    );
    let occurrences = &sample(occurrences)[..];
    let mut learning = Learning {
        paths,
        occurrences,
        items: items(occurrences, paths),
        found: Vec::new(),
    };
    for level in 0..LEVELS_MAX {
        learning.take_ranges(level);
        learning.take_places(level);
        learning.climb();
    }
    learning.models()
}

struct Learning<'a, 'history> {
    paths: &'a Paths,
    occurrences: &'a [Occurrence<'history>],
    items: Vec<Item>,
    found: Vec<Candidate>,
}

impl Learning<'_, '_> {
    /// Returns the minimum number of runs that must contain a path.
    fn needed(&self) -> usize {
        self.occurrences.len().div_ceil(SHARE_OF).max(2)
    }

    /// Returns the path with dates relative to the due time of a run; `None` if it has no dates.
    fn dated(&self, path: PathId, occurrence: usize) -> Option<Place> {
        let dates = &self.paths[path].dates;
        if dates.is_empty() {
            return None;
        }
        let mut offsets = [None; DATES_MAX];
        for (offset, date) in offsets.iter_mut().zip(dates) {
            let units = date.count - date.grain.count(self.occurrences[occurrence].due);
            *offset = Some(Offset {
                grain: date.grain,
                units,
            });
        }
        Some(Place::Dated {
            shape: self.paths[path].shape,
            offsets,
        })
    }

    /// Returns a path unchanged, and by its dates relative to the due time of a run if it has any.
    fn places(&self, path: PathId, occurrence: usize) -> impl Iterator<Item = Place> {
        iter::once(Place::Fixed(path)).chain(self.dated(path, occurrence))
    }

    /// Returns the runs that contain each place at the current level.
    fn counts(&self) -> HashMap<Place, Seen> {
        let mut counts: HashMap<Place, Seen> = HashMap::new();
        for item in self.items.iter().filter(|item| item.explained_by.is_none()) {
            let Some(path) = item.at else { continue };
            for place in self.places(path, item.occurrence) {
                let run = item.occurrence;
                let seen = counts.entry(place).or_insert(Seen {
                    runs: 1,
                    first: run,
                    last: run,
                });
                // Items are in the order of their runs.
                if seen.last != run {
                    (seen.runs, seen.last) = (seen.runs + 1, run);
                }
            }
        }
        counts
    }

    /// Returns the place that explains a path best, if it recurs. If all runs read many dates, each date
    /// recurs both unchanged and relative to the due time; the relative place is chosen if its dates have
    /// moved. If all runs are of one day, a date near the due time is assumed to move.
    fn best_place(&self, path: PathId, occurrence: usize, counts: &HashMap<Place, Seen>) -> Option<Place> {
        let count = |place: &Place| counts.get(place).map_or(0, |seen| seen.runs);
        let fixed = Place::Fixed(path);
        let dated = self.dated(path, occurrence).filter(|dated| {
            let is_near = || dated.offsets().all(|offset| offset.units.abs() <= NEAR_UNITS);
            let moves = || is_near() || counts.get(dated).is_some_and(|seen| self.has_moved(dated, *seen));
            count(dated) > count(&fixed) || count(dated) == count(&fixed) && moves()
        });
        Some(dated.unwrap_or(fixed)).filter(|place| count(place) >= self.needed())
    }

    /// Returns true if a place stands for different dates in different runs.
    fn has_moved(&self, place: &Place, seen: Seen) -> bool {
        let count = |offset: &Offset, run: usize| offset.grain.count(self.occurrences[run].due);
        place
            .offsets()
            .any(|offset| count(offset, seen.first) != count(offset, seen.last))
    }

    fn take_places(&mut self, level: usize) {
        let counts = self.counts();
        let mut places: Vec<Option<Place>> = self
            .items
            .iter()
            .map(|item| {
                let open = item.at.filter(|_| item.explained_by.is_none());
                open.and_then(|path| self.best_place(path, item.occurrence, &counts))
            })
            .collect();
        if level + 1 < LEVELS_MAX {
            self.leave_crowds(level, &mut places);
        }
        let mut numbers: HashMap<Place, usize> = HashMap::new();
        for (item, place) in self.items.iter_mut().zip(places) {
            let (Some(place), Some(path)) = (place, item.at) else {
                continue;
            };
            let number = *numbers.entry(place).or_insert_with(|| {
                let padding = Padding::default();
                self.found.push(Candidate {
                    place,
                    padding,
                    level,
                });
                self.found.len() - 1
            });
            item.explained_by = Some(number);
            // Only some runs show how a month below ten is written.
            let padding = &mut self.found[number].padding;
            *padding = padding.and(self.paths[path].padding);
        }
        if level > 0 {
            self.absorb(&numbers);
        }
    }

    /// Drops the places of paths that recur in large numbers below one prefix, so that the prefix explains
    /// them: dates, or objects whose names have no dates of their own.
    fn leave_crowds(&self, level: usize, places: &mut [Option<Place>]) {
        let crowd = |item: &Item| {
            let path = item.at?;
            let parent = self.paths[path].parent?;
            let members_max = match self.adds_dates(path, parent) {
                true => DATES_LISTED_MAX,
                false if level == 0 => OBJECTS_MAX,
                false => return None,
            };
            let place = self.dated(parent, item.occurrence);
            Some((place.unwrap_or(Place::Fixed(parent)), members_max))
        };
        let mut crowds: HashMap<(Place, usize), BTreeSet<Place>> = HashMap::new();
        for (item, place) in self.items.iter().zip(places.iter()) {
            if let (Some(crowd), Some(place)) = (crowd(item), place) {
                let members = crowds.entry(crowd).or_default();
                if members.len() <= crowd.1 {
                    members.insert(*place);
                }
            }
        }
        for (item, place) in self.items.iter().zip(places) {
            let is_crowded = crowd(item)
                .is_some_and(|crowd| crowds.get(&crowd).is_some_and(|members| members.len() > crowd.1));
            if is_crowded {
                *place = None;
            }
        }
    }

    /// Returns true if a path has dates that its prefix does not have.
    fn adds_dates(&self, path: PathId, prefix: PathId) -> bool {
        self.paths[path].dates.len() > self.paths[prefix].dates.len()
    }

    /// Assigns the items below new prefixes to these prefixes, so that nothing is expected twice.
    fn absorb(&mut self, prefixes: &HashMap<Place, usize>) {
        for at in 0..self.items.len() {
            let item = &self.items[at];
            let Some(path) = item.at else { continue };
            let prefix = self
                .places(path, item.occurrence)
                .find_map(|place| prefixes.get(&place).copied());
            if prefix.is_some() {
                self.items[at].explained_by = prefix;
            }
        }
    }

    fn take_ranges(&mut self, level: usize) {
        let mut by_shape: BTreeMap<(u32, Grain), Vec<(usize, PathDate)>> = BTreeMap::new();
        for (at, item) in self.items.iter().enumerate() {
            let Some(path) = item.at.filter(|_| item.explained_by.is_none()) else {
                continue;
            };
            if let [date] = *self.paths[path].dates {
                let key = (self.paths[path].shape, date.grain);
                by_shape.entry(key).or_default().push((at, date));
            }
        }
        for ((shape, grain), dates) in by_shape {
            let mut counts: BTreeMap<usize, BTreeSet<i64>> = BTreeMap::new();
            for &(at, date) in &dates {
                counts
                    .entry(self.items[at].occurrence)
                    .or_default()
                    .insert(date.count);
            }
            if counts.len() < self.needed() {
                continue;
            }
            let due = |occurrence: &usize| grain.count(self.occurrences[*occurrence].due);
            let runs: Vec<_> = counts
                .iter()
                .map(|(occurrence, counts)| (due(occurrence), counts))
                .collect();
            let Some((begin, last)) = ranges(grain, &runs) else {
                continue;
            };
            let padding = dates
                .iter()
                .filter_map(|&(at, _)| self.items[at].at)
                .fold(Padding::default(), |padding, path| {
                    padding.and(self.paths[path].padding)
                });
            self.found.push(Candidate {
                place: Place::Range {
                    shape,
                    grain,
                    begin,
                    last,
                },
                padding,
                level,
            });
            for (at, _) in dates {
                self.items[at].explained_by = Some(self.found.len() - 1);
            }
        }
    }

    /// Replaces each path by its parent prefix.
    fn climb(&mut self) {
        for item in &mut self.items {
            item.at = item.at.and_then(|path| self.paths[path].parent);
        }
    }

    fn models(&self) -> Vec<InputModel> {
        let mut of: Vec<Vec<&Item>> = self.found.iter().map(|_| Vec::new()).collect();
        for item in &self.items {
            if let Some(number) = item.explained_by {
                of[number].push(item);
            }
        }
        let mut models: Vec<InputModel> = self
            .found
            .iter()
            .zip(of)
            .filter_map(|(candidate, items)| self.model(candidate, &items))
            .collect();
        models.sort_by_key(|model| std::cmp::Reverse(model.bytes.typical));
        models
    }

    /// Returns `None` if a wider prefix has taken all items of the candidate.
    fn model(&self, candidate: &Candidate, items: &[&Item]) -> Option<InputModel> {
        // One part per run; of a range, one per run and date.
        let mut parts: BTreeMap<(usize, i64), Vec<&Item>> = BTreeMap::new();
        for item in items {
            let date = match candidate.place {
                Place::Range { .. } => self.date_at(item.path, candidate.level),
                _ => 0,
            };
            parts.entry((item.occurrence, date)).or_default().push(item);
        }
        let bytes: Vec<u64> = parts.values().map(|items| bytes_of(items)).collect();
        let objects: Vec<u64> = parts.values().map(|items| items.len() as u64).collect();
        let rates: Vec<u64> = parts
            .iter()
            .filter_map(|((occurrence, _), items)| self.rate(*occurrence, items))
            .collect();
        let runs: BTreeSet<usize> = parts.keys().map(|(occurrence, _)| *occurrence).collect();
        let names_prefixes = items.iter().any(|item| self.paths.is_prefix(item.path));
        Some(InputModel {
            place: candidate.place,
            padding: candidate.padding,
            extent: match candidate.level {
                0 if !names_prefixes => Extent::Object,
                0 => Extent::Prefix,
                level => self.extent(level, items),
            },
            share: runs.len() as f64 / self.occurrences.len() as f64,
            bytes: Spread::from_values(&bytes)?,
            objects: Spread::from_values(&objects)
                .map(|objects| objects.typical)
                .filter(|_| !names_prefixes),
            bytes_per_s: Spread::from_values(&rates),
        })
    }

    /// Returns the prefix `level` levels above a path.
    fn ancestor(&self, path: PathId, level: usize) -> Option<PathId> {
        (0..level).try_fold(path, |path, _| self.paths[path].parent)
    }

    fn date_at(&self, path: PathId, level: usize) -> i64 {
        let prefix = self.ancestor(path, level).unwrap_or(path);
        self.paths[prefix].dates.first().map_or(0, |date| date.count)
    }

    /// Returns the rate at which a run read these items. If the history has rates, it is all bytes over the
    /// time of the slowest item, because objects of one prefix are read concurrently; otherwise it is derived
    /// from the duration of the run.
    fn rate(&self, occurrence: usize, items: &[&Item]) -> Option<u64> {
        let bytes = bytes_of(items);
        let given = items.iter().filter(|item| item.bytes_per_s > 0);
        let slowest_s = given
            .map(|item| item.bytes as f64 / item.bytes_per_s as f64)
            .fold(0.0, f64::max);
        let run = self.occurrences[occurrence].run;
        let run_s = run
            .ended
            .map_or(0.0, |ended| ended.since_ms(run.started) as f64 / SECOND_MS as f64);
        let seconds = if slowest_s > 0.0 { slowest_s } else { run_s };
        #[expect(clippy::cast_sign_loss, reason = "bytes and seconds are positive")]
        (bytes > 0 && seconds > 0.0).then(|| (bytes as f64 / seconds).max(1.0) as u64)
    }

    /// Tells if runs read all of a prefix. They do not if objects are missing from a run and come back later,
    /// because then each run reads a selection. Objects that disappear for good have been replaced, and new
    /// ones are new. Dates are not replaced: if dates are missing, runs read a selection of them.
    fn extent(&self, level: usize, items: &[&Item]) -> Extent {
        let is_of_a_date = |item: &&&Item| {
            (0..level)
                .filter_map(|below| self.ancestor(item.path, below))
                .any(|path| is_of_a_date(self.paths, path))
        };
        if are_many(items.iter().filter(is_of_a_date).count(), items.len()) {
            return Extent::PartOfPrefix;
        }
        let mut runs: BTreeMap<Option<PathId>, BTreeSet<usize>> = BTreeMap::new();
        let mut objects: BTreeMap<PathId, BTreeSet<usize>> = BTreeMap::new();
        for item in items {
            runs.entry(self.ancestor(item.path, level))
                .or_default()
                .insert(item.occurrence);
            objects.entry(item.path).or_default().insert(item.occurrence);
        }
        let comes_back = |(path, of_object): &(&PathId, &BTreeSet<usize>)| {
            let (Some(&first), Some(&last)) = (of_object.first(), of_object.last()) else {
                return false;
            };
            let of_prefix = runs.get(&self.ancestor(**path, level));
            of_prefix.is_some_and(|runs| runs.range(first..=last).count() > of_object.len())
        };
        let coming_back = objects.iter().filter(comes_back).count();
        if are_many(coming_back, objects.len()) {
            Extent::PartOfPrefix
        } else {
            Extent::Prefix
        }
    }
}

fn bytes_of(items: &[&Item]) -> u64 {
    sum(items.iter().map(|item| item.bytes))
}

/// Returns true if these objects are enough to conclude that runs select among them.
fn are_many(some: usize, all: usize) -> bool {
    some as f64 > all as f64 * CHOSEN_MAX
}

/// Returns true if a path is that of one date below an undated prefix. A second in an object's name is the
/// time of its creation, as in Trino's file names.
fn is_of_a_date(paths: &Paths, path: PathId) -> bool {
    let is_date = |date: &PathDate| date.grain != Grain::Second || paths.is_prefix(path);
    paths[path]
        .parent
        .is_some_and(|prefix| paths[prefix].dates.is_empty())
        && paths[path].dates.iter().any(is_date)
}
