//! Runs one task from where it was to its end.

mod count;
mod estimate;
mod fetch;
mod hint;
mod order_all;
mod pack_in_use;
mod table;

use std::future::Future;
use std::mem::take;
use std::pin::pin;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use shoal_cache::lake::PAGE_KEYS;
use shoal_policy::ObjectId;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::xml::ListedObject;
use tokio::sync::{Notify, Semaphore};

use self::estimate::Estimate;
use super::TaskBase;
use super::catalogue::{Catalogue, NoPage, Page};
use super::outcomes::Outcomes;
use super::unpinned::Unpinned;
use crate::tasks::parts::holdings::questions;
use crate::tasks::parts::lake_view::{LakeView, ObjectFailure};
use crate::tasks::parts::messages::{Pin, Question};
use crate::tasks::parts::nodes::{Nodes, TRIES, pauses};
use crate::tasks::parts::placer::Placer;
use crate::tasks::parts::task_identity::TaskIdentity;
use crate::tasks::records::order::{Order, TaskKind};
use crate::tasks::records::progress::{Progress, TaskState};

/// The number of objects of a task that are processed at a time.
const OBJECTS_AT_ONCE: usize = 16;

/// The number of blocks of a task that are on their way at a time.
const BLOCKS_AT_ONCE: usize = 64;

/// The number of objects that a task looks ahead for those of the same packs.
const LOOK_AHEAD: usize = 32 * PAGE_KEYS;

/// One run of a task.
pub(in crate::tasks) struct Runner<'a> {
    base: &'a TaskBase,
    nodes: Arc<Nodes>,
    id: u128,
    order: Arc<Order>,
    lake: LakeView,
    progress: Arc<Mutex<Progress>>,
    outcomes: Outcomes,
    /// Its pace, and the work that is left.
    pub(in crate::tasks) estimate: Estimate,
    placer: Placer,
    /// The pin of the task, and the objects that it no longer pins; `None` if it does not pin.
    pin: Option<(Pin, Unpinned<'a>)>,
    blocks: Semaphore,
    /// Notified when a page was full: counting all objects is worth its requests.
    is_long: Notify,
}

/// An object and its version.
#[derive(Clone, Debug)]
struct Candidate {
    name: ObjectName,
    version: Arc<Version>,
    /// True if only a listing has named the version: its ETag there may be spelled in another way.
    is_listed: bool,
    /// The pack from whose blocks it is read; `None` if it is read alone.
    pack: Option<ObjectId>,
}

impl<'a> Runner<'a> {
    /// Creates a run of the task `id` in the name of `identity`, which goes on where `progress` ends.
    pub(in crate::tasks) fn new(
        base: &'a TaskBase,
        id: u128,
        order: &Arc<Order>,
        identity: TaskIdentity,
        progress: &Arc<Mutex<Progress>>,
    ) -> Self {
        let (nodes, request) = (&base.nodes, &order.request);
        let until = request.until.filter(|_| request.kind.pins());
        let pin = until.map(|until| {
            let until_ms = until.millis();
            (
                Pin { order: id, until_ms },
                Unpinned::since(&base.records, nodes, id),
            )
        });
        Self {
            base,
            placer: Placer::new(nodes, request.to.clone(), identity.clone()),
            lake: LakeView::new(&nodes.parts, identity),
            pin,
            nodes: Arc::clone(nodes),
            id,
            estimate: Estimate::new(order, progress),
            order: Arc::clone(order),
            outcomes: Outcomes::new(progress),
            progress: Arc::clone(progress),
            blocks: Semaphore::new(BLOCKS_AT_ONCE),
            is_long: Notify::new(),
        }
    }

    /// Runs the task. Returns its last state, and why; its progress has the rest.
    pub(in crate::tasks) async fn run(&self) -> (TaskState, Option<String>) {
        let counting = async {
            self.is_long.notified().await;
            // If the lake does not list, the work itself fails.
            let _ = self.count_all().await;
            std::future::pending::<()>().await;
        };
        let worked = tokio::select! {
            worked = self.work() => worked,
            () = counting => unreachable!("counting goes on for ever"),
        };
        if let Err(why) = worked {
            return (TaskState::Failed, Some(why));
        }
        self.outcomes.count(|tally| {
            let objects = tally.objects.dealt_with();
            tally.objects.total = Some(objects);
            tally.bytes.total = Some(tally.bytes.done);
            match tally.objects.failed {
                0 => (TaskState::Done, self.outcomes.remarked()),
                failed => (
                    TaskState::Failed,
                    Some(format!("{failed} of {objects} objects failed")),
                ),
            }
        })
    }

    /// Does the work. The error is the reason why the task ends before its last object.
    async fn work(&self) -> Result<(), String> {
        if let Some(hint) = &self.order.hint {
            return self.bring_hint(hint).await;
        }
        let mut catalogue = self.catalogue().await?;
        let goes_on = self.progress.lock().resume.is_some();
        let (mut is_first, mut batch) = (true, Vec::new());
        while let Some(page) = self.page(&mut catalogue).await? {
            if is_first {
                // Most lakes have named all objects by now if the page is not full.
                let (objects, bytes) = page.size();
                self.estimate.note_total(objects, bytes, page.is_full || goes_on);
            }
            if page.is_full || goes_on || !is_first {
                self.is_long.notify_one();
            }
            is_first = false;
            let looks_ahead =
                self.fetches() && page.objects.iter().any(|(name, _)| self.lake.may_be_packed(name));
            batch.extend(self.candidates(page.objects).await?);
            let sizes = batch.iter().map(|candidate| candidate.version.size_bytes);
            self.estimate.expect(sizes);
            if looks_ahead && page.is_full && batch.len() < LOOK_AHEAD {
                continue;
            }
            self.do_all(take(&mut batch)).await?;
            self.progress.lock().came_to(page.next);
        }
        // The last page was full, and had objects in packs.
        self.do_all(batch).await
    }

