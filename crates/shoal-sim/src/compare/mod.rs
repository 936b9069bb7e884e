//! Several policies at several capacities on one trace, in one pass.

mod show;

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use shoal_policy::eviction::Belady;

use crate::block::{Block, Granularity};
use crate::cache::{Cache, Tally, ratio};
use crate::hash::{NumberMap, NumberSet};
use crate::names::unknown;
use crate::policy::{AnyPolicy, PolicyName};
use crate::trace::{Access, Accesses, Operation, TraceError};
use crate::units::Capacity;

/// So many requests are read at a time and then sent through every cache.
const CHUNK: usize = 1 << 16;

/// What can be compared: a policy, or the bound that knows the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contender {
    /// A policy that a node can follow.
    Policy(PolicyName),
    /// Belady's MIN: no policy misses less, where all blocks are of one size. Holds the whole trace in memory.
    Belady,
}

/// What is asked of a trace.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What is cached as one piece.
    pub granularity: Granularity,
    /// Who is compared.
    pub contenders: Vec<Contender>,
    /// With how much room.
    pub capacities: Vec<Capacity>,
    /// So many threads share the caches; each cache is one thread's at a time.
    pub threads: usize,
}

/// What a trace touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkingSet {
    /// Blocks that are read.
    pub requests: u64,
    /// Bytes of these.
    pub request_bytes: u64,
    /// Different objects among them.
    pub objects: u64,
    /// Different blocks among them.
    pub blocks: u64,
    /// Bytes of these: a cache with so much room misses each once.
    pub bytes: u64,
    /// The largest block.
    pub block_bytes_max: u64,
}

/// One contender at one capacity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Who.
    pub policy: Contender,
    /// As it was asked for.
    pub capacity: String,
    /// That is so much.
    pub capacity_bytes: u64,
    /// What came of it.
    #[serde(flatten)]
    pub tally: Tally,
    /// Share of the blocks asked for that were not held.
    pub miss_ratio: f64,
    /// Share of the bytes asked for that were not held.
    pub byte_miss_ratio: f64,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What the trace touches.
    pub working_set: WorkingSet,
    /// By capacity, then by contender.
    pub rows: Vec<Row>,
}

impl Contender {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.as_str(),
            Self::Belady => "belady",
        }
    }

    /// Every policy, and the bound.
    pub fn all() -> Vec<Self> {
        let policies = PolicyName::ALL.iter().copied().map(Self::Policy);
        policies.chain([Self::Belady]).collect()
    }
}

impl WorkingSet {
    /// Share of the requests that are for a block that was asked for before: no cache hits more.
    pub fn reuse(&self) -> f64 {
        ratio(self.requests - self.blocks, self.requests)
    }
}

impl Comparison {
    /// Reads the trace that `open` opens, twice where it has to be known before. `progress` is told of every request and may be
    /// slow: it is called once for many.
    pub fn run(
        &self,
        open: &dyn Fn() -> Result<Accesses, TraceError>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Compared, TraceError> {
        let mut survey = Survey::new(self.granularity, self.contenders.contains(&Contender::Belady));
        in_chunks(open()?, progress, |chunk| survey.take(chunk))?;
        let working_set = survey.working_set;
        let mut caches: Vec<_> = self
            .capacities
            .iter()
            .flat_map(|&capacity| {
                self.contenders
                    .iter()
                    .map(move |&contender| (capacity, contender))
            })
            .map(|(capacity, contender)| {
                let policy = match contender {
                    Contender::Policy(policy) => policy.build(),
                    Contender::Belady => AnyPolicy::new(Belady::new(survey.future.iter().copied())),
                };
                let capacity_bytes = capacity.bytes(working_set.bytes);
                Contest {
                    contender,
                    capacity,
                    cache: Cache::new(capacity_bytes, policy),
                    tally: Tally::default(),
                }
            })
            .collect();
        let each = caches.len().div_ceil(self.threads.max(1)).max(1);
        in_chunks(open()?, progress, |chunk| {
            std::thread::scope(|scope| {
                for caches in caches.chunks_mut(each) {
                    scope.spawn(|| {
                        for contest in caches {
                            contest.take(chunk, self.granularity);
                        }
                    });
                }
            });
        })?;
        Ok(Compared {
            working_set,
            rows: caches.iter().map(Contest::row).collect(),
        })
    }
}

struct Contest {
    contender: Contender,
    capacity: Capacity,
    cache: Cache<AnyPolicy>,
    tally: Tally,
}

impl Contest {
    fn take(&mut self, chunk: &[Access], granularity: Granularity) {
        for access in chunk {
            self.cache.replay(access, granularity, &mut self.tally);
        }
    }

    fn row(&self) -> Row {
        Row {
            policy: self.contender,
            capacity: self.capacity.to_string(),
            capacity_bytes: self.cache.capacity_bytes(),
            tally: self.tally,
            miss_ratio: self.tally.miss_ratio(),
            byte_miss_ratio: self.tally.byte_miss_ratio(),
        }
    }
}

/// A first look at a trace.
struct Survey {
    granularity: Granularity,
    working_set: WorkingSet,
    objects: NumberSet<u32>,
    /// The bytes of each block when they were most.
    blocks: NumberMap<Block, u64>,
    /// Every block that is read, in order, where somebody has to know it.
    future: Vec<Block>,
    foretells: bool,
}

impl Survey {
    fn new(granularity: Granularity, foretells: bool) -> Self {
        Self {
            granularity,
            working_set: WorkingSet::default(),
            objects: NumberSet::default(),
            blocks: NumberMap::default(),
            future: Vec::new(),
            foretells,
        }
    }

