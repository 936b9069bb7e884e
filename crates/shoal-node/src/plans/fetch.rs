//! Carries out what is due: fetches a transfer block by block at its rate, keeps files, removes them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::StatusCode;
use parking_lot::Mutex;
use shoal_policy::{NodeId, ObjectId, Source, VersionId};
use shoal_store::PinOrder;

use super::carrier::Carrier;
use super::objects::{self, NoFile, Part, Piece};
use super::order::moment;
use crate::clock;
use crate::pauses::Pauses;
use crate::peer::CallerName;
use crate::tasks::{Answer, BlockBits, Fill, FillOutcome, Pin, PlannedFill, Question};

/// The number of blocks of a transfer that are on their way at a time.
const BLOCKS_AT_ONCE: usize = 8;

/// The number of versions or objects in one question.
const NAMES_AT_ONCE: usize = 1024;

/// The most blocks that one question is about.
const BLOCKS_ASKED: u32 = 1 << 19;

/// The number of attempts at a block that fail for reasons that may pass.
const TRIES: u32 = 5;

/// The first pause before a further attempt, and the longest one.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Which blocks of which versions nodes hold.
type Held = HashMap<(NodeId, VersionId), BlockBits>;

impl Carrier {
    /// Fetches a transfer of the plan of this generation.
    pub(super) async fn fetch(&self, generation: u64, errand: usize) -> Result<(), NoFile> {
        let Some(file) = self.on(generation, |course| course.errands()[errand].file) else {
            return Ok(());
        };
        let parts = objects::parts(&self.lake, &self.expected[file]).await?;
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let wanted = self.on(generation, |course| {
            course.has_size(file, bytes);
            course.errands()[errand].clone()
        });
        let Some(wanted) = wanted else { return Ok(()) };
        let range = (wanted.first_byte, wanted.bytes);
        let pieces = objects::pieces(&self.lake, &parts, range).await?;
        let pin = self.pin(wanted.keep_until_s);
        let objects: HashSet<ObjectId> = pieces.iter().map(|piece| piece.version.object).collect();
        self.pin_objects(pin, objects.into_iter().collect()).await?;
        let held = self.held(&pieces).await;
        #[expect(clippy::cast_sign_loss, reason = "a rate is positive")]
        let planned = PlannedFill {
            plan: self.id,
            transfer: errand as u64,
            rate: wanted.bytes_per_second.ceil() as u64,
        };
        let next = Mutex::new(clock::runtime_instant());
        let bring = stream::iter(pieces).map(|piece| {
            let (held, next) = (&held, &next);
            async move {
                let bytes = piece.version.block_len(piece.index);
                let target = self.targets.of(piece.version.block(piece.index));
                let is_held = target.is_some_and(|(node, _)| {
                    let bits = held.get(&(node, piece.version.id));
                    bits.is_some_and(|bits| bits.has(piece.index))
                });
                let source = if is_held {
                    None
                } else {
                    self.wait_turn(generation, errand, bytes, next).await;
                    self.bring(&piece, pin, planned).await?
                };
                self.count(bytes, source);
                self.on(generation, |course| course.moved(errand, bytes));
                Ok(())
            }
        });
        bring.buffered(BLOCKS_AT_ONCE).try_collect::<()>().await
    }

    /// Waits for the turn of a block at the rate that its transfer has now.
    async fn wait_turn(
        &self,
        generation: u64,
        errand: usize,
        bytes: u64,
        next: &Mutex<tokio::time::Instant>,
    ) {
        let (now_s, link) = (self.now_s(), self.link_bytes_per_second());
        let rate = self.on(generation, |course| course.rate(errand, now_s, link));
        let lasts = Duration::try_from_secs_f64(bytes as f64 / rate.unwrap_or(f64::INFINITY).max(1.0));
        let turn = {
            let mut next = next.lock();
            let turn = (*next).max(clock::runtime_instant());
            *next = turn + lasts.unwrap_or(PAUSE_MAX);
            turn
        };
        tokio::time::sleep_until(turn).await;
    }

    /// Has a block brought to the node that is to hold it. Returns where it came from; `None`: it was there.
    async fn bring(&self, piece: &Piece, pin: Pin, planned: PlannedFill) -> Result<Option<Source>, NoFile> {
        let (mut pauses, mut tries) = (Pauses::new(PAUSE_MIN, PAUSE_MAX), 1);
        loop {
            let why = match self.fill(piece, pin, planned).await {
                FillOutcome::Held => return Ok(None),
                FillOutcome::Brought(source) => return Ok(Some(source)),
                FillOutcome::Busy => None,
                FillOutcome::Denied(StatusCode::NOT_FOUND) => {
                    return Err(NoFile::Missing("the lake answered 404".to_owned()));
                }
                FillOutcome::Denied(status) => {
                    return Err(NoFile::Missing(format!("the lake answered {status}")));
                }
                FillOutcome::Refused(refusal) => {
                    return Err(NoFile::Failed(format!("not stored: {}", refusal.as_str())));
                }
                FillOutcome::Changed => return Err(NoFile::Failed("it has changed".to_owned())),
                FillOutcome::Failed(error) => Some(error),
            };
            if let Some(error) = why {
                if tries == TRIES {
                    return Err(NoFile::Failed(error));
                }
                tries += 1;
            }
            pauses.wait().await;
        }
    }

