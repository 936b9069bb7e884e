//! Checks Signature Version 4 as S3 documents it, apart from the product's own code.

use http::{HeaderMap, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sha2::{Digest, Sha256};

use super::REGION;
use super::object::hex;
use super::request::decoded_query;
use crate::chunks::ChunkSigner;

/// Access key of a signer, and the start of the chain of chunk signatures.
pub(super) struct Signed {
    pub(super) access_key: String,
    pub(super) chunks: ChunkSigner,
}

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// The signer, or the access key that a preflight names without proof. Returns `None` for an anonymous
/// request.
///
/// # Errors
///
/// The S3 error code.
pub(super) fn verify(
    head: &http::request::Parts,
    secret_of: impl Fn(&str) -> Option<String>,
) -> Result<Option<Signed>, &'static str> {
    let query: Vec<_> = decoded_query(head.uri.query().unwrap_or_default()).collect();
    let parameter = |name: &str| {
        query
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    };
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());

    let claim = match (header("authorization"), parameter("X-Amz-Signature")) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err("InvalidArgument"),
        (Some(authorization), None) => Claim {
            credential: field(authorization, "Credential=")?,
            signed_headers: field(authorization, "SignedHeaders=")?,
            signature: field(authorization, "Signature=")?,
            date: header("x-amz-date").ok_or("AccessDenied")?,
            payload: header("x-amz-content-sha256").ok_or("InvalidRequest")?,
        },
        (None, Some(signature)) => Claim {
            credential: parameter("X-Amz-Credential").ok_or("AuthorizationQueryParametersError")?,
            signed_headers: parameter("X-Amz-SignedHeaders").ok_or("AuthorizationQueryParametersError")?,
            signature,
            date: parameter("X-Amz-Date").ok_or("AuthorizationQueryParametersError")?,
            payload: header("x-amz-content-sha256").unwrap_or("UNSIGNED-PAYLOAD"),
        },
    };
    let (access_key, scope) = claim
        .credential
        .split_once('/')
        .ok_or("AuthorizationHeaderMalformed")?;
    // As at MinIO, the list of buckets is of every region.
    if head.uri.path() != "/" && scope.split('/').nth(1) != Some(REGION) {
        return Err("AuthorizationHeaderMalformed");
    }
    let secret = secret_of(access_key).ok_or("InvalidAccessKeyId")?;
    let chunks = ChunkSigner::new(&secret, claim.date, scope, claim.signature);
    let chunks = chunks.ok_or("AuthorizationHeaderMalformed")?;

    let signed: Vec<&str> = claim.signed_headers.split(';').collect();
    let unsigned = |name: &str| !signed.contains(&name);
    if unsigned("host")
        || head
            .headers
            .keys()
            .any(|name| must_be_signed(name.as_str()) && unsigned(name.as_str()))
    {
        return Err("AccessDenied");
    }
    let canonical = canonical_request(
        &head.method,
        head.uri.path(),
        &query,
        &head.headers,
        &signed,
        claim.payload,
    );
    let text = format!(
        "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
        claim.date,
        hex(&Sha256::digest(canonical))
    );
    // As at Ceph RGW, the preflight of a presigned URL is accepted: the signature is that of another method.
    let is_preflight = head.method == Method::OPTIONS && parameter("X-Amz-Signature").is_some();
    if !is_preflight && chunks.signature_of(&text) != claim.signature {
        return Err("SignatureDoesNotMatch");
    }
    Ok(Some(Signed {
        access_key: access_key.to_owned(),
        chunks,
    }))
}

struct Claim<'a> {
    credential: &'a str,
    signed_headers: &'a str,
    signature: &'a str,
    date: &'a str,
    payload: &'a str,
}

fn field<'a>(authorization: &'a str, name: &str) -> Result<&'a str, &'static str> {
    let fields = authorization
        .strip_prefix("AWS4-HMAC-SHA256 ")
        .ok_or("AuthorizationHeaderMalformed")?;
    fields
        .split(',')
        .find_map(|field| field.trim().strip_prefix(name))
        .ok_or("AuthorizationHeaderMalformed")
}

fn must_be_signed(header: &str) -> bool {
    header.starts_with("x-amz-") || header == "content-md5"
}

fn canonical_request(
    method: &Method,
    path: &str,
    query: &[(String, String)],
    headers: &HeaderMap,
    signed: &[&str],
    payload: &str,
) -> Vec<u8> {
    let path: Vec<u8> = percent_decode_str(path).collect();
    let encode = |text: &str| percent_encode(text.as_bytes(), UNRESERVED).to_string();
    let mut query: Vec<(String, String)> = query
        .iter()
        .filter(|(name, _)| name != "X-Amz-Signature")
        .map(|(name, value)| (encode(name), encode(value)))
        .collect();
    query.sort();
    let query: Vec<String> = query
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();

    let mut canonical =
        format!("{method}\n{}\n{}\n", percent_encode(&path, PATH), query.join("&")).into_bytes();
    for name in signed {
        canonical.extend(format!("{name}:").into_bytes());
        let values: Vec<Vec<u8>> = headers
            .get_all(*name)
            .iter()
            .map(|value| trimmed(value.as_bytes()))
            .collect();
        canonical.extend(values.join(&b","[..]));
        canonical.push(b'\n');
    }
    canonical.extend(format!("\n{}\n{payload}", signed.join(";")).into_bytes());
    canonical
}

/// Without blanks at the ends, and one blank where there are several.
fn trimmed(value: &[u8]) -> Vec<u8> {
    let words = value.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(&b' ')
}
