//! Listings of a bucket.

use std::time::SystemTime;

use http::{HeaderMap, header};
use percent_encoding::percent_decode_str;
use shoal_s3::xml::{Document, Element, Malformed};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::bucket::{Bucket, PREFIX};
use crate::tier::store::{KeyPage, ListedPiece, StoreError, check_key};

/// Maximum number of objects on a page of S3.
const OBJECTS_MAX: usize = 1_000;

/// Lists at most `limit` pieces after the key `after`.
pub(super) async fn list(bucket: &Bucket, after: Option<&str>, limit: usize) -> Result<KeyPage, StoreError> {
    let mut page = KeyPage::default();
    let mut after = after.map_or_else(String::new, |after| format!("{PREFIX}{after}"));
    while page.pieces.len() < limit && !page.is_last {
        let wanted = (limit - page.pieces.len()).min(OBJECTS_MAX).to_string();
        let query = [
            ("encoding-type", Some("url")),
            ("list-type", Some("2")),
            ("max-keys", Some(&*wanted)),
            ("prefix", Some(PREFIX)),
            ("start-after", Some(&*after)),
        ];
        let query = query.map(|(name, value)| (name, value.map(str::as_bytes)));
        let (head, body) = bucket.ask("list_objects", &query).await?;
        let now = date(&head.headers)?;
        let listing = Listing::read(&body).map_err(|_| misunderstood("its listing is not one of S3"))?;
        // Only an empty page is the last one: MinIO marks a page as the last although objects in another
        // folder follow (seen in its version of February 2026).
        page.is_last = listing.objects.is_empty();
        for object in listing.objects {
            // Otherwise the next page might omit some, or repeat this one.
            if object.name <= after {
                return Err(misunderstood("its listing is not in the order of its keys"));
            }
            let key = object.name.strip_prefix(PREFIX);
            // Objects that are not pieces are left alone.
            if let Some(key) = key.filter(|key| check_key(key).is_ok()) {
                page.pieces.push(ListedPiece {
                    key: key.into(),
                    size_bytes: object.size_bytes,
                    age: now.duration_since(object.last_modified).unwrap_or_default(),
                });
            }
            after = object.name;
        }
    }
    Ok(page)
}

/// One response to a listing.
struct Listing {
    objects: Vec<Listed>,
}

struct Listed {
    name: String,
    size_bytes: u64,
    last_modified: SystemTime,
}

impl Listing {
    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let document = Document::parse(bytes)?;
        let (tag, mut reader) = document.answer()?;
        if tag.name() != "ListBucketResult" {
            return Err(Malformed);
        }
        let (mut objects, mut is_truncated) = (Vec::new(), None);
        while let Some(tag) = reader.child()? {
            let name = tag.name().to_owned();
            let element = reader.element(&tag)?;
            match &*name {
                "Contents" => objects.push(Listed::of(&element)?),
                "IsTruncated" => is_truncated = Some(element.text().trim() == "true"),
                _ => {}
            }
        }
        reader.end()?;
        // A listing that continues after an empty page would never end.
        if is_truncated.ok_or(Malformed)? && objects.is_empty() {
            return Err(Malformed);
        }
        Ok(Self { objects })
    }
}

impl Listed {
    fn of(element: &Element) -> Result<Self, Malformed> {
        let text = |name| element.text_of(name).ok_or(Malformed);
        let name = text("Key")?;
        let name = percent_decode_str(&name).decode_utf8().map_err(|_| Malformed)?;
        let last_modified = OffsetDateTime::parse(text("LastModified")?.trim(), &Rfc3339);
        Ok(Self {
            name: name.into(),
            size_bytes: text("Size")?.trim().parse().map_err(|_| Malformed)?,
            last_modified: last_modified.map_err(|_| Malformed)?.into(),
        })
    }
}

/// Returns the store's own time. With another clock, pieces in use could seem old and be swept.
fn date(headers: &HeaderMap) -> Result<SystemTime, StoreError> {
    let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
    date.and_then(|date| httpdate::parse_http_date(date).ok())
        .ok_or_else(|| misunderstood("its answers have no date"))
}

fn misunderstood(problem: &str) -> StoreError {
    StoreError::Refused(problem.into())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::Listing;

    fn listing(inside: &str) -> Option<Vec<(String, u64)>> {
        let document = format!(
            "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inside}\
             </ListBucketResult>"
        );
        let listing = Listing::read(document.as_bytes()).ok()?;
        let day = Duration::from_hours(24);
        assert!(
            listing
                .objects
                .iter()
                .all(|object| object.last_modified == UNIX_EPOCH + day)
        );
        let objects = listing
            .objects
            .into_iter()
            .map(|object| (object.name, object.size_bytes));
        Some(objects.collect())
    }

    #[test]
    fn objects_are_read_with_their_names_decoded() {
        let contents = "<Name>b</Name><IsTruncated>true</IsTruncated><Contents><Key>pieces%2Fa/b</Key>\
            <LastModified>1970-01-02T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>";
        assert_eq!(listing(contents), Some(vec![("pieces/a/b".into(), 7)]));
        assert_eq!(listing("<IsTruncated>false</IsTruncated>"), Some(Vec::new()));
    }

    #[test]
    fn a_listing_that_lacks_something_is_none() {
        for inside in [
            "",
            "<IsTruncated>true</IsTruncated>",
            "<IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>1</Size></Contents>",
            "<IsTruncated>false</IsTruncated><Contents><Key>a</Key><LastModified>now</LastModified><Size>1</Size></Contents>",
        ] {
            assert_eq!(listing(inside), None, "{inside}");
        }
    }
}
