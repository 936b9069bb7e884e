//! `--what-if bandwidth=20Gbit,slack=1.5x`: what other links, caches and deadlines would save.

use std::fmt::Write as _;

use serde::Serialize;
use shoal_base::amount::human_amount;
use shoal_plan::show::what_if::{Change, Effect};
use shoal_plan::{Plan, Request};
use shoal_sim::units::{self, SIZE_FORM};

/// The form of a bandwidth, for messages.
const BANDWIDTH_FORM: &str = "a number and Kbit, Mbit, Gbit, or a size a second, such as 10Gbit or 1.2GB/s";
/// Jobs that a row names.
const NAMED: usize = 3;
/// Multiples beyond this are absurd.
const FACTOR_MAX: f64 = 1e6;

/// Changes that are made together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WhatIf {
    text: String,
    bandwidth: Wanted,
    cache: Wanted,
    slack: Wanted,
}

/// Another value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    /// This one.
    Value(f64),
    /// A multiple of the present one.
    Times(f64),
}

impl Wanted {
    /// Returns the multiple of `there` that is wanted.
    fn times(self, there: f64) -> f64 {
        match self {
            Self::Times(times) => times,
            Self::Value(value) => value / there,
        }
    }
}

impl WhatIf {
    /// Parses `bandwidth=20Gbit,cache=2x,slack=1.5x`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut bandwidth, mut cache, mut slack) = (None, None, None);
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}` has no `=`\nhint: write {FORM}"))?;
            let (of, wanted) = match name.trim() {
                "bandwidth" => (&mut bandwidth, rate(value)?),
                "cache" => (&mut cache, size(value)?),
                "slack" => (&mut slack, longer(value)?),
                _ => {
                    return Err(format!(
                        "`{name}` is nothing that can be changed\nhint: write {FORM}"
                    ));
                }
            };
            if of.replace(wanted).is_some() {
                return Err(format!(
                    "`{name}` is given twice\nhint: give --what-if twice to compare two values"
                ));
            }
        }
        let or_unchanged = |wanted: Option<Wanted>| wanted.unwrap_or(Wanted::Times(1.0));
        Ok(Self {
            text: text.to_owned(),
            bandwidth: or_unchanged(bandwidth),
            cache: or_unchanged(cache),
            slack: or_unchanged(slack),
        })
    }

    /// Returns the request with the changes: a cache has the size that is asked for, to the byte.
    pub(super) fn apply(&self, request: &Request) -> Request {
        let change = Change {
            bandwidth: self.bandwidth.times(request.link.bytes_per_second),
            // No multiple of nothing is something.
            cache: self.cache.times((request.cache.capacity_bytes as f64).max(1.0)),
            slack: self.slack.times(1.0),
        };
        let mut changed = change.apply(request);
        if let Wanted::Value(bytes) = self.cache {
            #[expect(clippy::cast_sign_loss, reason = "a size is not negative")]
            let capacity_bytes = bytes as u64;
            changed.cache.capacity_bytes = capacity_bytes;
        }
        changed
    }
}

const FORM: &str =
    "bandwidth=20Gbit, cache=2TiB, or multiples of the present ones: bandwidth=2x, cache=2x, slack=1.5x";

fn times(text: &str) -> Option<Wanted> {
    let times: f64 = text.trim().strip_suffix('x')?.parse().ok()?;
    (times > 0.0 && times <= FACTOR_MAX).then_some(Wanted::Times(times))
}

fn rate(text: &str) -> Result<Wanted, String> {
    times(text)
        .or_else(|| bandwidth(text).ok().map(Wanted::Value))
        .ok_or_else(|| format!("bandwidth is `{text}`\nhint: write {BANDWIDTH_FORM}, or 2x"))
}

fn size(text: &str) -> Result<Wanted, String> {
    times(text)
        .or_else(|| units::size(text).map(|bytes| Wanted::Value(bytes as f64)))
        .ok_or_else(|| format!("cache is `{text}`\nhint: write {SIZE_FORM}, or 2x"))
}

fn longer(text: &str) -> Result<Wanted, String> {
    times(text).ok_or_else(|| {
        format!(
            "slack is `{text}`\nhint: write 1.5x: the time from submission to deadline, half as much again"
        )
    })
}

/// Plans beside each other: as it is, and with changes.
#[derive(Debug, Serialize)]
pub(super) struct Comparison(Vec<Row>);

#[derive(Debug, Serialize)]
struct Row {
    change: String,
    planned: usize,
    jobs: usize,
    peak_share: f64,
    fetched_bytes: f64,
    remote_bytes: f64,
    saved: Vec<String>,
    lost: Vec<String>,
}

impl Comparison {
    /// Returns the plan without a change.
    pub(super) fn new(plan: &Plan) -> Self {
        Self(vec![Row::new("as it is", plan, Vec::new(), Vec::new())])
    }

    /// Adds the plan with a change.
    pub(super) fn add(&mut self, what_if: &WhatIf, without: &Plan, with: Plan) {
        debug_assert_eq!(
            without.jobs.len(),
            with.jobs.len(),
            "both plans are about the same jobs"
        );
        let effect = Effect::between(without, with);
        self.0
            .push(Row::new(&what_if.text, &effect.plan, effect.saved, effect.lost));
    }

    /// Formats the table.
    pub(super) fn text(&self) -> String {
        let width = self
            .0
            .iter()
            .map(|row| row.change.chars().count())
            .fold(6, usize::max);
        let mut text = format!(
            "{:<width$}  {:>11}  {:>5}  {:>8}  {:>8}  deadlines\n",
            "change", "planned", "peak", "fetched", "remote"
        );
        for row in &self.0 {
            let saved = [("saves", &row.saved), ("loses", &row.lost)];
            let changes: Vec<String> = saved
                .iter()
                .filter(|(_, jobs)| !jobs.is_empty())
                .map(|(verb, jobs)| format!("{verb} {}", named(jobs)))
                .collect();
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<width$}  {:>11}  {:>4.0}%  {:>8}  {:>8}  {}",
                row.change,
                format!("{} of {}", row.planned, row.jobs),
                row.peak_share * 100.0,
                human_amount(row.fetched_bytes),
                human_amount(row.remote_bytes),
                if changes.is_empty() {
                    "-".to_owned()
                } else {
                    changes.join("; ")
                }
            );
        }
        text
    }
}

impl Row {
    fn new(change: &str, plan: &Plan, saved: Vec<String>, lost: Vec<String>) -> Self {
        Self {
            change: change.to_owned(),
            planned: plan.quality.planned,
            jobs: plan.jobs.len(),
            peak_share: plan.quality.peak_share,
            fetched_bytes: plan.quality.fetched_bytes,
            remote_bytes: plan.quality.remote_bytes,
            saved,
            lost,
        }
    }
}

/// `3: a, b, c`
fn named(jobs: &[String]) -> String {
    format!("{}: {}", jobs.len(), first_of(jobs, NAMED))
}

/// `a, b and 3 more`, with `most` names at most.
pub(super) fn first_of<T: AsRef<str>>(names: &[T], most: usize) -> String {
    let first: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Reads a bandwidth on the command line: `10Gbit` is `10Gbit/s`.
pub(super) fn bandwidth(text: &str) -> Result<f64, String> {
    units::rate(text)
        .or_else(|| units::rate(&format!("{text}/s")))
        .filter(|rate| rate.is_finite())
        .ok_or_else(|| format!("hint: write {BANDWIDTH_FORM}"))
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these rates and times are exact")]
mod tests {
    use shoal_lab::netco::table1;

    use super::{WhatIf, named};

    #[test]
    fn changes_are_values_or_multiples() {
        let request = table1::request();
        let changed = |text| WhatIf::parse(text).unwrap().apply(&request);
        let all = changed("bandwidth=2x,cache=1GiB, slack=1.5x");
        assert_eq!(all.link.bytes_per_second, 2.0 * request.link.bytes_per_second);
        assert_eq!(all.cache.capacity_bytes, 1 << 30);
        assert_eq!(all.jobs[0].deadline_s, 2.5);
        assert_eq!(changed("bandwidth=8Gbit").link.bytes_per_second, 1e9);
        assert_eq!(changed("bandwidth=1GB/s").link.bytes_per_second, 1e9);
        assert_eq!(changed("cache=3x").cache.capacity_bytes, 6 << 30);
        assert_eq!(changed("cache=0B").cache.capacity_bytes, 0);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_hint() {
        for (text, told) in [
            ("", "has no `=`"),
            ("bandwidth", "has no `=`"),
            ("luck=2x", "`luck` is nothing"),
            ("bandwidth=fast", "bandwidth is `fast`"),
            ("bandwidth=0x", "bandwidth is `0x`"),
            ("cache=-1GiB", "cache is `-1GiB`"),
            ("slack=10m", "slack is `10m`"),
            ("slack=NaNx", "slack is `NaNx`"),
            ("slack=1e9x", "slack is"),
            ("cache=2x,cache=3x", "`cache` is given twice"),
        ] {
            let error = WhatIf::parse(text).unwrap_err();
            assert!(error.contains(told) && error.contains("\nhint: "), "{error}");
        }
    }

    #[test]
    fn a_long_list_of_jobs_is_cut() {
        let jobs: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        assert_eq!(named(&jobs), "5: a, b, c and 2 more");
        assert_eq!(named(&jobs[..1]), "1: a");
    }
}
