//! Plans of what to fetch before jobs need it, carried out on live nodes.
//!
//! A plan is a task whose order comes with a document. Its runner is its coordinator.
//!
//! [`shoal_plan::execution`] decides which steps are due, at which rate, which are behind and when a new plan
//! is needed; this module carries that out: nodes are asked to fetch blocks and to pin them.

pub(super) mod ahead;
pub(super) mod arrivals;
mod document;
mod executor;
mod fetch;
mod objects;
mod observe;
mod page;
mod planner;
mod promise;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use shoal_net::clock;
use shoal_net::http::connection::ClientBody;
use shoal_plan::{Document, Plan, Request};
use tokio::sync::Mutex as Turn;
use tokio::task::spawn_blocking;

use self::document::{DOCUMENT_BYTES_MAX, read};
pub(super) use self::document::{no_plan, not_kept};
use self::executor::Executor;
use super::parts::nodes::Nodes;
use super::parts::order_files::NewFile;
use super::parts::task_identity::TaskIdentity;
use super::records::Records;
use super::records::files::DocumentFacts;
use super::records::order::Order;
use super::records::progress::{Progress, TaskState};
use super::refusal::TaskRefusal;

/// The interval at which a node looks for a document that no other node has sent it.
const LOOK: Duration = Duration::from_secs(1);

/// `[plan]`: how plans are made and carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanConfig {
    /// The program that makes new plans. `None`: `shoal-planner` beside this program, or on the `PATH`.
    pub planner: Option<PathBuf>,
    /// The interval at which the nodes make a plan by themselves; `None`: they do not.
    pub every: Option<Duration>,
    /// Percent of the room of all nodes for which such plans are made.
    pub room_percent: u32,
    /// Percent of the bandwidth of the link to the lake.
    pub link_percent: u32,
    /// The access key of the identity in whose name they are carried out; `None`: the only one that there is.
    pub identity: Option<String>,
    /// Files and folders with logs that such plans learn from, beside the runs that engines announce.
    pub history: Vec<PathBuf>,
}

impl Default for PlanConfig {
    fn default() -> Self {
        Self {
            planner: None,
            every: None,
            room_percent: 25,
            link_percent: 80,
            identity: None,
            history: Vec::new(),
        }
    }
}

/// Receives the documents of plans, and carries plans out.
pub(super) struct Plans {
    nodes: Arc<Nodes>,
    config: PlanConfig,
    /// One document is read at a time: it takes several times its bytes. Others wait on the disk.
    reading: Turn<()>,
}

impl Plans {
    /// Carries out plans on these nodes.
    pub(super) fn new(nodes: &Arc<Nodes>, config: &PlanConfig) -> Self {
        Self {
            nodes: Arc::clone(nodes),
            config: config.clone(),
            reading: Turn::default(),
        }
    }

    /// Receives a document at `now`, if it can be carried out. It is on this disk then, without an id.
    pub(super) async fn receive(
        &self,
        body: ClientBody,
        now: SystemTime,
    ) -> Result<(NewFile, DocumentFacts), TaskRefusal> {
        let order_files = &self.nodes.parts.order_files;
        let file = order_files.spool(body, DOCUMENT_BYTES_MAX as u64).await;
        let file = file.map_err(not_kept)?;
        let _alone = self.reading.lock().await;
        let body = file.read().await.map_err(not_kept)?;
        let checked = spawn_blocking(move || DocumentFacts::checked(&body, now)).await;
        let facts = checked.map_err(no_plan)??;
        Ok((file, facts))
    }

    /// Makes a plan.
    pub(super) async fn make(&self, request: Request) -> Result<Plan, String> {
        let former = Plan::empty(&request);
        let new = planner::plan(self.config.planner.clone(), request, former).await?;
        Ok(new.plan)
    }

    /// Carries a plan out, from where its progress ends to its end. Returns its last state, and why.
    pub(super) async fn run(
        &self,
        id: u128,
        order: &Order,
        progress: &Arc<Mutex<Progress>>,
        records: &Records,
    ) -> (TaskState, Option<String>) {
        let Some(facts) = &order.document else {
            return (TaskState::Failed, Some("the plan has no document".into()));
        };
        let identity = TaskIdentity::of(order, &self.nodes.parts, progress);
        loop {
            match self.document(id, facts).await {
                Ok(document) => {
                    progress.lock().detail = None;
                    let planner = self.config.planner.clone();
                    let identity = (order.request.identity.clone(), identity.clone());
                    let executor = Executor::new(&self.nodes, id, identity, document, progress, planner);
                    Arc::new(executor).run(records).await;
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

    /// Reads the document of a plan, from this disk or from another node's.
    pub(super) async fn document(&self, id: u128, facts: &DocumentFacts) -> Result<Document, String> {
        if facts.bytes > DOCUMENT_BYTES_MAX as u64 {
            return Err("its document is too long".into());
        }
        self.nodes.bring_file(id, facts.bytes).await?;
        let _alone = self.reading.lock().await;
        let bytes = self.nodes.parts.order_files.read(id).await;
        let bytes = bytes.ok_or("its document is no longer on this disk")?;
        let read = spawn_blocking(move || {
            let document = read(&bytes)?;
            document.check().map_err(|error| error.to_string())?;
            Ok(document)
        });
        let document: Result<Document, String> = read.await.map_err(|error| error.to_string())?;
        document.map_err(|error| format!("its document is damaged: {error}"))
    }
}
