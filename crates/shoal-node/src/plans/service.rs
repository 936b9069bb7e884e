//! The plan of a cluster, as one of its nodes knows it: it accepts one, answers for it, and carries it out if
//! it is its coordinator.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_plan::Document;
use shoal_plan::execution::{JobStatus, Verdicts};
use tokio::sync::Mutex as Turn;
use tokio::task::{JoinSet, spawn_blocking};
use ulid::Ulid;

use super::carrier::Carrier;
pub use super::carrier::PlanTotals;
use super::config::PlanConfig;
use super::order::{self, PlanOrder};
use super::planner::Planner;
use super::progress::{JobCounts, PlanProgress, PlanState};
use super::refusal::PlanRefusal;
use crate::bulletin::{Bulletin, NotTaken};
use crate::clock;
use crate::http::connection::ClientBody;
use crate::shutdown::Shutdown;
use crate::tasks::{ManifestError, Manifests, Records, Spooled, TaskParts, now};

/// The longest document: a day of 20,000 jobs has some 30 MB.
pub const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// How often a node looks whether it has something to do for a plan.
const LOOK: Duration = Duration::from_secs(1);

/// The plans of the cluster.
pub struct Plans {
    parts: Arc<TaskParts>,
    documents: Arc<Manifests>,
    records: Records<PlanOrder>,
    planner: Planner,
    /// The plan that this node carries out.
    carried: Mutex<Option<u128>>,
    totals: Arc<Mutex<PlanTotals>>,
    /// Documents come and go one at a time.
    turn: Turn<()>,
    /// One document is read at a time: it takes several times its bytes. Others wait on the disk.
    reading: Turn<()>,
}

/// A plan as the records have it.
type Entry = crate::tasks::Entry<PlanOrder>;

/// A plan as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanView {
    /// Names it.
    pub id: String,
    /// The word that tells plans from tasks.
    pub kind: PlanKind,
    /// As it was accepted.
    #[serde(flatten)]
    pub order: PlanOrder,
    /// How far it is.
    #[serde(flatten)]
    pub progress: PlanProgress,
}

/// The kind of a plan, among those of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanKind {
    /// A plan.
    Plan,
}

/// State of the plan in force, and the counters of one node, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanFigures {
    /// Whether a plan is in force.
    pub in_force: bool,
    /// Whether this node carries it out.
    pub carried_here: bool,
    /// Its jobs, in the order of [`JobStatus::ALL`].
    pub jobs: [u64; JobStatus::ALL.len()],
    /// Bytes that it fetches in total, that it was to fetch by now, and that were fetched by now or were
    /// there before.
    pub bytes: [u64; 3],
    /// Counters of the plans that this node has carried out.
    pub totals: PlanTotals,
}

impl Plans {
    /// The plans that `bulletin` knows, with their documents on this disk.
    pub fn new(
        parts: Arc<TaskParts>,
        documents: &Arc<Manifests>,
        bulletin: &Arc<Bulletin>,
        config: &PlanConfig,
    ) -> Arc<Self> {
        let records = Records::new(bulletin, &parts.cooperation);
        Arc::new(Self {
            parts,
            documents: Arc::clone(documents),
            records,
            planner: Planner::new(config.planner.clone()),
            carried: Mutex::default(),
            totals: Arc::default(),
            turn: Turn::default(),
            reading: Turn::default(),
        })
    }

    /// Takes a document in place of the plan in force, if there is one.
    ///
    /// # Errors
    ///
    /// Says why it is not taken.
    pub async fn post(&self, body: ClientBody, identity: Option<&str>) -> Result<PlanView, PlanRefusal> {
        let identity = self.parts.identity(identity).map_err(PlanRefusal::Identity)?;
        let spooled = self.documents.spool(body, DOCUMENT_BYTES_MAX as u64).await;
        let spooled = spooled.map_err(|error| match error {
            ManifestError::TooLong | ManifestError::BrokenOff(_) => PlanRefusal::TooLong,
            error => PlanRefusal::NotKept(error),
        })?;
        let created = clock::utc_now();
        let mut order = self.judged(&spooled, identity, created).await?;
        let _turn = self.turn.lock().await;
        if !self.records.bulletin().has_room(usize::MAX) {
            return Err(NotTaken::Full.into());
        }
        let (id, former) = (self.records.next_id(created), self.latest());
        order.succession = former
            .as_ref()
            .map_or(0, |former| former.order.succession.saturating_add(1));
        let replaced = former.filter(|former| !former.progress.state.is_over());
        order.replaces = replaced.as_ref().map(|former| Ulid(former.id).to_string());
        self.documents.keep(id, spooled).await?;
        self.records.write(id, &order)?;
        if let Some(former) = replaced {
            self.records.end_early(former.id, &former.order)?;
        }
        tracing::info!(id = %Ulid(id), jobs = order.job_count, replaces = order.replaces, "a plan was accepted");
        self.get()
    }

