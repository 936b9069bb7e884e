//! The progress of a task, as its runner writes it for all nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shoal_base::words;
use shoal_policy::Source;
use shoal_s3::object::ObjectName;

use super::moment::Moment;
use super::plan_progress::{PlanProgress, cut};

/// The number of objects with errors that are named, and the most bytes of them in a record.
const ERRORS_NAMED: usize = 16;
const ERROR_BYTES: usize = 4 << 10;

/// Maximum number of bytes of named nodes, and those of one without its name. A record has them twice.
const NODE_BYTES: usize = 3 << 10;
const BYTES_OF_NODE: usize = 66;

/// Maximum number of bytes of a record with a plan; the bulletin takes 16 KiB.
const RECORD_BYTES: usize = 15 << 10;

words! {
    /// The state of a task.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum TaskState {
        /// No node runs it.
        #[default]
        Queued = "queued",
        /// A node runs it.
        Running = "running",
        /// All of it is done.
        Done = "done",
        /// It ended, and something of it is not done.
        Failed = "failed",
        /// An operator ended it.
        Cancelled = "cancelled",
    }
}

impl TaskState {
    /// Returns the state with this word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Returns true if nothing more happens.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// Objects by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectCounts {
    /// All objects of the task; unknown until they are counted.
    pub total: Option<u64>,
    /// Those that are as the task wants them.
    pub done: u64,
    /// Of these, the ones for which there was nothing to do: they were cached, or not, as wanted.
    pub unchanged: u64,
    /// Those that the task leaves alone.
    pub skipped: u64,
    /// Those that failed.
    pub failed: u64,
}

impl ObjectCounts {
    /// Returns the number of objects that the task is done with, whatever became of them.
    pub const fn dealt_with(&self) -> u64 {
        self.done + self.skipped + self.failed
    }
}

/// Bytes by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteCounts {
    /// The bytes of all objects of the task; unknown until they are counted.
    pub total: Option<u64>,
    /// Bytes of objects that the task is done with.
    pub done: u64,
    /// Of these, the ones that were cached before.
    pub cached: u64,
    /// The ones that came from the lake.
    pub from_lake: u64,
    /// The ones that came from another node.
    pub from_peers: u64,
    /// Bytes that were pinned.
    pub pinned: u64,
    /// Bytes that were removed.
    pub removed: u64,
}

/// An object that failed or was skipped, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectError {
    /// The object.
    pub object: String,
    /// The reason.
    pub error: String,
}

/// Blocks of a task's objects that one node has, or that the task removed or unpinned there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    /// The number of blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Counters of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Objects.
    pub objects: ObjectCounts,
    /// Bytes.
    pub bytes: ByteCounts,
    /// The first objects that failed or were skipped.
    #[serde(default)]
    pub errors: Vec<ObjectError>,
    /// Blocks by the name of the node that has them, or from which the task removed or unpinned them.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodeCounts>,
}

/// Where another node goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The last key that the task is done with, or the offset in the list of objects, as the catalogue writes
    /// it.
    pub after: String,
    /// Objects that had been counted there.
    pub objects: ObjectCounts,
    /// Bytes that had been counted there.
    pub bytes: ByteCounts,
    /// Blocks by node that had been counted there.
    #[serde(default)]
    pub nodes: BTreeMap<String, NodeCounts>,
    /// The number of objects that had been named there.
    #[serde(default)]
    pub errors: usize,
}

/// The progress of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Its state.
    pub state: TaskState,
    /// The reason why it failed, what it waits for, or what it did in another way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The node that runs it, or has run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Moment>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    /// Its counters.
    #[serde(flatten)]
    pub tally: Tally,
    /// True if its objects are still being counted: the totals grow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counting: bool,
    /// The recent speed in bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// True if it may miss its deadline.
    #[serde(default)]
    pub at_risk: bool,
    /// The nodes that were there when the task began, as a digest: pins also go to nodes that come later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<u64>,
    /// Where another node goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Box<Resume>>,
    /// The rest of the progress of a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Box<PlanProgress>>,
}

impl Tally {
    /// Counts bytes of a block that is where it was wanted.
    pub fn brought(&mut self, bytes: u64, source: Option<Source>) {
        self.bytes.done += bytes;
        match source {
            None | Some(Source::Local) => self.bytes.cached += bytes,
            Some(Source::Lake | Source::Tier) => self.bytes.from_lake += bytes,
            Some(Source::Peer) => self.bytes.from_peers += bytes,
        }
    }

    /// Counts an object that failed.
    pub fn failed(&mut self, name: &ObjectName, error: &str) {
        self.objects.failed += 1;
        self.name(name, error);
    }

    /// Counts an object that is left alone.
    pub fn skipped(&mut self, name: &ObjectName, why: &str) {
        self.objects.skipped += 1;
        self.name(name, why);
    }