    async fn fill(&self, piece: &Piece, pin: Pin, planned: PlannedFill) -> FillOutcome {
        let Some((node, layer)) = self.targets.of(piece.version.block(piece.index)) else {
            return FillOutcome::Failed("no node is there to hold it".into());
        };
        let fill = Fill {
            version: Arc::clone(&piece.version),
            index: piece.index,
            layer,
            pin: Some(pin),
            planned: Some(planned),
            caller: CallerName::from(&self.caller),
            name: piece.name.clone(),
        };
        match self.parts.nodes.ask(node, Question::Fill(Box::new(fill))).await {
            Ok(Answer::Filled(outcome)) => outcome,
            Ok(_) => FillOutcome::Failed("a node answered something else".into()),
            Err(error) => FillOutcome::Failed(error.to_string()),
        }
    }

    /// The pins of this plan that end at a time of its clock.
    fn pin(&self, until_s: f64) -> Pin {
        // Those of one second end together.
        let until = moment(self.epoch_ms, until_s.ceil()).time();
        Pin {
            order: PinOrder(self.id),
            until,
        }
    }

    /// Pins objects on all nodes that are to hold them. Returns what of them each node has pinned.
    async fn pin_objects(&self, pin: Pin, objects: Vec<ObjectId>) -> Result<BTreeMap<NodeId, u64>, NoFile> {
        let mut kept_at = BTreeMap::new();
        for part in objects.chunks(NAMES_AT_ONCE) {
            let asked = self.targets.nodes().into_iter().map(|node| {
                let question = Question::Pin(pin, part.to_vec());
                async move { (node, self.parts.nodes.ask(node, question).await) }
            });
            for (node, answer) in join_all(asked).await {
                match answer {
                    Ok(Answer::Kept(kept)) => {
                        *kept_at.entry(node).or_default() += kept.iter().map(|kept| kept.bytes).sum::<u64>();
                    }
                    Ok(_) => return Err(NoFile::Failed("a node answered something else".to_owned())),
                    // The blocks that are to be there say so, too.
                    Err(error) => tracing::debug!(%error, "a node does not pin for a plan"),
                }
            }
        }
        Ok(kept_at)
    }

    /// Which of some blocks the nodes hold that are to hold them.
    async fn held(&self, pieces: &[Piece]) -> Held {
        let mut versions: Vec<(VersionId, u32)> = Vec::new();
        for piece in pieces {
            let asked = (piece.version.id, piece.version.block_count().min(BLOCKS_ASKED));
            if versions.last() != Some(&asked) {
                versions.push(asked);
            }
        }
        let (mut held, mut rest) = (Held::new(), versions.as_slice());
        while !rest.is_empty() {
            let mut blocks = 0;
            let fits = rest.iter().take(NAMES_AT_ONCE).take_while(|(_, count)| {
                let is_first = blocks == 0;
                blocks += count;
                is_first || blocks <= BLOCKS_ASKED
            });
            let (part, later) = rest.split_at(fits.count());
            rest = later;
            let asked = self.targets.nodes().into_iter().map(|node| {
                let question = Question::Held(part.to_vec());
                async move { (node, self.parts.nodes.ask(node, question).await) }
            });
            for (node, answer) in join_all(asked).await {
                if let Ok(Answer::Held(bits)) = answer {
                    let versions = part.iter().map(|(version, _)| (node, *version));
                    held.extend(versions.zip(bits));
                }
            }
        }
        held
    }

    /// The size of a file that the lake has now.
    pub(super) async fn size(&self, file: usize) -> Result<u64, NoFile> {
        let parts = objects::parts(&self.lake, &self.expected[file]).await?;
        Ok(parts.iter().map(|part| part.bytes).sum())
    }

    /// Keeps a file that the cache is said to hold. Returns how much of it there is.
    pub(super) async fn keep(&self, file: usize, until_s: f64) -> Result<u64, NoFile> {
        let parts = objects::parts(&self.lake, &self.expected[file]).await?;
        let kept = self.pin_objects(self.pin(until_s), self.ids(&parts)).await?;
        Ok(kept.values().sum())
    }

    /// Removes a file from all nodes. Objects that are pinned for others stay.
    pub(super) async fn evict(&self, file: usize) -> Result<(), NoFile> {
        let parts = objects::parts(&self.lake, &self.expected[file]).await?;
        let objects = self.ids(&parts);
        for part in objects.chunks(NAMES_AT_ONCE) {
            let nodes = self.parts.nodes.all().into_iter();
            let asked = nodes.map(|(node, _)| self.parts.nodes.ask(node, Question::Evict(part.to_vec())));
            for answer in join_all(asked).await {
                if let Err(error) = answer {
                    tracing::debug!(%error, "a node does not remove what a plan no longer needs");
                }
            }
        }
        Ok(())
    }

    pub(super) fn ids(&self, parts: &[Part]) -> Vec<ObjectId> {
        let lake = self.parts.endpoint.url();
        parts.iter().map(|part| part.name.id(lake)).collect()
    }
}
