//! The work of a cluster's clients: objects, and jobs that read and write them.

mod assign;
mod generate;
mod merged;
mod recorded;
mod settings;

use std::time::Duration;

use shoal_sim::Time;
use shoal_sim::block::Granularity;
use shoal_sim::trace;

pub use self::assign::Assign;
pub use self::generate::{Shape, zipf};
pub use self::merged::Order;
pub use self::recorded::job_of;
pub use self::settings::{Arrivals, Generator, WorkloadSettings};

/// All the requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Length of each object in bytes.
    pub objects: Vec<u64>,
    /// Jobs in the order of their times.
    pub jobs: Vec<Job>,
}

/// A job, which reads all its objects, computes, writes, and is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The time of submission.
    pub at: Time,
    /// The client that runs it.
    pub client: u32,
    /// Its reads; all at once, within the limits of the clients.
    pub reads: Vec<Read>,
    /// How long it computes after its reads.
    pub compute: Duration,
    /// The objects that it replaces at the end, and the bytes that it writes to the lake for each.
    pub writes: Vec<(u32, u64)>,
    /// Jobs that must be done before it starts, by their position.
    pub after: Vec<u32>,
}

/// Consecutive blocks of one object, read by one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The client that reads.
    pub client: u32,
    /// The object that is read.
    pub object: u32,
    /// The first block.
    pub first: u32,
    /// The block after the last one.
    pub end: u32,
}

impl Read {
    /// The number of blocks.
    pub const fn blocks(self) -> u32 {
        self.end - self.first
    }
}

impl Workload {
    /// Creates a workload from a recording. An object has the greatest length that the recording gives it.
    /// All reads belong to the first client until they are assigned ([`Assign`]).
    ///
    /// # Errors
    ///
    /// Fails with the first error of the recording, or if an object has too many blocks.
    pub fn recorded(
        jobs: impl IntoIterator<Item = Result<trace::Job, trace::TraceError>>,
        granularity: Granularity,
    ) -> Result<Self, trace::TraceError> {
        let mut workload = Self::default();
        for job in jobs {
            let job = job?;
            for piece in job.reads.iter().chain(&job.writes) {
                let object_bytes = workload.measure(piece);
                if !granularity.allows(object_bytes) {
                    return Err(trace::TraceError::TooManyOfObject(object_bytes));
                }
            }
            let client = job.client.unwrap_or(0);
            let read = |piece: &trace::Piece| {
                let blocks = granularity.touched(piece.offset_bytes, piece.bytes);
                Read {
                    client,
                    object: piece.object,
                    first: blocks.start,
                    end: blocks.end,
                }
            };
            workload.jobs.push(Job {
                at: job.at,
                client,
                reads: job.reads.iter().map(read).collect(),
                compute: job.compute,
                writes: job
                    .writes
                    .iter()
                    .map(|piece| (piece.object, piece.bytes))
                    .collect(),
                after: job.after,
            });
        }
        Ok(workload)
    }

    /// Splits reads into pieces of at most `blocks`, like a framework that starts a task for each split of
    /// its input.
    pub fn split(&mut self, blocks: u32) {
        assert!(blocks > 0, "a piece has blocks");
        for job in &mut self.jobs {
            let pieces = |read: &Read| {
                let read = *read;
                (read.first..read.end)
                    .step_by(blocks as usize)
                    .map(move |first| Read {
                        first,
                        end: read.end.min(first.saturating_add(blocks)),
                        ..read
                    })
            };
            job.reads = job.reads.iter().flat_map(pieces).collect();
        }
    }

    /// Repeats the jobs `passes` times. A pass begins when the last job of the previous pass is submitted.
    pub fn repeat(&mut self, passes: u32) {
        let jobs = std::mem::take(&mut self.jobs);
        let span = jobs.iter().map(|job| job.at).max().unwrap_or_default() - Time::ZERO;
        for pass in 0..passes {
            let before = self.jobs.len() as u32;
            self.jobs.extend(jobs.iter().map(|job| Job {
                at: job.at + span * pass,
                after: job.after.iter().map(|earlier| earlier + before).collect(),
                ..job.clone()
            }));
        }
    }

