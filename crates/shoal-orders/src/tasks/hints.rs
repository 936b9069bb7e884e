//! Hints among the tasks: what running jobs read, and what became of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use serde::{Deserialize, Serialize};
use shoal_cache::early::EarlyCounts;
use shoal_cache::held::Hold;
use shoal_hints::{JobRecord, Jobs};
use shoal_net::clock;
use shoal_s3::uri::S3Uri;
use tokio::sync::watch;

use super::parts::messages::{Answer, NAMES_MAX, Question};
use super::records::entry::{Entry, Task};
use super::records::files::HintFacts;
use super::records::moment::Moment;
use super::records::order::Order;
use super::records::progress::TaskState;
use super::refusal::TaskRefusal;
use super::service::{ANNOUNCED_MAX, Tasks};
use crate::bulletin::NotTaken;

/// Maximum number of hints that keep objects at a time.
const LIVE_MAX: usize = 1_000;

/// The number of orders whose counts nodes keep, the latest ones.
const COUNTED_MAX: usize = 2_000;

/// The time after the end of an order for which its blocks may still find a reader.
const EXPECTED_AFTER: Duration = Duration::from_hours(1);

/// Maximum time for which objects stay in a tier only because a job that is announced read their path in its
/// last run: the run may write them for others, too, which are not known.
const AWAITED_MAX: Duration = Duration::from_hours(1);

/// A hint, and the use of the bytes that it brought before their readers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HintUse {
    /// The task.
    pub task: Task,
    /// True if its objects are kept now.
    pub keeps: bool,
    /// Bytes that were brought, on all nodes that answer, since they started.
    pub brought_bytes: u64,
    /// Bytes of these that readers asked for while they were there, or on their way.
    pub used_bytes: u64,
    /// Bytes that readers asked for after they had been evicted.
    pub evicted_bytes: u64,
    /// Bytes that no reader has asked for, of a hint that is over.
    pub wasted_bytes: u64,
    /// The mean time between arrival and first use, in milliseconds; `None` if nothing was used.
    pub early_ms: Option<u64>,
    /// When all of its inputs were there; `None` before, or if some of them never were.
    pub brought: Option<Moment>,
    /// When a reader first asked for something that it had brought.
    pub first_used: Option<Moment>,
}

