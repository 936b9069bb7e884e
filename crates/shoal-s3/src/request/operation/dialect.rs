//! Headers and names that change the meaning of a request beyond its method, path and query.

use http::HeaderMap;

use super::query::Query;
use crate::error::{ErrorCode, S3Error};

/// How a request differs from the operation that it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dialect {
    /// It does not differ.
    None,
    /// It is another operation on the same object.
    OfObject,
    /// It may read or change other objects of the bucket, too.
    OfBucket,
}

/// Headers by which some programs override the method, whether or not the lake does.
const OTHER_METHOD: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

impl Dialect {
    /// Checks the key and the headers, which presigned URLs may carry in their query. Fails with
    /// `NotImplemented` for a header that names another method.
    pub(super) fn parse(headers: &HeaderMap, query: &Query, key: Option<&[u8]>) -> Result<Self, S3Error> {
        let mut dialect = Self::None;
        for name in headers.keys().map(http::HeaderName::as_str) {
            if OTHER_METHOD.contains(&name) {
                return Err(S3Error::new(
                    ErrorCode::NotImplemented,
                    "A header you provided implies functionality that is not implemented.",
                ));
            }
            dialect = dialect.max(Self::of_header(name));
        }
        for (name, _) in query.iter() {
            dialect = dialect.max(Self::of_header(name));
        }
        // Ceph RGW reads a name only up to a NUL in some places.
        if key.is_some_and(|key| memchr::memchr(0, key).is_some()) {
            dialect = Self::OfBucket;
        }
        Ok(dialect)
    }

    fn of_header(name: &str) -> Self {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let is_of_minio = |start: &str| start.eq_ignore_ascii_case("x-minio-");
        if is("x-amz-rename-source") || is("x-amz-meta-snowball-auto-extract") {
            // RenameObject, whose source is gone afterwards, and an archive that MinIO and AWS devices
            // unpack.
            Self::OfBucket
        } else if is("x-amz-write-offset-bytes") {
            // AppendObject: the request does not bring the whole object.
            Self::OfObject
        } else if name.get(..8).is_some_and(is_of_minio) {
            // For example a removal of all keys with a prefix, or a file in an archive.
            Self::OfBucket
        } else {
            Self::None
        }
    }
}