    /// Counts blocks of a node. Nodes that do not fit into the record share one entry, `others`.
    pub fn at(&mut self, node: &str, blocks: u64, bytes: u64) {
        let named: usize = self.nodes.keys().map(|name| name.len() + BYTES_OF_NODE).sum();
        let has_place = self.nodes.contains_key(node) || named + node.len() + BYTES_OF_NODE <= NODE_BYTES;
        let entry = self
            .nodes
            .entry(if has_place { node } else { "others" }.to_owned());
        let counts = entry.or_default();
        counts.blocks += blocks;
        counts.bytes += bytes;
    }

    fn name(&mut self, name: &ObjectName, error: &str) {
        if self.errors.len() == ERRORS_NAMED {
            return;
        }
        self.errors.push(ObjectError {
            object: cut(&format!("{name:?}")),
            error: cut(error),
        });
        let bytes = serde_json::to_vec(&self.errors).map_or(usize::MAX, |errors| errors.len());
        if bytes > ERROR_BYTES {
            self.errors.pop();
        }
    }
}

impl Progress {
    /// Notes that the task is done with everything up to `after`.
    pub fn came_to(&mut self, after: String) {
        let tally = &self.tally;
        self.resume = Some(Box::new(Resume {
            after,
            objects: tally.objects,
            bytes: tally.bytes,
            nodes: tally.nodes.clone(),
            errors: tally.errors.len(),
        }));
    }

    /// Goes back to where the last whole page ended: the task counts later objects again. A plan has no
    /// pages, and asks nodes which bytes are there.
    pub fn go_back(&mut self) {
        if self.plan.is_some() {
            return;
        }
        let Some(resume) = &self.resume else {
            self.tally = Tally::default();
            return;
        };
        let tally = &mut self.tally;
        (tally.objects, tally.bytes) = (resume.objects, resume.bytes);
        tally.nodes.clone_from(&resume.nodes);
        tally.errors.truncate(resume.errors);
    }

    /// Writes the record. That of a plan is made short enough.
    pub(in crate::tasks) fn to_body(&self) -> Vec<u8> {
        let mut shown = self.clone();
        loop {
            let body = serde_json::to_vec(&shown).expect("progress is JSON");
            let is_long = body.len() > RECORD_BYTES;
            if !(is_long && shown.plan.as_mut().is_some_and(|plan| plan.shorten())) {
                return body;
            }
        }
    }

    /// Ends the task.
    pub fn end(&mut self, state: TaskState, detail: Option<&str>, now: Moment) {
        self.state = state;
        self.detail = detail.map(cut);
        self.ended = Some(now);
        self.bytes_per_second = None;
        self.counting = false;
        self.resume = None;
        if let Some(plan) = &mut self.plan {
            plan.transfers.clear();
        }
        if state != TaskState::Failed {
            self.at_risk = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_s3::object::ObjectName;

    use super::{Progress, Tally};
    use crate::bulletin::RECORD_BYTES_MAX;

    fn name(key: &[u8]) -> ObjectName {
        ObjectName {
            bucket: "b".repeat(63).as_str().into(),
            key: key.into(),
            version: None,
        }
    }

    #[test]
    fn the_largest_progress_fits_into_a_record() {
        for (key, error) in [(vec![b'\x01'; 1024], "\u{1}"), (vec![b'"'; 1024], "\u{1f41f}")] {
            let mut tally = Tally::default();
            for node in 0..1000 {
                tally.failed(&name(&key), &error.repeat(5_000));
                tally.at(&format!("{node:0>60}"), u64::MAX / 4000, u64::MAX / 4000);
            }
            let mut progress = Progress {
                detail: Some("\u{1}".repeat(256)),
                tally,
                ..Progress::default()
            };
            progress.came_to("%01".repeat(1024));
            let bytes = serde_json::to_vec(&progress).unwrap();
            assert!(bytes.len() <= RECORD_BYTES_MAX, "{}", bytes.len());
            let read: Progress = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(read, progress);
            let nodes = &read.tally.nodes;
            let blocks: u64 = nodes.values().map(|node| node.blocks).sum();
            assert_eq!(blocks, 1000 * (u64::MAX / 4000));
            assert!(nodes.len() > 20 && !read.tally.errors.is_empty());
        }
    }

    #[test]
    fn another_node_resumes_with_the_counts_at_the_last_whole_page() {
        let mut progress = Progress::default();
        progress.tally.failed(&name(b"a"), "lost");
        progress.tally.at("n0", 1, 10);
        progress.came_to("a".into());
        let there = progress.tally.clone();
        progress.tally.failed(&name(b"b"), "lost");
        progress.tally.at("n0", 1, 10);
        progress.tally.at("n1", 1, 10);
        progress.go_back();
        assert_eq!(progress.tally, there);
        progress.resume = None;
        progress.go_back();
        assert_eq!(progress.tally, Tally::default());
    }
}
