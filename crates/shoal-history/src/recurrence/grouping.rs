//! Groups runs into jobs: runs with the same name, apart from dates and ids, and similar inputs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::moment::DAY_MS;
use crate::names::{Detail, identity_start, normalized};
use crate::path::Paths;
use crate::run::{History, StoredRun, TextId};

/// Numbers in a name are significant if names with a number have this many runs on average, or this one has.
const RUNS_PER_NUMBER_MIN: usize = 3;
/// A date or an id is significant if the name has runs on at least this many days.
const DAYS_PER_ID_MIN: usize = 3;
/// Runs are similar if they share this fraction of their inputs, apart from dates, ids and numbers.
const ALIKE_MIN: f64 = 0.5;
/// Maximum number of inputs compared.
const FEATURES_MAX: usize = 64;
/// Maximum number of input sets per name. Further runs are grouped by name only.
const SETS_MAX: usize = 2_048;
/// Maximum number of groups per name.
const GROUPS_MAX: usize = 256;

/// The inputs of a run, as sorted ids of generalized paths.
pub(crate) type Features = Box<[u32]>;

/// Returns the inputs of a run, apart from dates, ids and numbers.
pub(crate) fn features(run: &StoredRun, paths: &Paths) -> Features {
    let general = run.inputs.iter().map(|input| paths[input.path].general);
    let mut features: Vec<u32> = general.collect::<BTreeSet<_>>().into_iter().collect();
    features.truncate(FEATURES_MAX);
    features.into_boxed_slice()
}

/// Returns the fraction of common inputs of two runs, from 0 to 1. Two runs without inputs are similar.
pub(crate) fn likeness(a: &[u32], b: &[u32]) -> f64 {
    let common = a
        .iter()
        .filter(|feature| b.binary_search(feature).is_ok())
        .count();
    let all = a.len() + b.len() - common;
    if all == 0 { 1.0 } else { common as f64 / all as f64 }
}

/// Knows which parts of job names change from run to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobNames {
    /// Identities, whose names are never changed.
    identities: BTreeSet<String>,
    /// Names with a date or an id that recurred on several days.
    lasting: BTreeSet<String>,
    /// Names without their numbers, where the numbers are not significant.
    merged: BTreeSet<String>,
    /// Names with such a number that recurred nevertheless.
    kept: BTreeSet<String>,
}

impl JobNames {
    /// Learns from the names of these runs, in order, which numbers are significant: `etl-1` and `etl-2` that
    /// both run daily are two jobs; `report 17` and `report 18` that run once each are one.
    pub(crate) fn learn(history: &History, runs: &[usize]) -> Self {
        let mut learned = Self {
            identities: history.identities.clone(),
            ..Self::default()
        };
        let mut names_of: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for (name, seen) in seen(history, runs) {
            let name = history.names.text(name);
            let without_ids = learned.normalized(name, Detail::Ids);
            if seen.days >= DAYS_PER_ID_MIN && without_ids != name {
                learned.lasting.insert(name.to_owned());
                continue;
            }
            let spellings = names_of
                .entry(learned.normalized(name, Detail::Numbers))
                .or_default();
            *spellings.entry(without_ids).or_default() += seen.runs;
        }
        for (name, spellings) in names_of {
            let runs: usize = spellings.values().sum();
            if spellings.len() > 1 && runs < spellings.len() * RUNS_PER_NUMBER_MIN {
                learned.merged.insert(name);
                let come_back = spellings
                    .into_iter()
                    .filter(|(_, runs)| *runs >= RUNS_PER_NUMBER_MIN);
                learned.kept.extend(come_back.map(|(name, _)| name));
            }
        }
        learned
    }

    /// Returns the name of the job of a run with this name.
    pub(crate) fn job(&self, name: &str) -> String {
        if self.lasting.contains(name) {
            return name.to_owned();
        }
        let (without_ids, without_numbers) = (
            self.normalized(name, Detail::Ids),
            self.normalized(name, Detail::Numbers),
        );
        if self.merged.contains(&without_numbers) && !self.kept.contains(&without_ids) {
            return without_numbers;
        }
        without_ids
    }

    fn normalized(&self, name: &str, detail: Detail) -> String {
        let (job, identity) = name.split_at(identity_start(name, &self.identities));
        normalized(job, detail) + identity
    }
}

/// Occurrences of a name.
#[derive(Default)]
struct Seen {
    runs: usize,
    /// Number of days with a run.
    days: usize,
    /// The last of those days.
    day: Option<i64>,
}

fn seen(history: &History, runs: &[usize]) -> BTreeMap<TextId, Seen> {
    let mut names: BTreeMap<TextId, Seen> = BTreeMap::new();
    for run in runs.iter().map(|&run| &history.runs[run]) {
        let seen = names.entry(run.name).or_default();
        let day = run.submitted.ms().div_euclid(DAY_MS);
        seen.runs += 1;
        if seen.day.replace(day) != Some(day) {
            seen.days += 1;
        }
    }
    names
}

/// Runs of one job with similar inputs.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Name of the job.
    pub(crate) name: String,
    /// Inputs of most of its runs.
    pub(crate) features: Features,
    /// Indexes of the runs, ordered by submission.
    pub(crate) runs: Vec<usize>,
}

/// Groups runs of a history, given by their indexes in order.
pub(crate) fn groups(history: &History, paths: &Paths, names: &JobNames, runs: &[usize]) -> Vec<Group> {
    let mut jobs: HashMap<u32, String> = HashMap::new();
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for &number in runs {
        let name = history.runs[number].name;
        let job = jobs
            .entry(name)
            .or_insert_with(|| names.job(history.names.text(name)));
        match by_name.get_mut(job.as_str()) {
            Some(runs) => runs.push(number),
            None => drop(by_name.insert(job.clone(), vec![number])),
        }
    }
    by_name
        .into_iter()
        .flat_map(|(name, runs)| alike(history, paths, &name, &runs))
        .collect()
}

