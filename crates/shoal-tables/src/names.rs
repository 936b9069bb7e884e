//! Names of files in a table become names of objects.

use std::borrow::Cow;
use std::str::FromStr as _;

use percent_encoding::percent_decode_str;
use shoal_s3::uri::S3Uri;

use crate::error::TableError;

/// The schemes under which programs name the same lake.
const SCHEMES: [&str; 3] = ["s3://", "s3a://", "s3n://"];

/// Returns the object of an absolute name, which is taken as it is written.
pub(crate) fn absolute(name: &str) -> Result<S3Uri, TableError> {
    let rest = SCHEMES.iter().find_map(|scheme| name.strip_prefix(scheme));
    let rest = rest.ok_or(TableError::Elsewhere)?;
    let uri = S3Uri::from_str(&format!("s3://{rest}"));
    let is_object = |uri: &S3Uri| !uri.key.is_empty();
    uri.ok().filter(is_object).ok_or(TableError::Elsewhere)
}

/// Returns the object of a name below `folder`, or of an absolute one. Names are encoded as URIs.
pub(crate) fn encoded(folder: &S3Uri, name: &str) -> Result<S3Uri, TableError> {
    let decoded: Cow<'_, str> = percent_decode_str(name)
        .decode_utf8()
        .map_err(|_| TableError::Unknown("a name that is no UTF-8"))?;
    if has_scheme(name) || name.starts_with('/') {
        return absolute(&decoded);
    }
    below(folder, &decoded)
}

/// Returns the object of a name below `folder`.
pub(crate) fn below(folder: &S3Uri, name: &str) -> Result<S3Uri, TableError> {
    let S3Uri { bucket, key } = folder;
    absolute(&format!("s3://{bucket}/{key}/{name}"))
}

/// Returns true if a name begins with a scheme. A colon later on may be a part of a file's name.
pub(crate) fn has_scheme(name: &str) -> bool {
    let scheme = name.split_once(":/").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty()
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

#[cfg(test)]
mod tests {
    use shoal_s3::uri::S3Uri;

    use super::{absolute, encoded};
    use crate::error::TableError;

    #[test]
    fn names_of_files_are_objects_in_any_bucket() {
        let table: S3Uri = "s3://lake/t".parse().unwrap();
        let cases = [
            ("part-0.parquet", Some("s3://lake/t/part-0.parquet")),
            (
                "day=mon%2520day/part%200",
                Some("s3://lake/t/day=mon%20day/part 0"),
            ),
            ("at=10:00/x", Some("s3://lake/t/at=10:00/x")),
            ("s3a://other/k%20", Some("s3://other/k ")),
            ("s3://other/a/b", Some("s3://other/a/b")),
            ("file:/tmp/x", None),
            ("/tmp/x", None),
            ("abfss://c@a/x", None),
            ("%ff", None),
            ("s3://other", None),
        ];
        for (name, expected) in cases {
            let uri = encoded(&table, name).ok().map(|uri| uri.to_string());
            assert_eq!(uri.as_deref(), expected, "{name}");
        }
        assert_eq!(absolute("s3n://b/k%20").unwrap().key, "k%20");
        assert_eq!(absolute("hdfs://n/k"), Err(TableError::Elsewhere));
    }
}
