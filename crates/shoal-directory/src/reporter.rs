//! Reports the blocks of a node to a directory, in batches for which no reader waits.
//!
//! Each change of the node's store is a report, and so is each use of another node's copy. Reports are
//! batched for 10 ms, with one request per group of blocks and kind. A report may be lost if the directory
//! does not answer or too many reports are queued. So the node reports all its blocks again after a loss,
//! when the directory has lost one of the node's markers, and at least twice within the life of an entry:
//! first the blocks that it is fetching, then the most recently used ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use shoal_policy::{BlockId, NodeId};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::guard::{Guard, Kind};
use crate::{ENTRY_LIFE, Group, MARKERS, Silent};

/// How long reports are collected into a batch.
const BATCH_TIME: Duration = Duration::from_millis(10);

/// The maximum number of reports in a batch.
const BATCH_MAX: usize = 1024;

/// The maximum number of queued reports: three seconds' worth at 5,000 changes of the store per second.
const WAITING_MAX: usize = 16 << 10;

/// The maximum number of concurrent requests.
const REQUESTS: usize = 8;

/// The maximum number of concurrent requests that report claims. Until they arrive, other nodes fetch the
/// same blocks.
const CLAIM_REQUESTS: usize = 64;

/// The interval between renewals of single markers: the loss of all entries is noticed within this time, and
/// that of a sixteenth within two seconds.
const MARKER_PAUSE: Duration = Duration::from_millis(100);

/// The pause after [`REPORT_BATCH`] groups while a node reports everything, which limits it to 1,000 groups
/// per second. A busy node wakes late from each pause, so there are few of them.
const REPORT_PAUSE: Duration = Duration::from_millis(10);

/// The number of groups reported between two pauses.
const REPORT_BATCH: usize = 10;

/// The interval at which entries are renewed.
const RENEWAL: Duration = Duration::from_mins(30);
const _: () = assert!(RENEWAL.as_secs() * 2 <= ENTRY_LIFE.as_secs());

/// A change of a block on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// The node now holds the block.
    Held,
    /// The node no longer holds the block, or has given up fetching it.
    Dropped,
}

#[derive(Clone, Copy, Debug)]
enum Report {
    Changed(Change),
    /// A weight to add to the global one.
    Used(u64),
}

/// Accepts the reports of a node.
#[derive(Clone)]
pub struct Reporter {
    reports: mpsc::Sender<(BlockId, Report)>,
    guard: Arc<Guard>,
}

/// The task behind a [`Reporter`].
pub struct Reporting {
    node: NodeId,
    guard: Arc<Guard>,
    reports: mpsc::Receiver<(BlockId, Report)>,
}

impl Reporter {
    /// Creates the reporter of `node`, and the task that sends its reports.
    pub fn new(node: NodeId, guard: &Arc<Guard>) -> (Self, Reporting) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let reporting = Reporting {
            node,
            guard: Arc::clone(guard),
            reports: receiver,
        };
        let reporter = Self {
            reports: sender,
            guard: Arc::clone(guard),
        };
        (reporter, reporting)
    }

    /// Reports a change. Never blocks: if the queue is full, the report is lost, and the node later reports
    /// everything again.
    pub fn report(&self, block: BlockId, change: Change) {
        if !self.queue(block, Report::Changed(change)) {
            self.guard.lost_report();
        }
    }

    /// Reports a use of another node's copy, which adds `weight` to the block's global weight. Never blocks:
    /// if the queue is full, the use is not counted.
    pub fn used(&self, block: BlockId, weight: u64) {
        self.queue(block, Report::Used(weight));
    }

    /// Returns false if the queue is full.
    fn queue(&self, block: BlockId, report: Report) -> bool {
        // Counted before it is queued, so that the count never falls below zero.
        self.guard.reports_under_way.fetch_add(1, Ordering::Relaxed);
        let is_queued = self.reports.try_send((block, report)).is_ok();
        if !is_queued {
            self.guard.reports_under_way.fetch_sub(1, Ordering::Relaxed);
        }
        is_queued
    }
}

impl Reporting {
    /// Sends reports, and keeps the directory's entries up to date, until `stopping` ends. `claims` are the
    /// blocks that the node has claimed but does not hold yet, `blocks` all that it holds, the most useful
    /// ones first.
    pub async fn run<B: Future<Output = Vec<BlockId>>>(
        self,
        claims: impl Fn() -> Vec<BlockId>,
        blocks: impl Fn() -> B,
        stopping: impl Future<Output = ()>,
    ) {
        let Self { node, guard, reports } = self;
        tokio::select! {
            () = send_reports(node, &guard, reports) => {}
            () = keep_true(node, &guard, claims, blocks) => {}
            () = stopping => {}
        }
    }
}

