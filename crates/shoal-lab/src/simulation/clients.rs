//! The order of the clients' requests. The `[clients]` of an experiment.

use std::collections::VecDeque;

use serde::Deserialize;
use shoal_sim::Time;
use shoal_sim::block::Block;
use shoal_sim::cluster::{NodeIndex, Wanted};

use crate::report::ReadDone;
use crate::workload::{Job, Workload};

/// The limits of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSettings {
    /// Clients of each node.
    pub per_node: u32,
    /// Blocks that a client waits for at a time.
    pub requests: u32,
    /// Jobs that a client runs at a time; unlimited if it is `None`.
    pub jobs: Option<u32>,
}

/// A block that a client asks for now.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockRead {
    pub(super) client: u32,
    pub(super) read: ReadId,
    pub(super) block: Block,
}

/// An unanswered request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) client: u32,
    pub(super) read: ReadId,
    pub(super) wanted: Wanted,
    /// True if it waited for a block that was on its way for another request.
    pub(super) joined: bool,
    /// True if the lake is still sending the block to the home that forwards it.
    pub(super) fills: bool,
    /// True if the reader's node has received everything that the home had.
    pub(super) fetched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestId(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadId(u32);

pub(super) struct Clients {
    settings: ClientSettings,
    each: Vec<Client>,
    jobs: Vec<JobState>,
    jobs_left: usize,
    requests: Slots<Request>,
    reads: Slots<ReadState>,
    /// Clients that may be able to make a request.
    able: VecDeque<u32>,
    /// By client: the client that makes its requests.
    reader: Vec<u32>,
    /// Jobs that have read everything and were not reported.
    read: VecDeque<u32>,
}

#[derive(Clone, Debug, Default)]
struct Client {
    requests: u32,
    jobs: u32,
    ready: VecDeque<u32>,
    cursors: VecDeque<Cursor>,
}

/// The progress of a client with a read.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    job: u32,
    /// Position in the job.
    read: u32,
    /// Set once the first block was requested.
    state: Option<ReadId>,
    next: u32,
}

#[derive(Clone, Debug, Default)]
struct JobState {
    submitted: bool,
    computed: bool,
    /// The number of jobs that must be done before it.
    before: u32,
    reads: u32,
    writes: u32,
    /// Jobs that wait for this one.
    followers: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct ReadState {
    job: u32,
    left: u32,
    done: ReadDone,
}

impl Clients {
    pub(super) fn new(settings: &ClientSettings, nodes: usize, workload: &Workload) -> Self {
        let count = nodes * settings.per_node as usize;
        let mut jobs: Vec<JobState> = Vec::with_capacity(workload.jobs.len());
        jobs.extend(workload.jobs.iter().map(|job| JobState {
            before: job.after.len() as u32,
            reads: job.reads.len() as u32,
            ..JobState::default()
        }));
        for (number, job) in (0..).zip(&workload.jobs) {
            for &before in &job.after {
                jobs[before as usize].followers.push(number);
            }
        }
        Self {
            settings: *settings,
            each: vec![Client::default(); count],
            jobs_left: jobs.len(),
            jobs,
            requests: Slots::default(),
            reads: Slots::default(),
            able: VecDeque::new(),
            reader: (0..count as u32).collect(),
            read: VecDeque::new(),
        }
    }

    pub(super) const fn are_done(&self) -> bool {
        self.jobs_left == 0
    }

    /// The node that `client` asks.
    pub(super) const fn node(&self, client: u32) -> NodeIndex {
        (client / self.settings.per_node) as NodeIndex
    }

    /// Submits `job`, whose time has come.
    pub(super) fn submitted(&mut self, job: u32, jobs: &[Job]) {
        let state = &mut self.jobs[job as usize];
        state.submitted = true;
        if state.before == 0 {
            self.ready(job, jobs);
        }
    }

    /// Lets clients of `to` request every block, now and later, that clients of `from` have not requested.
    pub(super) fn moved(&mut self, from: NodeIndex, to: NodeIndex) {
        let of_node = |node: NodeIndex| (0..).skip(node * self.settings.per_node as usize);
        for (from, to) in of_node(from)
            .zip(of_node(to))
            .take(self.settings.per_node as usize)
        {
            let readers = self.reader.iter_mut().filter(|reader| **reader == from);
            readers.for_each(|reader| *reader = to);
            let cursors = std::mem::take(&mut self.each[from as usize].cursors);
            self.each[to as usize].cursors.extend(cursors);
            self.able.push_back(to);
        }
    }

