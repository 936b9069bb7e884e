//! Separates the headers of the lake's answer that describe the version from those for one caller.
//!
//! All callers with read permission share a version, so it keeps only headers on an allow list. All others
//! (tags, locks, replication, CORS, cookies, unknown headers) are passed only to the caller whose request the
//! lake answered.

use http::{HeaderMap, HeaderName, header};

use crate::hop_by_hop::{end_to_end_of_response, retain};

/// The headers of `answer` that describe the version, in their order and number.
pub(super) fn of_version(answer: &HeaderMap) -> HeaderMap {
    retain(answer, is_of_version)
}

/// Drops the headers that neither describe the version nor [mark it as recent](super::Version::is_recent).
pub(super) fn retain_of_version(headers: HeaderMap) -> HeaderMap {
    let is_kept = |name: &HeaderName| is_of_version(name) || name == header::DATE;
    if headers.keys().all(is_kept) {
        headers
    } else {
        retain(&headers, is_kept)
    }
}

/// The headers of a version without checksums.
pub(super) fn without_checksums(headers: &HeaderMap) -> HeaderMap {
    retain(headers, |name| !name.as_str().starts_with(CHECKSUM))
}

/// The headers of `answer` for this caller only.
pub fn of_caller(answer: &HeaderMap) -> HeaderMap {
    end_to_end_of_response(&retain(answer, |name| {
        !is_of_version(name) && !OF_THE_EXCHANGE.contains(&name.as_str())
    }))
}

/// The prefix of the names of checksums.
const CHECKSUM: &str = "x-amz-checksum-";

/// Returns true if an immutable version has this header in every answer, to every caller (AWS's `GetObject`,
/// and Ceph RGW's own headers).
fn is_of_version(name: &HeaderName) -> bool {
    const OF_S3: [&str; 9] = [
        "x-amz-missing-meta",
        "x-amz-mp-parts-count",
        "x-amz-server-side-encryption",
        "x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-server-side-encryption-bucket-key-enabled",
        "x-amz-storage-class",
        "x-amz-version-id",
        "x-amz-website-redirect-location",
        "x-rgw-object-type",
    ];
    match *name {
        header::ACCEPT_RANGES
        | header::CACHE_CONTROL
        | header::CONTENT_DISPOSITION
        | header::CONTENT_ENCODING
        | header::CONTENT_LANGUAGE
        | header::CONTENT_TYPE
        | header::ETAG
        | header::EXPIRES
        | header::LAST_MODIFIED => true,
        _ => {
            let name = name.as_str();
            name.starts_with("x-amz-meta-") || name.starts_with(CHECKSUM) || OF_S3.contains(&name)
        }
    }
}

/// Headers of the exchange between node and lake: the node's answer sets its own values, or none.
const OF_THE_EXCHANGE: [&str; 10] = [
    "age",
    "alt-svc",
    "content-length",
    "content-range",
    "date",
    "server",
    "via",
    "x-amz-delete-marker",
    "x-amz-id-2",
    "x-amz-request-id",
];

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use shoal_base::encoding::Reader;
    use shoal_policy::ObjectId;

    use super::*;
    use crate::object::Version;

    fn names(headers: &HeaderMap) -> Vec<&str> {
        headers.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn each_header_is_the_versions_the_callers_or_the_exchanges() {
        let mut answer = HeaderMap::new();
        let of_version = [
            "content-type",
            "etag",
            "x-amz-meta-colour",
            "x-amz-checksum-crc32",
            "x-amz-checksum-type",
            "x-amz-server-side-encryption",
            "x-amz-version-id",
        ];
        let of_caller = [
            "access-control-allow-origin",
            "set-cookie",
            "vary",
            "x-amz-expiration",
            "x-amz-object-lock-mode",
            "x-amz-replication-status",
            "x-amz-request-charged",
            "x-amz-restore",
            "x-amz-tagging-count",
            "x-never-heard-of",
        ];
        let of_neither = [
            "connection",
            "date",
            "server",
            "content-length",
            "x-amz-request-id",
        ];
        for name in of_version.into_iter().chain(of_caller).chain(of_neither) {
            answer.insert(name, HeaderValue::from_static("x"));
        }
        assert_eq!(names(&super::of_version(&answer)), of_version);
        assert_eq!(names(&super::of_caller(&answer)), of_caller);
    }

    #[test]
    fn headers_of_one_caller_that_an_older_node_stored_are_not_read() {
        let answer = [(header::ETAG, "\"e\""), (header::CONTENT_TYPE, "text/plain")];
        let answer = answer.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let object = ObjectId([1; 16]);
        let version = Version::from_response(object, &HeaderMap::from_iter(answer), 5, 4).unwrap();
        let mut older = version.clone();
        older
            .headers
            .insert(header::SET_COOKIE, HeaderValue::from_static("of=alice"));
        let mut written = Vec::new();
        older.write(&mut written);
        let read = Version::read(&mut Reader::new(&written)).unwrap();
        assert_eq!(read.headers, version.headers);
    }

    #[test]
    fn headers_keep_their_order_and_number() {
        let mut answer = HeaderMap::new();
        for cookie in ["a=1", "b=2"] {
            answer.append(header::SET_COOKIE, HeaderValue::from_static(cookie));
        }
        let told = of_caller(&answer);
        let cookies: Vec<_> = told.get_all(header::SET_COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
    }
}
