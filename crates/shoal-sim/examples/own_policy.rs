//! Your own eviction policy on your own trace.
//!
//! `cargo run --release -p shoal-sim --example own_policy -- TRACE 10GiB`
//!
//! First in, first out, beside the LRU that a node can run. A policy that wins here can go into a node: it
//! implements the same trait.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::path::Path;

use shoal_policy::admission::Always;
use shoal_policy::eviction::{Eviction, PolicyName};
use shoal_sim::trace::{Format, Trace};
use shoal_sim::units;
use shoal_sim::{Block, Cache, Granularity, Tally};

/// Keys in the order in which they came, and the bytes of those that are held.
#[derive(Debug, Default)]
struct Fifo(VecDeque<Block>, HashMap<Block, u64>);

impl Eviction<Block> for Fifo {
    fn insert(&mut self, key: Block, bytes: u64) {
        self.0.push_back(key);
        self.1.insert(key, bytes);
    }

    fn touch(&mut self, _key: &Block) {}

    fn remove(&mut self, key: &Block) -> Option<u64> {
        self.0.retain(|held| held != key);
        self.1.remove(key)
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&Block) -> bool) -> Option<Block> {
        self.0.iter().copied().find(may_leave)
    }

    fn contains(&self, key: &Block) -> bool {
        self.1.contains_key(key)
    }

    fn len(&self) -> usize {
        self.1.len()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [trace, capacity] = args.as_slice() else {
        return Err("usage: own_policy TRACE CAPACITY".into());
    };
    let bytes = units::size(capacity).ok_or("a capacity is a size such as 10GiB")?;
    println!(
        "fifo: {}",
        misses(trace, Cache::new(bytes, Box::<Fifo>::default()))?
    );
    println!(
        "lru: {}",
        misses(trace, Cache::new(bytes, PolicyName::Lru.build()))?
    );
    Ok(())
}

fn misses<P: Eviction<Block> + ?Sized>(trace: &str, mut cache: Cache<P>) -> Result<String, Box<dyn Error>> {
    let granularity = Granularity::blocks(4 << 20);
    let mut tally = Tally::default();
    let path = Path::new(trace);
    for access in Trace::open(path, Format::of_file(path)?, granularity)?.accesses() {
        cache.replay(&access?, granularity, &mut Always, &mut tally);
    }
    Ok(format!(
        "{:.1}% of {} blocks missed",
        100.0 * tally.miss_ratio(),
        tally.requests
    ))
}