    /// Returns true if the task brings objects.
    fn fetches(&self) -> bool {
        let request = &self.order.request;
        request.kind.fetches() && !request.dry_run
    }

    async fn do_all(&self, candidates: Vec<Candidate>) -> Result<(), String> {
        if self.fetches() {
            return self.fetch_all(candidates).await;
        }
        for part in questions(&candidates, |candidate| candidate.version.block_count()) {
            self.do_part(part).await?;
        }
        Ok(())
    }

    async fn do_part(&self, part: &[Candidate]) -> Result<(), String> {
        match self.order.request.kind {
            TaskKind::Prefetch | TaskKind::Pin | TaskKind::Hint => self.count_wanted(part).await,
            TaskKind::Cached => self.count_cached(part).await,
            TaskKind::Unpin => {
                let unpin = |objects| Question::Unpin(self.id, objects);
                self.order_part(part, unpin).await?;
            }
            TaskKind::Evict => self.order_part(part, Question::Evict).await?,
            TaskKind::Plan => unreachable!("a plan has no catalogue"),
        }
        Ok(())
    }

    async fn catalogue(&self) -> Result<Catalogue, String> {
        let resume = self.progress.lock().resume.clone();
        let after = resume.as_ref().map_or("", |resume| &resume.after);
        if self.order.selection().is_none() {
            let manifest = self.order.manifest.ok_or("the order names no objects")?;
            self.nodes.bring_file(self.id, manifest.bytes).await?;
            self.outcomes
                .count(|tally| tally.objects.total = Some(manifest.objects));
        }
        Ok(Catalogue::new(self.id, &self.order, after))
    }

    /// Reads the next page, however long the lake takes to answer.
    async fn page(&self, catalogue: &mut Catalogue) -> Result<Option<Page>, String> {
        let mut pauses = pauses();
        loop {
            match catalogue.next(&self.lake, &self.nodes.parts.order_files).await {
                Ok(page) => {
                    self.outcomes.wait_for(None);
                    return Ok(page);
                }
                Err(NoPage::Never(why)) => return Err(why),
                Err(NoPage::NotNow(why)) => self.outcomes.wait_for(Some(why)),
            }
            pauses.wait().await;
        }
    }

    /// Counts the objects of the task and their bytes.
    async fn count_all(&self) -> Result<(), NoPage> {
        if self.order.selection().is_none() {
            return Ok(());
        }
        let (mut objects, mut bytes) = (0, 0);
        let mut catalogue = Catalogue::new(self.id, &self.order, "");
        while let Some(page) = catalogue.next(&self.lake, &self.nodes.parts.order_files).await? {
            let more = page.size();
            (objects, bytes) = (objects + more.0, bytes + more.1);
            self.estimate.note_total(objects, bytes, true);
        }
        self.estimate.note_total(objects, bytes, false);
        Ok(())
    }

    /// Returns the objects of a page with their versions. Those that have none are counted.
    async fn candidates(
        &self,
        objects: Vec<(ObjectName, Option<ListedObject>)>,
    ) -> Result<Vec<Candidate>, String> {
        let mut wanted = Vec::with_capacity(objects.len());
        for object in objects {
            if self.unpinned_by(&object.0).await.is_none() {
                wanted.push(object);
            }
        }
        let answers = stream::iter(wanted).map(|(name, listed)| async move {
            let version = match &listed {
                Some(listed) => Ok(Arc::new(self.lake.listed_version(&name, listed))),
                None => self.lake.version(&name, TRIES).await,
            };
            (name, version, listed.is_some())
        });
        let mut answers = pin!(answers.buffered(OBJECTS_AT_ONCE));
        let mut candidates = Vec::new();
        while let Some((name, version, is_listed)) = answers.next().await {
            match version {
                Ok(version) => {
                    if !is_listed {
                        self.outcomes.end_refusals();
                    }
                    candidates.push(Candidate {
                        name,
                        version,
                        is_listed,
                        pack: None,
                    });
                }
                Err(failure) => self.outcomes.note(&name, Err(failure))?,
            }
        }
        Ok(candidates)
    }

    /// Returns the last order that has unpinned an object since this task was ordered, if this one pins;
    /// however long it takes to find that out.
    async fn unpinned_by(&self, name: &ObjectName) -> Option<u128> {
        let (_, unpinned) = self.pin.as_ref()?;
        let mut pauses = pauses();
        let mut found = unpinned.by(name).await;
        while let Err(why) = found {
            self.outcomes.wait_for(Some(why));
            pauses.wait().await;
            found = unpinned.by(name).await;
            self.outcomes.wait_for(None);
        }
        found.unwrap_or_default()
    }

    /// Does something with each object, some at a time, and counts what became of it.
    async fn each<D: Future<Output = Result<(), ObjectFailure>>>(
        &self,
        candidates: Vec<Candidate>,
        each: impl Fn(Candidate) -> D,
    ) -> Result<(), String> {
        let done = stream::iter(candidates).map(|candidate| {
            let name = candidate.name.clone();
            let done = each(candidate);
            async move { self.outcomes.note(&name, done.await) }
        });
        done.buffer_unordered(OBJECTS_AT_ONCE).try_collect().await
    }
}
