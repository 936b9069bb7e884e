//! Times of day in logs.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::clock::Time;

/// Times of a log, counted from its first line.
///
/// Merged logs of several servers are only roughly in order: a time before the first line counts as that of
/// the first line.
#[derive(Debug, Default)]
pub(super) struct Since {
    first: Option<OffsetDateTime>,
}

impl Since {
    /// Converts `at` to the time of the trace.
    pub(super) fn first_line(&mut self, at: OffsetDateTime) -> Time {
        let nanos = (at - *self.first.get_or_insert(at)).whole_nanoseconds();
        Time(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

/// Parses `2023-11-14T22:13:20.123Z`.
pub(super) fn rfc3339(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

/// Parses `06/Feb/2019:00:00:38 +0000`.
pub(super) fn common_log(text: &str) -> Option<OffsetDateTime> {
    let form = format_description!(
        "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
    );
    OffsetDateTime::parse(text, form).ok()
}