/// Divides runs of one name by their inputs.
fn alike(history: &History, paths: &Paths, name: &str, runs: &[usize]) -> Vec<Group> {
    let mut sets: BTreeMap<Features, Vec<usize>> = BTreeMap::new();
    for &run in runs {
        sets.entry(features(&history.runs[run], paths))
            .or_default()
            .push(run);
    }
    let count = runs.len();
    let whole = |features: Features| Group {
        name: name.to_owned(),
        features,
        runs: runs.to_vec(),
    };
    // The most frequent sets come first and form the groups that the others join.
    let mut sets: Vec<(Features, Vec<usize>)> = sets.into_iter().collect();
    sets.sort_by_key(|(_, runs)| std::cmp::Reverse(runs.len()));
    let most = sets
        .first()
        .map(|(features, _)| features.clone())
        .unwrap_or_default();
    if sets.len() > SETS_MAX {
        return vec![whole(most)];
    }
    let mut groups: Vec<Group> = Vec::new();
    for (features, runs) in sets {
        let like = |group: &Group| likeness(&group.features, &features);
        let best = groups
            .iter()
            .enumerate()
            .map(|(number, group)| (number, like(group)))
            .filter(|&(_, likeness)| likeness >= ALIKE_MIN)
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        match best {
            Some((number, _)) => groups[number].runs.extend(runs),
            None => groups.push(Group {
                name: name.to_owned(),
                features,
                runs,
            }),
        }
    }
    // Inputs that never recur do not identify the job; it is identified by its name alone.
    let in_large: usize = groups
        .iter()
        .map(|group| group.runs.len())
        .filter(|&runs| runs >= 3)
        .sum();
    if groups.len() > GROUPS_MAX || groups.len() > 1 && in_large * 2 < count {
        return vec![whole(most)];
    }
    for group in &mut groups {
        group.runs.sort_unstable();
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::{JobNames, groups, likeness};
    use crate::path::Paths;
    use crate::run::{History, Input, Run};
    use crate::{Moment, read::Reader};

    fn history(runs: &[(&str, &[&str])]) -> History {
        let mut reader = Reader::default();
        for (minute, (name, inputs)) in (0..).zip(runs) {
            let input = |path: &&str| Input {
                path: (*path).to_owned(),
                bytes: Some(1),
                bytes_per_s: None,
            };
            let run = Run {
                name: (*name).to_owned(),
                submitted: Moment::from_ms(minute * 60_000),
                inputs: inputs.iter().map(input).collect(),
                ..Run::default()
            };
            reader.run("h", &run).unwrap();
        }
        reader.finish().unwrap()
    }

    fn grouped(runs: &[(&str, &[&str])]) -> Vec<(String, Vec<usize>)> {
        let history = history(runs);
        let paths = Paths::new(&history.paths);
        let all: Vec<_> = (0..history.len()).collect();
        let names = JobNames::learn(&history, &all);
        groups(&history, &paths, &names, &all)
            .into_iter()
            .map(|group| (group.name, group.runs))
            .collect()
    }

    #[test]
    fn numbers_that_come_back_are_part_of_a_name() {
        let names = [
            "etl-1",
            "etl-2",
            "etl-1",
            "etl-2",
            "etl-1",
            "etl-2",
            "report 17",
            "report 18",
            "report 19",
        ];
        let runs: Vec<(&str, &[&str])> = names.iter().map(|name| (*name, &[][..])).collect();
        let grouped_runs = grouped(&runs);
        assert_eq!(
            grouped_runs,
            [
                ("etl-1".to_owned(), vec![0, 2, 4]),
                ("etl-2".to_owned(), vec![1, 3, 5]),
                ("report *".to_owned(), vec![6, 7, 8]),
            ]
        );
    }

    #[test]
    fn one_name_that_reads_different_tables_is_several_jobs() {
        let orders: &[&str] = &["s3://b/orders/dt=2026-11-20/", "s3://b/dim/"];
        let orders_later: &[&str] = &["s3://b/orders/dt=2026-11-21/", "s3://b/dim/"];
        let clicks: &[&str] = &["s3://b/clicks/part-00000-faf65e55-b28a-4d94-bb41-2abf372dee50.parquet"];
        let grouped_runs = grouped(&[
            ("load", orders),
            ("load", clicks),
            ("load", orders_later),
            ("load", clicks),
            ("load", orders),
            ("load", clicks),
        ]);
        let runs: Vec<_> = grouped_runs.into_iter().map(|(_, runs)| runs).collect();
        assert_eq!(runs.len(), 2);
        assert!(
            runs.contains(&vec![0, 2, 4]) && runs.contains(&vec![1, 3, 5]),
            "{runs:?}"
        );
    }

    #[test]
    fn inputs_that_never_come_back_do_not_divide_a_name() {
        let runs: Vec<(&str, &[&str])> = vec![
            ("q", &["s3://b/apple/x"]),
            ("q", &["s3://b/banana/x"]),
            ("q", &["s3://b/cherry/x"]),
            ("q", &["s3://b/date/x"]),
        ];
        assert_eq!(grouped(&runs), [("q".to_owned(), vec![0, 1, 2, 3])]);
    }

    #[test]
    fn likeness_is_the_common_share() {
        assert!((likeness(&[1, 2, 3], &[2, 3, 4]) - 0.5).abs() < 1e-9);
        assert!((likeness(&[], &[]) - 1.0).abs() < 1e-9);
        assert!(likeness(&[1], &[2]).abs() < 1e-9);
    }
}
