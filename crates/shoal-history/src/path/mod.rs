//! Separates a path into its shape and the dates in it.

mod dates;
mod table;

use std::fmt::Write as _;

use self::dates::{Field, Unit, days_of, fields, value_of};
pub(crate) use self::table::{PathId, Paths};
use crate::moment::{DAY_MS, HOUR_MS, MINUTE_MS, Moment, SECOND_MS, days_since_epoch};
use crate::names::{digits, id_length, replaced};

/// Maximum number of dates per path. Further ones are left in the shape.
pub(crate) const DATES_MAX: usize = 2;

shoal_base::words! {
    /// The finest unit of a date, in which it is counted; the coarsest first.
    pub(crate) enum Grain {
        Year = "year",
        Month = "month",
        Day = "day",
        Hour = "hour",
        Minute = "minute",
        Second = "second",
    }
}

impl Grain {
    /// Returns the number of the unit that contains `moment`, counted from 1970 (years and months from the
    /// year 0).
    pub(crate) fn count(self, moment: Moment) -> i64 {
        match self {
            Self::Year => i64::from(moment.civil().year()),
            Self::Month => {
                let date = moment.civil();
                i64::from(date.year()) * 12 + i64::from(u8::from(date.month())) - 1
            }
            Self::Day => moment.ms().div_euclid(DAY_MS),
            Self::Hour => moment.ms().div_euclid(HOUR_MS),
            Self::Minute => moment.ms().div_euclid(MINUTE_MS),
            Self::Second => moment.ms().div_euclid(SECOND_MS),
        }
    }

    /// Returns the start of the unit with this number.
    pub(crate) fn begin(self, count: i64) -> Moment {
        let date = |year, month| days_since_epoch(year, month, 1).unwrap_or(0) * DAY_MS;
        Moment::from_ms(match self {
            Self::Year => date(count, 1),
            Self::Month => date(count.div_euclid(12), count.rem_euclid(12) + 1),
            Self::Day => count.saturating_mul(DAY_MS),
            Self::Hour => count.saturating_mul(HOUR_MS),
            Self::Minute => count.saturating_mul(MINUTE_MS),
            Self::Second => count.saturating_mul(SECOND_MS),
        })
    }
}

/// A date in a path: its unit, and its number in that unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathDate {
    pub(crate) grain: Grain,
    pub(crate) count: i64,
}

/// A path separated into shape and dates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dated {
    /// The path, with a mark in place of each part of a date. [`written`] is the inverse.
    pub(crate) shape: String,
    pub(crate) dates: Vec<PathDate>,
    pub(crate) padding: Padding,
}

/// Number of digits of a number below ten in a field after `key=`: `month=7` or `month=07`. All other fields
/// have two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Digits {
    /// No number below ten has been seen.
    #[default]
    Unknown,
    Two,
    One,
}

/// Digits of fields after `key=`, by kind, because an unpadded hour may occur with a padded day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Padding {
    /// Of months and days.
    date: Digits,
    /// Of hours, minutes and seconds.
    time: Digits,
}

impl Padding {
    /// Combines the digits of two paths of one shape, either of which may lack numbers below ten.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            date: self.date.max(other.date),
            time: self.time.max(other.time),
        }
    }

    /// Returns the minimum width of a field. A kind without numbers below ten is written like the other kind.
    fn width(self, unit: Unit) -> usize {
        let (own, other) = if unit.is_time() {
            (self.time, self.date)
        } else {
            (self.date, self.time)
        };
        match (own, other) {
            (Digits::One, _) | (Digits::Unknown, Digits::One) => 1,
            _ => 2,
        }
    }

    /// Returns `None` if one kind has both spellings, like `month=7/day=04`, so that the next one is
    /// ambiguous.
    fn from_path(path: &str, fields: &[Field]) -> Option<Self> {
        let mut padding = Self::default();
        let is_keyed = |field: &&Field| !field.unit.begins() && path[..field.start].ends_with('=');
        for field in fields.iter().filter(is_keyed).filter(|field| field.value < 10) {
            let found = match field.end - field.start {
                1 => Digits::One,
                _ => Digits::Two,
            };
            let of_kind = if field.unit.is_time() {
                &mut padding.time
            } else {
                &mut padding.date
            };
            if !matches!(*of_kind, Digits::Unknown) && *of_kind != found {
                return None;
            }
            *of_kind = found;
        }
        Some(padding)
    }
}

/// Precedes the letter of a unit in a shape. Paths of a history have no control characters.
pub(crate) const MARK: char = '\u{1}';

