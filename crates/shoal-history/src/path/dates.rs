//! Dates in paths: `dt=2026-11-20`, `2026/11/20/05`, `year=2026/month=11`, `20261120T05`, days and seconds
//! since 1970.

use std::iter::successors;

use super::Grain;
use crate::moment::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, days_since_epoch};

/// A part of a date in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A field of the calendar. A year has four digits and starts a date; the others have two digits, or one
    /// as in `month=7`.
    Calendar(Grain),
    /// The number of units of `unit_ms` milliseconds since 1970, where a `grain` begins. A complete date.
    Since1970 { grain: Grain, unit_ms: i64 },
}

impl Unit {
    pub(super) const YEAR: Self = Self::Calendar(Grain::Year);

    /// Returns true if this unit starts a date.
    pub(super) const fn begins(self) -> bool {
        matches!(self, Self::Calendar(Grain::Year) | Self::Since1970 { .. })
    }

    /// Returns true for a time of day.
    pub(super) const fn is_time(self) -> bool {
        matches!(self, Self::Calendar(Grain::Hour | Grain::Minute | Grain::Second))
    }

    /// Returns the next finer field of a date.
    fn finer(self) -> Option<Grain> {
        match self {
            Self::Calendar(grain) => Grain::ALL.into_iter().find(|finer| *finer > grain),
            Self::Since1970 { .. } => None,
        }
    }
}

/// A part of a date at a position in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) unit: Unit,
    pub(super) value: i64,
}

/// Valid years; other numbers are not years.
const YEARS: std::ops::RangeInclusive<i64> = 1990..=2100;
/// Valid days since 1970: from 2000 to 2069.
const DAYS: std::ops::RangeInclusive<i64> = 10_957..=36_524;
/// Valid seconds since 1970, from 2000 to 2069.
const SECONDS: std::ops::RangeInclusive<i64> = 946_684_800..=3_155_759_999;

/// Finds the fields of all dates in a path, in order. A field that continues a date follows its coarser ones.
pub(super) fn fields(path: &str) -> Vec<Field> {
    let mut scan = Scan {
        path,
        fields: Vec::new(),
    };
    let mut at = 0;
    while at < path.len() {
        if !path.as_bytes()[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = scan.digits_end(at);
        at = scan.run(at, end).unwrap_or(end);
    }
    scan.fields
}

struct Scan<'path> {
    path: &'path str,
    fields: Vec<Field>,
}

