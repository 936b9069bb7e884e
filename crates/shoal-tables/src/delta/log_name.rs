//! Names of objects in the log of a table.

use std::collections::BTreeMap;

use crate::error::TableError;

/// The digits of a version in a name, and those of the number of a part.
const VERSION_DIGITS: usize = 20;
const PART_DIGITS: usize = 10;

/// The objects of a log from which the current snapshot follows, by their names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The version of the snapshot.
    version: u64,
    /// The newest whole checkpoint, in parts.
    pub(super) checkpoint: Vec<String>,
    /// The commits after it, the oldest first.
    pub(super) commits: Vec<String>,
}

/// A checkpoint as its name has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Checkpoint {
    /// In one object, which may name further ones.
    Whole,
    /// One of several parts.
    Part { number: u64, of: u64 },
}

impl Plan {
    /// Makes the plan for a log with objects of these names. Returns `None` if it has no commit and no
    /// checkpoint.
    ///
    /// # Errors
    ///
    /// Fails if a commit is missing.
    pub(super) fn of<'n>(names: impl Iterator<Item = &'n str>) -> Result<Option<Self>, TableError> {
        let mut commits = BTreeMap::new();
        let mut checkpoints = BTreeMap::<u64, Vec<(Checkpoint, &str)>>::new();
        for name in names {
            let Some((version, rest)) = version(name) else {
                continue;
            };
            if rest == "json" {
                commits.insert(version, name);
            } else if let Some(checkpoint) = checkpoint(rest) {
                checkpoints.entry(version).or_default().push((checkpoint, name));
            }
        }
        let newest = checkpoints
            .iter()
            .rev()
            .find_map(|(version, parts)| Some((*version, whole(parts)?)));
        let (first, checkpoint) = match newest {
            Some((version, parts)) => (version + 1, parts),
            None => (0, Vec::new()),
        };
        let after = commits.split_off(&first);
        let version = match after.last_key_value() {
            Some((last, _)) => *last,
            None if checkpoint.is_empty() => return Ok(None),
            None => first - 1,
        };
        if !after.keys().copied().eq(first..=version) {
            return Err(TableError::Lacks("a commit"));
        }
        Ok(Some(Self {
            version,
            checkpoint,
            commits: after.into_values().map(str::to_owned).collect(),
        }))
    }

    /// Returns the name of the checksum of the snapshot, which some engines read if it is there.
    pub(super) fn checksum(&self) -> String {
        format!("{:0>VERSION_DIGITS$}.crc", self.version)
    }
}

/// Splits a name into its version and the rest behind the dot.
fn version(name: &str) -> Option<(u64, &str)> {
    let (version, rest) = name.split_once('.')?;
    let version = digits(version, VERSION_DIGITS)?;
    // A version after it must exist.
    (version < u64::MAX).then_some((version, rest))
}

fn checkpoint(rest: &str) -> Option<Checkpoint> {
    let parts: Vec<&str> = rest.split('.').collect();
    match parts[..] {
        ["checkpoint", "parquet"] | ["checkpoint", _, "parquet" | "json"] => Some(Checkpoint::Whole),
        ["checkpoint", number, of, "parquet"] => Some(Checkpoint::Part {
            number: digits(number, PART_DIGITS)?,
            of: digits(of, PART_DIGITS)?,
        }),
        _ => None,
    }
}

/// Returns the names of one whole checkpoint among those of a version.
fn whole(parts: &[(Checkpoint, &str)]) -> Option<Vec<String>> {
    let single = parts
        .iter()
        .find(|(checkpoint, _)| *checkpoint == Checkpoint::Whole);
    if let Some((_, name)) = single {
        return Some(vec![(*name).to_owned()]);
    }
    let mut counts = BTreeMap::<u64, BTreeMap<u64, &str>>::new();
    for (checkpoint, name) in parts {
        if let Checkpoint::Part { number, of } = checkpoint {
            counts.entry(*of).or_default().insert(*number, name);
        }
    }
    let all = counts
        .into_iter()
        .find(|(of, parts)| parts.keys().copied().eq(1..=*of));
    all.map(|(_, parts)| parts.into_values().map(str::to_owned).collect())
}

fn digits(text: &str, count: usize) -> Option<u64> {
    let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::Plan;
    use crate::error::TableError;

    /// Checkpoint and commits of a plan, their names without zeros before the version.
    type Names = [Vec<String>; 2];

    fn plan(names: &[&str]) -> Result<Option<Names>, TableError> {
        let full = |name: &&str| {
            let (version, rest) = name.split_once('.').unwrap_or((name, ""));
            format!("{version:0>20}.{rest}")
        };
        let full: Vec<String> = names.iter().map(full).collect();
        let plan = Plan::of(full.iter().map(String::as_str))?;
        let short = |name: String| match name.trim_start_matches('0') {
            rest if rest.starts_with('.') => format!("0{rest}"),
            rest => rest.to_owned(),
        };
        Ok(plan
            .map(|plan| [plan.checkpoint, plan.commits].map(|names| names.into_iter().map(short).collect())))
    }

    #[test]
    fn a_snapshot_is_the_newest_whole_checkpoint_and_the_commits_after_it() {
        let half = "4.checkpoint.0000000001.0000000002.parquet";
        let other_half = "4.checkpoint.0000000002.0000000002.parquet";
        let cases: [(&[&str], &[&str], &[&str]); 6] = [
            (&["0.json", "1.json", "1.crc"], &[], &["0.json", "1.json"]),
            (
                &["1.json", "2.checkpoint.parquet", "2.json", "3.json"],
                &["2.checkpoint.parquet"],
                &["3.json"],
            ),
            (
                &["7.checkpoint.80a083e8-7026.json", "7.json"],
                &["7.checkpoint.80a083e8-7026.json"],
                &[],
            ),
            (
                &["3.checkpoint.parquet", "4.json", half],
                &["3.checkpoint.parquet"],
                &["4.json"],
            ),
            (
                &["3.checkpoint.parquet", "4.json", other_half, half],
                &[half, other_half],
                &[],
            ),
            (
                &["0.json", "1.json", "0.1.compacted.json"],
                &[],
                &["0.json", "1.json"],
            ),
        ];
        for (names, checkpoint, commits) in cases {
            let found = plan(names).unwrap().unwrap();
            assert_eq!(found, [owned(checkpoint), owned(commits)], "{names:?}");
        }
    }

    #[test]
    fn a_log_without_a_commit_is_none_and_one_with_a_gap_is_refused() {
        assert_eq!(plan(&["x.json", "_last_checkpoint"]), Ok(None));
        assert_eq!(plan(&[]), Ok(None));
        for gap in [
            &["1.json"][..],
            &["0.json", "2.json"],
            &["1.checkpoint.parquet", "3.json"],
        ] {
            assert_eq!(plan(gap), Err(TableError::Lacks("a commit")), "{gap:?}");
        }
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}
