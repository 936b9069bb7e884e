//! Listings: merges the lake's page with the objects and uploads that only the tier has.

mod objects;
mod page;
mod uploads;

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, header, response};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use shoal_cache::exchange::respond::relay;
use shoal_cache::exchange::{Admitted, ResponseBody, ResponseResult};
use shoal_net::endpoint::BoxError;
use shoal_s3::error::S3Error;
use shoal_s3::hop_by_hop::end_to_end_of_response;
use shoal_s3::identity::Caller;
use shoal_s3::operation::Query;

pub use self::objects::Listing;
use self::objects::in_order;
use self::page::MOST;
pub use self::uploads::UploadListing;
pub(super) use self::uploads::described;
use super::TieredLakeParts;
use super::asker::without_body;
use crate::dirty::errors::unreadable;
use crate::dirty::{Dirty, DirtyPage};

/// Limit on a page: a thousand keys of 1,000 bytes, each byte escaped to up to six.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Number of names on a full page, and one more.
const FULL: usize = MOST + 1;

/// Lists objects and uploads.
impl TieredLakeParts {
    /// Returns the lake's listing, merged with the dirty objects. A caller that may list a bucket may see all
    /// names in it.
    pub(super) async fn list_objects(&self, mut admitted: Box<Admitted>, bucket: &str) -> ResponseResult {
        admitted.classified = admitted
            .classified
            .with_query(in_order(&admitted.classified.query));
        let classified = &admitted.classified;
        let listing = Listing::parse(&classified.query).filter(|listing| !listing.is_empty());
        let Some(listing) = listing else {
            return self.within.forward(admitted).await;
        };
        let (mut listing, asked) = (listing, classified.query.clone());
        let (mut is_first, mut may_list) = (true, false);
        loop {
            let mut dirty = self.dirty_of(bucket, &listing).await?;
            let query = listing.query(&asked, &dirty);
            let needed = listing.needed_at_lake(&dirty);
            if !needed.is_empty() {
                if !may_list && let Some(refusal) = self.refusal_to_list(&admitted, query.clone()).await? {
                    return Ok(refusal);
                }
                dirty = self.flush_for_page(bucket, &listing, needed).await?;
            }
            if is_first && dirty.dirty.is_empty() && !listing.goes_on() {
                return self.within.forward(admitted).await;
            }
            let mut nothing_until = None;
            let merge = |page: &[u8]| {
                let merged = listing.merge(page, &dirty)?;
                nothing_until = merged.nothing_until;
                Some(merged.document)
            };
            let response = self.pass_on_merged(admitted.without_body(), query, merge).await?;
            // Some clients take a page without entries for the last one.
            let Some(until) = nothing_until else {
                return Ok(response);
            };
            listing = listing.from(until);
            (is_first, may_list) = (false, true);
        }
    }

    /// Asks the lake if the caller may list, before it causes a flush. Returns the lake's refusal.
    async fn refusal_to_list(
        &self,
        admitted: &Admitted,
        query: Query,
    ) -> Result<Option<Response<ResponseBody>>, S3Error> {
        let target = admitted.classified.with_query(query).target()?;
        let asker = self.asker(admitted);
        let request = asker.client().request("list_objects", Method::GET, target);
        let answer = asker
            .send(request.with_headers(without_body(asker.headers)))
            .await?;
        Ok((answer.status() != StatusCode::OK).then(|| relay(answer)))
    }

    /// Flushes what the lake must know before it can word a page. Returns what is dirty then.
    async fn flush_for_page(
        &self,
        bucket: &str,
        listing: &Listing,
        mut needed: Vec<Dirty>,
    ) -> Result<DirtyPage, S3Error> {
        let mut refused = HashSet::new();
        loop {
            for (dirty, error) in self.flush_those_taken(needed).await? {
                if !dirty.is_tombstone() {
                    return Err(error.into());
                }
                // The tombstone stays, and its common prefix is shown.
                refused.insert(Arc::clone(&dirty.name().key));
            }
            let dirty = self.dirty_of(bucket, listing).await?;
            needed = listing.needed_at_lake(&dirty);
            needed.retain(|dirty| dirty.is_tombstone() && !refused.contains(&dirty.name().key));
            if needed.is_empty() {
                return Ok(dirty);
            }
        }
    }

    /// Returns what is dirty among the names that may appear on a page.
    async fn dirty_of(&self, bucket: &str, listing: &Listing) -> Result<DirtyPage, S3Error> {
        let entries = &self.dirty.entries;
        let list = |names| entries.list_page(bucket, &listing.scope, &listing.after, names);
        let page = list(listing.names_max()).await?;
        let is_short = listing.names_max() < FULL && page.dirty.iter().any(Dirty::is_tombstone);
        Ok(if is_short { list(FULL).await? } else { page })
    }

    /// Returns the lake's listing of uploads, merged with those of the caller that a tier keeps. An anonymous
    /// caller has none.
    pub(super) async fn list_uploads(&self, admitted: Box<Admitted>, bucket: &str) -> ResponseResult {
        let classified = &admitted.classified;
        let listing = UploadListing::parse(&classified.query);
        if listing.is_empty() {
            return self.within.forward(admitted).await;
        }
        let kept = match &admitted.verified.caller {
            Caller::Identity(identity) => {
                let (dirty, prefix, behind) = (&self.dirty, &listing.scope.prefix, listing.behind());
                dirty
                    .list_uploads(bucket, prefix, &identity.access_key, behind)
                    .await?
            }
            Caller::Anonymous => Vec::new(),
        };
        if kept.is_empty() && !listing.goes_on() {
            return self.within.forward(admitted).await;
        }
        let query = listing.query(&classified.query);
        let merge = |page: &[u8]| listing.merge(page, &kept);
        self.pass_on_merged(admitted, query, merge).await
    }

    /// Sends the listing to the lake with `query` and merges its page by `merge`. A refusal is passed on
    /// unchanged.
    async fn pass_on_merged(
        &self,
        mut admitted: Box<Admitted>,
        query: Query,
        merge: impl FnOnce(&[u8]) -> Option<String>,
    ) -> ResponseResult {
        admitted.classified.query = query;
        admitted.is_answer_read = true;
        let (head, body) = self.within.forward(admitted).await?.into_parts();
        let body = read(body).await?;
        let merged = match head.status {
            StatusCode::OK => merge(&body).ok_or_else(unreadable)?.into(),
            _ => body,
        };
        Ok(answered_with(&head, merged))
    }
}

pub(super) async fn read<B>(body: B) -> Result<Bytes, S3Error>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let body = Limited::new(body, PAGE_BYTES_MAX).collect().await;
    Ok(body.map_err(|_| unreadable())?.to_bytes())
}

pub(super) fn answered_with(head: &response::Parts, body: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = end_to_end_of_response(&head.headers);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}
