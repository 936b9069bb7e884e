//! The source of a copy: parsed once, and encoded again for the lake.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::addressing::bucket_name;
use super::query::Query;
use crate::error::{ErrorCode, S3Error};
use crate::names::percent::decode_path;
use crate::object::ObjectName;
use crate::target;

/// The header that names the source of a copy.
pub static COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

/// The source of a copy, as far as this node understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopySource {
    /// One object.
    Object(ObjectName),
    /// A name with a literal `+`. Some lakes decode it as a space, so the source is one of these two objects.
    Either(ObjectName, ObjectName),
    /// An Amazon Resource Name. Only the lake knows which bucket is behind an access point.
    Arn,
}

impl CopySource {
    /// Parses the source from the header, or from the query of a presigned URL.
    ///
    /// Fails with `InvalidArgument`, as AWS does, for two sources, for no object, for a wrongly encoded name,
    /// and for parameters other than one `versionId`.
    pub(super) fn from_request(headers: &HeaderMap, query: &Query) -> Result<Option<Self>, S3Error> {
        let of_header = headers.get_all(&COPY_SOURCE).iter().map(HeaderValue::as_bytes);
        let of_query = query
            .iter()
            .filter(|(name, _)| COPY_SOURCE.as_str().eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_bytes());
        let mut sources = of_header.chain(of_query);
        match (sources.next(), sources.next()) {
            (None, _) => Ok(None),
            (Some(source), None) => Self::parse(source).map(Some),
            (Some(_), Some(_)) => Err(invalid("A copy has one source.")),
        }
    }

    fn parse(source: &[u8]) -> Result<Self, S3Error> {
        if source.starts_with(b"arn:") {
            return Ok(Self::Arn);
        }
        let (path, version) = match memchr::memchr(b'?', source) {
            Some(mark) => (&source[..mark], Some(version(&source[mark + 1..])?)),
            None => (source, None),
        };
        let name = object(path, version.as_deref())?;
        if memchr::memchr(b'+', path).is_none() {
            return Ok(Self::Object(name));
        }
        let as_form: Vec<u8> = path
            .iter()
            .map(|byte| if *byte == b'+' { b' ' } else { *byte })
            .collect();
        Ok(Self::Either(name, object(&as_form, version.as_deref())?))
    }

