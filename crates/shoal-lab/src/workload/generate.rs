//! Workloads from a law and a seed. Each client draws from a separate stream, so that adding clients does not
//! change the work of the others.

use std::time::Duration;

use shoal_base::seeded::{Chance, Zipf};
use shoal_sim::Time;
use shoal_sim::block::Granularity;

use super::{Job, Read, Workload};

/// The parameters of every generator.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of clients.
    pub clients: u32,
    /// The number of objects that each client reads.
    pub reads: u32,
    /// The number of objects.
    pub objects: u32,
    /// The size of each object.
    pub object_bytes: u64,
    /// How objects are divided.
    pub granularity: Granularity,
    /// True if each read is a separate job, so that a client may do one after the other.
    pub job_a_read: bool,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Generates reads of every object with the same probability.
pub fn uniform(shape: &Shape) -> Workload {
    shape.drawn(|_, chance| chance.below(u64::from(shape.objects)) as u32)
}

/// Generates reads of object number k, counted from 1, in proportion to k^-`exponent`.
pub fn zipf(shape: &Shape, exponent: f64) -> Workload {
    let law = Zipf::new(shape.objects, exponent);
    shape.drawn(|_, chance| law.draw(chance))
}

/// Generates reads of objects in proportion to a power function: the density of number x grows with
/// x^(`exponent` − 1), as numpy's `power` draws them. A few numbers are popular and a long tail is not, but
/// the head is flatter than Zipf's.
pub fn power(shape: &Shape, exponent: f64) -> Workload {
    shape.drawn(|_, chance| {
        #[expect(clippy::cast_sign_loss, reason = "a product of positive numbers")]
        let object = (chance.unit().powf(1.0 / exponent) * f64::from(shape.objects)) as u32;
        object.min(shape.objects - 1)
    })
}

/// A share `hot` of the objects gets a share `heat` of the reads. After each `1 / shifts` of a client's
/// reads, another, disjoint set of objects becomes hot, until all sets have been hot and the first is hot
/// again.
pub fn hot_set(shape: &Shape, hot: f64, heat: f64, shifts: u32) -> Workload {
    #[expect(clippy::cast_sign_loss, reason = "a share is positive")]
    let set = ((f64::from(shape.objects) * hot).round() as u32).clamp(1, shape.objects);
    let phase_reads = shape.reads.div_ceil(shifts.max(1)).max(1);
    shape.drawn(|position, chance| {
        let first = (position / phase_reads).wrapping_mul(set);
        if chance.happens(heat) {
            (first + chance.below(u64::from(set)) as u32) % shape.objects
        } else {
            chance.below(u64::from(shape.objects)) as u32
        }
    })
}

/// `datasets` with equal numbers of objects. Every `period`, one job for each data set reads all of it,
/// computes for `compute` and ends; this repeats for `rounds` rounds. Jobs of one round start evenly over the
/// period and run on the clients in turn.
pub fn recurring(shape: &Shape, datasets: u32, rounds: u32, period: Duration, compute: Duration) -> Workload {
    let each = (shape.objects / datasets.max(1)).max(1);
    let job = |number: u32| {
        let (round, dataset) = (number / datasets, number % datasets);
        let client = number % shape.clients;
        let objects = (dataset * each)..((dataset + 1) * each).min(shape.objects);
        Job {
            at: Time::ZERO + period * round + period * dataset / datasets,
            client,
            reads: objects.map(|object| shape.read(client, object)).collect(),
            compute,
            ..Job::default()
        }
    };
    Workload {
        objects: shape.lengths(),
        jobs: (0..rounds * datasets).map(job).collect(),
    }
}

