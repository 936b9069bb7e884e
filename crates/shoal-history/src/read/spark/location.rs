//! The paths of a scan: those it lists, or the partitions that its filters select.
//!
//! `Location: InMemoryFileIndex(2 paths)[s3a://lake/t/dt=2026-11-18, s3a://lake/t/dt=2026-11-19]` lists
//! paths; Spark truncates long lists and states the number of paths. The partitions of a table that is read
//! by its root are in `PartitionFilters: [isnotnull(dt#3), (dt#3 = 2026-11-19)]`.

use crate::moment::{DAY_MS, Moment};

/// Maximum number of partitions that filters may select.
const PARTITIONS_MAX: i64 = 400;

/// Maximum number of paths of a scan.
const COUNT_MAX: usize = 1 << 30;
/// Maximum nesting of brackets in a filter.
const DEPTH_MAX: usize = 64;

/// The location that a scan reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Location {
    /// The listed paths.
    pub(super) paths: Vec<String>,
    /// Number of paths, including those that were truncated.
    pub(super) count: usize,
    /// The partitions that the filters select.
    pub(super) filters: Vec<Filter>,
}

/// A comparison with a partition column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Filter {
    column: String,
    /// One of [`SIGNS`].
    sign: &'static str,
    /// The value; one of them if the sign is [`EQUAL`].
    values: Vec<String>,
}

const EQUAL: &str = " = ";

/// The signs between a column and a value. A sign that contains another one comes first.
const SIGNS: [&str; 5] = [" >= ", " <= ", " > ", " < ", EQUAL];

/// Parses the location of a scan from the text of its node, and from its metadata, which newer scans lack.
/// Returns `None` if the node scans no files.
pub(super) fn location(text: &str, location: Option<&str>, filters: Option<&str>) -> Option<Location> {
    let location = match location {
        Some(location) => location,
        None => field(text, "Location: ")?,
    };
    let (before, list) = location.split_once('[')?;
    let paths: Vec<String> = list
        .trim_end_matches(']')
        .split(", ")
        .map(str::trim)
        // Skips a truncated entry.
        .filter(|path| path.contains(':') && !path.contains("..."))
        .map(str::to_owned)
        .collect();
    let count = before
        .split_once('(')
        .and_then(|(_, count)| count.split(' ').next()?.parse().ok())
        .unwrap_or(paths.len());
    let filters = filters.or_else(|| field(text, "PartitionFilters: "));
    let mut filters = filters.map(parsed).unwrap_or_default();
    let order = partition_order(text);
    let place = |filter: &Filter| order.iter().position(|column| *column == filter.column);
    filters.sort_by_key(|filter| place(filter).unwrap_or(usize::MAX));
    Some(Location {
        count: count.min(COUNT_MAX).max(paths.len()),
        paths,
        filters,
    })
}

/// Returns a field of a node's text, up to its closing bracket.
fn field<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    let rest = &text[text.find(name)? + name.len()..];
    let mut depth = 0_i32;
    let end = rest.char_indices().find(|&(_, character)| {
        depth += match character {
            '[' => 1,
            ']' => -1,
            _ => 0,
        };
        character == ']' && depth <= 0
    });
    Some(end.map_or(rest, |(at, _)| &rest[..=at]))
}

/// Returns the columns of a scan in schema order: partition columns come last, the coarsest first.
fn partition_order(text: &str) -> Vec<&str> {
    let list = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let columns = list.map_or("", |(list, _)| list).split(',');
    columns
        .filter_map(|column| column.trim().split('#').next())
        .collect()
}

/// Parses the filters of `[isnotnull(dt#3), (dt#3 = 2026-11-19), hour#4 IN (1,2)]`. A filter that is not
/// understood is treated as selecting everything, and is omitted.
fn parsed(text: &str) -> Vec<Filter> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let mut filters = Vec::new();
    for part in top_level(text, ", ") {
        if depth(part) > DEPTH_MAX {
            continue;
        }
        for part in conjuncts(part) {
            filters.extend(filter(part));
        }
    }
    filters
}

/// Returns the maximum nesting of brackets.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Splits `((a >= 1) AND (a <= 2))` into its conjuncts.
fn conjuncts(part: &str) -> Vec<&str> {
    let inner = unwrapped(part);
    match top_level(inner, " AND ").as_slice() {
        [_] => vec![inner],
        parts => parts.iter().flat_map(|part| conjuncts(part)).collect(),
    }
}

/// Splits a text at separators outside of brackets.
fn top_level<'text>(text: &'text str, separator: &str) -> Vec<&'text str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_i32, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ if depth == 0 && at >= begin && text[at..].starts_with(separator) => {
                parts.push(&text[begin..at]);
                begin = at + separator.len();
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// Removes brackets that enclose the whole text.
fn unwrapped(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    match inner {
        // The first bracket is closed at the end and not before.
        Some(inner) if depth_stays_above_zero(inner) => unwrapped(inner),
        _ => text,
    }
}

