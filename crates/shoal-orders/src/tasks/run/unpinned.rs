//! The objects of a pin that later orders have unpinned.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_cache::lake::PAGE_KEYS;
use shoal_policy::ObjectId;
use shoal_s3::object::ObjectName;
use tokio::sync::watch;
use ulid::Ulid;

use crate::tasks::parts::TaskParts;
use crate::tasks::records::Records;
use crate::tasks::records::files::ManifestFacts;
use crate::tasks::records::order::{Selection, TaskKind};
use crate::tasks::records::progress::TaskState;

/// Objects that a pin leaves alone: later orders have unpinned them, by a URI or by a list.
pub(in crate::tasks) struct Unpinned<'a> {
    records: &'a Records,
    parts: Arc<TaskParts>,
    /// The id of the pin.
    pin: u128,
    orders: Mutex<Orders>,
    /// The objects of the lists that were read, by the ids of their orders.
    lists: tokio::sync::Mutex<HashMap<u128, HashSet<ObjectId>>>,
}

/// The later orders, as of the last look at the records.
struct Orders {
    changes: watch::Receiver<u64>,
    known: Arc<[UnpinOrder]>,
}

/// An order that unpins.
struct UnpinOrder {
    id: u128,
    objects: Objects,
}

enum Objects {
    Selected(Selection),
    Listed(ManifestFacts),
}

impl<'a> Unpinned<'a> {
    /// The objects that orders after the task `pin` have unpinned.
    pub(in crate::tasks) fn since(records: &'a Records, parts: &Arc<TaskParts>, pin: u128) -> Self {
        let mut changes = records.changes();
        // The records have not been looked at.
        changes.mark_changed();
        Self {
            records,
            parts: Arc::clone(parts),
            pin,
            orders: Mutex::new(Orders {
                changes,
                known: [].into(),
            }),
            lists: tokio::sync::Mutex::default(),
        }
    }

    /// The last order that has unpinned an object.
    ///
    /// # Errors
    ///
    /// No node that can be asked has one of the lists.
    pub(in crate::tasks) async fn by(&self, name: &ObjectName) -> Result<Option<u128>, String> {
        for UnpinOrder { id, objects } in self.orders().iter().rev() {
            let has = match objects {
                Objects::Selected(selection) => selection.has(name),
                Objects::Listed(manifest) => {
                    let mut lists = self.lists.lock().await;
                    let list = match lists.entry(*id) {
                        Entry::Occupied(read) => read.into_mut(),
                        Entry::Vacant(unread) => unread.insert(self.list(*id, manifest).await?),
                    };
                    list.contains(&self.id_of(name))
                }
            };
            if has {
                return Ok(Some(*id));
            }
        }
        Ok(None)
    }

    /// The later orders that unpin, in the order of their ids.
    fn orders(&self) -> Arc<[UnpinOrder]> {
        let mut orders = self.orders.lock();
        if orders.changes.has_changed().unwrap_or(true) {
            // Changes from now on are read at the next look.
            orders.changes.mark_unchanged();
            let later = self.records.all().into_iter().filter(|entry| entry.id > self.pin);
            orders.known = later.filter_map(UnpinOrder::of).collect();
        }
        Arc::clone(&orders.known)
    }

    /// The objects of the list that came with an order.
    async fn list(&self, id: u128, manifest: &ManifestFacts) -> Result<HashSet<ObjectId>, String> {
        let waits = |why: &dyn Display| {
            let id = Ulid(id);
            format!("waits for the list of {id}, which says what is unpinned: {why}")
        };
        let here = self.parts.file(id, manifest.bytes).await;
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
        name.id(self.parts.endpoint.url())
    }
}

impl UnpinOrder {
    /// The order of a task, if it unpins. One that was cancelled before it began has ended no pin.
    fn of(entry: crate::tasks::records::entry::Entry) -> Option<Self> {
        let (order, progress) = (entry.order, entry.progress);
        let is_void = progress.state == TaskState::Cancelled && progress.started.is_none();
        if order.request.kind != TaskKind::Unpin || is_void {
            return None;
        }
        let objects = match order.selection() {
            Some(selection) => Objects::Selected(selection),
            None => Objects::Listed(order.manifest?),
        };
        Some(Self {
            id: entry.id,
            objects,
        })
    }
}