impl Scan<'_> {
    fn digits_end(&self, from: usize) -> usize {
        let rest = &self.path.as_bytes()[from..];
        from + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    }

    fn number(&self, start: usize, end: usize) -> i64 {
        // More digits than an i64 holds are not a date.
        self.path[start..end].parse().unwrap_or(-1)
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.path.as_bytes().get(at).copied()
    }

    fn before(&self, at: usize) -> Option<u8> {
        self.byte(at.checked_sub(1)?)
    }

    fn is_alphanumeric(&self, at: usize) -> bool {
        self.byte(at).is_some_and(|byte| byte.is_ascii_alphanumeric())
    }

    /// Returns true if a number is a whole path segment, or the whole value after `key=`.
    fn is_whole(&self, start: usize, end: usize) -> bool {
        matches!(self.before(start), None | Some(b'/' | b'=')) && matches!(self.byte(end), None | Some(b'/'))
    }

    /// Parses the fields that start with the digits `start..end`. Returns where to continue.
    fn run(&mut self, start: usize, end: usize) -> Option<usize> {
        let before = self.before(start);
        self.keyed(start, end).or_else(|| match end - start {
            4 if !before.is_some_and(|byte| byte.is_ascii_alphabetic()) => self.separated(start, end),
            6 if !before.is_some_and(|byte| byte.is_ascii_alphanumeric()) && !self.is_alphanumeric(end) => {
                self.compact(start, &Grain::ALL[..2])
            }
            8 => self.compact_day(start, end),
            10 => self
                .compact(start, &Grain::ALL[..4])
                .or_else(|| self.since_epoch(start, end)),
            12 => self.compact(start, &Grain::ALL[..5]),
            14 => self.compact(start, &Grain::ALL),
            5 | 13 => self.since_epoch(start, end),
            _ => None,
        })
    }

    /// Parses `year=2026`, `month=11`, `day=20`, `hour=05` and their short forms.
    fn keyed(&mut self, start: usize, end: usize) -> Option<usize> {
        if !self.is_whole(start, end) || self.before(start) != Some(b'=') {
            return None;
        }
        let key = self.path[..start - 1].rsplit('/').next();
        let key = key.unwrap_or_default().to_ascii_lowercase();
        let value = self.number(start, end);
        if matches!(key.as_str(), "year" | "yyyy" | "yr" | "y") && end - start == 4 && YEARS.contains(&value)
        {
            return self.push_if_valid(&[self.field(Unit::YEAR, start, end)]);
        }
        let grain = self.fields.last()?.unit.finer()?;
        let keys: &[&str] = match grain {
            Grain::Month => &["month", "mon", "mm", "mo", "m"],
            Grain::Day => &["day", "dd", "d", "dom"],
            Grain::Hour => &["hour", "hh", "hr", "h"],
            Grain::Minute => &["minute", "min", "mi", "mm"],
            Grain::Year | Grain::Second => &[],
        };
        (keys.contains(&key.as_str()) && end - start <= 2).then_some(())?;
        self.push_if_valid(&[self.field(Unit::Calendar(grain), start, end)])
    }

    /// Parses `2026-11-20`, `2026/11`, `2026_11_20_05` and so on.
    fn separated(&mut self, start: usize, end: usize) -> Option<usize> {
        let year = self.field(Unit::YEAR, start, end);
        if !YEARS.contains(&year.value) {
            return None;
        }
        let separator = self.byte(end).filter(|byte| b"-_./".contains(byte));
        let next = |last: &Field| self.next_part(last, separator?);
        let mut fields: Vec<Field> = successors(Some(year), next).collect();
        // Take the longest valid date.
        while fields.len() > 1 {
            if let Some(end) = self.push_if_valid(&fields) {
                return Some(end);
            }
            fields.pop();
        }
        // A year alone is a date only if it is a whole segment.
        self.is_whole(start, end)
            .then(|| self.push_if_valid(&fields))
            .flatten()
    }

    /// Parses two digits after a separator.
    fn next_part(&self, last: &Field, separator: u8) -> Option<Field> {
        let grain = last.unit.finer()?;
        let found = self.byte(last.end)?;
        let fits = match grain {
            Grain::Month | Grain::Day => found == separator,
            Grain::Hour => found == separator || b"T_- ".contains(&found) && separator != b'/',
            _ => found == separator || b":-_.".contains(&found) && separator != b'/',
        };
        let (start, end) = (last.end + 1, self.digits_end(last.end + 1));
        let ends_alone = separator != b'/' || matches!(self.byte(end), None | Some(b'/'));
        (fits && end - start == 2 && ends_alone).then(|| self.field(Unit::Calendar(grain), start, end))
    }

    /// Parses `20261120`, optionally followed by `T05`, `-0500` or `_050000`.
    fn compact_day(&mut self, start: usize, end: usize) -> Option<usize> {
        let time = end + 1;
        if self.byte(end).is_some_and(|byte| b"T-_".contains(&byte)) && time < self.path.len() {
            let time_end = self.digits_end(time);
            let parts = match time_end - time {
                2 => 4,
                4 => 5,
                6 => 6,
                _ => 3,
            };
            let mut fields = self.split(start, &Grain::ALL[..3]);
            fields.extend(self.split(time, &Grain::ALL[3..parts]));
            if parts > 3
                && !self.is_alphanumeric(time_end)
                && let Some(end) = self.push_if_valid(&fields)
            {
                return Some(end);
            }
        }
        self.compact(start, &Grain::ALL[..3])
    }

    /// Parses digits without separators as these fields.
    fn compact(&mut self, start: usize, grains: &[Grain]) -> Option<usize> {
        let fields = self.split(start, grains);
        self.push_if_valid(&fields)
    }

    fn split(&self, start: usize, grains: &[Grain]) -> Vec<Field> {
        let mut at = start;
        let field = |&grain: &Grain| {
            let (start, end) = (at, at + if grain == Grain::Year { 4 } else { 2 });
            at = end;
            self.field(Unit::Calendar(grain), start, end)
        };
        grains.iter().map(field).collect()
    }

    fn field(&self, unit: Unit, start: usize, end: usize) -> Field {
        Field {
            start,
            end,
            unit,
            value: self.number(start, end),
        }
    }

    /// Parses days, or seconds or milliseconds at a whole hour or minute, since 1970.
    fn since_epoch(&mut self, start: usize, end: usize) -> Option<usize> {
        let value = self.number(start, end);
        let unit_ms = match end - start {
            5 if DAYS.contains(&value) && self.is_whole(start, end) => DAY_MS,
            10 if SECONDS.contains(&value) => SECOND_MS,
            13 if SECONDS.contains(&(value / SECOND_MS)) => 1,
            _ => return None,
        };
        let ms = value * unit_ms;
        let grain = match unit_ms {
            DAY_MS => Grain::Day,
            _ if ms % HOUR_MS == 0 => Grain::Hour,
            _ if ms % MINUTE_MS == 0 => Grain::Minute,
            _ => return None,
        };
        let unit = Unit::Since1970 { grain, unit_ms };
        self.fields.push(self.field(unit, start, end));
        Some(end)
    }

    /// Adds the fields if they form a date together with the coarser ones before them.
    fn push_if_valid(&mut self, fields: &[Field]) -> Option<usize> {
        let length = self.fields.len();
        self.fields.extend_from_slice(fields);
        let begin = self.fields.iter().rposition(|field| field.unit.begins())?;
        if is_date(&self.fields[begin..]) {
            return fields.last().map(|field| field.end);
        }
        self.fields.truncate(length);
        None
    }
}

