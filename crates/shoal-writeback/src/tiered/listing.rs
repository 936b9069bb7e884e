//! Listings: merges the lake's page with the objects and uploads that only the tier has.

use std::collections::HashSet;
use std::sync::Arc;

use http::{Method, Response, StatusCode};
use shoal_cache::exchange::respond::relay;
use shoal_cache::exchange::{Admitted, ResponseBody, ResponseResult};
use shoal_s3::error::S3Error;
use shoal_s3::identity::Caller;
use shoal_s3::operation::Query;
use shoal_s3::xml::ListedObject;

use super::TieredLakeParts;
use super::asker::without_body;
use crate::dirty::{Dirty, DirtyPage};
use crate::listing::{
    Listing, MOST, Newer, NewerNames, Paged, UploadListing, asking, in_order, merged, page_of,
};

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
            return self.within.list_objects(admitted, bucket).await;
        };
        let (mut listing, asked) = (listing, classified.query.clone());
        let (mut is_first, mut may_list) = (true, false);
        loop {
            let dirty = self.dirty_of(bucket, &listing).await?;
            let mut newer = NewerNames::from(&dirty);
            let query = listing.query(&asked, &newer);
            let needed = needed_at_lake(&listing, &dirty);
            if !needed.is_empty() {
                if !may_list && let Some(refusal) = self.refusal_to_list(&admitted, query.clone()).await? {
                    return Ok(refusal);
                }
                newer = NewerNames::from(&self.flush_for_page(bucket, &listing, needed).await?);
            }
            if is_first && newer.names.is_empty() && !listing.goes_on() {
                return self.within.list_objects(admitted, bucket).await;
            }
            let asked_again = asking(admitted.without_body(), query);
            match page_of(&*self.within, asked_again, bucket, &listing, &newer).await? {
                Paged::Page(response) => return Ok(response),
                Paged::GoOn(rest) => listing = rest,
            }
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
            needed = needed_at_lake(listing, &dirty);
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
            return self.within.list_uploads(admitted, bucket).await;
        }
        let kept = match &admitted.verified.caller {
            Caller::Identity(identity) => {
                let (dirty, prefix, behind) = (&self.dirty, &listing.scope.prefix, listing.behind());
                dirty
                    .list_uploads(bucket, prefix, identity.name(), behind)
                    .await?
            }
            Caller::Anonymous | Caller::Unverified => Vec::new(),
        };
        if kept.is_empty() && !listing.goes_on() {
            return self.within.list_uploads(admitted, bucket).await;
        }
        let query = listing.query(&classified.query);
        let merge = |page: &[u8]| listing.merge(page, &kept);
        let asked = asking(admitted, query);
        merged(self.within.list_uploads(asked, bucket), merge).await
    }
}

impl From<&DirtyPage> for NewerNames {
    fn from(page: &DirtyPage) -> Self {
        let name = |dirty: &Dirty| match dirty {
            Dirty::Object(manifest) => Newer::Object(ListedObject {
                key: manifest.name.key.to_vec(),
                etag: manifest.version.etag.to_string(),
                size_bytes: manifest.version.size_bytes,
                last_modified: manifest.version.last_modified,
                is_dirty: true,
            }),
            Dirty::Tombstone(tombstone) => Newer::Removed(tombstone.name.key.to_vec()),
        };
        Self {
            names: page.dirty.iter().map(name).collect(),
            until: page.until.clone(),
            hidden: Vec::new(),
        }
    }
}

/// Returns what the lake must know before it can word the page: objects if only the lake knows their owners,
/// and the tombstones behind common prefixes, because an object may be left there or none.
fn needed_at_lake(listing: &Listing, page: &DirtyPage) -> Vec<Dirty> {
    let is_needed = |dirty: &&Dirty| match dirty {
        Dirty::Object(_) => listing.shows_owners,
        Dirty::Tombstone(tombstone) => listing.scope.group(&tombstone.name.key).is_some(),
    };
    page.dirty.iter().filter(is_needed).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shoal_s3::operation::Query;

    use super::{Dirty, DirtyPage, Listing, needed_at_lake};
    use crate::dirty::testing::{manifest, tombstone};

    #[test]
    fn tombstones_behind_a_common_prefix_are_needed_at_the_lake() {
        let listing = |query| Listing::parse(&Query::parse(Some(query)).unwrap()).unwrap();
        let object = |key| Dirty::Object(Arc::new(manifest(key)));
        let dirty = DirtyPage {
            dirty: vec![tombstone("a"), object("a/x"), tombstone("a/y"), tombstone("b/")],
            until: None,
        };
        let needed = needed_at_lake(&listing("list-type=2&delimiter=/"), &dirty).into_iter();
        let needed: Vec<_> = needed.map(|dirty| dirty.name().key.to_vec()).collect();
        assert_eq!(needed, [b"a/y".to_vec(), b"b/".into()]);
        assert!(needed_at_lake(&listing("list-type=2"), &dirty).is_empty());
        let owners = listing("list-type=2&fetch-owner=true");
        assert_eq!(needed_at_lake(&owners, &dirty).len(), 1);
    }
}
