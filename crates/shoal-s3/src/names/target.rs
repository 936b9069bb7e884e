//! Encodes targets of requests to the lake from their decoded parts.
//!
//! The encoding is canonical: each byte that is not unreserved by RFC 3986 is percent-encoded once, in upper
//! case. So a target means the same to a lake that decodes before it splits and to one that splits first.

use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::names::percent::decode_path;
use crate::object::ObjectName;

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A key keeps its slashes.
const KEY: &AsciiSet = &UNRESERVED.remove(b'/');

/// The longest target that the HTTP library accepts.
const BYTES_MAX: usize = u16::MAX as usize - 1;

/// The target would be longer than the HTTP library accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the target is too long")]
pub struct TooLong;

/// Encodes a key for a path.
pub fn key(key: &[u8]) -> String {
    percent_encode(key, KEY).to_string()
}

/// The path of a bucket, of an object in it, or of neither.
pub fn path(bucket: Option<&str>, key: Option<&[u8]>) -> String {
    let mut path = String::from("/");
    if let Some(bucket) = bucket {
        path.extend(percent_encode(bucket.as_bytes(), UNRESERVED));
    }
    if let Some(key) = key {
        path.push('/');
        let start = path.len();
        path.extend(percent_encode(key, KEY));
        debug_assert_eq!(
            decode_path(&path.as_bytes()[start..]).as_deref(),
            Some(key),
            "the lake gets what was parsed"
        );
    }
    path
}

/// A query, without its question mark. A parameter without a value gets no `=`.
pub fn query<'a>(parameters: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>) -> String {
    let mut query = String::new();
    for (at, (name, value)) in parameters.into_iter().enumerate() {
        if at > 0 {
            query.push('&');
        }
        query.extend(percent_encode(name.as_bytes(), UNRESERVED));
        if let Some(value) = value {
            query.push('=');
            query.extend(percent_encode(value, UNRESERVED));
        }
    }
    query
}

/// A path with a query, if there is one.
///
/// # Errors
///
/// Fails with [`TooLong`] if the target is longer than a request can carry.
pub fn with_query<'a>(
    mut path: String,
    parameters: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
) -> Result<PathAndQuery, TooLong> {
    let query = query(parameters);
    if !query.is_empty() {
        path.push('?');
        path.push_str(&query);
    }
    if path.len() > BYTES_MAX {
        return Err(TooLong);
    }
    Ok(PathAndQuery::try_from(path).expect("unreserved characters and escapes are a target"))
}

/// The target of an object, with its version and nothing else.
///
/// # Errors
///
/// Fails with [`TooLong`] if the target is longer than a request can carry.
pub fn of_object(name: &ObjectName) -> Result<PathAndQuery, TooLong> {
    let version = name
        .version
        .as_deref()
        .map(|version| ("versionId", Some(version.as_bytes())));
    with_query(path(Some(&name.bucket), Some(&name.key)), version)
}

/// Returns true if an object's target is short enough, which the lengths alone show for almost every name.
pub fn fits(name: &ObjectName) -> bool {
    let version_bytes = name.version.as_deref().map_or(0, str::len);
    let bytes = name.bucket.len() + name.key.len() + version_bytes;
    3 * bytes + "//?versionId=".len() <= BYTES_MAX || of_object(name).is_ok()
}

/// Inverse of [`of_object`]; `None` for a target that it did not write.
pub fn object(target: &PathAndQuery) -> Option<ObjectName> {
    let (bucket, key) = target.path().strip_prefix('/')?.split_once('/')?;
    let text = |encoded: &str| String::from_utf8(decode_path(encoded.as_bytes())?.into_owned()).ok();
    let version = target.query().map(|query| query.strip_prefix("versionId="));
    let version = match version {
        None => None,
        Some(version) => Some(text(version?)?.into()),
    };
    let name = ObjectName {
        bucket: text(bucket)?.into(),
        key: decode_path(key.as_bytes())?.into(),
        version,
    };
    (of_object(&name).as_ref() == Ok(target)).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{TooLong, object, of_object, path, with_query};
    use crate::object::ObjectName;

    fn name(bucket: &str, key: &[u8], version: Option<&str>) -> ObjectName {
        ObjectName {
            bucket: bucket.into(),
            key: key.into(),
            version: version.map(Into::into),
        }
    }

    #[test]
    fn an_object_has_one_target() {
        for (key, version, expected) in [
            (b"k".as_slice(), None, "/b/k"),
            (b"/x//", None, "/b//x//"),
            (b"a+b c%2F?#&=", None, "/b/a%2Bb%20c%252F%3F%23%26%3D"),
            (b"../.", None, "/b/../."),
            (b"\xff\x01~", None, "/b/%FF%01~"),
            (b"k", Some("a/+ b"), "/b/k?versionId=a%2F%2B%20b"),
        ] {
            let name = name("b", key, version);
            let target = of_object(&name).unwrap();
            assert_eq!(target.as_str(), expected);
            assert_eq!(object(&target), Some(name));
        }
        assert_eq!(path(None, None), "/");
        assert_eq!(path(Some("t:b"), None), "/t%3Ab");
    }

    #[test]
    fn another_spelling_is_no_target_of_an_object() {
        for target in [
            "/",
            "/b",
            "/b/%6b",
            "/b/k%2f",
            "/b/k?",
            "/b/k?versionId=%31",
            "/b/k?versionId=1&x",
        ] {
            assert_eq!(object(&target.parse().unwrap()), None, "{target}");
        }
    }

    #[test]
    fn a_query_keeps_its_order_and_parameters_without_a_value() {
        let target = with_query(
            path(Some("b"), None),
            [
                ("acl", None),
                ("prefix", Some(b"".as_slice())),
                ("a b", Some(b"&=+")),
            ],
        );
        assert_eq!(target.unwrap().as_str(), "/b?acl&prefix=&a%20b=%26%3D%2B");
    }

    #[test]
    fn a_target_is_bounded() {
        for (byte, bytes, fits) in [(b'a', 60_000, true), (b' ', 21_000, true), (b' ', 30_000, false)] {
            let name = name("b", &vec![byte; bytes], None);
            assert_eq!(super::fits(&name), fits);
            assert_eq!(of_object(&name).err(), (!fits).then_some(TooLong));
        }
    }

    proptest! {
        #[test]
        fn the_target_of_an_object_names_that_object(key in any::<Vec<u8>>(), version in any::<Option<String>>()) {
            let name = name("bucket", &key, version.as_deref());
            assert_eq!(object(&of_object(&name).unwrap()), Some(name));
        }
    }
}
