//! What a trace says about the cache it needs, in plain words.

use std::fmt::Write as _;

use serde::Serialize;
use shoal_policy::mrc::{MissCurve, Reach, ReuseDistances};

use crate::block::Granularity;
use crate::cluster::{Arrival, Cooperation, Hierarchy, Route, Split, Wanted};
use crate::compare::{Compared, Comparison, Contender, Row, WorkingSet, in_chunks};
use crate::plot::{Line, Lines};
use crate::policy::PolicyName;
use crate::report::{Served, Sources};
use crate::trace::{Access, Accesses, Operation, TraceError};
use crate::units::{Capacity, human_bytes};

/// A miss-ratio curve is told at so many sizes.
const POINTS: u64 = 50;

/// Reuse that a larger cache would gain must be at least this share of the requests to be worth room.
const WORTHWHILE: f64 = 0.01;

/// L1's shares that are tried.
const SHARES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 0.9];

/// A read from the lake takes so much longer than one from a peer, where nothing else is known.
pub const LAKE_COST: f64 = 5.0;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// What is cached as one piece.
    pub granularity: Granularity,
    /// Room in all; the smallest that is good enough when it is none.
    pub capacity: Option<Capacity>,
    /// How many nodes share the room.
    pub nodes: u32,
    /// A read from the lake costs so many reads from a peer.
    pub lake_cost: f64,
    /// So many threads may be used.
    pub threads: usize,
}

/// What comes of one split of the room of two layers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SplitOutcome {
    /// L1's share.
    pub l1_share: f64,
    /// Where blocks came from.
    pub sources: Sources,
    /// Mean cost of a block, in reads from a peer: 0 local, 1 from a peer.
    pub cost: f64,
}

/// What the trace says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// What it touches.
    pub working_set: WorkingSet,
    /// LRU's miss ratio by size in bytes.
    pub curve: Vec<(u64, f64)>,
    /// Room that everything else is about.
    pub capacity_bytes: u64,
    /// Whether that was asked for, or is our advice.
    pub capacity_was_given: bool,
    /// Every policy with half of it, with it and with twice as much.
    pub policies: Vec<Row>,
    /// Splits between two layers, where there are several nodes.
    pub splits: Vec<SplitOutcome>,
}

