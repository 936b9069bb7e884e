//! Timestamps in UTC, and the calendar.

use std::fmt;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use shoal_logs::timestamp::rfc3339;
use time::{Date, Duration, Month, OffsetDateTime};

/// One second in milliseconds.
pub const SECOND_MS: i64 = 1_000;
/// One minute in milliseconds.
pub const MINUTE_MS: i64 = 60 * SECOND_MS;
/// One hour in milliseconds.
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
/// One day in milliseconds.
pub const DAY_MS: i64 = 24 * HOUR_MS;
/// One week in milliseconds.
pub const WEEK_MS: i64 = 7 * DAY_MS;

/// The last millisecond of the year 9999, the maximum of RFC 3339.
const MS_MAX: i64 = 253_402_300_799_999;

/// Numbers below this are seconds since 1970, others milliseconds: the year 5138 in seconds, and 1973 in
/// milliseconds.
const SECONDS_MAX: f64 = 1e11;

/// A timestamp from 1970 to 9999, in whole milliseconds. Serialized as text: `2026-11-20T02:00:00Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(i64);

/// Expected form of a timestamp, for messages.
pub const MOMENT_FORM: &str = "a time such as 2026-11-20T02:00:00Z, or seconds or milliseconds since 1970";

impl Moment {
    /// Returns the timestamp this many milliseconds after 1970 began, clamped to the valid range.
    pub fn from_ms(ms: i64) -> Self {
        Self(ms.clamp(0, MS_MAX))
    }

    /// Returns the milliseconds since 1970 began.
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// Parses RFC 3339 with any offset, `2026-11-20 02:00:00` in UTC, a date, or seconds or milliseconds
    /// since 1970. A number that looks like a date, such as `20261120`, is rejected.
    pub fn parse(text: &str) -> Option<Self> {
        if reads_as_date(text) {
            return None;
        }
        if let Ok(number) = text.parse::<f64>() {
            return Self::from_number(number);
        }
        let utc = || {
            let form = text.replacen(' ', "T", 1);
            let time = if form.len() == "2026-11-20".len() {
                "T00:00:00"
            } else {
                ""
            };
            rfc3339(&format!("{form}{time}Z"))
        };
        rfc3339(text).or_else(utc).and_then(Self::from_time)
    }

    /// Converts seconds or milliseconds since 1970, distinguished by their magnitude.
    pub fn from_number(number: f64) -> Option<Self> {
        let seconds = if number < SECONDS_MAX {
            number
        } else {
            number / 1e3
        };
        let us = (seconds * 1e6).round() as i64;
        (0.0..=(MS_MAX / SECOND_MS) as f64)
            .contains(&seconds)
            .then_some(Self(us / 1_000))
    }

    /// Converts a log's timestamp; `None` if it is out of range.
    pub fn from_time(at: OffsetDateTime) -> Option<Self> {
        let ms = i64::try_from(at.unix_timestamp_nanos().div_euclid(1_000_000)).ok()?;
        (0..=MS_MAX).contains(&ms).then_some(Self(ms))
    }

    /// Returns the timestamp `ms` later, or earlier if `ms` is negative.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self::from_ms(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds from `earlier` to this timestamp; negative if `earlier` is later.
    pub const fn since_ms(self, earlier: Self) -> i64 {
        self.0 - earlier.0
    }

    /// Formats the time to the minute: `2026-11-20 02:00`.
    pub fn to_minute(self) -> String {
        let text = self.to_string();
        text[..16].replace('T', " ")
    }

    /// Returns the date and the time of day.
    pub(crate) fn civil(self) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::milliseconds(self.0)
    }
}

/// Returns the days since 1970 of a date; `None` if there is no such date.
pub(crate) fn days_since_epoch(year: i64, month: i64, day: i64) -> Option<i64> {
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(year).ok()?, month, u8::try_from(day).ok()?).ok()?;
    Some((date - OffsetDateTime::UNIX_EPOCH.date()).whole_days())
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.civil();
        let (hour, minute, second) = at.to_hms();
        write!(f, "{}T{hour:02}:{minute:02}:{second:02}", at.date())?;
        match self.0 % SECOND_MS {
            0 => write!(f, "Z"),
            ms => write!(f, ".{ms:03}Z"),
        }
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A timestamp as documents write it.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a time such as 2026-11-20T02:00:00Z, or seconds or milliseconds since 1970"
)]
enum Spelling {
    Number(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Spelling::deserialize(deserializer)? {
            Spelling::Number(number) => {
                Self::from_number(number).ok_or_else(|| invalid(Unexpected::Float(number)))
            }
            Spelling::Text(text) => Self::parse(&text).ok_or_else(|| invalid(Unexpected::Str(&text))),
        }
    }
}

fn invalid<E: Error>(found: Unexpected<'_>) -> E {
    E::invalid_value(found, &MOMENT_FORM)
}

/// Returns true for digits like `20261120` or `20261120020000`.
fn reads_as_date(text: &str) -> bool {
    if !matches!(text.len(), 8 | 14) || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let (year, month, day) = (&text[..4], &text[4..6], &text[6..8]);
    ("1970".."2100").contains(&year) && rfc3339(&format!("{year}-{month}-{day}T00:00:00Z")).is_some()
}

#[cfg(test)]
mod tests {
    use super::{Moment, days_since_epoch};

    #[test]
    fn every_spelling_of_a_moment_is_read() {
        let expected = Moment::from_ms(1_795_168_800_500);
        for text in [
            "2026-11-20T10:00:00.5Z",
            "2026-11-20T11:00:00.5+01:00",
            "2026-11-20 10:00:00.500",
            "1795168800.5",
            "1795168800500",
        ] {
            assert_eq!(Moment::parse(text), Some(expected), "{text}");
        }
        assert_eq!(expected.to_string(), "2026-11-20T10:00:00.500Z");
        assert_eq!(expected.to_minute(), "2026-11-20 10:00");
        assert_eq!(
            Moment::parse("2026-11-20").unwrap().to_string(),
            "2026-11-20T00:00:00Z"
        );
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "soon",
            "NaN",
            "inf",
            "-5",
            "1e300",
            "20261120",
            "20261120020000",
            "2026-13-01",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
        assert_eq!(
            Moment::from_ms(i64::MAX).plus_ms(i64::MAX).to_string(),
            "9999-12-31T23:59:59.999Z"
        );
    }

    #[test]
    fn days_are_counted_from_1970() {
        assert_eq!(days_since_epoch(1970, 1, 1), Some(0));
        assert_eq!(days_since_epoch(2024, 2, 29), Some(19_782));
        assert_eq!(days_since_epoch(2026, 2, 29), None);
    }

    #[test]
    fn a_moment_in_json_is_text_or_a_number() {
        let moment: Moment = serde_json::from_str("1795168800").unwrap();
        assert_eq!(
            serde_json::to_string(&moment).unwrap(),
            "\"2026-11-20T10:00:00Z\""
        );
        assert!(serde_json::from_str::<Moment>("\"soon\"").is_err());
    }
}
