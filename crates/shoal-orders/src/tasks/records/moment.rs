//! A time in orders and answers: RFC 3339 in JSON, such as `2026-11-27T18:00:00.000Z`.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use shoal_base::moment::millis_since_1970;
use shoal_net::clock;
use shoal_s3::time::rfc3339;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A time, to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(SystemTime);

/// The text is no [`Moment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a time as 2026-11-27T18:00:00Z, or with an offset such as +01:00")]
pub struct InvalidMoment;

impl Moment {
    /// Returns the present.
    pub fn now() -> Self {
        Self::from(clock::utc_now())
    }

    /// Returns the time that is this number of milliseconds after 1970.
    pub fn of_millis(millis: u64) -> Self {
        Self(SystemTime::UNIX_EPOCH).plus(Duration::from_millis(millis))
    }

    /// Returns the time itself.
    pub const fn time(self) -> SystemTime {
        self.0
    }

    /// Returns the time in milliseconds since 1970.
    pub fn millis(self) -> u64 {
        millis_since_1970(self.0)
    }

    /// Returns the time that is left until then; zero if it has passed.
    pub fn after(self, now: SystemTime) -> Duration {
        self.0.duration_since(now).unwrap_or_default()
    }

    /// Adds a duration. Returns the last time that can be written if the sum is later.
    #[must_use]
    pub fn plus(self, while_: Duration) -> Self {
        let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
        Self(self.0.checked_add(while_).unwrap_or(last).min(last))
    }
}

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        Self::of_millis(millis_since_1970(time))
    }
}

impl FromStr for Moment {
    type Err = InvalidMoment;

    fn from_str(text: &str) -> Result<Self, InvalidMoment> {
        let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| InvalidMoment)?;
        if time < OffsetDateTime::UNIX_EPOCH {
            return Err(InvalidMoment);
        }
        Ok(SystemTime::from(time).into())
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rfc3339(self.0))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::{any, proptest};

    use super::{InvalidMoment, Moment};

    #[test]
    fn a_time_is_read_with_its_offset_and_written_in_utc() {
        for (text, written) in [
            ("2026-11-27T18:00:00Z", "2026-11-27T18:00:00.000Z"),
            ("2026-11-27T18:00:00.5+01:00", "2026-11-27T17:00:00.500Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(text.parse::<Moment>().unwrap().to_string(), written);
        }
        for text in [
            "",
            "friday",
            "2026-11-27",
            "2026-13-27T18:00:00Z",
            "1969-12-31T00:00:00Z",
        ] {
            assert_eq!(text.parse::<Moment>(), Err(InvalidMoment), "{text}");
        }
    }

    #[test]
    fn a_time_beyond_all_calendars_is_the_last_one() {
        let late = Moment::from(SystemTime::UNIX_EPOCH).plus(Duration::MAX);
        assert_eq!(late.to_string(), "9999-12-31T23:59:59.000Z");
        assert_eq!(late.to_string().parse(), Ok(late));
    }

    proptest! {
        #[test]
        fn a_time_is_read_as_it_was_written(millis in 0..253_402_300_799_000_u64) {
            let moment = Moment::from(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
            assert_eq!(moment.to_string().parse(), Ok(moment));
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = text.parse::<Moment>();
        }
    }
}