/// Returns true if fields that start with a year form a date.
fn is_date(fields: &[Field]) -> bool {
    let units = fields.iter().map(|field| field.unit);
    let value = |grain| value_of(fields, grain);
    let in_range =
        |grain, range: std::ops::Range<i64>| value(grain).is_none_or(|value| range.contains(&value));
    units.eq(Grain::ALL.into_iter().take(fields.len()).map(Unit::Calendar))
        && value(Grain::Year).is_some_and(|year| YEARS.contains(&year))
        && days_of(fields).is_some()
        && in_range(Grain::Hour, 0..24)
        && in_range(Grain::Minute, 0..60)
        && in_range(Grain::Second, 0..60)
}

/// Returns the value of a field of the calendar; `None` if the date is coarser.
pub(super) fn value_of(fields: &[Field], grain: Grain) -> Option<i64> {
    let field = fields.iter().find(|field| field.unit == Unit::Calendar(grain));
    field.map(|field| field.value)
}

/// Returns the days since 1970 of a date of the calendar; `None` if there is no such date.
pub(super) fn days_of(fields: &[Field]) -> Option<i64> {
    let value = |grain| value_of(fields, grain).unwrap_or(1);
    days_since_epoch(value(Grain::Year), value(Grain::Month), value(Grain::Day))
}

#[cfg(test)]
mod tests {
    use super::{Grain, Unit, fields};
    use crate::moment::DAY_MS;

    /// Formats the dates of a path as `Y2026 M11`.
    fn shown(path: &str) -> String {
        let letter = |unit| match unit {
            Unit::Calendar(Grain::Year) => "Y",
            Unit::Calendar(Grain::Month) => "M",
            Unit::Calendar(Grain::Day) => "D",
            Unit::Calendar(Grain::Hour) => "h",
            Unit::Calendar(Grain::Minute) => "m",
            Unit::Calendar(Grain::Second) => "s",
            Unit::Since1970 { unit_ms: DAY_MS, .. } => "E",
            Unit::Since1970 {
                grain: Grain::Hour, ..
            } => "H",
            Unit::Since1970 { .. } => "N",
        };
        let words: Vec<_> = fields(path)
            .iter()
            .map(|field| format!("{}{}", letter(field.unit), field.value))
            .collect();
        words.join(" ")
    }

    #[test]
    fn dates_are_found_in_every_spelling() {
        for (path, dates) in [
            (
                "s3://b/events/dt=2026-11-20/part-00000-c000.parquet",
                "Y2026 M11 D20",
            ),
            ("s3://b/e/date=2026-11-20-05/x", "Y2026 M11 D20 h5"),
            ("s3://b/e/2026-11-20T05:30:00/x", "Y2026 M11 D20 h5 m30 s0"),
            ("s3://b/e/2026/11/20/05/x", "Y2026 M11 D20 h5"),
            ("s3://b/e/2026/11/20/05.json", "Y2026 M11 D20"),
            ("s3://b/e/2026/11/x", "Y2026 M11"),
            ("s3://b/e/2026/x", "Y2026"),
            ("s3://b/e/year=2026/month=7/day=04/hour=5/x", "Y2026 M7 D4 h5"),
            ("s3://b/e/yyyy=2026/mm=07/dd=04/x", "Y2026 M7 D4"),
            ("s3://b/e/dt=2026-11-20/hour=23/x", "Y2026 M11 D20 h23"),
            ("s3://b/e/20261120/x", "Y2026 M11 D20"),
            ("s3://b/e/data20261120.csv", "Y2026 M11 D20"),
            ("s3://b/e/20261120T0530/x", "Y2026 M11 D20 h5 m30"),
            ("s3://b/e/20261120_17/x", "Y2026 M11 D20 h17"),
            ("s3://b/e/2026112005/x", "Y2026 M11 D20 h5"),
            ("s3://b/e/202611/x", "Y2026 M11"),
            ("s3://b/e/2026_11_20.csv", "Y2026 M11 D20"),
            ("s3://b/e/month=2026-11/x", "Y2026 M11"),
            ("s3://b/e/day=20777/x", "E20777"),
            ("s3://b/e/1795197600/x", "H1795197600"),
            ("s3://b/e/t1795197660000/x", "N1795197660000"),
            (
                "s3://b/snapshot=2026-11-20/dt=2026-11-19/x",
                "Y2026 M11 D20 Y2026 M11 D19",
            ),
        ] {
            assert_eq!(shown(path), dates, "{path}");
        }
    }

    #[test]
    fn numbers_that_are_no_dates_are_left_alone() {
        for path in [
            "s3://b/e/part-00012.parquet",
            "s3://b/e/2026-13-45/x",
            "s3://b/e/month=11/day=20/x",
            "s3://b/e/1795197401/x",
            "s3://b/e/v1.2026/x",
            "s3://b/e/20777-x/y",
            "s3://b/e/99999999999999999999999999/x",
            "s3://b/e/hour=25/x",
            "s3://b2026/x/1234/y",
        ] {
            assert_eq!(shown(path), "", "{path}");
        }
        assert_eq!(shown("s3://b/dt=2026-11-20/hour=25/x"), "Y2026 M11 D20");
    }
}
