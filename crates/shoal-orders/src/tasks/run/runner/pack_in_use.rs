//! Packs whose blocks are in the cache only while a task brings their objects.

use std::sync::Arc;
use std::time::Duration;

use shoal_policy::ObjectId;
use tokio::runtime::Handle;

use crate::tasks::parts::messages::Question;
use crate::tasks::parts::nodes::Nodes;

/// The time after which blocks that were on their way when a task was done have come.
const ARRIVED: Duration = Duration::from_secs(10);

/// A pack whose blocks a task reads. They are removed from all nodes when the task is done with it, or is
/// ended. Another task that reads them, too, fetches them again.
pub(super) struct PackInUse {
    nodes: Arc<Nodes>,
    pack: ObjectId,
}

impl PackInUse {
    /// Notes that blocks of `pack` are about to be read.
    pub(super) fn new(nodes: &Arc<Nodes>, pack: ObjectId) -> Self {
        Self {
            nodes: Arc::clone(nodes),
            pack,
        }
    }

    /// Removes the blocks.
    pub(super) async fn end(self) {
        remove(&self.nodes, self.pack).await;
    }
}

/// Removes blocks that were on their way, or on that to a disk; after a failure, all.
impl Drop for PackInUse {
    fn drop(&mut self) {
        let (nodes, pack) = (Arc::clone(&self.nodes), self.pack);
        // Without a runtime, the node has stopped.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(ARRIVED).await;
                remove(&nodes, pack).await;
            });
        }
    }
}

async fn remove(nodes: &Nodes, pack: ObjectId) {
    let problem = "a node does not remove the blocks of a pack";
    nodes
        .ask_about(&nodes.all(), &[pack], Question::Evict, problem, drop)
        .await;
}