impl Question {
    /// Reads the trace that `open` opens several times; `progress` is told of every request.
    pub fn ask(
        &self,
        open: &dyn Fn() -> Result<Accesses, TraceError>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Advice, TraceError> {
        let survey = self.compare(open, &[], progress)?.working_set;
        let curve = self.curve(&survey, open, progress)?;
        let good_enough = smallest_good_enough(&curve, &survey);
        let capacity_bytes = match self.capacity {
            Some(capacity) => capacity.bytes(survey.bytes),
            None => good_enough,
        }
        .max(1);
        let around = [
            capacity_bytes / 2,
            capacity_bytes,
            capacity_bytes.saturating_mul(2),
        ];
        let policies = self.compare(open, &around.map(Capacity::Bytes), progress)?.rows;
        let splits = match self.nodes {
            0 | 1 => Vec::new(),
            _ => self.splits(&survey, capacity_bytes, open, progress)?,
        };
        let step = survey.bytes.div_ceil(POINTS).max(1);
        Ok(Advice {
            working_set: survey,
            curve: (0..=POINTS)
                .map(|i| i * step)
                .map(|size| (size, curve.ratio(size)))
                .collect(),
            capacity_bytes,
            capacity_was_given: self.capacity.is_some(),
            policies,
            splits,
        })
    }

    fn compare(
        &self,
        open: &dyn Fn() -> Result<Accesses, TraceError>,
        capacities: &[Capacity],
        progress: &mut dyn FnMut(u64),
    ) -> Result<Compared, TraceError> {
        let comparison = Comparison {
            granularity: self.granularity,
            contenders: PolicyName::all().map(Contender::policy).collect(),
            capacities: capacities.to_vec(),
            threads: self.threads,
        };
        comparison.run(open, progress)
    }

    fn curve(
        &self,
        survey: &WorkingSet,
        open: &dyn Fn() -> Result<Accesses, TraceError>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<MissCurve, TraceError> {
        let mut distances = ReuseDistances::sampled(Reach {
            capacity_bytes: survey.bytes.max(survey.block_bytes_max).max(1),
            block_bytes: survey.block_bytes_max.max(1),
            blocks_max: survey.blocks.max(1) as usize,
        });
        in_chunks(open()?, progress, |chunk| {
            for access in reads(chunk) {
                for (block, bytes) in self.granularity.blocks_of(access) {
                    distances.record(block.fingerprint(), bytes);
                }
            }
        })?;
        Ok(distances.curve())
    }

    fn splits(
        &self,
        survey: &WorkingSet,
        capacity_bytes: u64,
        open: &dyn Fn() -> Result<Accesses, TraceError>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<SplitOutcome>, TraceError> {
        let node_bytes = capacity_bytes / u64::from(self.nodes);
        let nodes = |l1_share| {
            let split = Split::Fixed(l1_share);
            let block_bytes = survey.block_bytes_max.max(1);
            Hierarchy::new(
                self.nodes as usize,
                node_bytes,
                block_bytes,
                split,
                PolicyName::LRU,
            )
        };
        let mut tried = SHARES.map(|share| (share, nodes(share), Sources::default()));
        in_chunks(open()?, progress, |chunk| {
            for access in reads(chunk) {
                for (_, nodes, sources) in &mut tried {
                    self.read(access, nodes, sources);
                }
            }
        })?;
        let outcome = |(l1_share, _, sources): (f64, Hierarchy, Sources)| {
            let cost = sources.peer.requests as f64 + sources.lake.requests as f64 * self.lake_cost;
            SplitOutcome {
                l1_share,
                sources,
                cost: cost / sources.total().requests.max(1) as f64,
            }
        };
        Ok(tried.into_iter().map(outcome).collect())
    }

    /// One request on a cluster without a network: what is fetched is there at once. Clients are dealt to the nodes.
    fn read(&self, access: &Access, nodes: &mut Hierarchy, sources: &mut Sources) {
        let object_blocks = self.granularity.count(access.object_bytes);
        for (block, bytes) in self.granularity.blocks_of(access) {
            let wanted = Wanted {
                node: (access.client % self.nodes) as usize,
                block,
                bytes,
                object_blocks,
                now: access.at,
            };
            let route = nodes.route(&wanted);
            if route != Route::Local {
                nodes.landed(&Arrival {
                    wanted,
                    route,
                    now: access.at,
                });
            }
            sources.count(Served::from(route), bytes);
        }
    }
}

fn reads(chunk: &[Access]) -> impl Iterator<Item = &Access> {
    chunk.iter().filter(|access| access.operation == Operation::Read)
}

/// The smallest size on the curve that misses hardly more than one that holds everything.
fn smallest_good_enough(curve: &MissCurve, survey: &WorkingSet) -> u64 {
    let least = curve.ratio(survey.bytes);
    let step = survey.bytes.div_ceil(POINTS * 10).max(1);
    let good = |size: &u64| curve.ratio(*size) <= least + WORTHWHILE;
    (1..=POINTS * 10)
        .map(|i| i * step)
        .find(good)
        .unwrap_or(survey.bytes)
}

impl Advice {
    /// The miss-ratio curve as a plot.
    pub fn plot(&self) -> Lines {
        let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
        Lines {
            title: "Miss ratio by size of the cache (LRU)".to_owned(),
            x_label: "GiB".to_owned(),
            y_label: "share of the blocks asked for that miss".to_owned(),
            lines: vec![Line {
                name: "LRU".to_owned(),
                points: self
                    .curve
                    .iter()
                    .map(|&(size, ratio)| (gib(size), ratio))
                    .collect(),
            }],
        }
    }

    /// All of it in plain words.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.tell_trace(&mut text);
        self.tell_capacity(&mut text);
        self.tell_policies(&mut text);
        self.tell_splits(&mut text);
        text
    }

    fn tell_trace(&self, text: &mut String) {
        let set = &self.working_set;
        // A string takes what is written to it; the same below.
        let _ = writeln!(
            text,
            "The trace reads {} blocks ({}) of {} objects. Different ones among them take {}: the working set.\n\
             {:.1}% of the reads are of something read before; no cache can serve more than that.",
            set.requests,
            human_bytes(set.request_bytes),
            set.objects,
            human_bytes(set.bytes),
            set.reuse() * 100.0
        );
    }

    fn tell_capacity(&self, text: &mut String) {
        let why = if self.capacity_was_given {
            "as asked"
        } else {
            "the least that misses hardly more than a cache for everything"
        };
        let _ = writeln!(
            text,
            "\nA cache of {} ({why}), under LRU:",
            human_bytes(self.capacity_bytes)
        );
        let lru = |row: &&Row| row.policy == Contender::policy(PolicyName::LRU);
        for (row, name) in self
            .policies
            .iter()
            .filter(lru)
            .zip(["half of it", "this size", "twice as much"])
        {
            let _ = writeln!(
                text,
                "  {name:<14} {:>10}  misses {:5.1}% of the blocks, {:5.1}% of the bytes",
                human_bytes(row.capacity_bytes),
                row.miss_ratio * 100.0,
                row.byte_miss_ratio * 100.0
            );
        }
    }

    fn tell_policies(&self, text: &mut String) {
        let mut rows: Vec<_> = self
            .policies
            .iter()
            .filter(|row| row.capacity_bytes == self.capacity_bytes)
            .collect();
        rows.sort_by(|a, b| a.byte_miss_ratio.total_cmp(&b.byte_miss_ratio));
        let Some(best) = rows.first() else { return };
        let _ = writeln!(
            text,
            "\nOf the policies, `{}` reads least from the lake at this size:",
            best.policy
        );
        for row in &rows {
            let _ = writeln!(
                text,
                "  {:<14} misses {:5.1}% of the blocks, {:5.1}% of the bytes",
                row.policy.to_string(),
                row.miss_ratio * 100.0,
                row.byte_miss_ratio * 100.0
            );
        }
    }

    fn tell_splits(&self, text: &mut String) {
        let Some(best) = self.splits.iter().min_by(|a, b| a.cost.total_cmp(&b.cost)) else {
            return;
        };
        let _ = writeln!(
            text,
            "\nDivided among the nodes in two layers, {:.0}% of each for its own clients (L1) is best:",
            best.l1_share * 100.0
        );
        for split in &self.splits {
            let total = split.sources.total().requests.max(1) as f64;
            let percent = |requests: u64| requests as f64 / total * 100.0;
            let _ = writeln!(
                text,
                "  L1 {:3.0}%        local {:5.1}%  peer {:5.1}%  lake {:5.1}%  mean cost {:.3}",
                split.l1_share * 100.0,
                percent(split.sources.local.requests),
                percent(split.sources.peer.requests),
                percent(split.sources.lake.requests),
                split.cost
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LAKE_COST, Question};
    use crate::block::Granularity;
    use crate::chance::{Chance, Zipf};
    use crate::clock::Time;
    use crate::trace::{Access, Accesses, Operation, TraceError};
    use crate::units::Capacity;

    /// Half of the reads go to ten objects, half to a thousand others; two clients.
    #[expect(clippy::unnecessary_wraps, reason = "it stands for a trace that is opened")]
    fn trace() -> Result<Accesses, TraceError> {
        let (law, mut chance) = (Zipf::new(1000, 0.0), Chance::new(1));
        let access = move |number: u32| {
            let hot = chance.happens(0.5);
            Ok(Access {
                at: Time::ZERO,
                client: number % 2,
                object: if hot {
                    law.draw(&mut chance) % 10
                } else {
                    10 + law.draw(&mut chance)
                },
                object_bytes: 100,
                offset_bytes: 0,
                bytes: 100,
                operation: Operation::Read,
            })
        };
        Ok(Box::new((0..50_000).map(access)))
    }

    fn question(capacity: Option<Capacity>) -> Question {
        Question {
            granularity: Granularity::Objects,
            capacity,
            nodes: 2,
            lake_cost: LAKE_COST,
            threads: 2,
        }
    }

    #[test]
    fn advice_follows_from_the_trace() {
        let advice = question(Some(Capacity::Bytes(10_000)))
            .ask(&trace, &mut |_| ())
            .unwrap();
        assert_eq!(
            (advice.working_set.blocks, advice.working_set.bytes),
            (1010, 101_000)
        );
        let lru = |bytes: u64| {
            let mut rows = advice.policies.iter();
            rows.find(|row| row.policy.to_string() == "lru" && row.capacity_bytes == bytes)
                .unwrap()
                .miss_ratio
        };
        assert!(lru(5_000) > lru(10_000) && lru(10_000) > lru(20_000));
        let on_curve = advice.curve.iter().find(|(size, _)| *size >= 10_000).unwrap();
        assert!(
            (on_curve.1 - lru(10_000)).abs() < 0.02,
            "{on_curve:?} and {}",
            lru(10_000)
        );
        assert_eq!(advice.splits.len(), 5);
        let text = advice.text();
        for part in [
            "98.6 KiB",
            "half of it",
            "twice as much",
            "reads least from the lake",
            "L1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(advice.plot().svg().contains("GiB"));
    }

    #[test]
    fn without_a_size_the_least_that_is_good_enough_is_told() {
        let advice = question(None).ask(&trace, &mut |_| ()).unwrap();
        assert!(
            (90_000..=101_000).contains(&advice.capacity_bytes),
            "{}",
            advice.capacity_bytes
        );
        assert!(advice.text().contains("the least that misses hardly more"));
    }
}
