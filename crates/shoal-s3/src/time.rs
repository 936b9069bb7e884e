//! Times as S3 writes them in documents and in its access log.

use std::time::SystemTime;

/// `2013-05-24T00:00:00.000Z`
pub fn rfc3339(at: SystemTime) -> String {
    let format = time::macros::format_description!(
        "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z"
    );
    time::OffsetDateTime::from(at)
        .format(format)
        .expect("a time in UTC has all its parts")
}

/// `24/May/2013:00:00:00 +0000`
pub fn common_log(at: SystemTime) -> String {
    let format =
        time::macros::format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
    time::OffsetDateTime::from(at)
        .format(format)
        .expect("a time in UTC has all its parts")
}
