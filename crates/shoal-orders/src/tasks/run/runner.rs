//! Runs one task from where it was to its end.

mod count;
mod estimate;
mod fetch;
mod order_all;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use shoal_cache::lake::LakeRefusal;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::target;
use shoal_s3::xml::ListedObject;
use tokio::sync::{Notify, Semaphore};

use self::estimate::Estimate;
use super::catalogue::{Catalogue, NoPage, Page};
use super::unpinned::Unpinned;
use crate::tasks::parts::TaskParts;
use crate::tasks::parts::lake_view::LakeView;
use crate::tasks::parts::messages::{BLOCKS_MAX, Pin};
use crate::tasks::parts::nodes::{NodeError, TRIES, pauses};
use crate::tasks::parts::placer::Placer;
use crate::tasks::records::order::{Order, TaskKind};
use crate::tasks::records::progress::{Progress, TaskState};

/// The number of objects of a task that are dealt with at a time.
const OBJECTS_AT_ONCE: usize = 16;

/// The number of blocks of a task that are on their way at a time.
const BLOCKS_AT_ONCE: usize = 64;

/// When the lake refuses this many objects in a row, it refuses the identity, and the task ends.
const REFUSALS_MAX: u32 = 100;

/// One run of a task.
pub(in crate::tasks) struct Runner<'a> {
    parts: Arc<TaskParts>,
    id: u128,
    order: Arc<Order>,
    lake: LakeView,
    progress: Arc<Mutex<Progress>>,
    /// Its pace, and what is left of it.
    pub(in crate::tasks) estimate: Estimate,
    placer: Placer,
    /// The pins of the task, if it pins.
    pin: Option<Pin>,
    blocks: Semaphore,
    /// The objects in a row that the lake has refused.
    refusals: AtomicU32,
    /// Notified when a page was full, so that counting pays.
    is_long: Notify,
    /// Objects that it no longer pins, if it pins.
    unpinned: Option<Unpinned<'a>>,
}

/// Why a task ends before its last object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(in crate::tasks) struct Ended(String);

impl From<NodeError> for Ended {
    fn from(error: NodeError) -> Self {
        Self(error.to_string())
    }
}

/// Why an object is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ObjectFailure {
    /// It is left alone.
    Skipped(String),
    /// It failed.
    Failed(String),
    /// The lake refuses it.
    Refused(String),
}

/// An object and its version.
#[derive(Clone, Debug)]
struct Candidate {
    name: ObjectName,
    version: Arc<Version>,
    /// Whether only a listing has named the version: its ETag there may be spelled in another way.
    is_listed: bool,
}

impl<'a> Runner<'a> {
    /// A run of the task `id` in the name of `caller`, which goes on where `progress` ends.
    pub(in crate::tasks) fn new(
        parts: &Arc<TaskParts>,
        (id, order): (u128, Arc<Order>),
        caller: Caller,
        progress: &Arc<Mutex<Progress>>,
    ) -> Self {
        let request = &order.request;
        let until = request.until.filter(|_| request.kind == TaskKind::Pin);
        Self {
            placer: Placer::new(parts, request.to.clone(), &caller),
            lake: LakeView::new(&parts.lake, &parts.endpoint, caller, parts.block_bytes),
            pin: until.map(|until| Pin {
                order: shoal_store::PinOrder(id),
                until: until.time(),
            }),
            parts: Arc::clone(parts),
            id,
            estimate: Estimate::new(&order, progress),
            order,
            progress: Arc::clone(progress),
            blocks: Semaphore::new(BLOCKS_AT_ONCE),
            refusals: AtomicU32::new(0),
            is_long: Notify::new(),
            unpinned: None,
        }
    }

    /// The same run, which pins none of these objects.
    pub(in crate::tasks) fn leaving_out(self, unpinned: Unpinned<'a>) -> Self {
        let unpinned = Some(unpinned).filter(|_| self.pin.is_some());
        Self { unpinned, ..self }
    }