/// The units, each with its letter in a shape and its form for people.
const UNITS: [(Unit, char, &str); 11] = [
    (Unit::Calendar(Grain::Year), 'Y', "YYYY"),
    (Unit::Calendar(Grain::Month), 'M', "MM"),
    (Unit::Calendar(Grain::Day), 'D', "DD"),
    (Unit::Calendar(Grain::Hour), 'h', "hh"),
    (Unit::Calendar(Grain::Minute), 'm', "mm"),
    (Unit::Calendar(Grain::Second), 's', "ss"),
    (since_1970(Grain::Day, DAY_MS), 'E', "{days since 1970}"),
    (since_1970(Grain::Hour, SECOND_MS), 'a', "{seconds since 1970}"),
    (since_1970(Grain::Minute, SECOND_MS), 'b', "{seconds since 1970}"),
    (since_1970(Grain::Hour, 1), 'c', "{ms since 1970}"),
    (since_1970(Grain::Minute, 1), 'd', "{ms since 1970}"),
];

const fn since_1970(grain: Grain, unit_ms: i64) -> Unit {
    Unit::Since1970 { grain, unit_ms }
}

impl Dated {
    /// Extracts the dates of a path.
    pub(crate) fn from_path(path: &str) -> Self {
        let mut dated = Self {
            shape: String::with_capacity(path.len()),
            dates: Vec::new(),
            padding: Padding::default(),
        };
        let mut written = 0;
        let mut fields = fields(path);
        match Padding::from_path(path, &fields) {
            Some(padding) => dated.padding = padding,
            None => fields.clear(),
        }
        let mut rest = fields.as_slice();
        while let Some(first) = rest.first() {
            let length = rest[1..].iter().position(|field| field.unit.begins());
            let (date, later) = rest.split_at(length.map_or(rest.len(), |length| length + 1));
            rest = later;
            if dated.dates.len() == DATES_MAX || !first.unit.begins() {
                break;
            }
            for field in date {
                dated.shape.push_str(&path[written..field.start]);
                dated.shape.push(MARK);
                dated.shape.push(letter(field.unit));
                written = field.end;
            }
            dated.dates.push(path_date(date));
        }
        dated.shape.push_str(&path[written..]);
        dated
    }
}

fn letter(unit: Unit) -> char {
    let of_unit = UNITS.iter().find(|(of, ..)| *of == unit);
    of_unit.expect("every unit has a letter").1
}

fn path_date(fields: &[Field]) -> PathDate {
    let last = fields.last().expect("a date has fields");
    let (grain, ms) = match last.unit {
        Unit::Since1970 { grain, unit_ms } => (grain, last.value * unit_ms),
        Unit::Calendar(grain) => {
            let days = days_of(fields).expect("the scan takes dates that there are");
            let time = |grain, unit_ms| value_of(fields, grain).unwrap_or(0) * unit_ms;
            let of_day = time(Grain::Hour, HOUR_MS) + time(Grain::Minute, MINUTE_MS);
            (grain, days * DAY_MS + of_day + time(Grain::Second, SECOND_MS))
        }
    };
    PathDate {
        grain,
        count: grain.count(Moment::from_ms(ms)),
    }
}

/// Fills a shape with dates, as many as it has marks for.
pub(crate) fn written(shape: &str, dates: &[PathDate], padding: Padding) -> String {
    let mut dates = dates.iter();
    let mut moment = Moment::default();
    filled(shape, |path, unit, _| {
        if unit.begins()
            && let Some(date) = dates.next()
        {
            moment = date.grain.begin(date.count);
        }
        write_unit(path, unit, moment, padding);
    })
}

/// Formats a shape for people: `dt=YYYY-MM-DD`.
pub(crate) fn readable(shape: &str) -> String {
    filled(shape, |text, _, form| text.push_str(form))
}

/// Replaces the marks of a shape: `write` adds each unit, which has this form for people.
fn filled(shape: &str, mut write: impl FnMut(&mut String, Unit, &str)) -> String {
    let mut text = String::with_capacity(shape.len() + 8);
    let mut characters = shape.chars();
    while let Some(character) = characters.next() {
        if character != MARK {
            text.push(character);
            continue;
        }
        let letter = characters.next();
        if let Some((unit, _, form)) = UNITS.iter().find(|(_, of, _)| Some(*of) == letter) {
            write(&mut text, *unit, form);
        }
    }
    text
}

fn write_unit(path: &mut String, unit: Unit, moment: Moment, padding: Padding) {
    let civil = moment.civil();
    let number = match unit {
        Unit::Calendar(Grain::Year) => civil.year().into(),
        Unit::Calendar(Grain::Month) => u8::from(civil.month()).into(),
        Unit::Calendar(Grain::Day) => civil.day().into(),
        Unit::Calendar(Grain::Hour) => civil.hour().into(),
        Unit::Calendar(Grain::Minute) => civil.minute().into(),
        Unit::Calendar(Grain::Second) => civil.second().into(),
        Unit::Since1970 { unit_ms, .. } => moment.ms() / unit_ms,
    };
    let width = match unit {
        Unit::YEAR => 4,
        _ if unit.begins() => 1,
        _ if path.ends_with('=') => padding.width(unit),
        _ => 2,
    };
    // Writing to a string cannot fail.
    let _ = write!(path, "{number:0width$}");
}

