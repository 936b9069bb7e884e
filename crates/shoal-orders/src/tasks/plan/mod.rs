//! Plans of what to fetch before jobs need it, carried out on live nodes.
//!
//! A plan is a task whose order comes with a document. Its runner is its coordinator.
//!
//! [`shoal_plan::execution`] decides what is due, at which rate, what is behind and when a new plan is
//! needed; this module carries that out: nodes are asked to fetch blocks and to pin them.

mod config;
mod document;
mod executor;
mod fetch;
mod objects;
mod planner;
mod promise;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use shoal_plan::Document;
use tokio::sync::Mutex as Turn;
use tokio::task::spawn_blocking;

pub use self::config::PlanConfig;
pub use self::document::PlanError;
use shoal_net::clock;
use shoal_net::http::connection::ClientBody;

use self::document::{DOCUMENT_BYTES_MAX, read};
use self::executor::Executor;
use self::planner::Planner;
use super::parts::TaskParts;
use crate::tasks::parts::manifest::ManifestError;
use crate::tasks::parts::manifests::Spooled;
use crate::tasks::records::files::DocumentFacts;
use crate::tasks::records::order::Order;
use crate::tasks::records::progress::{Progress, TaskState};

/// How often a node looks for a document that no other node has given it.
const LOOK: Duration = Duration::from_secs(1);

/// Receives the documents of plans, and carries plans out.
pub(super) struct Plans {
    parts: Arc<TaskParts>,
    planner: Planner,
    /// One document is read at a time: it takes several times its bytes. Others wait on the disk.
    reading: Turn<()>,
}

impl Plans {
    /// Plans that a node with these parts carries out.
    pub(super) fn new(parts: &Arc<TaskParts>, config: &PlanConfig) -> Self {
        Self {
            parts: Arc::clone(parts),
            planner: Planner::new(config.planner.clone()),
            reading: Turn::default(),
        }
    }

    /// Receives a document at `now`, unless it cannot be carried out. It is on this disk then, without an id.
    pub(super) async fn receive(
        &self,
        body: ClientBody,
        now: SystemTime,
    ) -> Result<(Spooled, DocumentFacts), PlanError> {
        let not_kept = |error: ManifestError| PlanError::NotKept(error.to_string());
        let spooled = self.parts.manifests.spool(body, DOCUMENT_BYTES_MAX as u64).await;
        let spooled = spooled.map_err(|error| match error {
            ManifestError::TooLong | ManifestError::BrokenOff(_) => PlanError::TooLong,
            error => not_kept(error),
        })?;
        let _alone = self.reading.lock().await;
        let body = spooled.read().await.map_err(not_kept)?;
        let checked = spawn_blocking(move || DocumentFacts::checked(&body, now)).await;
        let facts = checked.map_err(|error| PlanError::Body(error.to_string()))??;
        Ok((spooled, facts))
    }

    /// Keeps a document that was received as that of the plan `id`.
    pub(super) async fn keep(&self, id: u128, spooled: Spooled) -> Result<(), PlanError> {
        let kept = self.parts.manifests.keep(id, spooled).await;
        kept.map_err(|error| PlanError::NotKept(error.to_string()))
    }

    /// Carries a plan out, from where its progress ends to its end. Returns how it ended.
    pub(super) async fn run(
        &self,
        id: u128,
        order: &Order,
        progress: &Arc<Mutex<Progress>>,
    ) -> (TaskState, Option<String>) {
        let Some(facts) = &order.document else {
            return (TaskState::Failed, Some("the plan has no document".into()));
        };
        loop {
            let ready = match self.parts.caller(order.request.identity.as_deref()) {
                Ok(caller) => self.document(id, facts).await.map(|document| (caller, document)),
                Err(why) => Err(why),
            };
            match ready {
                Ok((caller, document)) => {
                    progress.lock().detail = None;
                    let planner = self.planner.clone();
                    let executor = Executor::new(&self.parts, id, caller, document, progress, planner);
                    Arc::new(executor).run().await;
                    return (TaskState::Done, None);
                }
                Err(why) if facts.ends.after(clock::utc_now()).is_zero() => {
                    return (TaskState::Failed, Some(why));
                }
                // Another node may have the document, and come back.
                Err(why) => progress.lock().detail = Some(why),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The document of a plan, from this disk or from another node's.
    async fn document(&self, id: u128, facts: &DocumentFacts) -> Result<Document, String> {
        self.parts.file(id, facts.bytes).await?;
        let _alone = self.reading.lock().await;
        let mut bytes = Vec::new();
        loop {
            let part = self.parts.manifests.part(id, bytes.len() as u64).await;
            let part = part.ok_or("its document is no longer on this disk")?;
            if part.is_empty() || bytes.len() > DOCUMENT_BYTES_MAX {
                break;
            }
            bytes.extend_from_slice(&part);
        }
        let read = spawn_blocking(move || {
            let document = read(&bytes)?;
            document.check().map_err(|error| error.to_string())?;
            Ok(document)
        });
        let document: Result<Document, String> = read.await.map_err(|error| error.to_string())?;
        document.map_err(|error| format!("its document is damaged: {error}"))
    }
}