impl Shape {
    /// Lets each client read the object that `draw` returns for its 1st, 2nd, ... read.
    fn drawn(&self, draw: impl Fn(u32, &mut Chance) -> u32) -> Workload {
        let jobs = (0..self.clients).flat_map(|client| {
            let mut chance = Chance::stream(self.seed, u64::from(client));
            let reads: Vec<_> = (0..self.reads)
                .map(|position| self.read(client, draw(position, &mut chance)))
                .collect();
            let size = if self.job_a_read { 1 } else { reads.len().max(1) };
            let job = |reads: &[Read]| Job {
                client,
                reads: reads.to_vec(),
                ..Job::default()
            };
            reads.chunks(size).map(job).collect::<Vec<_>>()
        });
        Workload {
            objects: self.lengths(),
            jobs: jobs.collect(),
        }
    }

    fn lengths(&self) -> Vec<u64> {
        vec![self.object_bytes; self.objects as usize]
    }

    fn read(&self, client: u32, object: u32) -> Read {
        Read {
            client,
            object,
            first: 0,
            end: self.granularity.count(self.object_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_sim::block::Granularity;

    use super::{Shape, hot_set, power, recurring, uniform, zipf};

    fn shape() -> Shape {
        Shape {
            clients: 4,
            reads: 1000,
            objects: 100,
            object_bytes: 25,
            granularity: Granularity::blocks(10),
            job_a_read: false,
            seed: 1,
        }
    }

    #[test]
    fn a_seed_is_a_workload_and_another_client_changes_no_other() {
        assert_eq!(uniform(&shape()), uniform(&shape()));
        let more = uniform(&Shape {
            clients: 5,
            ..shape()
        });
        assert_eq!(more.jobs[..4], uniform(&shape()).jobs[..]);
        assert_ne!(uniform(&Shape { seed: 2, ..shape() }), uniform(&shape()));
        assert_eq!(uniform(&shape()).block_requests(), 4 * 1000 * 3);
    }

    #[test]
    fn a_read_may_be_a_job_of_its_own() {
        let jobs = zipf(
            &Shape {
                job_a_read: true,
                ..shape()
            },
            1.0,
        )
        .jobs;
        assert_eq!(jobs.len(), 4000);
        assert!(jobs.iter().all(|job| job.reads.len() == 1));
    }

    #[test]
    fn the_share_of_the_first_half_falls_with_the_power() {
        for exponent in [1.0, 3.0] {
            let workload = power(&shape(), exponent);
            let reads: Vec<_> = workload.jobs.iter().flat_map(|job| &job.reads).collect();
            let first_half = reads.iter().filter(|read| read.object < 50).count() as f64 / reads.len() as f64;
            assert!((first_half - 0.5_f64.powf(exponent)).abs() < 0.03, "{first_half}");
        }
    }

    #[test]
    fn the_hot_set_gets_its_share_and_moves() {
        let workload = hot_set(&shape(), 0.1, 0.9, 2);
        let reads = &workload.jobs[0].reads;
        let share = |half: &[super::Read], set: std::ops::Range<u32>| {
            half.iter().filter(|read| set.contains(&read.object)).count() as f64 / half.len() as f64
        };
        let (first, second) = reads.split_at(500);
        // 0.9, and a tenth of the random reads.
        assert!((share(first, 0..10) - 0.91).abs() < 0.05 && share(first, 10..20) < 0.05);
        assert!((share(second, 10..20) - 0.91).abs() < 0.05 && share(second, 0..10) < 0.05);
    }

    #[test]
    fn recurring_jobs_read_the_same_again_in_time() {
        let workload = recurring(&shape(), 4, 3, Duration::from_mins(1), Duration::from_secs(1));
        assert_eq!(workload.jobs.len(), 12);
        let objects = |job: usize| {
            workload.jobs[job]
                .reads
                .iter()
                .map(|read| read.object)
                .collect::<Vec<_>>()
        };
        assert_eq!(objects(1), (25..50).collect::<Vec<_>>());
        assert_eq!(objects(1), objects(5));
        assert_eq!(workload.jobs[5].at - workload.jobs[1].at, Duration::from_mins(1));
        assert!(workload.jobs.is_sorted_by_key(|job| job.at));
    }
}
