//! Listings of a bucket.

use std::time::SystemTime;

use http::{HeaderMap, header};
use shoal_net::endpoint::s3::{CallError, PAGE_KEYS, PageRequest};

use super::bucket::{Bucket, PREFIX};
use crate::tier::store::{KeyPage, ListedPiece, StoreError, check_key};

/// Lists at most `limit` pieces after the key `after`.
pub(super) async fn list(bucket: &Bucket, after: Option<&str>, limit: usize) -> Result<KeyPage, StoreError> {
    let mut page = KeyPage::default();
    let mut after = after.map_or_else(Vec::new, |after| format!("{PREFIX}{after}").into_bytes());
    while page.pieces.len() < limit && !page.is_last {
        let request = PageRequest {
            bucket: &bucket.name,
            prefix: PREFIX.as_bytes(),
            after: Some(&after),
            keys_max: (limit - page.pieces.len()).min(PAGE_KEYS),
        };
        let (head, listing) = bucket.s3().list(request).await.map_err(of_listing)?;
        let now = date(&head.headers)?;
        if listing.is_truncated.is_none() {
            return Err(misunderstood("its listing is not one of S3"));
        }
        page.is_last = listing.objects.is_empty();
        for object in listing.objects {
            let last_modified = object.last_modified;
            let last_modified = last_modified.ok_or_else(|| misunderstood("its listing is not one of S3"))?;
            let key = object.key.strip_prefix(PREFIX.as_bytes());
            let key = key.and_then(|key| std::str::from_utf8(key).ok());
            // Objects that are not pieces are left alone.
            if let Some(key) = key.filter(|key| check_key(key).is_ok()) {
                page.pieces.push(ListedPiece {
                    key: key.into(),
                    size_bytes: object.size_bytes,
                    age: now.duration_since(last_modified).unwrap_or_default(),
                });
            }
            after = object.key;
        }
    }
    Ok(page)
}

fn of_listing(error: CallError) -> StoreError {
    match error {
        CallError::Misunderstood(problem) => misunderstood(&format!("its listing {problem}")),
        error => error.into(),
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
