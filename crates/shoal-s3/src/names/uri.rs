//! `s3://bucket/key`, as used in commands and rules.

use std::fmt;
use std::str::FromStr;

/// The name of a bucket, an object, or everything below a prefix. Nothing is percent-decoded: the key is
/// taken as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct S3Uri {
    /// Never empty, never contains a slash.
    pub bucket: String,
    /// Without the slash after the bucket; empty for the bucket itself.
    pub key: String,
}

/// Why an [`S3Uri`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct S3UriError(&'static str);

/// The longest key that S3 allows.
const KEY_BYTES_MAX: usize = 1024;

impl FromStr for S3Uri {
    type Err = S3UriError;

    fn from_str(text: &str) -> Result<Self, S3UriError> {
        let scheme = S3UriError("it does not begin with s3://");
        let path = text.strip_prefix("s3://").ok_or(scheme)?;
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        // Ceph names the buckets of other tenants `tenant:bucket`; old AWS buckets have underscores and
        // capitals.
        let allowed = |c: char| c.is_ascii_alphanumeric() || ['.', '-', '_', ':'].contains(&c);
        match (bucket, key) {
            ("", _) => Err(S3UriError("it names no bucket")),
            // A path would not name them.
            ("." | "..", _) => Err(S3UriError(". and .. are no names of buckets")),
            _ if !bucket.chars().all(allowed) => {
                Err(S3UriError("a bucket name has letters, digits and . - _ : only"))
            }
            _ if key.len() > KEY_BYTES_MAX => Err(S3UriError("its key is longer than 1024 bytes")),
            _ => Ok(Self {
                bucket: bucket.into(),
                key: key.into(),
            }),
        }
    }
}

impl fmt::Display for S3Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::{S3Uri, S3UriError};

    fn parse(text: &str) -> Result<(String, String), S3UriError> {
        text.parse().map(|uri: S3Uri| (uri.bucket, uri.key))
    }

    #[test]
    fn a_uri_names_a_bucket_and_perhaps_a_key() {
        let cases = [
            ("s3://b", "b", ""),
            ("s3://b/", "b", ""),
            ("s3://b/k", "b", "k"),
            ("s3://b/a/b//c/", "b", "a/b//c/"),
            ("s3://b//k", "b", "/k"),
            ("s3://My_Old.Bucket/k", "My_Old.Bucket", "k"),
            ("s3://tenant:b/k", "tenant:b", "k"),
            ("s3://b/100%25 ä?#", "b", "100%25 ä?#"),
        ];
        for (text, bucket, key) in cases {
            assert_eq!(parse(text), Ok((bucket.into(), key.into())), "{text}");
        }
    }

    #[test]
    fn a_uri_that_names_no_object_is_refused_with_the_reason() {
        assert_eq!(parse("b/k"), Err(S3UriError("it does not begin with s3://")));
        assert_eq!(parse("S3://b/k"), Err(S3UriError("it does not begin with s3://")));
        assert_eq!(
            parse("https://b/k"),
            Err(S3UriError("it does not begin with s3://"))
        );
        assert_eq!(parse("s3://"), Err(S3UriError("it names no bucket")));
        assert_eq!(parse("s3:///k"), Err(S3UriError("it names no bucket")));
        assert_eq!(
            parse("s3://my bucket/k"),
            Err(S3UriError("a bucket name has letters, digits and . - _ : only"))
        );
        assert_eq!(
            parse("s3://user@b/k"),
            Err(S3UriError("a bucket name has letters, digits and . - _ : only"))
        );
        assert_eq!(
            parse(&format!("s3://b/{}", "k".repeat(1025))),
            Err(S3UriError("its key is longer than 1024 bytes"))
        );
        assert!(parse(&format!("s3://b/{}", "k".repeat(1024))).is_ok());
    }

    #[test]
    fn a_uri_is_written_as_it_is_read() {
        for text in ["s3://b/", "s3://b/k", "s3://b//k/"] {
            assert_eq!(text.parse::<S3Uri>().unwrap().to_string(), text);
        }
    }
}
