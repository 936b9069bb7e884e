//! Carries out due steps: fetches a transfer block by block at its rate, keeps files, releases them.

use std::collections::HashSet;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use shoal_net::clock;
use shoal_plan::execution::Execution;
use shoal_policy::ObjectId;
use shoal_s3::object::Version;

use super::document::moment;
use super::executor::{Executor, Reader};
use super::objects::{self, Part};
use crate::tasks::parts::lake_view::ObjectFailure;
use crate::tasks::parts::messages::{Answer, Pin, PlannedFill, Question};

/// The number of blocks of a transfer that are on their way at a time.
const BLOCKS_AT_ONCE: usize = 8;

/// The longest turn of a block at the rate of its transfer.
const TURN_MAX: Duration = Duration::from_secs(5);

impl Executor {
    /// Fetches a transfer of the plan of this generation.
    pub(super) async fn fetch(
        &self,
        generation: u64,
        transfer: usize,
        file: usize,
    ) -> Result<(), ObjectFailure> {
        let reader = self.reader_of(file);
        let parts = self.parts(file).await?;
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let wanted = self.on(generation, |execution| {
            execution.has_size(file, bytes);
            execution.transfers()[transfer].clone()
        });
        let Some(wanted) = wanted else { return Ok(()) };
        let range = wanted.first_byte..wanted.first_byte.saturating_add(wanted.bytes);
        let blocks = objects::blocks(&reader.lake, &parts, range).await?;
        let pin = self.pin(wanted.keep_until_s);
        let objects: HashSet<ObjectId> = blocks.iter().map(|block| block.version.object).collect();
        self.pin_objects(pin, objects.into_iter().collect()).await?;
        let mut versions: Vec<&Version> = blocks.iter().map(|block| &*block.version).collect();
        versions.dedup_by_key(|version| version.id);
        let placer = &reader.placer;
        let held = placer.holdings(&placer.targets.nodes(), &versions).await;
        #[expect(clippy::cast_sign_loss, reason = "a rate is positive")]
        let planned = PlannedFill {
            plan: self.id,
            transfer: transfer as u64,
            rate: wanted.bytes_per_second.ceil() as u64,
        };
        let next = Mutex::new(clock::runtime_instant());
        let bring = stream::iter(blocks).map(|block| {
            let (held, next) = (&held, &next);
            async move {
                let bytes = block.bytes();
                let source = if placer.is_placed(&block.version, block.index, held) {
                    None
                } else {
                    self.wait_turn(generation, transfer, bytes, next).await;
                    self.still_wanted(generation, transfer)?;
                    let begin = || ready(Ok(()));
                    placer.bring(&block, Some(pin), Some(planned), begin).await?
                };
                self.progress.lock().tally.brought(bytes, source);
                self.on(generation, |execution| execution.moved(transfer, bytes));
                Ok(())
            }
        });
        bring.buffered(BLOCKS_AT_ONCE).try_collect::<()>().await
    }

    /// Fails if other transfers have taken the place of this one.
    fn still_wanted(&self, generation: u64, transfer: usize) -> Result<(), ObjectFailure> {
        let is_dropped = |execution: &mut Execution| execution.transfers()[transfer].is_dropped();
        if self.on(generation, is_dropped).unwrap_or(true) {
            return Err(ObjectFailure::Skipped("others fetch it".into()));
        }
        Ok(())
    }

    /// Waits for the turn of a block at the rate that its transfer has now.
    async fn wait_turn(
        &self,
        generation: u64,
        transfer: usize,
        bytes: u64,
        next: &Mutex<tokio::time::Instant>,
    ) {
        let (now_s, link) = (self.now_s(), self.link_bytes_per_second());
        let rate = self.on(generation, |execution| execution.rate(transfer, now_s, link));
        let lasts = Duration::try_from_secs_f64(bytes as f64 / rate.unwrap_or(f64::INFINITY).max(1.0));
        let turn = {
            let mut next = next.lock();
            let turn = (*next).max(clock::runtime_instant());
            *next = turn + lasts.unwrap_or(TURN_MAX);
            turn
        };
        tokio::time::sleep_until(turn).await;
    }

    /// Returns the pin of this plan that ends at a time of its clock. The pins of one second end together.
    pub(super) fn pin(&self, until_s: f64) -> Pin {
        Pin {
            order: self.id,
            until_ms: moment(self.epoch_ms, until_s.ceil()).millis(),
        }
    }

    /// Pins objects on all nodes that are to hold them. Returns the bytes of them that the nodes have pinned.
    pub(super) async fn pin_objects(&self, pin: Pin, objects: Vec<ObjectId>) -> Result<u64, ObjectFailure> {
        // A node that does not pin rejects the blocks that are to be there, too.
        let (nodes, problem) = (
            self.reader.placer.targets.nodes(),
            "a node does not pin for a plan",
        );
        let question = |objects| Question::Pin(pin, objects);
        let mut bytes = Ok(0);
        let note = |answer| match (answer, &mut bytes) {
            (Answer::Kept(kept), Ok(bytes)) => *bytes += kept.iter().map(|kept| kept.bytes).sum::<u64>(),
            (Answer::Kept(_), Err(_)) => {}
            (_, bytes) => *bytes = Err(ObjectFailure::Failed("a node answered something else".into())),
        };
        self.nodes
            .ask_about(&nodes, &objects, question, problem, note)
            .await;
        bytes
    }

    /// Returns the size of a file that the lake has now.
    pub(super) async fn size(&self, file: usize) -> Result<u64, ObjectFailure> {
        Ok(self.parts(file).await?.iter().map(|part| part.bytes).sum())
    }

    /// Keeps a file that the cache is said to hold. Returns the bytes of it that the cache holds.
    pub(super) async fn keep(&self, file: usize, until_s: f64) -> Result<u64, ObjectFailure> {
        let objects = self.ids(&self.parts(file).await?);
        self.pin_objects(self.pin(until_s), objects).await
    }

    /// Releases a file on all nodes. Objects that are pinned for others stay as they are.
    pub(super) async fn release(&self, file: usize) -> Result<(), ObjectFailure> {
        let objects = self.ids(&self.parts(file).await?);
        let problem = "a node does not release what a plan no longer needs";
        let nodes = self.nodes.all();
        self.nodes
            .ask_about(&nodes, &objects, Question::Release, problem, drop)
            .await;
        Ok(())
    }

    /// Lists the objects of a file.
    pub(super) async fn parts(&self, file: usize) -> Result<Vec<Part>, ObjectFailure> {
        let planned = self.files.lock()[file].clone();
        objects::parts(&planned.reader.lake, &planned.expected).await
    }

    /// Returns the reader of a file.
    fn reader_of(&self, file: usize) -> Arc<Reader> {
        Arc::clone(&self.files.lock()[file].reader)
    }

    /// Lists the objects of those of these files that the lake has now. The other files stay in `unknown`: a
    /// job may be there before its files.
    pub(super) async fn take_parts(&self, unknown: &mut Vec<usize>) -> Vec<Part> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for file in unknown.drain(..) {
            match self.parts(file).await {
                Ok(parts) => found.extend(parts),
                Err(_) => missing.push(file),
            }
        }
        *unknown = missing;
        found
    }

    /// Returns the ids of the objects of a file.
    pub(super) fn ids(&self, parts: &[Part]) -> Vec<ObjectId> {
        parts.iter().map(|part| self.id_of(part)).collect()
    }

    /// Returns the id of an object of a file.
    pub(super) fn id_of(&self, part: &Part) -> ObjectId {
        part.name.id(self.nodes.parts.cache().lake.url())
    }
}
