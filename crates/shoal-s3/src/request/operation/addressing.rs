//! The bucket and the key that a request names, in path or host, decoded once.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::{ErrorCode, S3Error};
use crate::names::percent::decode_path;
use crate::sigv4::split_once;

/// The bucket, or the object in it, that a request names; neither for the service itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) bucket: Option<Arc<str>>,
    pub(super) key: Option<Arc<[u8]>>,
}

impl Resource {
    /// Parses the path, and the host if `domain` enables virtual-host style.
    pub(super) fn parse(path: &str, host: Option<&str>, domain: Option<&str>) -> Result<Self, S3Error> {
        let hosted = domain.and_then(|domain| bucket_of_host(host?, domain));
        // `*`, like any other target that is not a path, names nothing in S3.
        let path = path.strip_prefix('/');
        let no_path = || S3Error::new(ErrorCode::InvalidUri, "Couldn't parse the specified URI.");
        let path = path.ok_or_else(no_path)?;
        let (bucket, key) = match hosted {
            Some(bucket) => (Cow::Borrowed(bucket.as_bytes()), Some(path)),
            None if path.is_empty() => return Ok(Self::default()),
            None => {
                let (bucket, key) =
                    split_once(path, b'/').map_or((path, None), |(bucket, key)| (bucket, Some(key)));
                (decode(bucket)?, key)
            }
        };
        let key = key.filter(|key| !key.is_empty()).map(decode).transpose()?;
        Ok(Self {
            bucket: Some(bucket_name(&bucket)?.into()),
            key: key.map(Arc::from),
        })
    }
}

/// Returns the name if a bucket may have it: letters, digits and `-._`, as S3 once allowed them, and the `:`
/// after which Ceph RGW names a bucket of a tenant. With any other byte, above all a slash, a lake that
/// decodes the path before it splits it would find another bucket and a key.
pub(super) fn bucket_name(bytes: &[u8]) -> Result<&str, S3Error> {
    let may_stand = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    let is_name = !matches!(bytes, b"" | b"." | b"..") && bytes.iter().all(may_stand);
    let name = std::str::from_utf8(bytes).ok().filter(|_| is_name);
    name.ok_or_else(|| S3Error::new(ErrorCode::InvalidBucketName, "The specified bucket is not valid."))
}

/// Returns true if the host names a bucket.
pub fn is_in_host(host: &str, domain: &str) -> bool {
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

/// Decodes a part of a path, in which `+` is literal. Fails with `InvalidURI` for a percent sign that is not
/// followed by two hexadecimal digits.
fn decode(text: &str) -> Result<Cow<'_, [u8]>, S3Error> {
    decode_path(text.as_bytes()).ok_or_else(|| {
        S3Error::new(
            ErrorCode::InvalidUri,
            "Couldn't parse the specified URI: '%' needs two hexadecimal digits.",
        )
    })
}
