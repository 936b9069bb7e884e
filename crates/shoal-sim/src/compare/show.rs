//! A comparison as a table for people, one for programs, and a plot.

use std::fmt::Write as _;

use super::{Compared, Contender, Row};
use crate::plot::{Bars, Spread};
use crate::units::{counted, human_bytes};

/// The reason why a policy can do better than the bound.
const BELADY_NOTE: &str = "\nA policy misses less than `belady` here because objects have different sizes: `belady` evicts what is read \
                           again last,\nwhatever room that takes, and is a bound only where all blocks have one size.\n";

impl Compared {
    /// A line for each policy, a column for each capacity: the share of the requested blocks that were not
    /// held.
    pub fn text(&self) -> String {
        let set = &self.working_set;
        let names = self.rows.iter().map(|row| row.policy.to_string().len());
        let width = names.max().unwrap_or(0).max(10);
        let capacities: Vec<_> = self.by_capacity().iter().map(|rows| &rows[0]).collect();
        // Writing to a string cannot fail; the same below.
        let mut text = format!(
            "{} of {}, {} in all: the working set. Share of the reads that miss, by policy and size of the cache:\n\n{:<width$}",
            counted(set.requests, "read"),
            counted(set.blocks, "block"),
            human_bytes(set.bytes),
            ""
        );
        for row in &capacities {
            let _ = write!(text, " {:>12}", row.capacity);
        }
        let _ = write!(text, "\n{:<width$}", "");
        for row in &capacities {
            let _ = write!(text, " {:>12}", human_bytes(row.capacity_bytes));
        }
        text.push('\n');
        let policies = self.by_capacity().first().map_or(0, |rows| rows.len());
        for number in 0..policies {
            for (column, rows) in self.by_capacity().iter().enumerate() {
                if column == 0 {
                    let _ = write!(text, "{:<width$}", rows[number].policy.to_string());
                }
                let _ = write!(text, " {:>11.2}%", rows[number].miss_ratio * 100.0);
            }
            text.push('\n');
        }
        if set.has_several_sizes() && self.beats_belady() {
            text.push_str(BELADY_NOTE);
        }
        text
    }

    /// Returns true if a policy misses fewer blocks than the bound at the same size of the cache.
    fn beats_belady(&self) -> bool {
        self.by_capacity().iter().any(|rows| {
            let belady = rows.iter().find(|row| row.policy == Contender::Belady);
            belady.is_some_and(|belady| rows.iter().any(|row| row.miss_ratio < belady.miss_ratio))
        })
    }

    /// One row for each policy and capacity.
    pub fn csv(&self) -> String {
        let mut text =
            "policy,capacity,capacity_bytes,requests,hits,bytes,hit_bytes,miss_ratio,byte_miss_ratio\n"
                .to_owned();
        for row in &self.rows {
            let tally = &row.tally;
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{}",
                row.policy,
                row.capacity,
                row.capacity_bytes,
                tally.requests,
                tally.hits,
                tally.bytes,
                tally.hit_bytes,
                row.miss_ratio,
                row.byte_miss_ratio
            );
        }
        text
    }

    /// Bars of miss ratios, a group for each capacity.
    pub fn plot(&self) -> Bars {
        let groups = self.by_capacity();
        let policies = groups.first().map_or(0, |rows| rows.len());
        let series = |number: usize| {
            let values = groups
                .iter()
                .map(|rows| Spread::from_values(std::iter::once(rows[number].miss_ratio)));
            (groups[0][number].policy.to_string(), values.collect())
        };
        Bars {
            title: "Miss ratio by policy and size of the cache".to_owned(),
            y_label: "share of the blocks asked for that miss".to_owned(),
            groups: groups.iter().map(|rows| rows[0].capacity.clone()).collect(),
            series: (0..policies).map(series).collect(),
        }
    }

    fn by_capacity(&self) -> Vec<&[Row]> {
        self.rows.chunk_by(|a, b| a.capacity == b.capacity).collect()
    }
}
