//! Counts what jobs read of their inputs, on all nodes, until their deadlines.

use std::collections::HashMap;
use std::time::Duration;

use shoal_cache::job_reads::ObservedJob;
use shoal_net::link::JobId;
use shoal_policy::ObjectId;

use super::document::moment;
use super::executor::Executor;
use super::objects::Part;
use crate::tasks::parts::messages::{Answer, BlockBits, NAMES_MAX, Question};

/// The interval at which nodes are asked what a job has read.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// The time after its deadline for which nodes keep the count of a job, for another coordinator.
const KEPT: Duration = Duration::from_mins(10);

/// The reads of one object by a job.
#[derive(Default)]
struct ObjectRead {
    whole: Option<BlockBits>,
    partial_bytes: u64,
}

impl ObjectRead {
    /// Returns the bytes that were read of an object of this size.
    fn bytes(&self, size: u64, block_bytes: u64) -> u64 {
        let Some(whole) = &self.whole else { return 0 };
        let blocks = whole.bytes(size, block_bytes);
        blocks.saturating_add(self.partial_bytes).min(size)
    }
}

impl Executor {
    /// Counts what a job of the plan of this generation reads of its inputs, until its deadline.
    pub(super) async fn observe(&self, generation: u64, job: usize) {
        let facts = self.on(generation, |execution| {
            let deadline_s = execution.request().jobs[job].deadline_s;
            (deadline_s, execution.inputs(job).collect())
        });
        let Some((deadline_s, mut unknown)) = facts else {
            return;
        };
        let deadline = moment(self.epoch_ms, deadline_s);
        let observed = ObservedJob {
            id: JobId {
                plan: self.id,
                job: job as u64,
            },
            names: self.names.lock()[job].clone(),
            until_ms: deadline.millis(),
            forget_ms: deadline.plus(KEPT).millis(),
        };
        let mut objects = HashMap::new();
        loop {
            let found = self.take_parts(&mut unknown).await;
            objects.extend(found.into_iter().map(|part| (self.id_of(&part), part)));
            // What is read until now counts, and what is read while nodes are asked comes with the next look.
            let asked_s = self.now_s();
            let bytes = self.read_by_now(&observed, &objects).await;
            self.on(generation, |execution| execution.has_read(job, bytes, asked_s));
            let left = Duration::try_from_secs_f64(deadline_s - asked_s).unwrap_or_default();
            if left.is_zero() {
                return;
            }
            // A millisecond after the deadline the count is complete.
            tokio::time::sleep(LOOK_EVERY.min(left + Duration::from_millis(1))).await;
        }
    }

    /// Asks all nodes what a job has read of some objects. Returns the bytes, each counted once as far as
    /// nodes know which blocks were read to their ends.
    async fn read_by_now(&self, job: &ObservedJob, objects: &HashMap<ObjectId, Part>) -> u64 {
        let ids: Vec<ObjectId> = objects.keys().copied().collect();
        let (nodes, mut bytes) = (self.nodes.all(), 0);
        for asked in ids.chunks(NAMES_MAX) {
            let question = || Question::Observe(job.clone(), asked.to_vec());
            let mut read: HashMap<ObjectId, ObjectRead> = HashMap::new();
            for answer in self.nodes.ask_each(&nodes, question).await {
                let answer = match answer {
                    Ok(Answer::Reads(answer)) => answer,
                    Ok(_) => continue,
                    Err(error) => {
                        tracing::debug!(%error, "a node does not count what a job reads");
                        continue;
                    }
                };
                for (object, (whole, partial_bytes)) in asked.iter().zip(answer) {
                    let all = read.entry(*object).or_default();
                    match &mut all.whole {
                        Some(known) => known.add(&whole),
                        known => *known = Some(whole),
                    }
                    all.partial_bytes += partial_bytes;
                }
            }
            let block_bytes = self.nodes.parts.cache().block_bytes;
            let of_object = |(object, read): (&ObjectId, &ObjectRead)| {
                let size = objects[object].bytes;
                read.bytes(size, block_bytes)
            };
            bytes += read.iter().map(of_object).sum::<u64>();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockBits, ObjectRead};

    #[test]
    fn an_object_is_read_when_all_its_blocks_are() {
        for (whole, partial_bytes, expected) in [
            (&[][..], 0, 0),
            (&[0], 3, 13),
            (&[2], 0, 5),
            (&[0, 2], 0, 15),
            (&[0, 1], 4, 24),
            (&[0, 1, 2], 0, 25),
            (&[0, 1, 2], 9, 25),
        ] {
            let read = ObjectRead {
                whole: Some(BlockBits::new(whole, 3)),
                partial_bytes,
            };
            assert_eq!(read.bytes(25, 10), expected, "{whole:?} {partial_bytes}");
        }
        assert_eq!(ObjectRead::default().bytes(25, 10), 0);
    }
}