    /// The number of blocks that all jobs request.
    pub fn block_requests(&self) -> u64 {
        let reads = self.jobs.iter().flat_map(|job| &job.reads);
        reads.map(|read| u64::from(read.blocks())).sum()
    }

    /// The bytes of the distinct blocks that all jobs request.
    pub fn distinct_bytes(&self, granularity: Granularity) -> u64 {
        let mut requested: Vec<Vec<bool>> = vec![Vec::new(); self.objects.len()];
        let mut bytes = 0;
        for read in self.jobs.iter().flat_map(|job| &job.reads) {
            let blocks = &mut requested[read.object as usize];
            if blocks.len() < read.end as usize {
                blocks.resize(read.end as usize, false);
            }
            for index in read.first..read.end {
                if !std::mem::replace(&mut blocks[index as usize], true) {
                    bytes += granularity.block_bytes(self.objects[read.object as usize], index);
                }
            }
        }
        bytes
    }

    /// Records the length of a piece's object.
    fn measure(&mut self, piece: &trace::Piece) -> u64 {
        let object = piece.object as usize;
        if self.objects.len() <= object {
            self.objects.resize(object + 1, 0);
        }
        let bytes = piece
            .object_bytes
            .max(piece.offset_bytes.saturating_add(piece.bytes));
        self.objects[object] = self.objects[object].max(bytes);
        self.objects[object]
    }
}

#[cfg(test)]
mod tests {
    use shoal_sim::Time;
    use shoal_sim::block::Granularity;
    use shoal_sim::trace::{Job, Piece};

    use super::{Read, Workload};

    fn job(object: u32, bytes: u64) -> Job {
        Job {
            reads: vec![Piece::whole(object, bytes)],
            ..Job::default()
        }
    }

    #[test]
    fn an_object_is_as_long_as_its_largest_read() {
        let jobs = [job(0, 25), job(1, 7), job(0, 12)].map(Ok);
        let workload = Workload::recorded(jobs, Granularity::blocks(10)).unwrap();
        assert_eq!(workload.objects, [25, 7]);
        let blocks: Vec<_> = workload.jobs.iter().map(|job| job.reads[0].blocks()).collect();
        assert_eq!(blocks, [3, 1, 2], "a shorter read is of the first blocks");
        assert_eq!(workload.block_requests(), 6);
        assert_eq!(workload.distinct_bytes(Granularity::blocks(10)), 25 + 7);
    }

    #[test]
    fn an_object_of_more_blocks_than_a_run_holds_is_refused() {
        let told = Workload::recorded([Ok(job(0, 1 << 40))], Granularity::blocks(10)).unwrap_err();
        assert!(
            told.to_string().contains("an object of 1099511627776 bytes"),
            "{told}"
        );
    }

    #[test]
    fn a_repeated_workload_is_the_same_pass_after_pass() {
        let first = Job {
            at: Time(5),
            ..job(0, 25)
        };
        let second = Job {
            at: Time(20),
            after: vec![0],
            ..job(1, 7)
        };
        let once = Workload::recorded([Ok(first), Ok(second)], Granularity::blocks(10)).unwrap();
        let mut twice = once.clone();
        twice.repeat(2);
        assert_eq!(twice.objects, once.objects);
        assert_eq!(twice.jobs[..2], once.jobs[..]);
        let seen: Vec<_> = twice.jobs[2..]
            .iter()
            .map(|job| (job.at, job.after.clone()))
            .collect();
        assert_eq!(seen, [(Time(25), vec![]), (Time(40), vec![2])]);
        assert_eq!(twice.jobs[2].reads, once.jobs[0].reads);
    }

    #[test]
    fn a_split_read_is_read_in_pieces() {
        let mut workload = Workload::recorded([Ok(job(0, 45))], Granularity::blocks(10)).unwrap();
        workload.split(2);
        let pieces: Vec<_> = workload.jobs[0]
            .reads
            .iter()
            .map(|read: &Read| (read.first, read.end))
            .collect();
        assert_eq!(pieces, [(0, 2), (2, 4), (4, 5)]);
    }
}
