//! Assigns reads to clients if a trace does not.

use serde::Deserialize;
use shoal_base::seeded::Chance;
use shoal_policy::hash::KeyMap;

use super::{Read, Workload};

/// How reads are assigned to clients.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Assign {
    /// As in the trace; its clients are dealt to the simulated ones in the order of their numbers.
    #[default]
    Recorded,
    /// To clients in turn, read by read.
    RoundRobin,
    /// To a random client, read by read.
    Random,
    /// The first read of an object goes to a random node. A later read goes with probability `locality` to
    /// the node of the first, and otherwise to any other: D3N's repair of traces without locality
    /// (dissertation 6.4.1: 0.7).
    Locality {
        /// A probability between 0 and 1.
        locality: f64,
    },
    /// All reads go to random clients of one node at a time (dissertation 6.4.1, Figure 6·5: rack 1, then
    /// rack 4).
    Shifts {
        /// Nodes in order of time, each with the second of the trace from which all reads go to it.
        shifts: Vec<(u32, f64)>,
    },
}

impl Assign {
    /// Assigns every read of `workload` to one of the `clients` of each of `nodes`. A job runs where its
    /// first read is.
    pub fn apply(&self, workload: &mut Workload, nodes: u32, clients: u32, chance: &mut Chance) {
        let all = nodes * clients;
        let mut turn = 0;
        let mut homes = KeyMap::<u32, u32>::default();
        for job in &mut workload.jobs {
            let at_s = job.at.as_secs_f64();
            for read in &mut job.reads {
                read.client = match self {
                    Self::Recorded => recorded(read.client, nodes, clients),
                    Self::RoundRobin => {
                        turn += 1;
                        // Consecutive reads are on different nodes.
                        recorded(turn - 1, nodes, clients)
                    }
                    Self::Random => chance.below(u64::from(all)) as u32,
                    Self::Locality { locality } => {
                        let node = local_node(&mut homes, read, *locality, nodes, chance);
                        node * clients + chance.below(u64::from(clients)) as u32
                    }
                    Self::Shifts { shifts } => {
                        let now = shifts.iter().rev().find(|(_, from_s)| at_s >= *from_s);
                        let node = now.or(shifts.first()).map_or(0, |(node, _)| *node).min(nodes - 1);
                        node * clients + chance.below(u64::from(clients)) as u32
                    }
                };
            }
            job.client = job
                .reads
                .first()
                .map_or_else(|| recorded(job.client, nodes, clients), |read| read.client);
        }
    }
}

/// Maps client `number` of a trace, dealing clients to the nodes in turn.
fn recorded(number: u32, nodes: u32, clients: u32) -> u32 {
    let number = number % (nodes * clients);
    (number % nodes) * clients + number / nodes
}

fn local_node(
    homes: &mut KeyMap<u32, u32>,
    read: &Read,
    locality: f64,
    nodes: u32,
    chance: &mut Chance,
) -> u32 {
    let mut any = |but: u32| {
        let node = chance.below(u64::from(nodes - but)) as u32;
        (node, chance.happens(locality))
    };
    match homes.get(&read.object) {
        None => {
            let (node, _) = any(0);
            homes.insert(read.object, node);
            node
        }
        Some(&home) if nodes == 1 => home,
        Some(&home) => {
            let (other, stays) = any(1);
            if stays {
                home
            } else {
                other + u32::from(other >= home)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_base::seeded::Chance;
    use shoal_sim::Time;

    use super::Assign;
    use crate::workload::{Job, Read, Workload};

    fn reads(count: u32, objects: u32) -> Workload {
        let job = |i: u32| Job {
            at: Time(u64::from(i) * 1_000_000_000),
            reads: vec![Read {
                client: i,
                object: i % objects,
                first: 0,
                end: 1,
            }],
            ..Job::default()
        };
        Workload {
            objects: vec![1; objects as usize],
            jobs: (0..count).map(job).collect(),
        }
    }

    /// The node of each job, with 4 nodes of 5 clients each.
    fn nodes(assign: &Assign, mut workload: Workload) -> Vec<u32> {
        assign.apply(&mut workload, 4, 5, &mut Chance::new(1));
        assert!(
            workload
                .jobs
                .iter()
                .all(|job| job.client < 20 && job.client == job.reads[0].client)
        );
        workload.jobs.iter().map(|job| job.client / 5).collect()
    }

    #[test]
    fn neighbours_are_dealt_to_different_nodes() {
        for assign in [Assign::Recorded, Assign::RoundRobin] {
            assert_eq!(nodes(&assign, reads(6, 6)), [0, 1, 2, 3, 0, 1]);
        }
    }

    #[test]
    fn with_locality_an_object_is_mostly_read_where_it_was_read_first() {
        for (locality, low, high) in [(1.0, 1.0, 1.0), (0.7, 0.68, 0.72), (0.0, 0.0, 0.0)] {
            let nodes = nodes(&Assign::Locality { locality }, reads(20_000, 10));
            let stayed = (10..nodes.len()).filter(|&i| nodes[i] == nodes[i % 10]).count();
            let share = stayed as f64 / (nodes.len() - 10) as f64;
            assert!((low..=high).contains(&share), "{share} of {locality}");
        }
    }

    #[test]
    fn demand_moves_when_its_time_has_come() {
        let shifts = vec![(1, 0.0), (3, 3.0)];
        assert_eq!(nodes(&Assign::Shifts { shifts }, reads(5, 5)), [1, 1, 1, 3, 3]);
    }
}
