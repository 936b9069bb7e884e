//! Listings: the lake's pages with the packed objects between its own, and without the folders of packs.

use std::sync::Arc;

use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::lake::{LakeRefusal, PageRequest};
use shoal_pack::table::Map;
use shoal_s3::identity::Caller;
use shoal_s3::xml::ListedObject;

use super::PackedLake;
use super::names::{has_below, joined, names_after};
use crate::dirty::errors::invalid;
use crate::dirty::packs::{MapError, PackMap};
use crate::dirty::{BEHIND_PREFIX, Scope};
use crate::listing::{Listing, NewerNames, Paged, asking, page_of};

/// The maps of the rules that a listing meets, as they were when it began.
struct Maps(Vec<(Arc<PackMap>, Arc<Map>)>);

impl PackedLake {
    /// Returns the lake's listing, merged with the packed objects. A caller that may list a bucket may see
    /// all names in it.
    pub(super) async fn list_objects_with_maps(
        &self,
        admitted: Box<Admitted>,
        bucket: &str,
    ) -> ResponseResult {
        let asked = admitted.classified.query.clone();
        let Some(mut listing) = Listing::parse(&asked) else {
            return Err(invalid(
                "The continuation token is from a time when no objects of the prefix were packed; please \
                 begin the listing again.",
            ));
        };
        if listing.is_empty() {
            return self.within.list_objects(admitted, bucket).await;
        }
        let maps = self.maps_below(bucket, &listing.scope.prefix).await?;
        // A bucket with packed objects keeps no versions. Of others, only the lake can list them.
        if listing.is_of_versions() && maps.0.iter().all(|(_, map)| map.tables().is_empty()) {
            return self.within.list_objects(admitted, bucket).await;
        }
        let hidden = self
            .hidden(&admitted.verified.caller, bucket, &listing.scope, &maps)
            .await?;
        loop {
            let mut packed = maps.names_after(&listing.scope, &listing.after, listing.names_max())?;
            packed.hidden.clone_from(&hidden);
            let query = listing.query(&asked, &packed);
            let asked_again = asking(admitted.without_body(), query);
            match page_of(&*self.within, asked_again, bucket, &listing, &packed).await? {
                Paged::Page(response) => return Ok(response),
                Paged::GoOn(rest) => listing = rest,
            }
        }
    }

    /// Returns a page of the lake with the packed objects between its own.
    pub(super) async fn list_with_maps(
        &self,
        caller: &Caller,
        page: PageRequest<'_>,
    ) -> Result<Vec<ListedObject>, LakeRefusal> {
        let unread = |error: MapError| LakeRefusal::Trouble(error.to_string());
        let scope = Scope::all(page.prefix);
        let maps = self.maps_below(page.bucket, page.prefix).await.map_err(unread)?;
        let mut after = page.after.unwrap_or_default().to_vec();
        loop {
            let packed = maps.names_after(&scope, &after, page.keys_max);
            let packed = NewerNames {
                hidden: maps.folders(),
                ..packed.map_err(unread)?
            };
            let from = PageRequest {
                after: Some(&*after).filter(|after| !after.is_empty()),
                ..page
            };
            let listed = self.within.list(caller, from).await?;
            let merged = packed.merge(listed, page.keys_max);
            // An empty page means the end, and this is none: the lake's has packs only.
            let Some(until) = merged.nothing_until else {
                return Ok(merged.objects);
            };
            after = until;
        }
    }

    /// Returns the maps as they are now. The lake's pages follow: an object that leaves its pack meanwhile is
    /// on them.
    async fn maps_below(&self, bucket: &str, prefix: &[u8]) -> Result<Maps, MapError> {
        let mut maps = Vec::new();
        for map in self.packs().below(bucket, prefix) {
            maps.push((Arc::clone(map), map.newest().await?.map));
        }
        Ok(Maps(maps))
    }

    /// Returns what no page shows of the lake: the folders of packs, and a common prefix of such a folder
    /// that has nothing else.
    async fn hidden(
        &self,
        caller: &Caller,
        bucket: &str,
        scope: &Scope,
        maps: &Maps,
    ) -> Result<Vec<Vec<u8>>, MapError> {
        let mut hidden = maps.folders();
        for (map, rows) in &maps.0 {
            let folder = map.at_lake.folder();
            let group = scope.group(folder).filter(|group| group.len() < folder.len());
            if let Some(group) = group.filter(|_| folder.starts_with(&scope.prefix))
                && !has_below(rows, group)?
                && !self
                    .has_others_below(caller, first_of(bucket, group), folder)
                    .await
            {
                hidden.push(group.to_vec());
            }
        }
        Ok(hidden)
    }

    /// Returns true if the lake has an object behind a common prefix that is not in the folder of packs. If
    /// it does not say, it may have one.
    async fn has_others_below(&self, caller: &Caller, group: PageRequest<'_>, folder: &[u8]) -> bool {
        let behind_folder = [folder, BEHIND_PREFIX.as_bytes()].concat();
        for after in [None, Some(&*behind_folder)] {
            let first = PageRequest { after, ..group };
            let Ok(listed) = self.within.list(caller, first).await else {
                return true;
            };
            if listed.iter().any(|object| !object.key.starts_with(folder)) {
                return true;
            }
        }
        false
    }
}

impl Maps {
    fn folders(&self) -> Vec<Vec<u8>> {
        self.0
            .iter()
            .map(|(map, _)| map.at_lake.folder().to_vec())
            .collect()
    }

    /// Returns the packed objects that can appear among the next `names_max` names of a listing.
    fn names_after(&self, scope: &Scope, after: &[u8], names_max: usize) -> Result<NewerNames, MapError> {
        let pages = self.0.iter();
        let pages = pages.map(|(_, rows)| names_after(rows, scope, after, names_max));
        Ok(joined(pages.collect::<Result<Vec<_>, _>>()?))
    }
}

/// Returns the request for the first object behind a common prefix.
fn first_of<'a>(bucket: &'a str, group: &'a [u8]) -> PageRequest<'a> {
    PageRequest {
        bucket,
        prefix: group,
        after: None,
        keys_max: 1,
    }
}
