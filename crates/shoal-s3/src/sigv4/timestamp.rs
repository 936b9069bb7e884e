//! The time at which a request was signed, in the one format that signatures use.

use std::time::SystemTime;

use time::format_description::StaticFormatDescription;
use time::macros::format_description;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

/// The form of the text.
const FORM: StaticFormatDescription = format_description!("[year][month][day]T[hour][minute][second]Z");

/// A time in whole seconds, together with its text `20130524T000000Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    text: [u8; 16],
    time: SystemTime,
}

impl Timestamp {
    /// The second that contains `time`.
    pub fn at(time: SystemTime) -> Self {
        let utc = OffsetDateTime::from(time).truncate_to_second();
        let mut text = [0; 16];
        utc.format_into(&mut text.as_mut_slice(), FORM)
            .expect("a year has four digits");
        Self {
            text,
            time: utc.into(),
        }
    }

    /// Reads `20130524T000000Z` and nothing else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; 16] = text.try_into().ok()?;
        if text[8] != b'T' || text[15] != b'Z' {
            return None;
        }
        let two = |at: usize| read_decimal(&text[at..at + 2]).map(|value| value as u8);
        let year = i32::try_from(read_decimal(&text[..4])?).ok()?;
        let date = Date::from_calendar_date(year, Month::try_from(two(4)?).ok()?, two(6)?).ok()?;
        let time = Time::from_hms(two(9)?, two(11)?, two(13)?).ok()?;
        Some(Self {
            text: *text,
            time: PrimitiveDateTime::new(date, time).assume_utc().into(),
        })
    }

    /// The text, as `x-amz-date` carries it.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text).expect("a timestamp is ASCII")
    }

    /// The day, `20130524`, as the credential scope carries it.
    pub fn day(&self) -> &str {
        &self.as_str()[..8]
    }

    /// Returns true if the credential scopes of both name the same day.
    pub fn is_same_day(&self, other: &Self) -> bool {
        self.text[..8] == other.text[..8]
    }

    /// The time itself.
    pub fn time(&self) -> SystemTime {
        self.time
    }
}

fn read_decimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| {
        digit
            .is_ascii_digit()
            .then(|| value * 10 + u32::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::Timestamp;
    use proptest::prelude::proptest;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn the_day_of_the_aws_examples_reads_as_it_is_written() {
        let timestamp = Timestamp::parse(b"20130524T000000Z").unwrap();
        assert_eq!(timestamp.time(), UNIX_EPOCH + Duration::from_hours(380_376));
        assert_eq!(
            (timestamp.as_str(), timestamp.day()),
            ("20130524T000000Z", "20130524")
        );
    }

    #[test]
    fn a_text_that_is_no_moment_is_refused() {
        for text in [
            "",
            "20130524",
            "20130524T000000",
            "20130524T000000+",
            "20130230T000000Z",
            "20130524t000000Z",
        ] {
            assert_eq!(Timestamp::parse(text.as_bytes()), None, "{text}");
        }
        for text in [
            "20131324T000000Z",
            "20130524T240000Z",
            "20130524T006000Z",
            "2013052 T000000Z",
            "+0130524T000000Z",
        ] {
            assert_eq!(Timestamp::parse(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_moment_written_and_read_loses_only_its_fraction(seconds in 0_u64..250_000_000_000, nanos in 0_u32..1_000_000_000) {
            let written = Timestamp::at(UNIX_EPOCH + Duration::new(seconds, nanos));
            assert_eq!(written.time(), UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(Timestamp::parse(written.as_str().as_bytes()), Some(written));
        }
    }
}