fn depth_stays_above_zero(text: &str) -> bool {
    let mut depth = 0_i32;
    text.chars().all(|character| {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth >= 0
    })
}

fn filter(text: &str) -> Option<Filter> {
    let text = unwrapped(text);
    let named = |column: &str, sign, values| {
        let column = column.trim();
        // A date compared with a string: `cast(dt#3 as string)`.
        let cast = column
            .strip_prefix("cast(")
            .and_then(|cast| cast.strip_suffix(" as string)"));
        let column = cast.unwrap_or(column).split('#').next()?.trim().to_owned();
        let is_plain = !column.is_empty() && column.chars().all(|c| c.is_alphanumeric() || c == '_');
        is_plain.then_some(Filter { column, sign, values })
    };
    if let Some((column, list)) = text.split_once(" IN (") {
        let values = list.trim_end_matches(')').split(',');
        let values = values.map(|value| value.trim().to_owned()).collect();
        return named(column, EQUAL, values).filter(|_| !list.contains("..."));
    }
    let split = |sign| {
        text.split_once(sign)
            .map(|(column, value)| (column, sign, value.trim()))
    };
    let (column, sign, value) = SIGNS.into_iter().find_map(split)?;
    let is_value = !value.is_empty() && !value.contains(['#', '(', ' ']) && !value.contains("...");
    named(column, sign, vec![value.to_owned()]).filter(|_| is_value)
}

impl Location {
    /// Returns the prefixes and objects that the scan reads, as far as the plan determines them. An open
    /// range of dates ends on the day of `submitted`.
    pub(super) fn resolved(&self, submitted: Moment) -> Vec<String> {
        let mut prefixes = self.paths.clone();
        let mut columns: Vec<(&str, Vec<&Filter>)> = Vec::new();
        for filter in &self.filters {
            match columns.iter_mut().find(|(column, _)| *column == filter.column) {
                Some((_, filters)) => filters.push(filter),
                None => columns.push((&filter.column, vec![filter])),
            }
        }
        let columns = columns
            .iter()
            .map(|(column, filters)| (column, selected(filters, submitted)));
        let columns: Vec<_> = columns.collect();
        // A path that names its partitions is not filtered further.
        let is_named = |path: &String| {
            let mut selected = columns.iter().filter(|(_, values)| values.is_some());
            selected.any(|(column, _)| path.contains(&format!("/{column}=")))
        };
        if prefixes.iter().any(is_named) {
            return prefixes;
        }
        for (column, values) in &columns {
            // Values of an inner column determine no path without those of the outer columns.
            let Some(values) = values else { break };
            if prefixes.len().saturating_mul(values.len()) as u64 > PARTITIONS_MAX.cast_unsigned() {
                break;
            }
            prefixes = prefixes
                .iter()
                .flat_map(|prefix| {
                    let prefix = prefix.trim_end_matches('/');
                    values
                        .iter()
                        .map(move |value| format!("{prefix}/{column}={value}/"))
                })
                .collect();
        }
        prefixes
    }
}

