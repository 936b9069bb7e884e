//! The meanings of query parameters. Names are compared as S3 does, letter by letter; another spelling is
//! another name.

use http::HeaderName;
use http::header;

/// Parameters that do not turn a GET or HEAD into another operation, beside [`response_override`]. The last
/// four are the credentials of signature version 2, which only the lake can verify.
const OF_READS: [&str; 7] = [
    "versionId",
    "partNumber",
    "x-id",
    "AWSAccessKeyId",
    "Expires",
    "Signature",
    "x-amz-security-token",
];

/// Parameters of a listing of objects.
const OF_LISTS: [&str; 12] = [
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

/// Parameters of a listing of uploads.
const OF_UPLOADS: [&str; 8] = [
    "uploads",
    "prefix",
    "delimiter",
    "key-marker",
    "upload-id-marker",
    "max-uploads",
    "encoding-type",
    "x-id",
];

/// Other parameters whose value or presence this node acts upon.
const OTHERS: [&str; 6] = [
    "uploadId",
    "delete",
    "versions",
    "version-id-marker",
    "max-parts",
    "part-number-marker",
];

pub(super) fn is_of_reads(name: &str) -> bool {
    OF_READS.contains(&name) || response_override(name).is_some()
}

pub(super) fn is_of_lists(name: &str) -> bool {
    OF_LISTS.contains(&name)
}

pub(super) fn is_of_uploads(name: &str) -> bool {
    OF_UPLOADS.contains(&name)
}

/// Returns true if the parameter has a meaning for this node. Such a parameter must not appear twice, because
/// lakes differ in which of the two values they use. The gate checks the parameters of presigned URLs.
pub(super) fn is_known(name: &str) -> bool {
    is_of_reads(name) || is_of_lists(name) || is_of_uploads(name) || OTHERS.contains(&name)
}

/// Returns true if the parameter stands for a header, as in presigned URLs. The source of a copy does not
/// count: a copied part has bytes that do not come with the request.
pub(super) fn is_header(name: &str) -> bool {
    let has_prefix = name
        .get(..6)
        .is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"));
    has_prefix && !name.eq_ignore_ascii_case("x-amz-copy-source")
}

/// The response header that a `response-*` parameter sets.
pub fn response_override(name: &str) -> Option<HeaderName> {
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
