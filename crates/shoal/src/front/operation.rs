//! What a request asks for: a pure function from its head to an `Operation` and the object it names.
//!
//! The key is percent-decoded here, once; nothing downstream decodes again, and the raw path goes to the lake as it came.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;
use http::uri::PathAndQuery;
use percent_encoding::percent_decode;

use crate::front::error::{ErrorCode, S3Error};
use crate::object::ObjectName;
use crate::sigv2;

/// The operations this node tells apart. All but [`Operation::GetObject`] and [`Operation::HeadObject`] are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `GET` of an object's bytes.
    GetObject,
    /// `HEAD` of an object.
    HeadObject,
    /// `PUT` of an object, also as a copy.
    PutObject,
    /// `DELETE` of an object.
    DeleteObject,
    /// `POST ?delete`: many keys of one bucket.
    DeleteObjects,
    /// `POST ?uploads`
    CreateMultipartUpload,
    /// `PUT ?uploadId&partNumber`
    UploadPart,
    /// `POST ?uploadId`: the object appears.
    CompleteMultipartUpload,
    /// `DELETE ?uploadId`
    AbortMultipartUpload,
    /// `GET` of a bucket.
    ListObjects,
    /// `GET ?uploads` of a bucket.
    ListMultipartUploads,
    /// `GET /`
    ListBuckets,
    /// A sub-resource or an operation we do not know that only reads.
    OtherRead,
    /// A sub-resource or an operation we do not know that may change an object.
    OtherWrite,
}

/// What an operation may change at the lake, and so what this node must forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that a cached answer depends on.
    None,
    /// The current version of the object, or who may read it.
    Object,
    /// Any object of the bucket, or who may read it.
    Bucket,
}

impl Operation {
    /// Every operation, for metrics.
    pub const ALL: [Self; 14] = [
        Self::GetObject,
        Self::HeadObject,
        Self::PutObject,
        Self::DeleteObject,
        Self::DeleteObjects,
        Self::CreateMultipartUpload,
        Self::UploadPart,
        Self::CompleteMultipartUpload,
        Self::AbortMultipartUpload,
        Self::ListObjects,
        Self::ListMultipartUploads,
        Self::ListBuckets,
        Self::OtherRead,
        Self::OtherWrite,
    ];

    /// Whether it brings an object, or a part of one, to the lake.
    pub const fn is_upload(self) -> bool {
        matches!(
            self,
            Self::PutObject | Self::CreateMultipartUpload | Self::UploadPart | Self::CompleteMultipartUpload
        )
    }

    /// The word in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GetObject => "get_object",
            Self::HeadObject => "head_object",
            Self::PutObject => "put_object",
            Self::DeleteObject => "delete_object",
            Self::DeleteObjects => "delete_objects",
            Self::CreateMultipartUpload => "create_multipart_upload",
            Self::UploadPart => "upload_part",
            Self::CompleteMultipartUpload => "complete_multipart_upload",
            Self::AbortMultipartUpload => "abort_multipart_upload",
            Self::ListObjects => "list_objects",
            Self::ListMultipartUploads => "list_multipart_uploads",
            Self::ListBuckets => "list_buckets",
            Self::OtherRead => "other_read",
            Self::OtherWrite => "other_write",
        }
    }
}

/// A classified request.
#[derive(Clone, Debug)]
pub struct Classified {
    /// What is asked.
    pub operation: Operation,
    /// The bucket, if the request names one.
    pub bucket: Option<Arc<str>>,
    /// The object, if the request names one.
    pub object: Option<ObjectName>,
    /// Path style (`/bucket/key?query`), raw bytes as the client sent them; authentication parameters included.
    pub target: PathAndQuery,
    /// Query parameters, decoded, in order.
    pub query: Query,
}

impl Classified {
    /// What this node must forget when the request has been forwarded.
    pub fn effect(&self) -> Effect {
        use Operation as O;
        match self.operation {
            O::GetObject
            | O::HeadObject
            | O::ListObjects
            | O::ListMultipartUploads
            | O::ListBuckets
            | O::OtherRead
            | O::CreateMultipartUpload
            | O::UploadPart
            | O::AbortMultipartUpload => Effect::None,
            O::PutObject | O::DeleteObject | O::CompleteMultipartUpload => Effect::Object,
            O::OtherWrite if self.object.is_some() => Effect::Object,
            O::DeleteObjects | O::OtherWrite => Effect::Bucket,
        }
    }
}