    /// The order that a document gives, unless it cannot be carried out.
    async fn judged(
        &self,
        spooled: &Spooled,
        identity: Option<String>,
        created: SystemTime,
    ) -> Result<PlanOrder, PlanRefusal> {
        let (accepted_by, bytes) = (self.parts.name.clone(), spooled.bytes());
        let _alone = self.reading.lock().await;
        let body = spooled.read().await?;
        let judging = spawn_blocking(move || {
            let document = read(&body).map_err(PlanRefusal::Body)?;
            order::check(&document, created)?;
            let accepted = (created, accepted_by.as_str());
            Ok(PlanOrder::accepted(&document, bytes, identity, accepted))
        });
        let judged = judging.await;
        judged.map_err(|error| PlanRefusal::Body(error.to_string()))?
    }

    /// The plan in force, or the last one that was.
    ///
    /// # Errors
    ///
    /// Fails if there is none.
    pub fn get(&self) -> Result<PlanView, PlanRefusal> {
        let entry = self.latest().ok_or(PlanRefusal::NoPlan)?;
        Ok(PlanView {
            id: Ulid(entry.id).to_string(),
            kind: PlanKind::Plan,
            order: PlanOrder {
                succession: 0,
                ..Arc::unwrap_or_clone(entry.order)
            },
            progress: PlanProgress {
                verdicts: Verdicts::default(),
                ..Arc::unwrap_or_clone(entry.progress)
            },
        })
    }

    /// Ends the plan in force, and its pins.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or if it is over.
    pub fn stop(&self) -> Result<PlanView, PlanRefusal> {
        let entry = self.latest().ok_or(PlanRefusal::NoPlan)?;
        if entry.progress.state.is_over() {
            return Err(PlanRefusal::Ended);
        }
        self.records.end_early(entry.id, &entry.order)?;
        self.get()
    }

    /// State of the plan in force, and the counters of this node.
    pub fn figures(&self) -> PlanFigures {
        let totals = *self.totals.lock();
        let Some(entry) = self.latest() else {
            return PlanFigures {
                totals,
                ..PlanFigures::default()
            };
        };
        let in_force = !entry.progress.state.is_over();
        // No job is at risk once its plan is over.
        let jobs = if in_force {
            entry.progress.jobs
        } else {
            JobCounts::default()
        };
        let bytes = entry.progress.bytes;
        PlanFigures {
            in_force,
            carried_here: self.carried.lock().is_some(),
            jobs: jobs.by_status(),
            bytes: if in_force {
                [bytes.total, bytes.planned, bytes.done]
            } else {
                [0; 3]
            },
            totals,
        }
    }

