//! The identity in whose name a task works.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_s3::identity::Caller;

use super::TaskParts;
use crate::tasks::records::order::Order;
use crate::tasks::records::plan_progress::cut;
use crate::tasks::records::progress::Progress;

/// The pause before the next look for a key.
const LOOK: Duration = Duration::from_secs(1);

/// The identity in whose name a task works. Each step takes the key that is valid then: temporary keys
/// expire, and others of the same role follow.
#[derive(Clone)]
pub(in crate::tasks) struct TaskIdentity {
    parts: Arc<TaskParts>,
    name: Option<String>,
    progress: Arc<Mutex<Progress>>,
}

impl TaskIdentity {
    /// Returns the identity of an order, whose progress shows that the task waits for a key.
    pub(in crate::tasks) fn of(
        order: &Order,
        parts: &Arc<TaskParts>,
        progress: &Arc<Mutex<Progress>>,
    ) -> Self {
        Self {
            parts: Arc::clone(parts),
            name: order.request.identity.clone(),
            progress: Arc::clone(progress),
        }
    }

    /// Returns an identity by its name, and notes in `progress` that it waits for a key.
    pub(in crate::tasks) fn named(
        name: Option<&str>,
        parts: &Arc<TaskParts>,
        progress: &Arc<Mutex<Progress>>,
    ) -> Self {
        Self {
            parts: Arc::clone(parts),
            name: name.map(ToOwned::to_owned),
            progress: Arc::clone(progress),
        }
    }

    /// Returns the caller, once this node knows one. The task has an end of its own, at which it is given up.
    pub(in crate::tasks) async fn caller(&self) -> Caller {
        let mut has_waited = false;
        loop {
            match self.parts.caller(self.name.as_deref()) {
                Ok(caller) => {
                    if has_waited {
                        self.progress.lock().detail = None;
                    }
                    return caller;
                }
                Err(why) => self.progress.lock().detail = Some(cut(&format!("this node {why}"))),
            }
            has_waited = true;
            tokio::time::sleep(LOOK).await;
        }
    }
}
