//! Several policies at several capacities on one trace, in one pass.

mod show;
mod survey;

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use shoal_base::spelling::unknown;
use shoal_policy::eviction::{Belady, Named};

pub(crate) use self::survey::Survey;
use crate::block::{Block, Granularity};
use crate::cache::{Cache, Tally, ratio};
use crate::policy::{AdmissionName, AnyAdmission, PolicyName};
use crate::trace::{Access, Accesses, Recording, TraceError};
use crate::units::Capacity;

/// A participant in a comparison: a policy, or the bound that knows the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contender {
    /// A policy of nodes, and its admission.
    Policy(PolicyName, AdmissionName),
    /// Belady's MIN: no policy misses less if all blocks have one size. Holds the whole trace in memory.
    Belady,
}

/// A comparison to run on a trace.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The unit of caching.
    pub granularity: Granularity,
    /// The compared contenders.
    pub contenders: Vec<Contender>,
    /// The compared sizes of the cache.
    pub capacities: Vec<Capacity>,
    /// The number of threads that share the caches; each cache belongs to one thread at a time.
    pub threads: usize,
}

/// The blocks that a trace touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkingSet {
    /// Requests for blocks.
    pub requests: u64,
    /// Bytes of these requests.
    pub request_bytes: u64,
    /// Different objects among them.
    pub objects: u64,
    /// Different blocks among them.
    pub blocks: u64,
    /// Bytes of these blocks: a cache of this size misses each once.
    pub bytes: u64,
    /// The largest block.
    pub block_bytes_max: u64,
    /// Different clients that read.
    pub clients: u64,
}

/// One contender at one capacity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The contender.
    pub policy: Contender,
    /// The capacity as the caller wrote it.
    pub capacity: String,
    /// The capacity in bytes.
    pub capacity_bytes: u64,
    /// Requests and hits.
    #[serde(flatten)]
    pub tally: Tally,
    /// Share of the requested blocks that were not held.
    pub miss_ratio: f64,
    /// Share of the requested bytes that were not held.
    pub byte_miss_ratio: f64,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The blocks that the trace touches.
    pub working_set: WorkingSet,
    /// By capacity, then by contender.
    pub rows: Vec<Row>,
}

impl Contender {
    /// A policy that admits every block.
    pub const fn policy(policy: PolicyName) -> Self {
        Self::Policy(policy, AdmissionName::Always)
    }

    /// Every policy with every admission, and the bound.
    pub fn all() -> Vec<Self> {
        let with = |policy| AdmissionName::ALL.map(|admission| Self::Policy(policy, admission));
        PolicyName::of_lone_nodes()
            .flat_map(with)
            .chain([Self::Belady])
            .collect()
    }

    fn eviction(self, future: &[Block]) -> Box<Named<Block>> {
        match self {
            Self::Policy(policy, _) => policy.build(),
            Self::Belady => Box::new(Belady::new(future.iter().copied())),
        }
    }

    fn admission(self, capacity_bytes: u64, set: &WorkingSet) -> AnyAdmission {
        let name = match self {
            Self::Policy(_, admission) => admission,
            Self::Belady => AdmissionName::Always,
        };
        let block_bytes_mean = (set.bytes / set.blocks.max(1)).max(1);
        name.build((capacity_bytes / block_bytes_mean) as usize, set.block_bytes_max)
    }
}

impl WorkingSet {
    /// Share of the requests that are for a block requested before: the upper bound of every hit ratio.
    pub fn reuse(&self) -> f64 {
        assert!(self.blocks <= self.requests, "every block was requested");
        ratio(self.requests - self.blocks, self.requests)
    }

    /// Returns true if blocks differ in size.
    const fn has_several_sizes(&self) -> bool {
        self.bytes != self.blocks * self.block_bytes_max
    }
}