    /// The next block that a client may request.
    pub(super) fn next_block(&mut self, jobs: &[Job], now: Time) -> Option<BlockRead> {
        loop {
            let number = *self.able.front()?;
            let client = &mut self.each[number as usize];
            let cursor = match client.cursors.front_mut() {
                Some(cursor) if client.requests < self.settings.requests => cursor,
                _ => {
                    self.able.pop_front();
                    continue;
                }
            };
            let job_read = jobs[cursor.job as usize].reads[cursor.read as usize];
            let read = match cursor.state {
                Some(read) => read,
                None => ReadId(self.reads.put(ReadState {
                    job: cursor.job,
                    left: job_read.blocks(),
                    done: ReadDone {
                        since: now,
                        blocks: job_read.blocks(),
                        hits: 0,
                    },
                })),
            };
            let block = Block {
                object: job_read.object,
                index: cursor.next,
            };
            cursor.state = Some(read);
            cursor.next += 1;
            client.requests += 1;
            if cursor.next >= job_read.end {
                client.cursors.pop_front();
            }
            return Some(BlockRead {
                client: number,
                read,
                block,
            });
        }
    }

    pub(super) fn remember(&mut self, request: Request) -> RequestId {
        RequestId(self.requests.put(request))
    }

    pub(super) fn request(&self, RequestId(slot): RequestId) -> &Request {
        self.requests.get(slot)
    }

    pub(super) fn request_mut(&mut self, RequestId(slot): RequestId) -> &mut Request {
        self.requests.get_mut(slot)
    }

    pub(super) fn forget(&mut self, RequestId(slot): RequestId) -> Request {
        self.requests.take(slot)
    }

    /// Records that a block of `read` has arrived. Returns the read if the block was its last.
    pub(super) fn answered(&mut self, client: u32, ReadId(slot): ReadId, hit: bool) -> Option<ReadDone> {
        self.each[client as usize].requests -= 1;
        self.able.push_back(client);
        let read = self.reads.get_mut(slot);
        read.left -= 1;
        read.done.hits += u32::from(hit);
        if read.left > 0 {
            return None;
        }
        let ReadState { job, done, .. } = self.reads.take(slot);
        let state = &mut self.jobs[job as usize];
        state.reads -= 1;
        if state.reads == 0 {
            self.read.push_back(job);
        }
        Some(done)
    }

    /// The next job that has read everything.
    pub(super) fn next_read(&mut self) -> Option<u32> {
        self.read.pop_front()
    }

    /// Records that `job` has computed and now writes `writes` objects.
    pub(super) fn computed(&mut self, job: u32, writes: u32) {
        let state = &mut self.jobs[job as usize];
        state.computed = true;
        state.writes = writes;
    }

    /// Records that `job` has written one object.
    pub(super) fn written(&mut self, job: u32) {
        self.jobs[job as usize].writes -= 1;
    }

    /// Ends `job` if it has no work left. Returns whether it did.
    pub(super) fn finish_if_done(&mut self, job: u32, jobs: &[Job]) -> bool {
        let state = &mut self.jobs[job as usize];
        if !state.computed || state.writes > 0 {
            return false;
        }
        self.jobs_left -= 1;
        for follower in std::mem::take(&mut state.followers) {
            let state = &mut self.jobs[follower as usize];
            state.before -= 1;
            if state.before == 0 && state.submitted {
                self.ready(follower, jobs);
            }
        }
        let client = jobs[job as usize].client;
        self.each[client as usize].jobs -= 1;
        self.start_ready(client, jobs);
        true
    }

    fn ready(&mut self, job: u32, jobs: &[Job]) {
        let client = jobs[job as usize].client;
        self.each[client as usize].ready.push_back(job);
        self.start_ready(client, jobs);
    }

    fn start_ready(&mut self, number: u32, jobs: &[Job]) {
        let most = self.settings.jobs.unwrap_or(u32::MAX);
        while self.each[number as usize].jobs < most {
            let client = &mut self.each[number as usize];
            let Some(job) = client.ready.pop_front() else {
                return;
            };
            client.jobs += 1;
            let reads = &jobs[job as usize].reads;
            if reads.is_empty() {
                self.read.push_back(job);
            }
            for (position, read) in (0..).zip(reads) {
                let reader = self.reader[read.client as usize];
                let cursors = &mut self.each[reader as usize].cursors;
                cursors.push_back(Cursor {
                    job,
                    read: position,
                    state: None,
                    next: read.first,
                });
                if self.able.back() != Some(&reader) {
                    self.able.push_back(reader);
                }
            }
        }
    }
}

/// Values in numbered slots that are reused.
struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    fn put(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(value);
            return slot;
        }
        self.slots.push(Some(value));
        self.slots.len() as u32 - 1
    }

    fn get(&self, slot: u32) -> &T {
        self.slots[slot as usize].as_ref().expect(TAKEN)
    }

    fn get_mut(&mut self, slot: u32) -> &mut T {
        self.slots[slot as usize].as_mut().expect(TAKEN)
    }

    fn take(&mut self, slot: u32) -> T {
        self.free.push(slot);
        self.slots[slot as usize].take().expect(TAKEN)
    }
}

const TAKEN: &str = "a slot is named only while it is taken";
