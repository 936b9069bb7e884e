//! Reads the lists of a registry in pages: dirty objects by name, and the lists of each node.

use bytes::Bytes;
use futures_util::stream::{Stream, TryStreamExt};
use ulid::Ulid;

use super::{Names, StoredEntry, decoded};
use crate::engine::{Change, EngineError, Page, Range, Revision, Stored};
use crate::keys::{Name, NodeList};
use crate::version::{DirtyVersion, Trash};

/// Number of names on a page of a list.
const PAGE: usize = 256;

/// Some dirty objects of a bucket, ordered by key.
#[derive(Clone, Debug)]
pub struct DirtyPage {
    /// The dirty objects.
    pub objects: Vec<(Name, DirtyVersion)>,
    /// The last name that was read, if more follow.
    pub next: Option<Name>,
}

/// Some names of a node's list, ordered by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePage {
    /// The names.
    pub names: Vec<Listed>,
    /// The last id that was read, if more follow.
    pub next: Option<Ulid>,
}

/// A name of a node's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The id.
    pub id: Ulid,
    /// The name.
    pub name: Name,
    /// The revision at which it was listed.
    pub(super) revision: Revision,
}

impl Names {
    /// Returns the dirty objects of `bucket` whose keys are in `range`, without the bytes of inline ones.
    /// Reads at most as many entries as the range is long.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn list(&self, bucket: &str, range: Range) -> Result<DirtyPage, EngineError> {
        let after = match &range.after[..] {
            b"" => Bytes::new(),
            after => Name::new(bucket, after).entry_key(),
        };
        let range = Range {
            prefix: Name::new(bucket, &range.prefix).entry_key(),
            after,
            ..range
        };
        let Page { entries, has_more } = self.engine.range(range).await?;
        debug_assert!(
            entries.is_sorted_by(|one, other| one.0 < other.0),
            "a page is in the order of its keys"
        );
        let last = entries.last().and_then(|(key, _)| Name::of_entry_key(key));
        let mut objects = Vec::with_capacity(entries.len());
        for (key, stored) in entries {
            let StoredEntry { entry, .. } = StoredEntry::decoded(&stored.value)?;
            if let (Some(name), Some(version)) = (Name::of_entry_key(&key), entry.current) {
                objects.push((name, version));
            }
        }
        Ok(DirtyPage {
            objects,
            next: last.filter(|_| has_more),
        })
    }

    /// Returns all names of a list of `node`, ordered by id.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub fn all_listed(
        &self,
        list: NodeList,
        node: u64,
    ) -> impl Stream<Item = Result<(Ulid, Name), EngineError>> + Send {
        self.listed_after(list, node, None)
    }

    /// Returns all names of a list of `node` that follow `after`, ordered by id.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub fn listed_after(
        &self,
        list: NodeList,
        node: u64,
        after: Option<Ulid>,
    ) -> impl Stream<Item = Result<(Ulid, Name), EngineError>> + Send {
        let after = after.map_or_else(Bytes::new, |id| list.key(node, id));
        let all = self.engine.all_after(list.prefix(node), after, PAGE);
        all.try_filter_map(
            async |(key, stored)| Ok(NodeList::id_in(&key).zip(Name::from_bytes(stored.value))),
        )
    }

    /// Returns at most `limit` names from a list of `node` that follow `after`, ordered by id.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn listed(
        &self,
        list: NodeList,
        node: u64,
        after: Option<Ulid>,
        limit: usize,
    ) -> Result<NamePage, EngineError> {
        let (page, has_more) = self.list_page(list, node, after, limit).await?;
        let next = page.last().filter(|_| has_more).map(|(id, _)| *id);
        let listed = page.into_iter().filter_map(|(id, Stored { value, revision })| {
            let name = Name::from_bytes(value)?;
            Some(Listed { id, name, revision })
        });
        Ok(NamePage {
            names: listed.collect(),
            next,
        })
    }

    /// Returns at most `limit` items from the trash list of `node` that follow `after`, ordered by id.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn trash(
        &self,
        node: u64,
        after: Option<Ulid>,
        limit: usize,
    ) -> Result<Vec<(Ulid, Trash)>, EngineError> {
        let (page, _) = self.list_page(NodeList::Trash, node, after, limit).await?;
        let listed = page.iter().map(|(id, stored)| Ok((*id, decoded(&stored.value)?)));
        listed.collect()
    }

    /// Removes up to 64 ids from a list of `node`.
    ///
    /// # Errors
    ///
    /// They may remain on the list.
    pub async fn unlist(&self, list: NodeList, node: u64, ids: &[Ulid]) -> Result<(), EngineError> {
        let changes = ids.iter().map(|id| Change::delete(list.key(node, *id)));
        self.commit(Vec::new(), changes.collect()).await.map(drop)
    }

    /// Counts the entries of a list of `node`.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn count(&self, list: NodeList, node: u64) -> Result<u64, EngineError> {
        self.engine.count(&list.prefix(node)).await
    }

    /// Reads some entries of a list.
    async fn list_page(
        &self,
        list: NodeList,
        node: u64,
        after: Option<Ulid>,
        limit: usize,
    ) -> Result<(Vec<(Ulid, Stored)>, bool), EngineError> {
        let after = after.map_or_else(Bytes::new, |id| list.key(node, id));
        let prefix = list.prefix(node);
        let range = Range { prefix, after, limit };
        let page = self.engine.range(range).await?;
        let entries = page.entries.into_iter();
        let entries = entries.filter_map(|(key, stored)| Some((NodeList::id_in(&key)?, stored)));
        Ok((entries.collect(), page.has_more))
    }
}
