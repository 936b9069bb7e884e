//! Reads ranges of registry entries: all dirty objects below a prefix, or those on a page of a listing.

use std::sync::Arc;

use crate::tier::TierUnavailable;
use shoal_registry::DirtyVersion;
use shoal_registry::engine::{At, Range};
use shoal_s3::object::ObjectName;

use super::Manifest;
use super::listing::Scope;
use super::objects::DirtyObjects;
use super::tiers::object_name;

/// Number of entries on a page of the registry: an S3 page, and one more to show if others follow.
const PAGE: usize = 1001;

impl DirtyObjects {
    /// Returns the dirty objects of a bucket whose keys begin with `prefix` and follow `after`, in key order.
    ///
    /// # Errors
    ///
    /// A registry does not answer.
    pub async fn list(
        &self,
        bucket: &str,
        prefix: &[u8],
        after: &[u8],
    ) -> Result<Vec<Arc<Manifest>>, TierUnavailable> {
        let mut manifests = Vec::new();
        self.each(bucket, prefix, after, |name, version| {
            manifests.push(self.manifest(name, version)?);
            Ok(())
        })
        .await?;
        manifests.sort_by(|one, other| one.name.key.cmp(&other.name.key));
        Ok(manifests)
    }

    /// Reads the entries of dirty objects page by page.
    async fn each(
        &self,
        bucket: &str,
        prefix: &[u8],
        after: &[u8],
        mut each: impl FnMut(&ObjectName, &DirtyVersion) -> Result<(), TierUnavailable> + Send,
    ) -> Result<(), TierUnavailable> {
        for tier in self.tiers_below(bucket, prefix) {
            let (mut after, mut at) = (after.to_vec(), At::NewestForPages);
            loop {
                let range = Range {
                    prefix: prefix.to_vec().into(),
                    after: after.into(),
                    limit: PAGE,
                    at,
                };
                let page = tier.names.list(bucket, range).await?;
                for (name, version) in page.objects {
                    if let Some(name) = object_name(&name).filter(|name| self.may_be_dirty(name)) {
                        each(&name, &version)?;
                    }
                }
                at = At::Revision(page.revision);
                match page.next {
                    Some(next) => after = next.parts().1.to_vec(),
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Returns the dirty objects that can appear among the next `names` names of a listing after `after`, in
    /// key order. Of the objects behind a common prefix, some are returned. Reads no more of a registry than
    /// that.
    ///
    /// # Errors
    ///
    /// A registry does not answer.
    pub async fn list_page(
        &self,
        bucket: &str,
        scope: &Scope,
        (after, names): (&[u8], usize),
    ) -> Result<Vec<Arc<Manifest>>, TierUnavailable> {
        let mut manifests = Vec::new();
        for tier in self.tiers_below(bucket, &scope.prefix) {
            let (mut after, mut left) = (scope.behind(after), names);
            while left > 0 {
                let limit = if scope.has_groups() { PAGE } else { PAGE.min(left) };
                // Pages need not show one moment: the pages that the client reads do not either.
                let range = Range {
                    prefix: scope.prefix.clone().into(),
                    after: after.into(),
                    limit,
                    at: At::Newest,
                };
                let page = tier.names.list(bucket, range).await?;
                let mut last_group: Option<Vec<u8>> = None;
                for (name, version) in page.objects {
                    let Some(name) = object_name(&name).filter(|name| self.may_be_dirty(name)) else {
                        continue;
                    };
                    let group = scope.group(&name.key);
                    if group.is_none() || group != last_group.as_deref() {
                        left = left.saturating_sub(1);
                    }
                    last_group = group.map(<[u8]>::to_vec);
                    manifests.push(self.manifest(&name, &version)?);
                }
                match (page.next, last_group) {
                    (None, _) => break,
                    // The other keys of this common prefix would add nothing to the listing.
                    (Some(_), Some(group)) => after = scope.behind(&group),
                    (Some(next), None) => after = next.parts().1.to_vec(),
                }
            }
        }
        manifests.sort_by(|one, other| one.name.key.cmp(&other.name.key));
        Ok(manifests)
    }
}