    /// The objects to which the source may refer.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectName> {
        let (one, other) = match self {
            Self::Object(name) => (Some(name), None),
            Self::Either(name, other) => (Some(name), Some(other)),
            Self::Arn => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// The header for the lake; `None` means the header as the client wrote it.
    pub fn header(&self) -> Option<HeaderValue> {
        let Self::Object(name) = self else {
            return None;
        };
        let target = target::of_object(name).ok()?;
        HeaderValue::from_str(target.as_str().trim_start_matches('/')).ok()
    }
}

/// The object that a path names. The slash before the key may also be encoded, as in examples of AWS.
fn object(path: &[u8], version: Option<&str>) -> Result<ObjectName, S3Error> {
    let decoded = decode_path(path).ok_or_else(|| invalid("Invalid copy source encoding"))?;
    let decoded = decoded.strip_prefix(b"/").unwrap_or(&decoded);
    let slash = memchr::memchr(b'/', decoded).filter(|slash| slash + 1 < decoded.len());
    let no_key = || invalid("Invalid copy source object key");
    let slash = slash.ok_or_else(no_key)?;
    let (bucket, key) = (&decoded[..slash], &decoded[slash + 1..]);
    if memchr::memchr(0, key).is_some() {
        return Err(no_key());
    }
    let bucket = bucket_name(bucket).map_err(|_| invalid("Invalid copy source bucket name"))?;
    Ok(ObjectName {
        bucket: bucket.into(),
        key: key.into(),
        version: version.map(Into::into),
    })
}

/// The version after the path, where no other parameter is allowed.
fn version(parameters: &[u8]) -> Result<String, S3Error> {
    let unsupported = || invalid("Unsupported copy source parameter.");
    let parameters = std::str::from_utf8(parameters).map_err(|_| unsupported())?;
    let query = Query::parse(Some(parameters)).map_err(|_| unsupported())?;
    let version = query.get("versionId").filter(|version| !version.is_empty());
    let is_all = query.iter().all(|(name, _)| name == "versionId");
    version.filter(|_| is_all).map(Into::into).ok_or_else(unsupported)
}

fn invalid(message: &'static str) -> S3Error {
    S3Error::new(ErrorCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::{CopySource, Query};
    use crate::error::ErrorCode;

    fn parsed(source: &str) -> CopySource {
        CopySource::parse(source.as_bytes()).unwrap()
    }

    #[test]
    fn a_source_is_found_in_any_spelling_and_told_in_one() {
        for (source, told) in [
            ("b/k%20/x", "b/k%20/x"),
            ("/b/k%20/x", "b/k%20/x"),
            ("b%2Fk%20%2Fx", "b/k%20/x"),
            ("%2Fb/k /x", "b/k%20/x"),
            ("b/\u{e9}", "b/%C3%A9"),
            ("b/foo%3Fbar", "b/foo%3Fbar"),
            ("b/k%2B", "b/k%2B"),
            ("b//k", "b//k"),
            ("b/k?versionId=a%2Fb", "b/k?versionId=a%2Fb"),
            ("b/k?%76ersionId=3", "b/k?versionId=3"),
            ("t:b/k", "t%3Ab/k"),
        ] {
            assert_eq!(parsed(source).header().unwrap(), told, "{source}");
        }
    }

    #[test]
    fn a_plus_is_either_of_two_objects_and_told_as_the_client_wrote_it() {
        let source = parsed("b/a+b%2Bc");
        let keys: Vec<_> = source.objects().map(|name| name.key.to_vec()).collect();
        assert_eq!(keys, [b"a+b+c".to_vec(), b"a b+c".to_vec()]);
        assert_eq!(source.header(), None);
    }

    #[test]
    fn an_arn_is_the_lakes_to_understand() {
        let source = parsed("arn:aws:s3:us-west-2:123456789012:accesspoint/a/object/k");
        assert_eq!((source.objects().count(), source.header()), (0, None));
    }

    #[test]
    fn a_source_that_names_no_object_or_may_mean_two_is_refused() {
        for source in [
            "",
            "/",
            "b",
            "b/",
            "/b",
            "//b/k",
            "b%2f",
            "a b/k",
            "a%00/k",
            "b/k%00",
            "../k",
            "b/100%",
            "b/%zz",
            "b/k?",
            "b/k?versionId=",
            "b/k?versionId=1&versionId=2",
            "b/k?versionId=1&x",
            "b/k?acl",
            "b/foo?bar",
        ] {
            let refused = CopySource::parse(source.as_bytes()).unwrap_err();
            assert_eq!(refused.code, ErrorCode::InvalidArgument, "{source}");
        }
        for source in ["b", "b/", "b/k%00"] {
            let refused = CopySource::parse(source.as_bytes()).unwrap_err();
            assert_eq!(refused.message, "Invalid copy source object key", "{source}");
        }
    }

    #[test]
    fn a_source_may_stand_in_a_query_but_not_there_and_in_a_header() {
        let query = Query::parse(Some("X-Amz-Copy-Source=b%2Fk%252B")).unwrap();
        let mut headers = http::HeaderMap::new();
        let source = CopySource::from_request(&headers, &query).unwrap().unwrap();
        assert_eq!(source.header().unwrap(), "b/k%2B");
        headers.insert("x-amz-copy-source", "b/k".parse().unwrap());
        CopySource::from_request(&headers, &query).unwrap_err();
        headers.append("x-amz-copy-source", "b/k".parse().unwrap());
        CopySource::from_request(&headers, &Query::default()).unwrap_err();
    }
}