/// Decoded query parameters.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Splits and decodes a raw query once; a `+` in a value is a space, as in every S3 implementation.
    pub fn parse(raw: Option<&str>) -> Self {
        let pairs = raw
            .into_iter()
            .flat_map(|raw| raw.split('&'))
            .filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(n, v)| (decode(n), decode(v)))
                .collect(),
        )
    }

    /// Whether the parameter is there, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }

    /// The first value of the parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Whether every parameter is `known` or belongs to a presigned URL's credentials.
    fn has_only(&self, known: fn(&str) -> bool) -> bool {
        // Their names are plain words: without an access key they are somebody else's.
        let [access_key, ..] = sigv2::PARAMETERS;
        let is_version2 = self.has(access_key);
        self.iter().all(|(name, _)| {
            known(name) || is_auth_parameter(name) || (is_version2 && sigv2::PARAMETERS.contains(&name))
        })
    }

    /// All parameters in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }
}

fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode(spaced.as_bytes()).decode_utf8_lossy().into_owned()
}

/// Classifies a request by method, target and host. `domain` enables virtual-host style.
///
/// Errors: `InvalidURI` for a percent sign that is not followed by two hexadecimal digits or a path that names no
/// bucket but a key.
pub fn classify(
    method: &Method,
    target: &PathAndQuery,
    host: Option<&str>,
    is_copy: bool,
    domain: Option<&str>,
) -> Result<Classified, S3Error> {
    let target = path_style(target, host, domain)?;
    let Named { bucket, key } = split(target.path())?;
    let query = Query::parse(target.query());
    let object = bucket.clone().zip(key).map(|(bucket, key)| ObjectName {
        bucket,
        key,
        version: query.get("versionId").map(Arc::from),
    });
    let operation = operation(method, bucket.is_some(), object.is_some(), &query, is_copy);
    Ok(Classified {
        operation,
        bucket,
        object,
        target,
        query,
    })
}

fn operation(method: &Method, bucket: bool, object: bool, query: &Query, is_copy: bool) -> Operation {
    use Operation as O;
    match (method.as_str(), bucket, object) {
        ("GET", _, true) if query.has_only(is_read_parameter) => O::GetObject,
        ("HEAD", _, true) if query.has_only(is_read_parameter) => O::HeadObject,
        ("GET", true, false) if query.has_only(is_list_parameter) => O::ListObjects,
        ("GET", true, false) if query.has("uploads") && query.has_only(is_uploads_parameter) => {
            O::ListMultipartUploads
        }
        ("GET", false, false) => O::ListBuckets,
        ("PUT", _, true) if query.has("uploadId") => O::UploadPart,
        ("PUT", _, true) if is_copy || query.has_only(is_read_parameter) => O::PutObject,
        ("POST", _, true) if query.has("uploads") => O::CreateMultipartUpload,
        ("POST", _, true) if query.has("uploadId") => O::CompleteMultipartUpload,
        ("DELETE", _, true) if query.has("uploadId") => O::AbortMultipartUpload,
        ("DELETE", _, true) if query.has_only(is_read_parameter) => O::DeleteObject,
        ("POST", true, false) if query.has("delete") => O::DeleteObjects,
        ("GET" | "HEAD" | "OPTIONS", _, _) => O::OtherRead,
        _ => O::OtherWrite,
    }
}

/// Parameters that do not turn a GET into another operation.
fn is_read_parameter(name: &str) -> bool {
    matches!(name, "versionId" | "partNumber" | "x-id") || response_override(name).is_some()
}

fn is_list_parameter(name: &str) -> bool {
    const LIST: [&str; 12] = [
        "list-type",
        "prefix",
        "delimiter",
        "marker",
        "max-keys",
        "start-after",
        "continuation-token",
        "encoding-type",
        "fetch-owner",
        "x-id",
        "optional-object-attributes",
        "allow-unordered",
    ];
    LIST.contains(&name)
}

fn is_uploads_parameter(name: &str) -> bool {
    const UPLOADS: [&str; 8] = [
        "uploads",
        "prefix",
        "delimiter",
        "key-marker",
        "upload-id-marker",
        "max-uploads",
        "encoding-type",
        "x-id",
    ];
    UPLOADS.contains(&name)
}

/// Parameters that carry a presigned URL's credentials.
fn is_auth_parameter(name: &str) -> bool {
    const AUTH: [&str; 8] = [
        "X-Amz-Algorithm",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Expires",
        "X-Amz-SignedHeaders",
        "X-Amz-Signature",
        "X-Amz-Security-Token",
        "X-Amz-Content-Sha256",
    ];
    AUTH.contains(&name)
}

