//! Times as S3 writes them in documents.

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
