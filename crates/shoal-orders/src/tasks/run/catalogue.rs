//! The objects of a task, page by page: from a listing of the lake, or from a list that came with the order.

use shoal_cache::lake::{LakeRefusal, PAGE_KEYS};
use shoal_s3::object::ObjectName;
use shoal_s3::target;
use shoal_s3::xml::ListedObject;

use crate::tasks::parts::lake_view::LakeView;
use crate::tasks::parts::order_files::OrderFiles;
use crate::tasks::records::order::{Order, Selection};

/// One page of the objects of a task.
#[derive(Debug)]
pub(in crate::tasks) struct Page {
    /// The objects, each with what the lake's listing says of it.
    pub(in crate::tasks) objects: Vec<(ObjectName, Option<ListedObject>)>,
    /// Where the next page begins, as a record has it.
    pub(in crate::tasks) next: String,
    /// True if the lake or the list named as many objects as a page has, wanted or not.
    pub(in crate::tasks) is_full: bool,
}

/// Reads the objects of a task in their order.
pub(in crate::tasks) enum Catalogue {
    /// Objects that the lake lists.
    Listing {
        /// The URI of the order.
        uri: String,
        /// The objects of the listing that the order means.
        selection: Selection,
        /// The last key of the page before.
        after: Vec<u8>,
    },
    /// Objects of a list on this node's disk.
    List {
        /// The task.
        id: u128,
        /// Where the next page begins.
        offset: u64,
    },
}

/// The reason why there is no page.
#[derive(Debug)]
pub(in crate::tasks) enum NoPage {
    /// The same page can be read later.
    NotNow(String),
    /// The objects cannot be listed.
    Never(String),
}

impl Page {
    /// Returns the number of objects, and their bytes as far as the lake has listed them.
    pub(in crate::tasks) fn size(&self) -> (u64, u64) {
        let listed = self.objects.iter().filter_map(|(_, listed)| listed.as_ref());
        let bytes = listed.map(|listed| listed.size_bytes).sum();
        (self.objects.len() as u64, bytes)
    }
}

impl Catalogue {
    /// Reads the objects of an order behind `after`, which is the end of a page or nothing.
    pub(in crate::tasks) fn new(id: u128, order: &Order, after: &str) -> Self {
        match (order.selection(), &order.request.uri) {
            (Some(selection), Some(uri)) => Self::Listing {
                uri: uri.clone(),
                selection,
                after: percent_encoding::percent_decode_str(after).collect(),
            },
            _ => Self::List {
                id,
                offset: after.parse().unwrap_or_default(),
            },
        }
    }

    /// Reads the next page; returns `None` at the end.
    pub(in crate::tasks) async fn next(
        &mut self,
        lake: &LakeView,
        order_files: &OrderFiles,
    ) -> Result<Option<Page>, NoPage> {
        match self {
            Self::Listing {
                uri,
                selection,
                after,
            } => {
                let page = listed(selection, after, lake).await;
                page.map_err(|refusal| match refusal {
                    LakeRefusal::Refused { answer, .. } => {
                        NoPage::Never(format!("{uri} cannot be listed: the lake answered {answer}"))
                    }
                    error => NoPage::NotNow(format!("waits for the lake: {error}")),
                })
            }
            Self::List { id, offset } => {
                let page = order_files.names(*id, *offset, PAGE_KEYS).await;
                let (names, next) = page.map_err(|error| NoPage::Never(error.to_string()))?;
                *offset = next;
                Ok((!names.is_empty()).then(|| Page {
                    is_full: names.len() == PAGE_KEYS,
                    objects: names.into_iter().map(|name| (name, None)).collect(),
                    next: next.to_string(),
                }))
            }
        }
    }
}

/// Reads the next page of a listing. Moves `after` to its end.
async fn listed(
    Selection { bucket, keys }: &Selection,
    after: &mut Vec<u8>,
    lake: &LakeView,
) -> Result<Option<Page>, LakeRefusal> {
    let listed = lake.list(bucket, keys.prefix(), after).await?;
    let Some(last) = listed.last() else {
        return Ok(None);
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
    Ok(Some(Page {
        objects: objects.collect(),
        next: target::key(after),
        is_full,
    }))
}
