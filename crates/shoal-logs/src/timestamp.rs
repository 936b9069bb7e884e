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

#[cfg(test)]
mod tests {
    use super::{common_log, rfc3339};

    #[test]
    fn spellings_name_one_moment() {
        let at = rfc3339("2019-02-06T00:00:38Z").unwrap();
        assert_eq!(common_log("06/Feb/2019:00:00:38 +0000"), Some(at));
        assert_eq!(common_log("06/Feb/2019:01:00:38 +0100"), Some(at));
    }

    #[test]
    fn what_is_no_time_is_none() {
        assert_eq!(rfc3339("yesterday"), None);
        assert_eq!(common_log("06/Foo/2019:00:00:38 +0000"), None);
    }
}