impl Tasks {
    /// Accepts a hint that came at `now` in the name of an identity, until a time and with a deadline if it
    /// has one. Returns `None` if it is known.
    ///
    /// # Errors
    ///
    /// Fails if the hint is not accepted, with the reason.
    pub fn post_hint(
        &self,
        hint: HintFacts,
        identity: Option<&str>,
        until: Moment,
        deadline: Option<Moment>,
        now: SystemTime,
    ) -> Result<Option<Task>, TaskRefusal> {
        let identity = self.parts().identity(identity)?;
        let live = self.base.records.live_hints();
        let is_known = |entry: &Entry| entry.order.hint.as_deref() == Some(&hint);
        if live.iter().any(is_known) {
            return Ok(None);
        }
        if live.len() >= LIVE_MAX {
            let why = format!("{LIVE_MAX} hints keep objects already\nhint: `shoal hints` lists them");
            return Err(TaskRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        let id = self.base.records.next_id(now);
        let order = Order::of_hint((identity, deadline), hint, until, now.into(), &self.parts().name);
        let task = self.accept(id, &order, ANNOUNCED_MAX)?;
        self.hold_objects();
        Ok(Some(task))
    }

    /// Ends the hints of which this is true: their objects are no longer kept.
    pub fn end_hints(&self, is_over: impl Fn(&HintFacts) -> bool) {
        for entry in self.base.records.live_hints() {
            let hint = entry.order.hint.as_deref();
            if hint.is_some_and(&is_over)
                && let Err(error) = self.base.records.end_early(entry.id, &entry.order)
            {
                // It ends by itself some time later.
                tracing::warn!(%error, "a hint whose run is over is not ended");
            }
        }
        self.hold_objects();
    }

    /// Has what live hints wait for, or call short-lived, stay in its tier, as far as their identities write
    /// it.
    pub(super) fn hold_objects(&self) {
        let holds_any = |hint: &HintFacts| !hint.awaited.is_empty() || !hint.short_lived.is_empty();
        let mut hints = self.base.records.live_hints();
        hints.retain(|entry| entry.order.hint.as_deref().is_some_and(holds_any));
        let orders = hints.iter().map(|entry| entry.id).collect();
        let held = &self.parts().cache().held;
        held.set(orders, || {
            hints.iter().flat_map(|entry| holds_of(&entry.order)).collect()
        });
    }

    /// Has what a run has written kept in the cache, too, for those of its readers that are still due.
    pub(crate) fn keep_for_readers(&self, written: &HashSet<&str>, is_due: impl Fn(&HintFacts) -> bool) {
        let now = clock::utc_now();
        for entry in self.base.records.live_hints() {
            let (order, Some(hint)) = (&entry.order, entry.order.hint.as_deref()) else {
                continue;
            };
            let awaited = hint.awaited.iter().chain(&hint.short_lived);
            let inputs: Vec<String> = awaited
                .filter(|path| written.contains(&***path))
                .cloned()
                .collect();
            let Some(until) = order.request.until.filter(|_| !inputs.is_empty() && is_due(hint)) else {
                continue;
            };
            let kept = HintFacts {
                inputs,
                awaited: Vec::new(),
                short_lived: Vec::new(),
                bytes: None,
                ..hint.clone()
            };
            let identity = order.request.identity.as_deref();
            if let Err(error) = self.post_hint(kept, identity, until, None, now) {
                tracing::debug!(reader = %hint.reader, %error, "what is written for a reader is not kept");
            }
        }
    }

    /// Returns a receiver of changes of orders from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.base.records.bulletin.changes()
    }

    /// Returns the last runs of jobs, as far as all nodes remember them.
    pub fn jobs(&self) -> Arc<Jobs> {
        self.base.records.jobs()
    }

    /// Remembers the last run of a job at all nodes.
    ///
    /// # Errors
    ///
    /// Fails if there are too many jobs, or if a later run is known.
    pub fn remember(&self, record: &JobRecord) -> Result<(), NotTaken> {
        self.base.records.remember(record)
    }

    /// Returns the latest `most` hints, the latest first, with what became of their bytes on all nodes.
    pub async fn hints(&self, most: usize) -> Vec<HintUse> {
        let (now, all) = (clock::utc_now(), self.base.records.all());
        let hints = all.values().filter(|entry| entry.order.hint.is_some());
        let mut entries: Vec<&Entry> = hints.collect();
        // Those of one event are made in the same moment.
        let place = |entry: &&Entry| {
            let stage = entry.order.hint.as_ref().map(|hint| hint.stage);
            (Reverse(entry.order.created), stage)
        };
        entries.sort_by_key(place);
        entries.truncate(most.min(NAMES_MAX));
        let ids: Vec<u128> = entries.iter().map(|entry| entry.id).collect();
        let nodes = self.base.nodes.all();
        let answers = self
            .base
            .nodes
            .ask_each(&nodes, || Question::Early(ids.clone()))
            .await;
        let mut uses = vec![EarlyCounts::default(); ids.len()];
        for answer in answers.into_iter().flatten() {
            let Answer::Early(early) = answer else { continue };
            for (all, one) in uses.iter_mut().zip(early.orders) {
                *all += one;
            }
        }
        let hints = entries.into_iter().zip(uses);
        hints
            .map(|(entry, all)| use_of(entry, all, entry.is_live(now), entry.to_task(now)))
            .collect()
    }

    /// Keeps the counts of the latest orders, and follows the blocks of those that are live or ended lately.
    pub(super) fn forget_early_blocks(&self) {
        let (now, entries) = (clock::utc_now(), self.base.records.all());
        let may_bring = |entry: &&Entry| entry.order.request.kind.pins();
        let latest = entries.values().rev().filter(may_bring).take(COUNTED_MAX);
        let is_expected = |entry: &Entry| {
            let ended = entry.progress.ended.filter(|_| !entry.is_live(now));
            ended.is_none_or(|ended| !ended.plus(EXPECTED_AFTER).after(now).is_zero())
        };
        let latest: BTreeMap<u128, bool> = latest.map(|entry| (entry.id, is_expected(entry))).collect();
        let early = &self.parts().cache().early;
        early.keep(
            |order| latest.contains_key(&order),
            |order| latest.get(&order) == Some(&true),
        );
    }
}

/// Returns the holds of an order.
fn holds_of(order: &Order) -> Vec<Hold> {
    let (Some(hint), Some(writer), Some(until)) = (
        &order.hint,
        order.request.identity.as_deref(),
        order.request.until,
    ) else {
        return Vec::new();
    };
    let guessed_until = until.min(order.created.plus(AWAITED_MAX));
    let awaited = hint.awaited.iter().map(|path| (path, guessed_until));
    let paths = awaited.chain(hint.short_lived.iter().map(|path| (path, until)));
    let holds = paths.filter_map(|(path, until)| {
        let S3Uri { bucket, key } = path.parse().ok()?;
        Some(Hold {
            bucket,
            key,
            writer: writer.into(),
            until_ms: until.millis(),
        })
    });
    holds.collect()
}

fn use_of(entry: &Entry, all: EarlyCounts, keeps: bool, task: Task) -> HintUse {
    let is_over = !keeps && entry.progress.state != TaskState::Running;
    let unused = all.brought_bytes.saturating_sub(all.used_bytes);
    HintUse {
        task,
        keeps,
        brought_bytes: all.brought_bytes,
        used_bytes: all.used_bytes,
        evicted_bytes: all.evicted_bytes,
        wasted_bytes: if is_over { unused } else { 0 },
        early_ms: all.early_ms.checked_div(all.used_blocks),
        brought: entry.done,
        first_used: all.first_used_ms.map(Moment::of_millis),
    }
}
