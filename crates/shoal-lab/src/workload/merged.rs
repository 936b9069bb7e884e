//! The requests of all clients as one stream: for a cache without a network, and for the bound that knows the
//! future.

use std::collections::BTreeMap;

use shoal_sim::block::Granularity;
use shoal_sim::trace::{Access, Operation};

use super::{Job, Read, Workload};

/// The order of requests that only a network could determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One job after the other, in the order of the trace; each reads and then writes.
    Jobs,
    /// Clients in turn, each with its next read, like the equally fast clients of a generated workload.
    Clients,
}

impl Workload {
    /// All requests in one stream, each at the time when its job is submitted, in blocks of this
    /// `granularity`.
    pub fn merged(&self, order: Order, granularity: Granularity) -> Vec<Access> {
        match order {
            Order::Jobs => {
                let requests = |job| {
                    let reads = self.reads(job, granularity);
                    reads.chain(self.writes(job))
                };
                self.jobs.iter().flat_map(requests).collect()
            }
            Order::Clients => in_turn(self.jobs.iter().flat_map(|job| self.reads(job, granularity))),
        }
    }

    fn reads(&self, job: &Job, granularity: Granularity) -> impl Iterator<Item = Access> {
        job.reads.iter().map(move |read| {
            let object_bytes = self.objects[read.object as usize];
            let pieces = read.first..read.end;
            Access {
                at: job.at,
                client: read.client,
                object: read.object,
                object_bytes,
                offset_bytes: start_bytes(read, granularity),
                bytes: pieces
                    .map(|index| granularity.block_bytes(object_bytes, index))
                    .sum(),
                operation: Operation::Read,
            }
        })
    }

    fn writes(&self, job: &Job) -> impl Iterator<Item = Access> {
        job.writes.iter().map(move |&(object, bytes)| Access {
            at: job.at,
            client: job.client,
            object,
            object_bytes: self.objects[object as usize],
            offset_bytes: 0,
            bytes,
            operation: Operation::Write,
        })
    }
}

fn start_bytes(read: &Read, granularity: Granularity) -> u64 {
    match granularity {
        Granularity::Objects => 0,
        Granularity::Blocks(block_bytes) => u64::from(read.first) * block_bytes.get(),
    }
}

fn in_turn(accesses: impl Iterator<Item = Access>) -> Vec<Access> {
    let mut turns = BTreeMap::<u32, usize>::new();
    let mut numbered: Vec<_> = accesses
        .map(|access| {
            let turn = turns.entry(access.client).or_default();
            *turn += 1;
            (*turn, access)
        })
        .collect();
    numbered.sort_by_key(|(turn, access)| (*turn, access.client));
    numbered.into_iter().map(|(_, access)| access).collect()
}

#[cfg(test)]
mod tests {
    use shoal_sim::block::{Block, Granularity};
    use shoal_sim::trace::Operation;

    use super::Order;
    use crate::workload::{Job, Read, Workload};

    const GRANULARITY: Granularity = match std::num::NonZeroU64::new(10) {
        Some(bytes) => Granularity::Blocks(bytes),
        None => Granularity::Objects,
    };

    fn read(client: u32, object: u32, first: u32, end: u32) -> Read {
        Read {
            client,
            object,
            first,
            end,
        }
    }

    fn job(client: u32, reads: Vec<Read>) -> Job {
        Job {
            client,
            reads,
            ..Job::default()
        }
    }

    #[test]
    fn jobs_are_merged_in_their_order_and_clients_in_turn() {
        let workload = Workload {
            objects: vec![10; 4],
            jobs: vec![
                job(0, vec![read(0, 0, 0, 1), read(0, 1, 0, 1)]),
                job(1, vec![read(1, 2, 0, 1)]),
                job(1, vec![read(1, 3, 0, 1)]),
            ],
        };
        let objects = |order| -> Vec<u32> {
            let merged = workload.merged(order, GRANULARITY);
            merged.iter().map(|access| access.object).collect()
        };
        assert_eq!(objects(Order::Jobs), [0, 1, 2, 3]);
        assert_eq!(objects(Order::Clients), [0, 2, 1, 3]);
    }

    #[test]
    fn a_piece_of_an_object_is_its_blocks_and_no_others() {
        let workload = Workload {
            objects: vec![45],
            jobs: vec![job(0, vec![read(0, 0, 0, 2), read(0, 0, 2, 5)])],
        };
        let merged = workload.merged(Order::Jobs, GRANULARITY);
        let blocks: Vec<_> = merged
            .iter()
            .flat_map(|access| GRANULARITY.blocks_of(access))
            .collect();
        let block = |index| Block { object: 0, index };
        let expected = [(0, 10), (1, 10), (2, 10), (3, 10), (4, 5)];
        assert_eq!(blocks, expected.map(|(index, bytes)| (block(index), bytes)));
    }

    #[test]
    fn a_job_writes_after_it_has_read() {
        let workload = Workload {
            objects: vec![10, 20],
            jobs: vec![Job {
                writes: vec![(1, 20)],
                ..job(0, vec![read(0, 0, 0, 1)])
            }],
        };
        let merged = workload.merged(Order::Jobs, GRANULARITY);
        let operations: Vec<_> = merged
            .iter()
            .map(|access| (access.object, access.operation))
            .collect();
        assert_eq!(operations, [(0, Operation::Read), (1, Operation::Write)]);
    }
}