async fn send_reports(node: NodeId, guard: &Guard, mut reports: mpsc::Receiver<(BlockId, Report)>) {
    let mut waiting = Vec::new();
    while let Some(report) = reports.recv().await {
        waiting.push(report);
        sleep(BATCH_TIME).await;
        while waiting.len() < BATCH_MAX
            && let Ok(report) = reports.try_recv()
        {
            waiting.push(report);
        }
        let count = waiting.len() as u64;
        let Batch { changed, used } = Batch::of(waiting.drain(..));
        let changed = changed.iter().map(|((group, change), indexes)| {
            match change {
                // If it is lost, all blocks are reported again.
                Change::Held => guard
                    .report(|directory| directory.held(node, *group, indexes))
                    .boxed(),
                // The node that finds the wrong entry repairs it.
                Change::Dropped => guard
                    .ask(Kind::Report, |directory| directory.dropped(node, *group, indexes))
                    .boxed(),
            }
        });
        let used = used.iter().map(|(group, uses)| {
            guard
                .ask(Kind::Report, |directory| directory.used(*group, uses))
                .boxed()
        });
        stream::iter(changed.chain(used))
            .for_each_concurrent(REQUESTS, |request| request.map(drop))
            .await;
        guard.reports_under_way.fetch_sub(count, Ordering::Relaxed);
    }
}

/// Reports that are sent together, one request for each group and kind. Blocks are given by their index.
#[derive(Debug, Default, PartialEq, Eq)]
struct Batch {
    /// The last change of each block.
    changed: BTreeMap<(Group, Change), Vec<u32>>,
    /// The sum of the uses of each block.
    used: BTreeMap<Group, Vec<(u32, u64)>>,
}

impl Batch {
    fn of(reports: impl Iterator<Item = (BlockId, Report)>) -> Self {
        let (mut last, mut uses) = (HashMap::new(), HashMap::<BlockId, u64>::new());
        for (block, report) in reports {
            match report {
                Report::Changed(change) => drop(last.insert(block, change)),
                Report::Used(weight) => *uses.entry(block).or_default() += weight,
            }
        }
        let mut batch = Self::default();
        for (block, change) in last {
            let key = (Group::containing(block), change);
            batch.changed.entry(key).or_default().push(block.index);
        }
        for (block, weight) in uses {
            let used = batch.used.entry(Group::containing(block)).or_default();
            used.push((block.index, weight));
        }
        batch
    }
}

/// Renews the markers of this node, and reports all blocks when the directory may have lost entries.
async fn keep_true<B: Future<Output = Vec<BlockId>>>(
    node: NodeId,
    guard: &Guard,
    claims: impl Fn() -> Vec<BlockId>,
    blocks: impl Fn() -> B,
) {
    let mut pause = interval(MARKER_PAUSE);
    pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported_at = None;
    for marker in (0..MARKERS).cycle() {
        pause.tick().await;
        let mark = |marker| guard.ask(Kind::Mark, move |directory| directory.mark(node, marker));
        let Ok(is_there) = mark(marker).await else {
            continue;
        };
        let now = tokio::time::Instant::now();
        let is_old = reported_at.is_none_or(|reported: tokio::time::Instant| now >= reported + RENEWAL);
        if is_old || !is_there || guard.take_lost_reports() {
            // All markers are renewed at once, and before everything is reported, so that a loss from then on
            // is noticed.
            join_all((0..MARKERS).map(mark)).await;
            reported_at = Some(now);
            report_everything(node, guard, claims(), blocks()).await;
        }
    }
}

/// Reports all claims and blocks. Claims come first and without pauses, because other nodes are about to
/// fetch the same blocks from the lake.
async fn report_everything(
    node: NodeId,
    guard: &Guard,
    claims: Vec<BlockId>,
    blocks: impl Future<Output = Vec<BlockId>>,
) {
    let claims = stream::iter(grouped(claims)).map(Ok);
    let claimed = claims.try_for_each_concurrent(CLAIM_REQUESTS, |(group, indexes)| async move {
        // If another node has claimed a block since, both fetch it.
        guard
            .report(|directory| directory.locate(node, group, &indexes, &[]))
            .await
    });
    if claimed.await.is_err() {
        // The guard records the loss; the next renewal of a marker starts again.
        return;
    }
    let blocks = blocks.await;
    let count = blocks.len();
    // The directory may be far away or busy, so requests are sent concurrently.
    let reported = paced(grouped(blocks)).try_for_each_concurrent(REQUESTS, |(group, indexes)| async move {
        guard
            .report(|directory| directory.held(node, group, &indexes))
            .await
    });
    if reported.await.is_ok() {
        tracing::debug!(blocks = count, "reported everything to the directory");
    }
}

