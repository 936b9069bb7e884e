//! The objects of a pin that later orders have unpinned.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;

use shoal_policy::ObjectId;
use shoal_s3::object::ObjectName;
use shoal_s3::xml::ListedObject;
use tokio::sync::Mutex;
use ulid::Ulid;

use super::book::Book;
use super::lake_view::PAGE_KEYS;
use super::order::{ManifestFacts, TaskKind};
use super::service::TaskParts;

/// Objects that a pin leaves alone when it goes on, or runs again: later orders have unpinned them, by a URI
/// or by a list.
pub(super) struct Unpinned<'a> {
    book: &'a Book,
    parts: Arc<TaskParts>,
    /// The id of the pin.
    pin: u128,
    /// The objects of the lists that were read, by the ids of their orders.
    lists: Mutex<HashMap<u128, HashSet<ObjectId>>>,
}

impl<'a> Unpinned<'a> {
    /// The objects that orders after the task `pin` have unpinned.
    pub(super) fn since(book: &'a Book, parts: &Arc<TaskParts>, pin: u128) -> Self {
        Self {
            book,
            parts: Arc::clone(parts),
            pin,
            lists: Mutex::default(),
        }
    }

    /// Removes these objects from a page.
    ///
    /// # Errors
    ///
    /// No node that can be asked has one of the lists. The page may still have unpinned objects then.
    pub(super) async fn leave_out(
        &self,
        objects: &mut Vec<(ObjectName, Option<ListedObject>)>,
    ) -> Result<(), String> {
        let later = self.book.all().into_iter().filter(|entry| entry.id > self.pin);
        for entry in later.filter(|entry| entry.order.request.kind == TaskKind::Unpin) {
            if let Some(selection) = entry.order.selection() {
                objects.retain(|(name, _)| !selection.has(name));
            } else if let Some(manifest) = &entry.order.manifest {
                let mut lists = self.lists.lock().await;
                let list = match lists.entry(entry.id) {
                    Entry::Occupied(read) => read.into_mut(),
                    Entry::Vacant(unread) => unread.insert(self.list(entry.id, manifest).await?),
                };
                objects.retain(|(name, _)| !list.contains(&self.id_of(name)));
            }
        }
        Ok(())
    }

    /// The objects of the list that came with an order.
    async fn list(&self, id: u128, manifest: &ManifestFacts) -> Result<HashSet<ObjectId>, String> {
        let waits = |why: &dyn Display| {
            let id = Ulid(id);
            format!("waits for the list of {id}, which says what is unpinned: {why}")
        };
        let here = self.parts.manifest(id, manifest).await;
        here.map_err(|why| waits(&why))?;
        let (mut list, mut offset) = (HashSet::new(), 0);
        loop {
            let page = self.parts.manifests.names(id, offset, PAGE_KEYS).await;
            let (names, next) = page.map_err(|error| waits(&error))?;
            if names.is_empty() {
                return Ok(list);
            }
            list.extend(names.iter().map(|name| self.id_of(name)));
            offset = next;
        }
    }

    fn id_of(&self, name: &ObjectName) -> ObjectId {
        name.id(self.parts.lake.url())
    }
}
