//! Times of day in logs.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

/// Parses `2023-11-14T22:13:20.123Z`.
pub fn rfc3339(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

/// Parses `06/Feb/2019:00:00:38 +0000`.
pub fn common_log(text: &str) -> Option<OffsetDateTime> {
    let form = format_description!(
        "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
    );
    OffsetDateTime::parse(text, form).ok()
}

/// Parses seconds since 1970, with decimals: `1795197401.591`.
pub fn unix_seconds(seconds: f64) -> Option<OffsetDateTime> {
    // The years that a date can be written in.
    if !(0.0..=253_402_300_799.0).contains(&seconds) {
        return None;
    }
    OffsetDateTime::from_unix_timestamp_nanos((seconds * 1e6).round() as i128 * 1_000).ok()
}

#[cfg(test)]
mod tests {
    use super::{common_log, rfc3339, unix_seconds};

    #[test]
    fn three_spellings_name_one_moment() {
        let at = rfc3339("2019-02-06T00:00:38Z").unwrap();
        assert_eq!(common_log("06/Feb/2019:00:00:38 +0000"), Some(at));
        assert_eq!(common_log("06/Feb/2019:01:00:38 +0100"), Some(at));
        assert_eq!(unix_seconds(1_549_411_238.0), Some(at));
    }

    #[test]
    fn what_is_no_time_is_none() {
        assert_eq!(rfc3339("yesterday"), None);
        assert_eq!(common_log("06/Foo/2019:00:00:38 +0000"), None);
        for seconds in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert_eq!(unix_seconds(seconds), None);
        }
    }
}