    fn take(&mut self, chunk: &[Access]) {
        for access in chunk.iter().filter(|access| access.operation == Operation::Read) {
            self.objects.insert(access.object);
            for (block, bytes) in self.granularity.blocks_of(access) {
                let set = &mut self.working_set;
                set.requests += 1;
                set.request_bytes += bytes;
                set.block_bytes_max = set.block_bytes_max.max(bytes);
                // A block that has grown counts as long as it has become.
                let longest = self.blocks.entry(block).or_default();
                set.bytes += bytes.saturating_sub(*longest);
                *longest = bytes.max(*longest);
                if self.foretells {
                    self.future.push(block);
                }
            }
        }
        self.working_set.objects = self.objects.len() as u64;
        self.working_set.blocks = self.blocks.len() as u64;
    }
}

/// Gives `take` the trace piece by piece.
pub(crate) fn in_chunks(
    accesses: Accesses,
    progress: &mut dyn FnMut(u64),
    mut take: impl FnMut(&[Access]),
) -> Result<(), TraceError> {
    let mut chunk = Vec::with_capacity(CHUNK);
    for access in accesses {
        chunk.push(access?);
        if chunk.len() == CHUNK {
            take(&chunk);
            progress(chunk.len() as u64);
            chunk.clear();
        }
    }
    take(&chunk);
    progress(chunk.len() as u64);
    Ok(())
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Self::all();
        let named = |contender: &&Self| contender.as_str().eq_ignore_ascii_case(text);
        all.iter()
            .find(named)
            .copied()
            .ok_or_else(|| unknown("policy", text, all.iter().map(|contender| contender.as_str())))
    }
}

impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Contender, Survey};
    use crate::block::Granularity;
    use crate::policy::PolicyName;
    use crate::trace::{Access, Accesses, Operation, TraceError};
    use crate::units::Capacity;

    fn opens(objects: &'static [u32]) -> impl Fn() -> Result<Accesses, TraceError> {
        let rows: Vec<_> = objects.iter().map(|object| format!("{object},10")).collect();
        let text = format!("object,bytes\n{}\n", rows.join("\n"));
        move || {
            Ok(Box::new(
                crate::trace::tests::accesses(&text, crate::trace::Format::Csv)?
                    .into_iter()
                    .map(Ok),
            ))
        }
    }

    #[test]
    fn contenders_are_compared_on_the_same_requests() {
        let comparison = Comparison {
            granularity: Granularity::Objects,
            contenders: vec![Contender::Policy(PolicyName::Lru), Contender::Belady],
            capacities: vec![Capacity::Share(0.5), Capacity::Bytes(40)],
            threads: 2,
        };
        // A loop over four, with room for two: LRU never hits, Belady keeps one for the next round.
        let open = opens(&[1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]);
        let mut told = 0;
        let compared = comparison.run(&open, &mut |count| told += count).unwrap();
        let misses: Vec<_> = compared
            .rows
            .iter()
            .map(|row| {
                (
                    row.policy.as_str(),
                    row.capacity.as_str(),
                    row.capacity_bytes,
                    row.tally.misses(),
                )
            })
            .collect();
        // Belady on the loop, by hand: 4 misses, then hits 1, misses 2, 3, hits 4 and so on.
        assert_eq!(misses[0], ("lru", "50%", 20, 12));
        assert_eq!((misses[1].0, misses[1].2), ("belady", 20));
        assert!((7..=9).contains(&misses[1].3), "{misses:?}");
        assert_eq!(misses[2..], [("lru", "40 B", 40, 4), ("belady", "40 B", 40, 4)]);
        let set = compared.working_set;
        assert_eq!((set.requests, set.blocks, set.bytes, set.objects), (12, 4, 40, 4));
        assert!((set.reuse() - 8.0 / 12.0).abs() < 1e-12);
        assert_eq!(told, 24, "both passes are told of");
        let text = compared.text();
        assert!(text.contains("lru             100.00%       33.33%"), "{text}");
        assert_eq!(compared.csv().lines().nth(1), Some("lru,50%,20,12,0,120,0,1,1"));
        assert!(compared.plot().svg().contains("belady"));
    }

    #[test]
    fn an_object_takes_as_much_of_the_working_set_as_it_was_ever_long() {
        let access = |bytes| Access {
            at: crate::clock::Time::ZERO,
            client: 0,
            object: 0,
            object_bytes: bytes,
            offset_bytes: 0,
            bytes,
            operation: Operation::Read,
        };
        let mut survey = Survey::new(Granularity::Objects, false);
        survey.take(&[5, 10, 7, 10].map(access));
        assert_eq!(
            (survey.working_set.bytes, survey.working_set.request_bytes),
            (10, 32)
        );
    }

    #[test]
    fn a_policy_we_do_not_know_is_told_with_the_nearest_one() {
        let told = "seive".parse::<Contender>().unwrap_err();
        assert!(told.contains("did you mean `sieve`?"), "{told}");
        assert_eq!("BELADY".parse(), Ok(Contender::Belady));
        for contender in Contender::all() {
            assert_eq!(contender.as_str().parse(), Ok(contender));
        }
    }
}
