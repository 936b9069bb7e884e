//! How many block requests a second one core simulates in cache mode:
//! `cargo run --release -p shoal-sim --example throughput`.
//!
//! Ten million requests, Zipf (exponent 0.9) over a million blocks, a cache with room for a tenth of them.

use shoal_policy::admission::Always;
use shoal_policy::eviction::Named;
use shoal_sim::chance::{Chance, Zipf};
use shoal_sim::{Block, Cache, PolicyName};

const BLOCKS: u32 = 1_000_000;
const REQUESTS: usize = 10_000_000;
const BLOCK_BYTES: u64 = 4 << 20;

fn main() {
    let (zipf, mut chance) = (Zipf::new(BLOCKS, 0.9), Chance::new(1));
    let draw = |_| Block {
        object: zipf.draw(&mut chance),
        index: 0,
    };
    let requests: Vec<Block> = (0..REQUESTS).map(draw).collect();
    println!(
        "{:<8} {:>10} {:>16} {:>12}",
        "policy", "miss ratio", "requests/s", "ns a request"
    );
    for policy in PolicyName::of_lone_nodes() {
        measure(policy.as_str(), policy.build(), &requests);
    }
}

/// CPU time instead of wall-clock time, because the machine may be shared.
fn measure(name: &str, policy: Box<Named<Block>>, requests: &[Block]) {
    let mut cache = Cache::new(u64::from(BLOCKS) / 10 * BLOCK_BYTES, policy);
    let started = processor_seconds();
    let misses = requests
        .iter()
        .filter(|&&block| !cache.request(block, BLOCK_BYTES, &mut Always))
        .count();
    let seconds = processor_seconds() - started;
    println!(
        "{name:<8} {:>10.4} {:>16.0} {:>12.1}",
        misses as f64 / REQUESTS as f64,
        REQUESTS as f64 / seconds,
        seconds * 1e9 / REQUESTS as f64,
    );
}

fn processor_seconds() -> f64 {
    let spent = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells about processes");
    let nanoseconds = spent
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<u64>().ok());
    nanoseconds.expect("the file is a line of numbers") as f64 * 1e-9
}
