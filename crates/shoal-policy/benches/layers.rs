//! What the layers' decisions cost: nanoseconds of processor time, which other work on the machine does not add to.

use std::hint::black_box;

use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::mrc::{MissCurve, Reach, ReuseDistances, STEPS};

const BLOCKS: u64 = 1_000_000;
const BLOCK_BYTES: u64 = 4 << 20;

fn main() {
    let reach = Reach::of_full_blocks(BLOCKS * BLOCK_BYTES, BLOCK_BYTES);
    for (workload, block) in WORKLOADS {
        let exact = reuse_distances("exact", workload, ReuseDistances::exact(reach), block);
        let sampled = reuse_distances("sampled", workload, ReuseDistances::sampled(reach), block);
        let errors = (1..=STEPS as u64)
            .map(|step| step * reach.capacity_bytes / STEPS as u64)
            .map(|size_bytes| (exact.ratio(size_bytes) - sampled.ratio(size_bytes)).abs());
        let (mean, largest) = (
            errors.clone().sum::<f64>() / STEPS as f64,
            errors.fold(0.0, f64::max),
        );
        println!("error of the sampled miss ratio: mean {mean:.4}, largest {largest:.4}");
    }
}

/// A name, and which block is accessed at a time.
type Workload = (&'static str, fn(u64) -> u64);

/// Each stresses the list of 10⁶ blocks in another way.
const WORKLOADS: [Workload; 4] = [
    ("uniform over 0.9 of the list", |time| {
        random(time) % (BLOCKS * 9 / 10)
    }),
    ("uniform over 2 lists", |time| random(time) % (BLOCKS * 2)),
    ("skewed over 10 lists", |time| {
        let square = part(random(time), random(time));
        part(part(square, square), BLOCKS * 10)
    }),
    ("scan", |time| time),
];

fn reuse_distances(
    name: &str,
    workload: &str,
    mut distances: ReuseDistances,
    block: fn(u64) -> u64,
) -> MissCurve {
    let accesses = 4 * BLOCKS;
    let trace: Vec<Fingerprint> = (0..2 * accesses)
        .map(|time| Fingerprint::of_number(block(time)))
        .collect();
    let (warmup, measured) = trace.split_at(accesses as usize);
    for &block in warmup {
        distances.record(block, BLOCK_BYTES);
    }
    let start = processor_nanoseconds();
    for &block in measured {
        black_box(distances.record(block, BLOCK_BYTES));
    }
    let nanoseconds = (processor_nanoseconds() - start) as f64 / accesses as f64;
    let bytes = distances.memory_bytes();
    println!(
        "reuse distances, {name:8} {workload:30} {nanoseconds:6.1} ns an access {bytes:10} bytes a layer"
    );
    distances.curve()
}

fn random(time: u64) -> u64 {
    Fingerprint::of_number(time).0.rotate_left(32)
}

fn part(fraction: u64, of: u64) -> u64 {
    ((u128::from(fraction) * u128::from(of)) >> 64) as u64
}

/// What this process has run so far, as Linux accounts for it.
fn processor_nanoseconds() -> u64 {
    let account = std::fs::read_to_string("/proc/self/schedstat").expect("Linux accounts for processor time");
    let nanoseconds = account.split(' ').next().and_then(|number| number.parse().ok());
    nanoseconds.expect("the first number is the time on a processor")
}
