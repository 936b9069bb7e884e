//! The objects of a task, page by page: from a listing of the lake, or from a list that came with the order.

use std::sync::Arc;

use shoal_cache::lake::{LakeRefusal, PAGE_KEYS};
use shoal_s3::object::ObjectName;
use shoal_s3::xml::ListedObject;

use crate::tasks::parts::lake_view::LakeView;
use crate::tasks::parts::manifest::ManifestError;
use crate::tasks::parts::manifests::Manifests;
use crate::tasks::records::order::Selection;

/// One page of the objects of a task.
#[derive(Debug, Default)]
pub(in crate::tasks) struct Page {
    /// The objects, each with what the lake's listing says of it.
    pub(in crate::tasks) objects: Vec<(ObjectName, Option<ListedObject>)>,
    /// Where the next page begins, to be written into a record.
    pub(in crate::tasks) next: String,
    /// Whether the lake or the list named as many objects as a page has, wanted or not.
    pub(in crate::tasks) is_full: bool,
    /// Whether there may be more.
    pub(in crate::tasks) goes_on: bool,
}

/// Tells the objects of a task in their order.
pub(in crate::tasks) enum Catalogue {
    /// Those that the lake lists.
    Listing {
        /// Which of them.
        selection: Selection,
        /// The last key of the page before.
        after: Vec<u8>,
    },
    /// Those of a list on this node's disk.
    Manifest {
        /// The lists.
        manifests: Arc<Manifests>,
        /// The task.
        id: u128,
        /// Where the next page begins.
        offset: u64,
    },
}

/// Why there is no page. The same page can be asked for again.
#[derive(Debug, thiserror::Error)]
pub(in crate::tasks) enum NoPage {
    /// The lake does not list the objects.
    #[error(transparent)]
    Lake(#[from] LakeRefusal),
    /// The list cannot be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl Catalogue {
    /// The objects of `selection` behind `after`, which is the end of a page or nothing.
    pub(in crate::tasks) fn of_listing(selection: Selection, after: &str) -> Self {
        Self::Listing {
            selection,
            after: percent_encoding::percent_decode_str(after).collect(),
        }
    }

    /// The objects on the list of a task behind `after`, which is the end of a page or nothing.
    pub(in crate::tasks) fn of_manifest(manifests: &Arc<Manifests>, id: u128, after: &str) -> Self {
        Self::Manifest {
            manifests: Arc::clone(manifests),
            id,
            offset: after.parse().unwrap_or_default(),
        }
    }

    /// The next page; it does not go on if there are no more objects.
    pub(in crate::tasks) async fn next(&mut self, lake: &LakeView) -> Result<Page, NoPage> {
        match self {
            Self::Listing { selection, after } => Ok(listed(selection, after, lake).await?),
            Self::Manifest {
                manifests,
                id,
                offset,
            } => {
                let (names, next) = manifests.names(*id, *offset, PAGE_KEYS).await?;
                *offset = next;
                Ok(Page {
                    goes_on: !names.is_empty(),
                    is_full: names.len() == PAGE_KEYS,
                    objects: names.into_iter().map(|name| (name, None)).collect(),
                    next: next.to_string(),
                })
            }
        }
    }
}

/// The next page of a listing. Moves `after` to its end.
async fn listed(selection: &Selection, after: &mut Vec<u8>, lake: &LakeView) -> Result<Page, LakeRefusal> {
    let Selection { bucket, keys } = selection;
    let listed = lake.list(bucket, keys.prefix(), after).await?;
    let Some(last) = listed.last() else {
        return Ok(Page::default());
    };
    after.clone_from(&last.key);
    let is_full = listed.len() == PAGE_KEYS;
    let wanted = listed.into_iter().filter(|object| keys.matches(&object.key));
    let objects = wanted.map(|object| {
        let name = ObjectName {
            bucket: bucket.as_str().into(),
            key: object.key.as_slice().into(),
            version: None,
        };
        (name, Some(object))
    });
    Ok(Page {
        objects: objects.collect(),
        next: shoal_s3::target::key(after),
        is_full,
        goes_on: true,
    })
}
