//! ETags as S3 derives them from the bytes that it receives.

use md5::{Digest as _, Md5};

use shoal_base::hex;

/// The ETag, in quotes, of an object or a part with this MD5.
pub fn of_md5(md5: &[u8]) -> String {
    format!("\"{}\"", hex::text(md5))
}

/// The ETag of an object that was uploaded in parts with these MD5s: the MD5 of them all, and their number.
pub fn of_parts<M: AsRef<[u8]>>(md5s: impl IntoIterator<Item = M>) -> String {
    let (mut whole, mut parts) = (Md5::new(), 0);
    for md5 in md5s {
        whole.update(md5);
        parts += 1;
    }
    format!("\"{}-{parts}\"", hex::text(&whole.finalize()))
}

/// Removes the quotes from an ETag.
pub fn bare(etag: &str) -> &str {
    etag.strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(etag)
}

/// Returns true if an ETag identifies one version unambiguously in a condition: it is neither empty nor weak,
/// and no store can interpret it as `*` or as a list.
pub fn names_version(etag: &str) -> bool {
    let bare = bare(etag);
    !bare.is_empty() && bare != "*" && !bare.starts_with("W/") && !bare.contains(['"', ','])
}

#[cfg(test)]
mod tests {
    use md5::{Digest as _, Md5};

    use super::{names_version, of_md5, of_parts};

    #[test]
    fn an_etag_that_a_condition_would_take_for_something_else_names_no_version() {
        for etag in ["\"abc-2\"", "abc-2", "\"a*b\"", "\"a/b+c=\""] {
            assert!(names_version(etag), "{etag}");
        }
        for etag in [
            "",
            "\"\"",
            "*",
            "\"*\"",
            "W/\"abc\"",
            "\"a\", \"b\"",
            "a,b",
            "\"a,b\"",
            "\"",
            "\"abc",
            "abc\"",
        ] {
            assert!(!names_version(etag), "{etag}");
        }
    }

    #[test]
    fn objects_are_called_what_s3_calls_them() {
        // Computed with md5sum.
        let nothing = Md5::digest(b"");
        assert_eq!(of_md5(&nothing), "\"d41d8cd98f00b204e9800998ecf8427e\"");
        assert_eq!(
            of_parts([nothing, nothing]),
            "\"5873dd45edd01f09c1ef2e7819369e8e-2\""
        );
    }
}