/// Groups blocks, in the order of each group's first block.
fn grouped(blocks: Vec<BlockId>) -> Vec<(Group, Vec<u32>)> {
    let mut place: HashMap<Group, usize> = HashMap::new();
    let mut groups: Vec<(Group, Vec<u32>)> = Vec::new();
    for block in blocks {
        let group = Group::containing(block);
        let at = *place.entry(group).or_insert_with(|| {
            groups.push((group, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push(block.index);
    }
    groups
}

fn paced<T>(all: Vec<T>) -> impl Stream<Item = Result<T, Silent>> {
    stream::iter(all).enumerate().then(|(reported, each)| async move {
        if reported % REPORT_BATCH == 0 {
            sleep(REPORT_PAUSE).await;
        }
        Ok(each)
    })
}

#[cfg(test)]
mod tests {
    use shoal_policy::VersionId;

    use super::*;
    use crate::embedded::Embedded;
    use crate::{Directory, GROUP_BLOCKS};

    struct Here {
        claims: Vec<BlockId>,
        blocks: Vec<BlockId>,
    }

    const ME: NodeId = NodeId(3);

    fn block(index: u32) -> BlockId {
        BlockId {
            version: VersionId([7; 16]),
            index,
        }
    }

    /// A directory that was empty, after the node has reported `here` to it for `time`.
    async fn reported_within(time: Duration, here: Here) -> Arc<Embedded> {
        let directory = Arc::new(Embedded::default());
        let guard = Arc::new(Guard::new(Arc::clone(&directory) as _, Duration::from_secs(1)));
        let (_reporter, reporting) = Reporter::new(ME, &guard);
        let Here { claims, blocks } = here;
        let held = || std::future::ready(blocks.clone());
        reporting.run(|| claims.clone(), held, sleep(time)).await;
        directory
    }

    #[tokio::test(start_paused = true)]
    async fn a_directory_that_knows_nothing_is_told_claims_and_blocks() {
        let here = Here {
            claims: vec![block(0), block(90)],
            blocks: vec![block(1), block(91)],
        };
        let directory = reported_within(Duration::from_secs(1), here).await;
        for index in [0, 90] {
            let claimed = directory.entry(block(index)).await.unwrap();
            assert_eq!((claimed.claimant, claimed.holders), (Some(ME), vec![]));
            let held = directory.entry(block(index + 1)).await.unwrap();
            assert_eq!((held.claimant, held.holders), (None, vec![ME]));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn claims_are_told_without_a_pause_and_a_thousand_groups_of_blocks_in_a_second() {
        let group = |number: u32| block(number * GROUP_BLOCKS);
        let here = Here {
            claims: (0..1000).map(group).collect(),
            blocks: (2000..4000).map(group).collect(),
        };
        let directory = reported_within(Duration::from_secs(1), here).await;
        for number in 0..1000 {
            assert_eq!(directory.entry(group(number)).await.unwrap().claimant, Some(ME));
        }
        let mut held = 0;
        for number in 2000..4000 {
            held += directory.entry(group(number)).await.unwrap().holders.len();
        }
        assert!((900..=1000).contains(&held), "{held} groups");
    }

    #[tokio::test(start_paused = true)]
    async fn reports_are_under_way_until_the_directory_has_answered() {
        let directory = Arc::new(Embedded::default());
        let guard = Arc::new(Guard::new(Arc::clone(&directory) as _, Duration::from_secs(1)));
        let (reporter, reporting) = Reporter::new(ME, &guard);
        reporter.report(block(0), Change::Held);
        reporter.used(block(1), 1);
        assert_eq!(guard.reports_under_way(), 2);
        let nothing = || std::future::ready(Vec::new());
        reporting
            .run(Vec::new, nothing, sleep(Duration::from_secs(1)))
            .await;
        assert_eq!(guard.reports_under_way(), 0);
        assert_eq!(directory.entry(block(0)).await.unwrap().holders, vec![ME]);
    }

    #[test]
    fn a_batch_tells_the_last_change_and_all_uses() {
        let group = |index| Group::containing(block(index));
        let reports = [
            (block(0), Report::Changed(Change::Held)),
            (block(0), Report::Used(1)),
            (block(40), Report::Used(1)),
            (block(0), Report::Changed(Change::Dropped)),
            (block(1), Report::Changed(Change::Held)),
            (block(0), Report::Used(2)),
        ];
        let expected = Batch {
            changed: BTreeMap::from([
                ((group(0), Change::Held), vec![1]),
                ((group(0), Change::Dropped), vec![0]),
            ]),
            used: BTreeMap::from([(group(0), vec![(0, 3)]), (group(40), vec![(40, 1)])]),
        };
        assert_eq!(Batch::of(reports.into_iter()), expected);
    }
}
