//! The objects of a pin that later orders have unpinned.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_cache::lake::PAGE_KEYS;
use shoal_policy::ObjectId;
use shoal_s3::object::ObjectName;
use tokio::sync::{OnceCell, watch};
use ulid::Ulid;

use crate::tasks::parts::nodes::Nodes;
use crate::tasks::records::Records;
use crate::tasks::records::entry::Entry;
use crate::tasks::records::order::{Selection, TaskKind};
use crate::tasks::records::progress::TaskState;

/// Objects that a pin leaves alone: later orders have unpinned them, by a URI or by a list.
pub(in crate::tasks) struct Unpinned<'a> {
    records: &'a Records,
    nodes: Arc<Nodes>,
    /// The id of the pin.
    pin: u128,
    orders: Mutex<LaterOrders>,
}

/// The later orders that unpin, by their ids, as of the last look at the records.
struct LaterOrders {
    changes: watch::Receiver<()>,
    known: Arc<BTreeMap<u128, Arc<Objects>>>,
}

/// The objects of an order.
enum Objects {
    Selected(Selection),
    Listed {
        bytes: u64,
        list: OnceCell<HashSet<ObjectId>>,
    },
}

impl Objects {
    /// Returns true if the order of `entry` still names these. The list of an order that gathers
    /// announcements grows.
    fn are_those_of(&self, entry: &Entry) -> bool {
        match self {
            Self::Selected(_) => true,
            Self::Listed { bytes, .. } => entry.order.file_bytes() == Some(*bytes),
        }
    }
}

impl<'a> Unpinned<'a> {
    /// Creates the objects that orders after the task `pin` have unpinned.
    pub(in crate::tasks) fn since(records: &'a Records, nodes: &Arc<Nodes>, pin: u128) -> Self {
        let mut changes = records.bulletin.changes();
        // The records have not been looked at.
        changes.mark_changed();
        Self {
            records,
            nodes: Arc::clone(nodes),
            pin,
            orders: Mutex::new(LaterOrders {
                changes,
                known: Arc::default(),
            }),
        }
    }

    /// Returns the last order that has unpinned an object.
    ///
    /// # Errors
    ///
    /// No node that can be asked has one of the lists.
    pub(in crate::tasks) async fn by(&self, name: &ObjectName) -> Result<Option<u128>, String> {
        for (id, objects) in self.orders().iter().rev() {
            let has = match &**objects {
                Objects::Selected(selection) => selection.has(name),
                Objects::Listed { bytes, list } => {
                    let list = list.get_or_try_init(|| self.list(*id, *bytes)).await;
                    let waits = |why| {
                        let id = Ulid(*id);
                        format!("waits for the list of {id}, which says what is unpinned: {why}")
                    };
                    list.map_err(waits)?.contains(&self.id_of(name))
                }
            };
            if has {
                return Ok(Some(*id));
            }
        }
        Ok(None)
    }

    /// Returns the later orders that unpin. Lists that were read are kept, unless they have grown.
    fn orders(&self) -> Arc<BTreeMap<u128, Arc<Objects>>> {
        let mut orders = self.orders.lock();
        if orders.changes.has_changed().unwrap_or(true) {
            // Changes from now on are read at the next look.
            orders.changes.mark_unchanged();
            let all = self.records.all();
            let later = all.values().filter(|entry| entry.id > self.pin);
            let unpinning = later.filter(|entry| unpins(entry));
            let known = unpinning.filter_map(|entry| {
                let known = orders.known.get(&entry.id).cloned();
                let known = known.filter(|known| known.are_those_of(entry));
                Some((entry.id, known.or_else(|| objects_of(entry).map(Arc::new))?))
            });
            orders.known = Arc::new(known.collect());
        }
        Arc::clone(&orders.known)
    }

    /// Reads the objects of the list that came with an order.
    async fn list(&self, id: u128, bytes: u64) -> Result<HashSet<ObjectId>, String> {
        self.nodes.bring_file(id, bytes).await?;
        let (mut list, mut offset) = (HashSet::new(), 0);
        loop {
            let page = self.nodes.parts.order_files.names(id, offset, PAGE_KEYS).await;
            let (names, next) = page.map_err(|error| error.to_string())?;
            if names.is_empty() {
                return Ok(list);
            }
            list.extend(names.iter().map(|name| self.id_of(name)));
            offset = next;
        }
    }

    fn id_of(&self, name: &ObjectName) -> ObjectId {
        name.id(self.nodes.parts.cache().lake.url())
    }
}

/// Returns true if a task unpins. One that was cancelled before it began has ended no pin.
fn unpins(entry: &Entry) -> bool {
    let is_void = entry.progress.state == TaskState::Cancelled && entry.progress.started.is_none();
    entry.order.request.kind == TaskKind::Unpin && !is_void
}

fn objects_of(entry: &Entry) -> Option<Objects> {
    let selected = entry.order.selection().map(Objects::Selected);
    selected.or_else(|| {
        let (bytes, list) = (entry.order.manifest?.bytes, OnceCell::new());
        Some(Objects::Listed { bytes, list })
    })
}