/// The response header that a `response-*` parameter sets.
pub fn response_override(name: &str) -> Option<http::HeaderName> {
    use http::header;
    Some(match name {
        "response-cache-control" => header::CACHE_CONTROL,
        "response-content-disposition" => header::CONTENT_DISPOSITION,
        "response-content-encoding" => header::CONTENT_ENCODING,
        "response-content-language" => header::CONTENT_LANGUAGE,
        "response-content-type" => header::CONTENT_TYPE,
        "response-expires" => header::EXPIRES,
        _ => return None,
    })
}

/// Rewrites a virtual-host style target to path style; the path's bytes stay as they are.
pub(super) fn path_style(
    target: &PathAndQuery,
    host: Option<&str>,
    domain: Option<&str>,
) -> Result<PathAndQuery, S3Error> {
    let Some(bucket) = domain.and_then(|domain| bucket_of_host(host?, domain)) else {
        return Ok(target.clone());
    };
    let invalid = || {
        S3Error::new(
            ErrorCode::InvalidUri,
            "The Host header does not name a valid bucket.",
        )
    };
    // HTTP/2 brings a `host` as free as any field: a `?` or `#` in it would cut off the path, a `/` name another object.
    if !bucket.bytes().all(stands_for_itself) {
        return Err(invalid());
    }
    PathAndQuery::try_from(format!("/{bucket}{target}")).map_err(|_| invalid())
}

/// Whether the byte means the same in a host and in a path: an unreserved character of RFC 3986.
fn stands_for_itself(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether the host names a bucket.
pub(super) fn is_in_host(host: &str, domain: &str) -> bool {
    bucket_of_host(host, domain).is_some()
}

fn bucket_of_host<'a>(host: &'a str, domain: &str) -> Option<&'a str> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let split = name
        .len()
        .checked_sub(domain.len())
        .filter(|split| name.is_char_boundary(*split))?;
    let (bucket, rest) = name.split_at(split);
    let bucket = bucket.strip_suffix('.')?;
    (rest.eq_ignore_ascii_case(domain) && !bucket.is_empty()).then_some(bucket)
}

/// What a path names, decoded once.
#[derive(Default)]
struct Named {
    bucket: Option<Arc<str>>,
    key: Option<Arc<[u8]>>,
}

/// Bucket and key of a path-style path.
fn split(path: &str) -> Result<Named, S3Error> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (bucket, key) = path
        .split_once('/')
        .map_or((path, None), |(bucket, key)| (bucket, Some(key)));
    if bucket.is_empty() {
        // `//key` names no bucket; the lake says what it makes of it.
        return Ok(Named::default());
    }
    let decoded = decode_strictly(bucket)?;
    let bucket = std::str::from_utf8(&decoded)
        .map_err(|_| S3Error::new(ErrorCode::InvalidUri, "The bucket name is not UTF-8."))?;
    let key = key
        .filter(|key| !key.is_empty())
        .map(decode_strictly)
        .transpose()?;
    Ok(Named {
        bucket: Some(bucket.into()),
        key: key.map(Arc::from),
    })
}