    /// Runs the task. Returns how it ended; its progress has the rest.
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
        if let Err(Ended(why)) = worked {
            return (TaskState::Failed, Some(why));
        }
        let mut progress = self.progress.lock();
        let tally = &mut progress.tally;
        let objects = tally.objects.dealt_with();
        tally.objects.total = Some(objects);
        tally.bytes.total = Some(tally.bytes.done);
        match tally.objects.failed {
            0 => (TaskState::Done, None),
            failed => (
                TaskState::Failed,
                Some(format!("{failed} of {objects} objects failed")),
            ),
        }
    }

    async fn work(&self) -> Result<(), Ended> {
        let mut catalogue = self.catalogue().await?;
        let goes_on = self.progress.lock().resume.is_some();
        let mut is_first = true;
        loop {
            let page = self.page(&mut catalogue).await?;
            if !page.goes_on {
                return Ok(());
            }
            if is_first {
                // Most lakes have named all objects by now if the page is not full.
                let (objects, bytes) = size_of(&page);
                self.estimate.note_total(objects, bytes, page.is_full || goes_on);
            }
            if page.is_full || goes_on || !is_first {
                self.is_long.notify_one();
            }
            is_first = false;
            let candidates = self.candidates(page.objects).await?;
            let sizes = candidates.iter().map(|candidate| candidate.version.size_bytes);
            self.estimate.expect(sizes);
            for part in parts_of(candidates) {
                self.do_part(part).await?;
            }
            self.progress.lock().came_to(page.next);
        }
    }

    async fn do_part(&self, part: Vec<Candidate>) -> Result<(), Ended> {
        match self.order.request.kind {
            TaskKind::Prefetch | TaskKind::Pin if self.order.request.dry_run => self.count_wanted(part).await,
            TaskKind::Prefetch | TaskKind::Pin => self.fetch_part(part).await,
            TaskKind::Cached => self.count_cached(part).await,
            TaskKind::Unpin => self.unpin_part(part).await,
            TaskKind::Evict => self.evict_part(part).await,
            TaskKind::Plan => unreachable!("a plan has no catalogue"),
        }
    }

    async fn catalogue(&self) -> Result<Catalogue, Ended> {
        let resume = self.progress.lock().resume.clone();
        let after = resume.as_ref().map_or("", |resume| &resume.after);
        if let Some(selection) = self.order.selection() {
            return Ok(Catalogue::of_listing(selection, after));
        }
        let manifest = self.order.manifest.as_ref();
        let manifest = manifest.ok_or_else(|| Ended("the order names no objects".into()))?;
        self.parts.file(self.id, manifest.bytes).await.map_err(Ended)?;
        self.progress.lock().tally.objects.total = Some(manifest.objects);
        Ok(Catalogue::of_manifest(&self.parts.manifests, self.id, after))
    }

    /// The next page, however long the lake takes to answer.
    async fn page(&self, catalogue: &mut Catalogue) -> Result<Page, Ended> {
        let mut pauses = pauses();
        loop {
            let error = match catalogue.next(&self.lake).await {
                Ok(page) => {
                    self.progress.lock().detail = None;
                    return Ok(page);
                }
                Err(error) => error,
            };
            match error {
                NoPage::Lake(LakeRefusal::Refused(said)) => {
                    let uri = self.order.request.uri.as_deref().unwrap_or_default();
                    return Err(Ended(format!("{uri} cannot be listed: the lake answered {said}")));
                }
                NoPage::Manifest(error) => return Err(Ended(error.to_string())),
                NoPage::Lake(error) => {
                    self.progress.lock().detail = Some(format!("waits for the lake: {error}"));
                }
            }
            pauses.wait().await;
        }
    }

    /// Counts the objects of the task and their bytes.
    async fn count_all(&self) -> Result<(), NoPage> {
        let Some(selection) = self.order.selection() else {
            return Ok(());
        };
        let (mut objects, mut bytes) = (0, 0);
        let mut catalogue = Catalogue::of_listing(selection, "");
        loop {
            let page = catalogue.next(&self.lake).await?;
            if !page.goes_on {
                break;
            }
            let more = size_of(&page);
            (objects, bytes) = (objects + more.0, bytes + more.1);
            self.estimate.note_total(objects, bytes, true);
        }
        self.estimate.note_total(objects, bytes, false);
        Ok(())
    }

    /// The objects of a page with their versions. Those that have none are counted.
    async fn candidates(
        &self,
        objects: Vec<(ObjectName, Option<ListedObject>)>,
    ) -> Result<Vec<Candidate>, Ended> {
        let mut wanted = Vec::with_capacity(objects.len());
        for object in objects {
            if self.unpinned_by(&object.0).await.is_none() {
                wanted.push(object);
            }
        }
        let answers = stream::iter(wanted).map(|(name, listed)| async move {
            let answer = self.candidate(&name, listed.as_ref()).await;
            (name, answer)
        });
        let mut answers = pin!(answers.buffered(OBJECTS_AT_ONCE));
        let mut candidates = Vec::new();
        while let Some((name, answer)) = answers.next().await {
            match answer {
                Ok(candidate) => {
                    if !candidate.is_listed {
                        self.end_refusals();
                    }
                    candidates.push(candidate);
                }
                Err(failure) => self.note_failure(&name, failure)?,
            }
        }
        Ok(candidates)
    }

    /// The last order that has unpinned an object since this task was ordered, if this one pins; however long
    /// it takes to learn that.
    async fn unpinned_by(&self, name: &ObjectName) -> Option<u128> {
        let unpinned = self.unpinned.as_ref()?;
        let mut pauses = pauses();
        let mut found = unpinned.by(name).await;
        while let Err(why) = found {
            self.progress.lock().detail = Some(why);
            pauses.wait().await;
            found = unpinned.by(name).await;
            self.progress.lock().detail = None;
        }
        found.unwrap_or_default()
    }

    async fn candidate(
        &self,
        name: &ObjectName,
        listed: Option<&ListedObject>,
    ) -> Result<Candidate, ObjectFailure> {
        if listed.is_none() && !target::fits(name) {
            return Err(ObjectFailure::Failed("its name is too long".into()));
        }
        match listed {
            Some(listed) => Ok(Candidate {
                version: Arc::new(self.lake.listed_version(name, listed)),
                name: name.clone(),
                is_listed: true,
            }),
            None => self.current(name).await,
        }
    }

    /// The current version of an object, as the lake tells it.
    async fn current(&self, name: &ObjectName) -> Result<Candidate, ObjectFailure> {
        let (mut pauses, mut tries) = (pauses(), 1);
        loop {
            match self.lake.version(name).await {
                Ok(version) => {
                    return Ok(Candidate {
                        name: name.clone(),
                        version,
                        is_listed: false,
                    });
                }
                Err(error @ LakeRefusal::Refused(_)) => {
                    return Err(ObjectFailure::Refused(error.to_string()));
                }
                Err(error @ LakeRefusal::Uncacheable(_)) => {
                    return Err(ObjectFailure::Skipped(error.to_string()));
                }
                Err(error) if tries == TRIES => return Err(ObjectFailure::Failed(error.to_string())),
                Err(_) => {}
            }
            tries += 1;
            pauses.wait().await;
        }
    }

    /// Does something with each object, some at a time, and counts what became of it.
    async fn each<D: Future<Output = Result<(), ObjectFailure>>>(
        &self,
        candidates: Vec<Candidate>,
        each: impl Fn(Candidate) -> D,
    ) -> Result<(), Ended> {
        let done = stream::iter(candidates).map(|candidate| {
            let name = candidate.name.clone();
            let done = each(candidate);
            async move {
                match done.await {
                    Ok(()) => self.note_done(),
                    Err(failure) => self.note_failure(&name, failure)?,
                }
                Ok(())
            }
        });
        done.buffer_unordered(OBJECTS_AT_ONCE).try_collect().await
    }

    fn note_done(&self) {
        self.progress.lock().tally.objects.done += 1;
        self.end_refusals();
    }

    /// Ends a row of refusals: the lake has given something, or an object is left alone.
    fn end_refusals(&self) {
        self.refusals.store(0, Ordering::Relaxed);
    }

    /// Counts an object that is not done. Fails if the task has to end for it.
    fn note_failure(&self, name: &ObjectName, failure: ObjectFailure) -> Result<(), Ended> {
        let mut progress = self.progress.lock();
        let tally = &mut progress.tally;
        let said = match failure {
            ObjectFailure::Skipped(why) => {
                tally.skipped(name, &why);
                self.end_refusals();
                return Ok(());
            }
            ObjectFailure::Failed(error) => {
                tally.failed(name, &error);
                return Ok(());
            }
            ObjectFailure::Refused(error) => {
                tally.failed(name, &error);
                error
            }
        };
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 < REFUSALS_MAX {
            return Ok(());
        }
        let why = format!("the lake refused {REFUSALS_MAX} objects in a row: {said}");
        Err(Ended(why))
    }
}

/// The number of objects of a page of a listing, and their bytes.
fn size_of(page: &Page) -> (u64, u64) {
    let listed = page.objects.iter().filter_map(|(_, listed)| listed.as_ref());
    let bytes = listed.map(|listed| listed.size_bytes).sum();
    (page.objects.len() as u64, bytes)
}

/// Parts of a page about which a node can be asked with one question.
fn parts_of(candidates: Vec<Candidate>) -> Vec<Vec<Candidate>> {
    let (mut parts, mut blocks) = (Vec::<Vec<Candidate>>::new(), 0);
    for candidate in candidates {
        let own = u64::from(candidate.version.block_count());
        match parts.last_mut() {
            Some(part) if blocks + own <= BLOCKS_MAX => part.push(candidate),
            _ => {
                parts.push(vec![candidate]);
                blocks = 0;
            }
        }
        blocks += own;
    }
    parts
}
