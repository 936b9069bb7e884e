//! Decides which writes may be written back, and builds their records and versions.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use shoal_cache::exchange::Admitted;
use shoal_cache::lake::Write;
use shoal_cache::write::Uncached;
use shoal_registry::Lifetime;
use shoal_s3::error::S3Error;
use shoal_s3::hop_by_hop::end_to_end;
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;

use crate::tier::TierUnavailable;

/// S3's default content type.
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("binary/octet-stream");

/// The `x-amz-` headers of a write that the node supports. A write with any other one is sent to the lake.
///
/// ACLs are not among them. They are meant for other callers, who read at the lake; and Ceph RGW checks an
/// ACL against the bucket's policy only when it gets the object, which is too late to refuse the write.
const UNDERSTOOD: [&str; 7] = [
    "x-amz-api-version",
    "x-amz-decoded-content-length",
    "x-amz-expected-bucket-owner",
    "x-amz-request-payer",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-trailer",
    "x-amz-user-agent",
];

/// The headers of a write that reads of the object return.
const OF_THE_OBJECT: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_DISPOSITION,
    header::CACHE_CONTROL,
    header::EXPIRES,
];

/// A write that may be acknowledged before it is at the lake.
#[derive(Clone, Debug)]
pub struct PendingWrite {
    pub(crate) name: ObjectName,
    pub(crate) caller: Caller,
    pub(crate) writer: Arc<str>,
    pub(crate) size_bytes: u64,
    /// The headers to send to the lake with the bytes.
    pub(crate) headers: HeaderMap,
    /// The lifetime that the writer expects of the object; `None` for the rule's.
    pub(crate) lifetime: Option<Lifetime>,
}