/// Replaces ids in a path or shape by `*` and numbers by `#`: the common shape of the files of one writer.
pub(crate) fn generalized(shape: &str) -> String {
    replaced(shape, |rest, before| {
        let before = before.chars().last();
        let starts_word = !before.is_some_and(|before| before.is_ascii_alphanumeric() || before == '#');
        let id = starts_word.then(|| id_length(rest)).flatten();
        let digits = || Some(digits(rest)).filter(|&length| length > 0);
        id.map(|length| (length, "*"))
            .or_else(|| digits().map(|length| (length, "#")))
    })
}

/// Returns the parent prefix of a path; `None` if that is a whole bucket.
pub(crate) fn parent(path: &str) -> Option<&str> {
    let rest = path.strip_suffix('/').unwrap_or(path);
    let parent = &rest[..=rest.rfind('/')?];
    // `s3://bucket/` contains three slashes.
    (parent.matches('/').count() > 3).then_some(parent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{Dated, Grain, Moment, PathDate, generalized, parent, written};

    #[test]
    fn tomorrows_path_is_written_as_todays() {
        for (path, next) in [
            ("s3://b/dt=2026-11-30/x", "s3://b/dt=2026-12-01/x"),
            (
                "s3://b/year=2026/month=7/day=04/x",
                "s3://b/year=2026/month=7/day=04/x",
            ),
            (
                "s3://b/year=2026/month=9/day=30/x",
                "s3://b/year=2026/month=10/day=1/x",
            ),
            (
                "s3://b/year=2026/month=09/day=30/x",
                "s3://b/year=2026/month=10/day=01/x",
            ),
            ("s3://b/2024/02/28/23/x", "s3://b/2024/02/29/00/x"),
            ("s3://b/20261231.csv", "s3://b/20270101.csv"),
            ("s3://b/day=20777/x", "s3://b/day=20778/x"),
            ("s3://b/1795197600/x", "s3://b/1795201200/x"),
            ("s3://b/m=2026-12/x", "s3://b/m=2027-01/x"),
            ("s3://b/2026-11-20T23:59:59/x", "s3://b/2026-11-21T00:00:00/x"),
        ] {
            let dated = Dated::from_path(path);
            assert_eq!(written(&dated.shape, &dated.dates, dated.padding), path);
            let later: Vec<_> = dated
                .dates
                .iter()
                .map(|date| PathDate {
                    count: date.count + 1,
                    ..*date
                })
                .collect();
            assert_eq!(written(&dated.shape, &later, dated.padding), next);
        }
    }

    #[test]
    fn a_date_is_counted_in_its_finest_unit() {
        let dated = Dated::from_path("s3://b/dt=2000-01-01/hour=05/x");
        let count = 10_957 * 24 + 5;
        assert_eq!(
            dated.dates,
            [PathDate {
                grain: Grain::Hour,
                count
            }]
        );
        let moment = Moment::parse("2026-11-20T05:06:07Z").unwrap();
        for grain in Grain::ALL {
            let begin = grain.begin(grain.count(moment));
            assert!(
                begin <= moment && grain.count(begin) == grain.count(moment),
                "{grain:?}"
            );
        }
    }

    #[test]
    fn files_of_one_writer_have_one_general_path() {
        let file = |number, id| generalized(&format!("s3://b/fact/part-{number}-{id}-c000.snappy.parquet"));
        assert_eq!(
            file("00000", "faf65e55-b28a-4d94-bb41-2abf372dee50"),
            file("00003", "391624d4-ad3f-467a-bdbb-06c075acc131")
        );
        assert_ne!(generalized("s3://b/orders/"), generalized("s3://b/lineitem/"));
    }

    #[test]
    fn a_path_lies_in_prefixes_up_to_its_bucket() {
        assert_eq!(parent("s3://b/a/c/k"), Some("s3://b/a/c/"));
        assert_eq!(parent("s3://b/a/c/"), Some("s3://b/a/"));
        assert_eq!(parent("s3://b/a/"), None);
        assert_eq!(parent("s3://b/k"), None);
    }

    proptest! {
        #[test]
        fn any_path_is_taken_apart_and_put_together(path in "(s3://b/)?[a-z0-9=/_.T\u{e9}-]{0,60}") {
            let dated = Dated::from_path(&path);
            prop_assert_eq!(written(&dated.shape, &dated.dates, dated.padding), path.clone());
            generalized(&path);
        }

        #[test]
        fn any_text_is_taken_apart(path in any::<String>()) {
            Dated::from_path(&path);
            generalized(&path);
            parent(&path);
        }
    }
}
