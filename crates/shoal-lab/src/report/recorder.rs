//! Counts events during a run.

use shoal_sim::Time;
use shoal_sim::cluster::{NodeIndex, Wanted};
use shoal_sim::sources::{Served, Sources, Volume};

use super::{Histogram, LinkVolume, Reads, Report, Sample};
use crate::cluster::Room;
use crate::network::links::NamedLink;

/// A completed read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadDone {
    /// The time of its first request for a block.
    pub(crate) since: Time,
    /// The number of its blocks.
    pub(crate) blocks: u32,
    /// Of these, the number that nodes held.
    pub(crate) hits: u32,
}

pub(crate) struct Recorder {
    /// The number of requests before counting begins.
    warmup_requests: u64,
    asked: u64,
    since: Time,
    sources: Sources,
    between_nodes: Volume,
    requests: Histogram,
    reads: Reads,
    read_times: Histogram,
    jobs: Histogram,
    /// Since the start, by node: samples include the warm-up.
    by_node: Vec<Sources>,
    samples: Vec<Sample>,
}

impl Recorder {
    pub(crate) fn new(warmup_requests: u64, nodes: usize) -> Self {
        Self {
            warmup_requests,
            asked: 0,
            since: Time::ZERO,
            sources: Sources::default(),
            between_nodes: Volume::default(),
            requests: Histogram::default(),
            reads: Reads::default(),
            read_times: Histogram::default(),
            jobs: Histogram::default(),
            by_node: vec![Sources::default(); nodes],
            samples: Vec::new(),
        }
    }

    /// Records a request for a block. Returns whether counting begins with it.
    pub(crate) const fn asked(&mut self, now: Time) -> bool {
        let begins = self.asked == self.warmup_requests;
        self.asked += 1;
        if begins {
            self.since = now;
        }
        begins
    }

    /// Records an answer. A request made before counting began does not count.
    pub(crate) fn served(&mut self, now: Time, wanted: &Wanted, by: Served) {
        self.by_node[wanted.node].count(by, wanted.bytes);
        if self.counts(wanted.now) {
            self.sources.count(by, wanted.bytes);
            self.requests.record(now - wanted.now);
        }
    }

    pub(crate) fn read(&mut self, now: Time, read: &ReadDone) {
        if !self.counts(read.since) {
            return;
        }
        self.read_times.record(now - read.since);
        match read.hits {
            hits if hits == read.blocks => self.reads.hits += 1,
            0 => self.reads.complete_misses += 1,
            _ => self.reads.partial_misses += 1,
        }
    }

    /// Records that a node has sent a block of `bytes` to another.
    pub(crate) const fn sent_between_nodes(&mut self, bytes: u64) {
        if self.asked > self.warmup_requests {
            self.between_nodes.requests += 1;
            self.between_nodes.bytes += bytes;
        }
    }

    /// Records the end of a job. A job counts if it ends after counting begins: all jobs may be submitted at
    /// the start.
    pub(crate) fn job(&mut self, now: Time, submitted: Time) {
        if self.asked > self.warmup_requests {
            self.jobs.record(now - submitted);
        }
    }

    pub(crate) fn sample(&mut self, now: Time, node: NodeIndex, room: Room) {
        self.samples.push(Sample {
            at_s: now.as_secs_f64(),
            node,
            room,
            sources: self.by_node[node],
        });
    }

    pub(crate) fn report<'run>(
        self,
        now: Time,
        distinct_bytes: u64,
        links: impl Iterator<Item = (&'run NamedLink, u64)>,
    ) -> Report {
        let volume = |(link, bytes): (&NamedLink, u64)| LinkVolume {
            link: link.kind,
            node: link.node,
            bytes,
        };
        Report {
            run_s: (now - self.since).as_secs_f64(),
            sources: self.sources,
            between_nodes: self.between_nodes,
            distinct_bytes,
            request_seconds: self.requests.percentiles(),
            reads: Reads {
                seconds: self.read_times.percentiles(),
                ..self.reads
            },
            job_seconds: self.jobs.percentiles(),
            links: links.map(volume).collect(),
            samples: self.samples,
        }
    }

    fn counts(&self, since: Time) -> bool {
        self.asked > self.warmup_requests && since >= self.since
    }
}
