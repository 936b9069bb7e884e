//! Dates in paths: `dt=2026-11-20`, `2026/11/20/05`, `year=2026/month=11`, `20261120T05`, days and seconds
//! since 1970.

use crate::moment::days_since_epoch;

/// A part of a date in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Four digits. Starts a date.
    Year,
    /// Two digits, or one as in `month=7`; the same for the units below.
    Month,
    Day,
    Hour,
    Minute,
    Second,
    /// Days since 1970. A complete date, like those below.
    EpochDay,
    /// Seconds since 1970, at a whole hour or minute.
    HourInSeconds,
    MinuteInSeconds,
    /// Milliseconds since 1970, at a whole hour or minute.
    HourInMs,
    MinuteInMs,
}

impl Unit {
    /// Returns true if this unit starts a date.
    pub(super) const fn begins(self) -> bool {
        !matches!(
            self,
            Self::Month | Self::Day | Self::Hour | Self::Minute | Self::Second
        )
    }

    /// Returns true for a time of day.
    pub(super) const fn is_time(self) -> bool {
        matches!(self, Self::Hour | Self::Minute | Self::Second)
    }

    /// Returns the next finer unit of a date.
    const fn finer(self) -> Option<Self> {
        match self {
            Self::Year => Some(Self::Month),
            Self::Month => Some(Self::Day),
            Self::Day => Some(Self::Hour),
            Self::Hour => Some(Self::Minute),
            Self::Minute => Some(Self::Second),
            _ => None,
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
        path: path.as_bytes(),
        text: path,
        fields: Vec::new(),
    };
    let mut at = 0;
    while at < path.len() {
        if !scan.path[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = scan.digits_end(at);
        at = scan.run(at, end).unwrap_or(end);
    }
    scan.fields
}

struct Scan<'path> {
    path: &'path [u8],
    text: &'path str,
    fields: Vec<Field>,
}

impl Scan<'_> {
    fn digits_end(&self, from: usize) -> usize {
        let length = self.path[from..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        from + length
    }

    fn number(&self, start: usize, end: usize) -> i64 {
        // More digits than an i64 holds are not a date.
        self.text[start..end].parse().unwrap_or(-1)
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.path.get(at).copied()
    }

    /// Returns true if a number is a whole path segment, or the whole value after `key=`.
    fn is_whole(&self, start: usize, end: usize) -> bool {
        let before = start.checked_sub(1).and_then(|before| self.byte(before));
        matches!(before, None | Some(b'/' | b'=')) && matches!(self.byte(end), None | Some(b'/'))
    }

    /// Parses the fields that start with the digits `start..end`. Returns where to continue.
    fn run(&mut self, start: usize, end: usize) -> Option<usize> {
        let before = start.checked_sub(1).and_then(|before| self.byte(before));
        self.keyed(start, end).or_else(|| match end - start {
            4 if !before.is_some_and(|byte| byte.is_ascii_alphabetic()) => self.separated(start, end),
            6 if !before.is_some_and(|byte| byte.is_ascii_alphanumeric())
                && !self.byte(end).is_some_and(|byte| byte.is_ascii_alphanumeric()) =>
            {
                self.compact(start, end, &[Unit::Year, Unit::Month])
            }
            8 => self.compact_day(start, end),
            10 => self
                .compact(start, end, &[Unit::Year, Unit::Month, Unit::Day, Unit::Hour])
                .or_else(|| self.since_epoch(start, end)),
            12 => self.compact(start, end, &PARTS[..5]),
            14 => self.compact(start, end, &PARTS),
            5 | 13 => self.since_epoch(start, end),
            _ => None,
        })
    }

    /// Parses `year=2026`, `month=11`, `day=20`, `hour=05` and their short forms.
    fn keyed(&mut self, start: usize, end: usize) -> Option<usize> {
        if !self.is_whole(start, end) || self.byte(start.checked_sub(1)?) != Some(b'=') {
            return None;
        }
        let key_end = start - 1;
        let key = self.text[..key_end]
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        let value = self.number(start, end);
        if matches!(key.as_str(), "year" | "yyyy" | "yr" | "y") && end - start == 4 && YEARS.contains(&value)
        {
            self.fields.push(Field {
                start,
                end,
                unit: Unit::Year,
                value,
            });
            return Some(end);
        }
        let unit = self.fields.last()?.unit.finer()?;
        let keys: &[&str] = match unit {
            Unit::Month => &["month", "mon", "mm", "mo", "m"],
            Unit::Day => &["day", "dd", "d", "dom"],
            Unit::Hour => &["hour", "hh", "hr", "h"],
            Unit::Minute => &["minute", "min", "mi", "mm"],
            _ => &[],
        };
        (keys.contains(&key.as_str()) && end - start <= 2).then_some(())?;
        self.push_if_valid(&[Field {
            start,
            end,
            unit,
            value,
        }])
    }

    /// Parses `2026-11-20`, `2026/11`, `2026_11_20_05` and so on.
    fn separated(&mut self, start: usize, end: usize) -> Option<usize> {
        let year = Field {
            start,
            end,
            unit: Unit::Year,
            value: self.number(start, end),
        };
        if !YEARS.contains(&year.value) {
            return None;
        }
        let separator = self.byte(end).filter(|byte| b"-_./".contains(byte));
        let mut fields = vec![year];
        if let Some(separator) = separator {
            while let Some(field) = self.next_part(fields.last().expect("begins with a year"), separator) {
                fields.push(field);
                if fields.len() == PARTS.len() {
                    break;
                }
            }
        }
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
        let unit = last.unit.finer()?;
        let found = self.byte(last.end)?;
        let fits = match unit {
            Unit::Month | Unit::Day => found == separator,
            Unit::Hour => found == separator || b"T_- ".contains(&found) && separator != b'/',
            _ => found == separator || b":-_.".contains(&found) && separator != b'/',
        };
        let (start, end) = (last.end + 1, self.digits_end(last.end + 1));
        let ends_alone = separator != b'/' || matches!(self.byte(end), None | Some(b'/'));
        (fits && end - start == 2 && ends_alone).then(|| Field {
            start,
            end,
            unit,
            value: self.number(start, end),
        })
    }

    /// Parses `20261120`, optionally followed by `T05`, `-0500` or `_050000`.
    fn compact_day(&mut self, start: usize, end: usize) -> Option<usize> {
        let day = &PARTS[..3];
        let time = end + 1;
        if self.byte(end).is_some_and(|byte| b"T-_".contains(&byte)) && time < self.path.len() {
            let time_end = self.digits_end(time);
            let parts = match time_end - time {
                2 => 4,
                4 => 5,
                6 => 6,
                _ => 0,
            };
            let mut fields = self.split(start, day);
            fields.extend(self.split(time, PARTS.get(3..parts).unwrap_or_default()));
            if parts > 0
                && !self
                    .byte(time_end)
                    .is_some_and(|byte| byte.is_ascii_alphanumeric())
                && let Some(end) = self.push_if_valid(&fields)
            {
                return Some(end);
            }
        }
        self.compact(start, end, day)
    }

    /// Parses digits without separators in these units.
    fn compact(&mut self, start: usize, _end: usize, units: &[Unit]) -> Option<usize> {
        let fields = self.split(start, units);
        self.push_if_valid(&fields)
    }

    fn split(&self, start: usize, units: &[Unit]) -> Vec<Field> {
        let mut at = start;
        let field = |&unit: &Unit| {
            let (start, end) = (at, at + if unit == Unit::Year { 4 } else { 2 });
            at = end;
            Field {
                start,
                end,
                unit,
                value: self.number(start, end),
            }
        };
        units.iter().map(field).collect()
    }

    /// Parses days, seconds or milliseconds since 1970.
    fn since_epoch(&mut self, start: usize, end: usize) -> Option<usize> {
        let value = self.number(start, end);
        let unit = match end - start {
            5 if DAYS.contains(&value) && self.is_whole(start, end) => Unit::EpochDay,
            10 if SECONDS.contains(&value) && value % 3_600 == 0 => Unit::HourInSeconds,
            10 if SECONDS.contains(&value) && value % 60 == 0 => Unit::MinuteInSeconds,
            13 if SECONDS.contains(&(value / 1_000)) && value % 3_600_000 == 0 => Unit::HourInMs,
            13 if SECONDS.contains(&(value / 1_000)) && value % 60_000 == 0 => Unit::MinuteInMs,
            _ => return None,
        };
        self.fields.push(Field {
            start,
            end,
            unit,
            value,
        });
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

const PARTS: [Unit; 6] = [
    Unit::Year,
    Unit::Month,
    Unit::Day,
    Unit::Hour,
    Unit::Minute,
    Unit::Second,
];

/// Returns true if fields that start with a year form a date.
fn is_date(fields: &[Field]) -> bool {
    let units = fields.iter().map(|field| field.unit);
    let value = |unit| {
        fields
            .iter()
            .find(|field| field.unit == unit)
            .map(|field| field.value)
    };
    let in_range = |unit, range: std::ops::Range<i64>| value(unit).is_none_or(|value| range.contains(&value));
    units.eq(PARTS.into_iter().take(fields.len()))
        && value(Unit::Year).is_some_and(|year| YEARS.contains(&year))
        && days_since_epoch(
            value(Unit::Year).unwrap_or(0),
            value(Unit::Month).unwrap_or(1),
            value(Unit::Day).unwrap_or(1),
        )
        .is_some()
        && in_range(Unit::Hour, 0..24)
        && in_range(Unit::Minute, 0..60)
        && in_range(Unit::Second, 0..60)
}

#[cfg(test)]
mod tests {
    use super::{Unit, fields};

    /// Formats the dates of a path as `Y2026 M11`.
    fn shown(path: &str) -> String {
        let letter = |unit| match unit {
            Unit::Year => "Y",
            Unit::Month => "M",
            Unit::Day => "D",
            Unit::Hour => "h",
            Unit::Minute => "m",
            Unit::Second => "s",
            Unit::EpochDay => "E",
            Unit::HourInSeconds | Unit::HourInMs => "H",
            Unit::MinuteInSeconds | Unit::MinuteInMs => "N",
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