impl Comparison {
    /// Reads the trace that `open` opens. `progress` receives the number of requests in each of two passes.
    /// It is called once for many requests, so it may be slow.
    ///
    /// # Errors
    ///
    /// Fails if the trace cannot be read, reads no object, or has more blocks than fit into memory.
    pub fn run(
        &self,
        open: &dyn Fn() -> Result<Accesses, TraceError>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Compared, TraceError> {
        let mut survey = Survey::new(self.granularity, self.contenders.contains(&Contender::Belady));
        let recording = Recording::read(open, progress, |chunk| survey.take(chunk))?;
        Ok(Compared {
            working_set: survey.working_set()?,
            rows: self.replay(&recording, &survey, progress)?,
        })
    }

    /// Sends a recorded trace through every cache.
    pub(crate) fn replay(
        &self,
        recording: &Recording<'_>,
        survey: &Survey,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Row>, TraceError> {
        let working_set = survey.working_set()?;
        let mut caches: Vec<_> = self
            .capacities
            .iter()
            .flat_map(|&capacity| {
                self.contenders
                    .iter()
                    .map(move |&contender| (capacity, contender))
            })
            .map(|(capacity, contender)| {
                let capacity_bytes = capacity.bytes(working_set.bytes);
                Contest {
                    contender,
                    capacity,
                    cache: Cache::new(capacity_bytes, contender.eviction(survey.future())),
                    admission: contender.admission(capacity_bytes, &working_set),
                    tally: Tally::default(),
                }
            })
            .collect();
        let each = caches.len().div_ceil(self.threads.max(1)).max(1);
        recording.replay(progress, |chunk| {
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
        Ok(caches.iter().map(Contest::row).collect())
    }
}

struct Contest {
    contender: Contender,
    capacity: Capacity,
    cache: Cache<Named<Block>>,
    admission: AnyAdmission,
    tally: Tally,
}

impl Contest {
    fn take(&mut self, chunk: &[Access], granularity: Granularity) {
        for access in chunk {
            self.cache
                .replay(access, granularity, &mut *self.admission, &mut self.tally);
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

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(policy, AdmissionName::Always) => write!(f, "{policy}"),
            Self::Policy(policy, admission) => write!(f, "{policy}+{}", admission.as_str()),
            Self::Belady => f.write_str("belady"),
        }
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut known: Vec<_> = Self::all()
            .into_iter()
            .map(|one| (one.to_string(), one))
            .collect();
        if let Some((_, contender)) = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(*contender);
        }
        if !text.contains('+') {
            known.retain(|(name, _)| !name.contains('+'));
        }
        Err(unknown(
            "policy",
            text,
            known.iter().map(|(name, _)| name.as_str()),
        ))
    }
}

impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Contender};
    use crate::block::Granularity;
    use crate::clock::Time;
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
            contenders: vec![Contender::policy(PolicyName::LRU), Contender::Belady],
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
                    row.policy.to_string(),
                    row.capacity.clone(),
                    row.capacity_bytes,
                    row.tally.misses(),
                )
            })
            .collect();
        // Belady on the loop, by hand: 4 misses, then hits 1, misses 2, 3, hits 4 and so on.
        let named = |policy: &str, capacity: &str, bytes, misses| {
            (policy.to_owned(), capacity.to_owned(), bytes, misses)
        };
        assert_eq!(misses[0], named("lru", "50%", 20, 12));
        assert_eq!((misses[1].0.as_str(), misses[1].2), ("belady", 20));
        assert!((7..=9).contains(&misses[1].3), "{misses:?}");
        assert_eq!(
            misses[2..],
            [named("lru", "40 B", 40, 4), named("belady", "40 B", 40, 4)]
        );
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
    fn a_policy_that_misses_less_than_belady_is_explained_by_sizes() {
        // Ten objects that fit are read in turn, and after each round one that is never read again. It is as
        // large as all of them, or as one.
        let compared = |large: u64| {
            let access = |number: u32| {
                let is_last = number % 11 == 10;
                let bytes = if is_last { large } else { 10 };
                Access {
                    at: Time::ZERO,
                    client: 0,
                    object: if is_last { number } else { number % 11 },
                    object_bytes: bytes,
                    offset_bytes: 0,
                    bytes,
                    operation: Operation::Read,
                }
            };
            let accesses: Vec<_> = (0..1_100).map(access).collect();
            let comparison = Comparison {
                granularity: Granularity::Objects,
                contenders: vec!["lru+second-miss".parse().unwrap(), Contender::Belady],
                capacities: vec![Capacity::Bytes(100)],
                threads: 1,
            };
            let open = || Ok(Box::new(accesses.clone().into_iter().map(Ok)) as Accesses);
            comparison.run(&open, &mut |_| ()).unwrap().text()
        };
        let note = "because objects have different sizes";
        let text = compared(100);
        assert!(text.contains(note), "{text}");
        let text = compared(10);
        assert!(!text.contains(note), "{text}");
    }

    #[test]
    fn an_admission_keeps_out_what_a_policy_alone_takes_in() {
        let comparison = Comparison {
            granularity: Granularity::Objects,
            contenders: ["lru", "lru+second-miss"]
                .map(|name| name.parse().unwrap())
                .to_vec(),
            capacities: vec![Capacity::Bytes(20)],
            threads: 1,
        };
        // In the second round, the first objects are still there, since the objects after them were refused.
        let open = opens(&[1, 2, 3, 4, 1, 2, 3, 4]);
        let compared = comparison.run(&open, &mut |_| ()).unwrap();
        let misses: Vec<_> = compared.rows.iter().map(|row| row.tally.misses()).collect();
        assert_eq!(misses, [8, 6]);
    }

    #[test]
    fn a_policy_we_do_not_know_is_told_with_the_nearest_one() {
        let told = "seive".parse::<Contender>().unwrap_err();
        assert!(told.contains("did you mean `sieve`?"), "{told}");
        assert_eq!("BELADY".parse(), Ok(Contender::Belady));
        for contender in Contender::all() {
            assert_eq!(contender.to_string().parse(), Ok(contender));
        }
    }
}
