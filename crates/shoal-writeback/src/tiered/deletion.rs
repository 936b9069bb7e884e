//! Removes an object that may be dirty.
//!
//! A DELETE is a change of the name at the lake like any other: it begins in the registry, so that no flush
//! or other write of the name is in flight at the same time. Before it begins, the node asks the lake if the
//! caller may remove the name, unless the caller wrote the dirty object; if that is denied, the lake gets the
//! DELETE without a change. Once the lake has removed its object, the dirty object is removed too.

use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName, header};
use shoal_base::moment::since_1970;
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::lake::errors::precondition_failed;
use shoal_s3::error::S3Error;
use shoal_s3::etag::bare;
use shoal_s3::object::ObjectName;
use shoal_s3::xml::Key;

use super::TieredLakeParts;
use super::errors::{access_denied, invalid};
use crate::dirty::{Manifest, unversioned};

const SIZE: HeaderName = HeaderName::from_static("x-amz-if-match-size");
const LAST_MODIFIED: HeaderName = HeaderName::from_static("x-amz-if-match-last-modified-time");

/// The conditions of a conditional DELETE.
#[derive(Debug)]
pub(super) struct Expected {
    etag: Option<String>,
    last_modified: Option<SystemTime>,
    size_bytes: Option<u64>,
}

impl TieredLakeParts {
    /// Removes an object, in the tier and at the lake. The lake decides if the caller may do so.
    pub(super) async fn delete(&self, mut admitted: Box<Admitted>, name: &ObjectName) -> ResponseResult {
        let Some(lookup) = self.find_for_change(&admitted, name, None).await? else {
            return self.within.forward(admitted).await;
        };
        let name = &unversioned(name);
        let change = if is_conditional(&admitted.parts.headers) {
            // The lake must evaluate the conditions as well, and word the refusal, so a dirty object is
            // flushed first.
            if let Some(manifest) = &lookup.manifest {
                if !self.asker(&admitted).may_judge(manifest).await? {
                    return Err(access_denied());
                }
                Expected::of_headers(&admitted.parts.headers)?.check(manifest)?;
                // At the lake, the object's modification time is that of its flush.
                Arc::make_mut(&mut admitted.parts).headers.remove(LAST_MODIFIED);
            }
            self.dirty.begin_at_lake(name).await?
        } else {
            self.dirty.begin_removal(name, lookup).await?
        };
        self.send(Some(change), admitted, None).await
    }
}

/// Returns true if a DELETE is conditional.
fn is_conditional(headers: &HeaderMap) -> bool {
    let conditions = [header::IF_MATCH, LAST_MODIFIED, SIZE];
    let is_said = |name| headers.get(name).is_some_and(|value| !value.is_empty());
    conditions.iter().any(is_said)
}

impl Expected {
    /// Parses the conditions in the headers of a DELETE.
    fn of_headers(headers: &HeaderMap) -> Result<Self, S3Error> {
        // An empty header is no condition.
        let said = |name| headers.get(name).filter(|value| !value.is_empty());
        let text = |name| said(name).map(|value| value.to_str().unwrap_or_default());
        Self::parse(text(header::IF_MATCH), text(LAST_MODIFIED), text(SIZE))
    }

    /// Parses the conditions on one key of a bulk deletion.
    pub(super) fn of_key(key: &Key) -> Result<Self, S3Error> {
        let Key {
            etag,
            last_modified,
            size,
            ..
        } = key;
        Self::parse(etag.as_deref(), last_modified.as_deref(), size.as_deref())
    }

    fn parse(etag: Option<&str>, last_modified: Option<&str>, size: Option<&str>) -> Result<Self, S3Error> {
        let invalid =
            || invalid("The conditions of the deletion must be an ETag, a date and a number of bytes.");
        Ok(Self {
            etag: etag.map(Into::into),
            last_modified: last_modified
                .map(|text| date(text.trim()).ok_or_else(invalid))
                .transpose()?,
            size_bytes: size
                .map(|text| text.trim().parse().map_err(|_| invalid()))
                .transpose()?,
        })
    }

