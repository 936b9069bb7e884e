//! Removes an object that may be dirty.
//!
//! If the lake has lately carried out a removal of the caller in the same folder, the node acknowledges a
//! plain DELETE once a tombstone is in the entry of the name, and the lake gets it later (decision 0049).
//! Otherwise the DELETE is a change of the name at the lake like any other: it begins in the registry, so
//! that no flush or other write of the name is in flight at the same time. Before it begins, the node asks
//! the lake if the caller may remove the name, unless the caller wrote the dirty object; if that is denied,
//! the lake gets the DELETE without a change. Once the lake has removed its object, the dirty object is
//! removed too.

mod bulk;

use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use shoal_base::moment::since_1970;
use shoal_cache::exchange::respond;
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::lake::errors::precondition_failed;
use shoal_cache::write::WriteMode;
use shoal_s3::error::S3Error;
use shoal_s3::etag::bare;
use shoal_s3::hop_by_hop::MODE_HEADER;
use shoal_s3::object::ObjectName;
use shoal_s3::xml::Key;

pub(super) use self::bulk::BulkDeletions;
use super::TieredLakeParts;
use crate::dirty::errors::{access_denied, invalid};
use crate::dirty::{Dirty, Manifest, unversioned};

const SIZE: HeaderName = HeaderName::from_static("x-amz-if-match-size");
const LAST_MODIFIED: HeaderName = HeaderName::from_static("x-amz-if-match-last-modified-time");

impl TieredLakeParts {
    /// Removes an object, in the tier and at the lake. The lake decides if the caller may do so.
    pub(super) async fn delete(&self, mut admitted: Box<Admitted>, name: &ObjectName) -> ResponseResult {
        let conditions = conditions_in(&admitted.parts.headers);
        if !conditions.is_conditional()
            && let Some(removal) = self.dirty.clearances.removal(&admitted, name).await
        {
            self.dirty.remove(removal).await?;
            let mut response = respond::empty(StatusCode::NO_CONTENT);
            let mode = HeaderValue::from_static(WriteMode::Back.as_str());
            response.headers_mut().insert(MODE_HEADER, mode);
            return Ok(response);
        }
        let Some(lookup) = self.find_for_change(&admitted, name, None).await? else {
            return self.within.forward(admitted).await;
        };
        let name = &unversioned(name);
        let change = if conditions.is_conditional() {
            // The lake must evaluate the conditions as well, and word the refusal, so a dirty object is
            // flushed first.
            if let Some(dirty @ Dirty::Object(manifest)) = &lookup.dirty {
                if !self.asker(&admitted).may_judge(dirty).await? {
                    return Err(access_denied());
                }
                check(&conditions, manifest)?;
                // At the lake, the object's modification time is that of its flush.
                Arc::make_mut(&mut admitted.parts).headers.remove(LAST_MODIFIED);
            }
            self.dirty.begin_at_lake(name).await?
        } else {
            self.dirty.begin_removal(name, lookup).await?
        };
        let trial = self.dirty.clearances.try_removal(name, &admitted.verified.caller);
        let response = self.send(Some(change), admitted, None).await?;
        if let Some(trial) = trial
            && response.status().is_success()
            && !keeps_versions(response.headers())
        {
            self.dirty.clearances.removed(&trial);
        }
        Ok(response)
    }
}

/// Returns the conditions in the headers of a DELETE, in the form of those on a key of a bulk deletion. An
/// empty header is no condition.
fn conditions_in(headers: &HeaderMap) -> Key {
    let text = |name| {
        let value = headers.get(name).filter(|value| !value.is_empty());
        value.map(|value| value.to_str().unwrap_or_default().to_owned())
    };
    Key {
        etag: text(header::IF_MATCH),
        last_modified: text(LAST_MODIFIED),
        size: text(SIZE),
        ..Key::default()
    }
}

/// Returns true if the response to a removal shows that the bucket keeps versions.
fn keeps_versions(headers: &HeaderMap) -> bool {
    ["x-amz-delete-marker", "x-amz-version-id"]
        .into_iter()
        .any(|name| headers.contains_key(name))
}

/// Checks that a dirty object meets all conditions of a deletion.
fn check(conditions: &Key, manifest: &Manifest) -> Result<(), S3Error> {
    let version = &manifest.version;
    let is_so = holds(
        conditions,
        &version.etag,
        version.size_bytes,
        version.last_modified,
    )?;
    is_so.then_some(()).ok_or_else(precondition_failed)
}

fn holds(
    conditions: &Key,
    etag: &str,
    size_bytes: u64,
    last_modified: Option<SystemTime>,
) -> Result<bool, S3Error> {
    let invalid = || invalid("The conditions of the deletion must be an ETag, a date and a number of bytes.");
    let then = conditions.last_modified.as_deref();
    let then = then
        .map(|text| date(text.trim()).ok_or_else(invalid))
        .transpose()?;
    let size = conditions.size.as_deref();
    let size = size
        .map(|text| text.trim().parse().map_err(|_| invalid()))
        .transpose()?;
    let is_named = |named: &str| {
        let mut tags = named.split(',').map(str::trim);
        tags.any(|tag| tag == "*" || bare(tag) == bare(etag))
    };
    Ok(conditions.etag.as_deref().is_none_or(is_named)
        && size.is_none_or(|size: u64| size == size_bytes)
        && then.is_none_or(|then| last_modified.map(seconds) == Some(seconds(then))))
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

    use super::{Key, conditions_in, date, holds};
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
            let parsed = conditions_in(&headers);
            let is_so = super::holds(&parsed, etag, 250, Some(then)).unwrap();
            assert_eq!(is_so, holds, "{conditions:?}");
            assert_eq!(parsed.is_conditional(), !conditions.is_empty());
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
            let parsed = conditions_in(&headers);
            assert!(holds(&parsed, "\"abc\"", 250, None).unwrap() && !parsed.is_conditional());
        }
    }

    #[test]
    fn a_condition_that_says_nothing_is_refused() {
        for (last_modified, size) in [(Some("yesterday"), None), (None, Some("-1")), (Some(""), None)] {
            let conditions = Key {
                last_modified: last_modified.map(Into::into),
                size: size.map(Into::into),
                ..Key::default()
            };
            assert!(holds(&conditions, "\"abc\"", 250, None).is_err());
        }
        assert_eq!(
            date("2015-01-01T00:00:00.000Z"),
            date("Thu, 01 Jan 2015 00:00:00 GMT")
        );
    }
}