/// Returns the values of one column that all its filters select; `None` if they cannot be listed.
fn selected(filters: &[&Filter], submitted: Moment) -> Option<Vec<String>> {
    if let Some(listed) = filters.iter().find(|filter| filter.sign == EQUAL) {
        return Some(listed.values.clone());
    }
    // The day of a filter with one of these signs, of which the second excludes the day of its value.
    let day = |[including, excluding]: [&str; 2], next_ms: i64| {
        filters.iter().find_map(|filter| {
            let text = &filter.values[0];
            let day = Moment::parse(text).filter(|_| text.len() == "2026-11-20".len())?;
            match filter.sign {
                sign if sign == including => Some(day),
                sign if sign == excluding => Some(day.plus_ms(next_ms)),
                _ => None,
            }
        })
    };
    let begin = day([" >= ", " > "], DAY_MS)?;
    let end = day([" <= ", " < "], -DAY_MS);
    let end = end.unwrap_or(submitted);
    let days = end.since_ms(begin).div_euclid(DAY_MS) + 1;
    let name = |number: i64| begin.plus_ms(number * DAY_MS).to_string()[..10].to_owned();
    (1..=PARTITIONS_MAX)
        .contains(&days)
        .then(|| (0..days).map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::{Location, location};
    use crate::moment::Moment;

    fn found(text: &str) -> Location {
        location(text, None, None).unwrap()
    }

    fn resolved(text: &str) -> Vec<String> {
        found(text).resolved(Moment::parse("2026-11-20T02:00:00Z").unwrap())
    }

    #[test]
    fn paths_are_listed_and_lists_may_be_cut_off() {
        let text = "FileScan parquet [id#8L] Batched: true, Location: InMemoryFileIndex(1 paths)[s3a://lake/fact], PartitionFilters: [], ReadSchema: struct<>";
        assert_eq!(resolved(text), ["s3a://lake/fact"]);
        let two = "FileScan csv [a#1] Location: InMemoryFileIndex(2 paths)[s3a://lake/a, s3a://lake/b], PartitionFilters: []";
        assert_eq!(resolved(two), ["s3a://lake/a", "s3a://lake/b"]);
        let cut = found(
            "FileScan parquet [a#1] Location: InMemoryFileIndex(9 paths)[s3a://lake/t/dt=2026-11-12, ... 8 entries], X",
        );
        assert_eq!((cut.paths.len(), cut.count), (1, 9));
        let older = "FileScan parquet [a#1] Location: InMemoryFileIndex[s3a://lake/a], PartitionFilters: []";
        assert_eq!(resolved(older), ["s3a://lake/a"]);
        let of_version_2 = "BatchScan parquet s3a://lake/fact[id#8L] ParquetScan DataFilters: [], Format: parquet, Location: InMemoryFileIndex(1 paths)[s3a://lake/fact], PartitionFilters: [], ReadSchema: struct<id:bigint>";
        assert_eq!(resolved(of_version_2), ["s3a://lake/fact"]);
        assert_eq!(
            location("Project [id#0L, (id#0L % 1000) AS k#2L]", None, None),
            None
        );
    }

    fn scan(columns: &str, filters: &str) -> Vec<String> {
        resolved(&format!(
            "FileScan parquet [{columns}] Location: InMemoryFileIndex(1 paths)[s3a://lake/t], PartitionFilters: [{filters}], PushedFilters: []"
        ))
    }

    #[test]
    fn filters_select_partitions() {
        for (columns, filters, expected) in [
            (
                "a#1,dt#3",
                "isnotnull(dt#3), (dt#3 = 2026-11-19)",
                vec!["s3a://lake/t/dt=2026-11-19/"],
            ),
            (
                "a#1,dt#3",
                "dt#3 IN (2026-11-18,2026-11-19)",
                vec!["s3a://lake/t/dt=2026-11-18/", "s3a://lake/t/dt=2026-11-19/"],
            ),
            (
                "a#1,dt#3",
                "cast(dt#3 as string) IN (2026-11-15,2026-11-16)",
                vec!["s3a://lake/t/dt=2026-11-15/", "s3a://lake/t/dt=2026-11-16/"],
            ),
            (
                "a#1,year#3,month#4,day#5",
                "isnotnull(month#4), (day#5 = 19), (month#4 = 11), (year#3 = 2026)",
                vec!["s3a://lake/t/year=2026/month=11/day=19/"],
            ),
            (
                "a#1,dt#3",
                "(dt#3 >= 2026-11-18), (dt#3 < 2026-11-20)",
                vec!["s3a://lake/t/dt=2026-11-18/", "s3a://lake/t/dt=2026-11-19/"],
            ),
            (
                "a#1,dt#3",
                "((dt#3 >= 2026-11-18) AND (dt#3 <= 2026-11-18))",
                vec!["s3a://lake/t/dt=2026-11-18/"],
            ),
            (
                "a#1,dt#3",
                "(dt#3 > 2026-11-18)",
                vec!["s3a://lake/t/dt=2026-11-19/", "s3a://lake/t/dt=2026-11-20/"],
            ),
            ("a#1,dt#3", "(substr(dt#3, 1, 4) = 2026)", vec!["s3a://lake/t"]),
            (
                "a#1,dt#3",
                "dynamicpruningexpression(dt#3 IN subquery#9)",
                vec!["s3a://lake/t"],
            ),
            ("a#1,dt#3", "", vec!["s3a://lake/t"]),
        ] {
            assert_eq!(scan(columns, filters), expected, "{filters}");
        }
    }

    #[test]
    fn filters_deeper_than_a_plan_has_select_everything() {
        let nested = |depth: usize| {
            let (open, close) = ("(".repeat(depth), ")".repeat(depth));
            scan("a#1,dt#3", &format!("{open}dt#3 = 2026-11-19{close}"))
        };
        assert_eq!(nested(64), ["s3a://lake/t/dt=2026-11-19/"]);
        assert_eq!(nested(65), ["s3a://lake/t"]);
        assert_eq!(nested(200_000), ["s3a://lake/t"]);
    }

    #[test]
    fn a_path_that_names_its_partition_stays() {
        let text = "FileScan parquet [a#1,dt#3] Location: PrunedInMemoryFileIndex(1 paths)[s3a://lake/t/dt=2026-11-19], PartitionFilters: [(dt#3 = 2026-11-19)]";
        assert_eq!(resolved(text), ["s3a://lake/t/dt=2026-11-19"]);
    }
}