    /// Checks that a dirty object meets all conditions.
    pub(super) fn check(&self, manifest: &Manifest) -> Result<(), S3Error> {
        let version = &manifest.version;
        let is_so = self.holds(&version.etag, version.size_bytes, version.last_modified);
        is_so.then_some(()).ok_or_else(precondition_failed)
    }

    fn holds(&self, etag: &str, size_bytes: u64, last_modified: Option<SystemTime>) -> bool {
        let is_named = |named: &str| {
            let mut tags = named.split(',').map(str::trim);
            tags.any(|tag| tag == "*" || bare(tag) == bare(etag))
        };
        let modified = last_modified.map(seconds);
        self.etag.as_deref().is_none_or(is_named)
            && self.size_bytes.is_none_or(|size| size == size_bytes)
            && self
                .last_modified
                .is_none_or(|then| modified == Some(seconds(then)))
    }
}

/// Parses a date in the format of HTTP or of listings (RFC 3339).
fn date(text: &str) -> Option<SystemTime> {
    let listed = || time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339);
    httpdate::parse_http_date(text)
        .ok()
        .or_else(|| listed().ok().map(Into::into))
}

fn seconds(time: SystemTime) -> u64 {
    since_1970(time).as_secs()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use shoal_s3::time::rfc3339;

    use super::{Expected, date, is_conditional};
    use shoal_net::clock;

    #[test]
    fn an_object_is_removed_if_it_is_what_every_condition_says() {
        let (etag, size, then) = ("\"abc\"", "250", clock::utc_now());
        let (date, listed) = (httpdate::fmt_http_date(then), rfc3339(then));
        for (conditions, holds) in [
            (vec![], true),
            (vec![("if-match", etag)], true),
            (vec![("if-match", "abc")], true),
            (vec![("if-match", "*")], true),
            (vec![("if-match", "\"other\"")], false),
            (vec![("if-match", "W/\"abc\"")], false),
            (vec![("if-match", "\"other\", \"abc\"")], true),
            (vec![("x-amz-if-match-size", size)], true),
            (vec![("x-amz-if-match-size", "9999")], false),
            (vec![("x-amz-if-match-last-modified-time", &*date)], true),
            (vec![("x-amz-if-match-last-modified-time", &*listed)], true),
            (
                vec![(
                    "x-amz-if-match-last-modified-time",
                    "Thu, 01 Jan 2015 00:00:00 GMT",
                )],
                false,
            ),
            (vec![("if-match", etag), ("x-amz-if-match-size", "9999")], false),
        ] {
            let headers: HeaderMap = conditions
                .iter()
                .map(|(name, value)| {
                    (
                        HeaderName::from_static(name),
                        HeaderValue::from_str(value).unwrap(),
                    )
                })
                .collect();
            let expected = Expected::of_headers(&headers).unwrap();
            assert_eq!(expected.holds(etag, 250, Some(then)), holds, "{conditions:?}");
            assert_eq!(is_conditional(&headers), !conditions.is_empty());
        }
    }

    #[test]
    fn an_empty_header_is_no_condition() {
        for name in [
            "if-match",
            "x-amz-if-match-size",
            "x-amz-if-match-last-modified-time",
        ] {
            let name = HeaderName::from_static(name);
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(""))]);
            let expected = Expected::of_headers(&headers).unwrap();
            assert!(expected.holds("\"abc\"", 250, None) && !is_conditional(&headers));
        }
    }

    #[test]
    fn a_condition_that_says_nothing_is_refused() {
        for (etag, last_modified, size) in [
            (None, Some("yesterday"), None),
            (None, None, Some("-1")),
            (None, Some(""), None),
        ] {
            assert!(Expected::parse(etag, last_modified, size).is_err());
        }
        assert_eq!(
            date("2015-01-01T00:00:00.000Z"),
            date("Thu, 01 Jan 2015 00:00:00 GMT")
        );
    }
}