/// The reason why a write is not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Nothing was written: the body does not match the request's headers.
    #[error(transparent)]
    Body(#[from] S3Error),
    /// Nothing was written: the tier has no room.
    #[error("the tier is full")]
    Full,
    /// Nothing was written: the store did not take the bytes, or the registry the object.
    #[error(transparent)]
    Unavailable(#[from] TierUnavailable),
    /// The registry may have accepted the object.
    #[error("it is not known whether the object was written")]
    OutcomeUnknown,
}

impl From<Uncached> for WriteError {
    /// Returns the error for bytes that a tier does not accept for this reason.
    fn from(why: Uncached) -> Self {
        match why {
            Uncached::TooDirty => Self::Full,
            why => Self::Unavailable(TierUnavailable::because(&why.as_str())),
        }
    }
}

impl PendingWrite {
    /// Builds a pending write, if it may be written back.
    pub(crate) fn new(admitted: &Admitted, asked: Write<'_>, size_bytes: u64) -> Result<Self, Uncached> {
        let caller = &admitted.verified.caller;
        let mut write = Self::from_headers(asked.name, size_bytes, HeaderMap::new(), caller)?;
        write.headers = of_flush(&admitted.parts.headers)?;
        write.lifetime = asked.lifetime;
        Ok(write)
    }

    /// Builds a pending write whose `headers` may be sent to the lake.
    pub(crate) fn from_headers(
        name: &ObjectName,
        size_bytes: u64,
        headers: HeaderMap,
        caller: &Caller,
    ) -> Result<Self, Uncached> {
        let Caller::Identity(identity) = caller else {
            return Err(Uncached::Anonymous);
        };
        Ok(Self {
            name: name.clone(),
            caller: caller.clone(),
            writer: identity.name().into(),
            size_bytes,
            headers,
            lifetime: None,
        })
    }
}

/// Returns the headers to send to the lake with the bytes.
///
/// # Errors
///
/// The node does not support one of the headers.
pub(crate) fn of_flush(sent: &HeaderMap) -> Result<HeaderMap, Uncached> {
    let mut headers = end_to_end(sent);
    let is_condition = |name: &HeaderName| name.as_str().starts_with("if-");
    if headers.keys().any(is_condition) {
        return Err(Uncached::Condition);
    }
    let is_understood = |name: &HeaderName| {
        let name = name.as_str();
        let by_prefix = |prefix| name.starts_with(prefix);
        !by_prefix("x-amz-")
            || UNDERSTOOD.contains(&name)
            || ["x-amz-meta-", "x-amz-checksum-"].into_iter().any(by_prefix)
    };
    if !headers.keys().all(is_understood) {
        return Err(Uncached::Dialect);
    }
    for name in ["x-amz-decoded-content-length", "x-amz-trailer"] {
        headers.remove(name);
    }
    without_framing(&mut headers);
    // Lakes treat an empty type as missing.
    if headers
        .get(header::CONTENT_TYPE)
        .is_none_or(HeaderValue::is_empty)
    {
        headers.insert(header::CONTENT_TYPE, CONTENT_TYPE);
    }
    Ok(headers)
}

/// Removes `aws-chunked`, which encodes the request and not the object.
fn without_framing(headers: &mut HeaderMap) {
    let all: Vec<_> = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|word| !word.is_empty() && !word.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    let rest = HeaderValue::try_from(all.join(",")).expect("parts of a header are one");
    headers.remove(header::CONTENT_ENCODING);
    if !rest.is_empty() {
        headers.insert(header::CONTENT_ENCODING, rest);
    }
}

/// Returns true if reads of the object return this header of its write.
pub(crate) fn is_read(name: &HeaderName) -> bool {
    let text = name.as_str();
    let is_checksum = text.starts_with("x-amz-checksum-") && text != "x-amz-checksum-algorithm";
    is_metadata(name) || is_checksum
}

/// Returns true if a header of a write describes the object, independent of its bytes.
pub(crate) fn is_metadata(name: &HeaderName) -> bool {
    OF_THE_OBJECT.contains(name) || name.as_str().starts_with("x-amz-meta-")
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{is_read, of_flush};
    use shoal_cache::write::Uncached;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn the_lake_is_told_what_the_writer_said_of_the_object_and_not_of_the_request() {
        let sent = headers(&[
            ("host", "shoal"),
            ("authorization", "AWS4"),
            ("x-shoal-write", "back"),
            ("x-shoal-lifetime", "short"),
            ("content-encoding", "gzip,aws-chunked"),
            ("x-amz-decoded-content-length", "5"),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("x-amz-meta-colour", "blue"),
            ("content-type", "text/plain"),
        ]);
        let kept = of_flush(&sent).unwrap();
        let expected = headers(&[
            ("content-encoding", "gzip"),
            ("x-amz-meta-colour", "blue"),
            ("content-type", "text/plain"),
        ]);
        assert_eq!(kept, expected);
        let empty = of_flush(&headers(&[("content-type", "")])).unwrap();
        assert_eq!(empty, headers(&[("content-type", "binary/octet-stream")]));
        let bare = of_flush(&headers(&[("content-encoding", "aws-chunked")])).unwrap();
        assert_eq!(bare, headers(&[("content-type", "binary/octet-stream")]));
    }

    #[test]
    fn a_write_with_a_header_of_the_lake_goes_around() {
        for (name, why) in [
            ("if-none-match", Uncached::Condition),
            ("if-match", Uncached::Condition),
            ("x-amz-acl", Uncached::Dialect),
            ("x-amz-object-lock-mode", Uncached::Dialect),
            ("x-amz-server-side-encryption", Uncached::Dialect),
            ("x-amz-tagging", Uncached::Dialect),
            ("x-amz-storage-class", Uncached::Dialect),
            ("x-amz-never-heard-of", Uncached::Dialect),
        ] {
            assert_eq!(of_flush(&headers(&[(name, "x")])), Err(why), "{name}");
        }
    }

    #[test]
    fn a_read_brings_what_was_said_of_the_object() {
        for (name, brought) in [
            ("content-type", true),
            ("x-amz-meta-colour", true),
            ("x-amz-checksum-crc32", true),
            ("x-amz-checksum-algorithm", false),
            ("x-amz-acl", false),
            ("content-md5", false),
        ] {
            assert_eq!(is_read(&HeaderName::from_static(name)), brought, "{name}");
        }
    }
}