fn decode_strictly(text: &str) -> Result<Cow<'_, [u8]>, S3Error> {
    let bytes = text.as_bytes();
    if memchr::memchr(b'%', bytes).is_none() {
        return Ok(Cow::Borrowed(bytes));
    }
    let broken = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'%')
        .any(|(at, _)| {
            let digits = bytes.get(at + 1..at + 3);
            !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        });
    if broken {
        return Err(S3Error::new(
            ErrorCode::InvalidUri,
            "Couldn't parse the specified URI: '%' needs two hexadecimal digits.",
        ));
    }
    Ok(percent_decode(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(method: &str, target: &str) -> Classified {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        classify(
            &method,
            &target.parse().unwrap(),
            Some("localhost:9000"),
            false,
            None,
        )
        .unwrap()
    }

    #[test]
    fn each_request_has_its_operation_and_its_effect() {
        use Effect as E;
        use Operation as O;
        let table = [
            ("GET", "/b/k", O::GetObject, E::None),
            (
                "GET",
                "/b/k?x-id=GetObject&versionId=3&response-content-type=a",
                O::GetObject,
                E::None,
            ),
            ("GET", "/b/k?partNumber=2", O::GetObject, E::None),
            ("GET", "/b/k?acl", O::OtherRead, E::None),
            ("GET", "/b/k?tagging", O::OtherRead, E::None),
            ("GET", "/b/k?never-heard-of", O::OtherRead, E::None),
            ("HEAD", "/b/k", O::HeadObject, E::None),
            ("HEAD", "/b", O::OtherRead, E::None),
            ("GET", "/", O::ListBuckets, E::None),
            ("GET", "/b", O::ListObjects, E::None),
            ("GET", "/b/?list-type=2&prefix=x", O::ListObjects, E::None),
            (
                "GET",
                "/b?uploads&prefix=x&max-uploads=1",
                O::ListMultipartUploads,
                E::None,
            ),
            ("GET", "/b?uploads&never-heard-of", O::OtherRead, E::None),
            ("GET", "/b?policy", O::OtherRead, E::None),
            ("PUT", "/b/k", O::PutObject, E::Object),
            ("PUT", "/b/k?acl", O::OtherWrite, E::Object),
            ("PUT", "/b?policy", O::OtherWrite, E::Bucket),
            ("DELETE", "/b", O::OtherWrite, E::Bucket),
            ("PUT", "/b/k?partNumber=1&uploadId=u", O::UploadPart, E::None),
            ("POST", "/b/k?uploads", O::CreateMultipartUpload, E::None),
            ("POST", "/b/k?uploadId=u", O::CompleteMultipartUpload, E::Object),
            ("DELETE", "/b/k?uploadId=u", O::AbortMultipartUpload, E::None),
            ("DELETE", "/b/k?versionId=v", O::DeleteObject, E::Object),
            ("POST", "/b?delete", O::DeleteObjects, E::Bucket),
            ("POST", "/b", O::OtherWrite, E::Bucket),
            ("PROPFIND", "/b/k", O::OtherWrite, E::Object),
        ];
        for (method, target, operation, effect) in table {
            let request = classified(method, target);
            assert_eq!(
                (request.operation, request.effect()),
                (operation, effect),
                "{method} {target}"
            );
        }
    }

    #[test]
    fn keys_are_decoded_once_and_never_normalised() {
        let table: [(&str, &[u8]); 9] = [
            ("/b/a%2Fb", b"a/b"),
            ("/b/a%252Fb", b"a%2Fb"),
            ("/b//x", b"/x"),
            ("/b/./x", b"./x"),
            ("/b/../x", b"../x"),
            ("/b/a+b", b"a+b"),
            ("/b/_x%23%25", b"_x#%"),
            ("/b/%F0%9F%90%9F", "🐟".as_bytes()),
            ("/b/%01%FF", &[1, 255]),
        ];
        for (target, key) in table {
            let request = classified("GET", target);
            assert_eq!(&*request.object.unwrap().key, key, "{target}");
            assert_eq!(request.target.as_str(), target, "the raw path goes to the lake");
        }
    }

    #[test]
    fn a_broken_escape_is_refused() {
        for target in ["/b/%", "/b/%1", "/b/%zz", "/%2/x"] {
            let error = classify(&Method::GET, &target.parse().unwrap(), None, false, None).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidUri, "{target}");
        }
    }

    #[test]
    fn a_bucket_may_stand_in_the_host() {
        let at = |host, target: &str| {
            classify(
                &Method::GET,
                &target.parse().unwrap(),
                Some(host),
                false,
                Some("s3.example.org"),
            )
            .unwrap()
        };
        let request = at("data.lake.S3.example.org:9000", "/k?versionId=1");
        assert_eq!(request.target.as_str(), "/data.lake/k?versionId=1");
        assert_eq!(request.bucket.as_deref(), Some("data.lake"));
        assert_eq!(at("s3.example.org", "/b/k").bucket.as_deref(), Some("b"));
        assert_eq!(
            at("evil-s3.example.org", "/b/k").bucket.as_deref(),
            Some("b"),
            "not a label of its own"
        );
        assert_eq!(at("b.s3.example.org", "/").operation, Operation::ListObjects);
    }

    #[test]
    fn a_host_cannot_change_what_the_path_says() {
        let target = "/k?versionId=1".parse().unwrap();
        for bucket in ["b#", "b/other?", "b?acl&", "b%2fother", "b\u{e9}", "b c", "a@b"] {
            let host = format!("{bucket}.s3.example.org");
            let hosted = classify(&Method::GET, &target, Some(&host), false, Some("s3.example.org"));
            assert_eq!(hosted.unwrap_err().code, ErrorCode::InvalidUri, "{bucket}");
        }
    }
}