    /// Carries plans out whose coordinator this node is, until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let mut changes = self.records.changes();
        let mut runs = JoinSet::new();
        loop {
            let latest = self.latest();
            self.end_pins(latest.as_ref()).await;
            self.keep_document(latest.as_ref()).await;
            if let Some(entry) = latest {
                self.begin(entry, &mut runs, &stopping);
            }
            tokio::select! {
                _ = changes.changed() => {}
                Some(_) = runs.join_next(), if !runs.is_empty() => {}
                () = tokio::time::sleep(LOOK) => {}
                () = stopping.begun() => break,
            }
        }
        while runs.join_next().await.is_some() {}
    }

    /// Begins to carry a plan out, if this node is to and does not yet.
    fn begin(self: &Arc<Self>, entry: Entry, runs: &mut JoinSet<()>, stopping: &Shutdown) {
        if entry.progress.state.is_over() || !self.records.is_mine(entry.id) {
            return;
        }
        let mut carried = self.carried.lock();
        // One that was replaced ends first.
        if carried.is_some() {
            return;
        }
        *carried = Some(entry.id);
        let (this, stopping) = (Arc::clone(self), stopping.clone());
        runs.spawn(async move {
            Box::pin(this.carry(entry, stopping)).await;
            *this.carried.lock() = None;
        });
    }

    /// Carries a plan out until it is over, or is no longer this node's.
    async fn carry(&self, entry: Entry, stopping: Shutdown) {
        let Entry { id, order, progress } = entry;
        let mut progress = Arc::unwrap_or_clone(progress);
        let document = tokio::select! {
            document = self.document(id, &order) => document,
            () = stopping.begun() => return,
        };
        let carrier = document.and_then(|document| {
            let planning = (self.planner.clone(), &self.totals);
            Carrier::new(&self.parts, (id, &order), document, progress.clone(), planning)
        });
        let carrier = match carrier {
            Ok(carrier) => Arc::new(carrier),
            Err(why) => {
                // Another node may have the document, and come back.
                let is_news = progress.detail.as_deref() != Some(&why);
                progress.detail = Some(why);
                progress.coordinator = Some(self.parts.name.clone());
                let is_over = order.ends.after(clock::utc_now()).is_zero();
                if is_over {
                    progress.state = PlanState::Failed;
                    progress.ended = Some(now());
                }
                if is_news || is_over {
                    self.report(id, &order, &progress);
                }
                return tokio::time::sleep(LOOK).await;
            }
        };
        tracing::info!(id = %Ulid(id), "this node carries a plan out");
        let mut changes = self.records.changes();
        let mut running = std::pin::pin!(carrier.run(|progress| self.report(id, &order, progress)));
        loop {
            tokio::select! {
                () = &mut running => return,
                _ = changes.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
                () = stopping.begun() => return,
            }
            let is_in_force = self.latest().is_some_and(|latest| latest.id == id);
            if !is_in_force || self.records.is_cancelled(id) || !self.records.is_mine(id) {
                return;
            }
        }
    }

    /// The document of a plan, from this disk or from another node's.
    async fn document(&self, id: u128, order: &PlanOrder) -> Result<Document, String> {
        {
            let _turn = self.turn.lock().await;
            self.parts
                .copied(&self.documents, id, order.document_bytes)
                .await?;
        }
        let _alone = self.reading.lock().await;
        let mut bytes = Vec::new();
        loop {
            let part = self.documents.part(id, bytes.len() as u64).await;
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

    /// Copies the document of the plan in force if this node may have to carry it out, and removes others.
    async fn keep_document(&self, latest: Option<&Entry>) {
        let here = self.documents.ids();
        let wanted = latest.filter(|entry| !entry.progress.state.is_over());
        if here.is_empty() && wanted.is_none() {
            return;
        }
        let _turn = self.turn.lock().await;
        // A document that came in the meantime is that of the latest plan now.
        let latest = self.latest().filter(|entry| !entry.progress.state.is_over());
        for id in here {
            if latest.as_ref().is_none_or(|entry| entry.id != id) {
                self.documents.remove(id).await;
            }
        }
        let Some(entry) = latest else { return };
        let is_here = self.documents.size(entry.id) == Some(entry.order.document_bytes);
        let may_carry = self.records.may_run(entry.id);
        if may_carry && !is_here {
            let copied = self
                .parts
                .copied(&self.documents, entry.id, entry.order.document_bytes)
                .await;
            if let Err(why) = copied {
                tracing::debug!(id = %Ulid(entry.id), why, "the document of a plan was not copied");
            }
        }
    }

    /// Ends the pins here of plans that were replaced. Those of a plan that was stopped end like those of a
    /// cancelled task, and those of one that is over by their time.
    async fn end_pins(&self, latest: Option<&Entry>) {
        for order in self.parts.store.pin_orders() {
            let is_latest = latest.is_some_and(|latest| latest.id == order.0);
            if !is_latest && self.records.has(order.0) {
                self.parts.store.end_pins(order).await;
            }
        }
    }

    /// The latest plan that is remembered.
    fn latest(&self) -> Option<Entry> {
        let all = self.records.all().into_iter();
        all.max_by_key(|entry| (entry.order.succession, entry.id))
    }

    fn report(&self, id: u128, order: &PlanOrder, progress: &PlanProgress) {
        // A failure is in the log.
        let _ = self.records.report(id, order, progress.to_body());
    }
}

impl std::fmt::Debug for Plans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plans").finish_non_exhaustive()
    }
}

fn read(body: &[u8]) -> Result<Document, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}
