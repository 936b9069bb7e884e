//! The cost of the layers' decisions: memory, and processor time, to which other work on the machine does not
//! add.

#[path = "../tests/counting/mod.rs"]
mod counting;
#[path = "../tests/exact_shares/mod.rs"]
mod exact_shares;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::mrc::{MissCurve, Reach, ReuseDistances, STEPS};
use shoal_policy::partition::{Demand, Pace, Partition, adapt};
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};
use shoal_policy::route::{Hierarchy, Neighbourhood};
use shoal_policy::{Layer, NodeId};

use counting::counted;
use exact_shares::exact_shares;

const BLOCKS: u64 = 1_000_000;
const BLOCK_BYTES: u64 = 4 << 20;

fn main() {
    mrc();
    partition();
    for nodes in [4, 10, 32, 100, 316, 1000] {
        ring(nodes);
    }
    route();
    feeding();
}

fn mrc() {
    let reach = Reach::of_full_blocks(BLOCKS * BLOCK_BYTES, BLOCK_BYTES);
    for (workload, block) in WORKLOADS {
        let exact = reuse_distances("exact", workload, || ReuseDistances::exact(reach), block);
        let sampled = reuse_distances("sampled", workload, || ReuseDistances::sampled(reach), block);
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
    distances: impl FnOnce() -> ReuseDistances,
    block: fn(u64) -> u64,
) -> MissCurve {
    let accesses = 4 * BLOCKS;
    let trace: Vec<Fingerprint> = (0..2 * accesses)
        .map(|time| Fingerprint::of_number(block(time)))
        .collect();
    let (warmup, measured) = trace.split_at(accesses as usize);
    let (mut distances, bytes, _) = counted(distances);
    for &block in warmup {
        distances.record(block, BLOCK_BYTES);
    }
    let nanoseconds = nanoseconds_each(measured, |&block| distances.record(block, BLOCK_BYTES));
    println!(
        "reuse distances, {name:8} {workload:30} {nanoseconds:6.1} ns an access {bytes:10} bytes a layer"
    );
    distances.curve()
}

fn partition() {
    let curve = MissCurve::from_fn(BLOCKS * BLOCK_BYTES, 1e6, |size_bytes| {
        1.0 / (1.0 + size_bytes as f64 / 1e11)
    });
    for (layers, limit_bytes) in
        [(2, 20), (3, 20), (4, 20), (3, 1)].map(|(layers, part)| (layers, BLOCKS * BLOCK_BYTES / part))
    {
        let demands: Vec<Demand> = (1..=layers)
            .map(|layer| Demand {
                curve: &curve,
                miss_latency: Duration::from_millis(layer * layer),
                size_bytes: BLOCKS * BLOCK_BYTES / layers,
            })
            .collect();
        let nanoseconds = nanoseconds_each(&[(); 200], |()| adapt(&demands, limit_bytes));
        let part = limit_bytes as f64 / (BLOCKS * BLOCK_BYTES) as f64;
        println!(
            "adapting {layers} layers within {part:.2} of the room: {:.3} ms",
            nanoseconds / 1e6
        );
    }
}

fn ring(nodes: u64) {
    let weights: BTreeMap<NodeId, u32> = (0..nodes).map(|node| (NodeId(node), ORDINARY_WEIGHT)).collect();
    let construction = nanoseconds_each(&[(); 50], |()| Ring::new(weights.clone()));
    let (ring, bytes, _) = counted(|| Ring::new(weights.clone()));
    let shares: Vec<f64> = exact_shares(&ring)
        .values()
        .map(|share| share * nodes as f64 - 1.0)
        .collect();
    let deviation = (shares.iter().map(|share| share * share).sum::<f64>() / nodes as f64).sqrt();
    let largest = shares
        .iter()
        .fold(0.0, |largest: f64, share| largest.max(share.abs()));
    let blocks: Vec<Fingerprint> = (0..100_000).map(Fingerprint::of_number).collect();
    let counts = blocks
        .iter()
        .fold(BTreeMap::new(), |mut counts: BTreeMap<_, u32>, &block| {
            *counts.entry(ring.home(block)).or_default() += 1;
            counts
        });
    let fullest = *counts.values().max().expect("some node is home to some block");
    let blocks: Vec<Fingerprint> = (0..4_000_000).map(Fingerprint::of_number).collect();
    println!(
        "ring of {nodes:4} nodes: {:5.1} ns a home, built in {:6.2} ms, {:8} bytes; shares deviate by {:.2}%, at most {:.2}%; of 10^5 blocks the fullest node has {:+.1}%",
        nanoseconds_each(&blocks, |&block| ring.home(block)),
        construction / 1e6,
        bytes,
        deviation * 100.0,
        largest * 100.0,
        (f64::from(fullest) * nodes as f64 / 1e5 - 1.0) * 100.0,
    );
}

fn route() {
    let ring = |nodes| Ring::new((0..nodes).map(|node| (NodeId(node), ORDINARY_WEIGHT)).collect());
    let layers = [(10, Some(9)), (100, None)].map(|(nodes, former)| Neighbourhood {
        ring: ring(nodes),
        former: former.map(ring),
    });
    let hierarchy = Hierarchy {
        node: NodeId(0),
        layers: layers.into(),
    };
    let blocks: Vec<Fingerprint> = (0..4_000_000).map(Fingerprint::of_number).collect();
    let nanoseconds = nanoseconds_each(&blocks, |&block| hierarchy.route(block, Layer::L1, |_| true));
    println!("route through rings of 10, formerly 9, and 100 nodes: {nanoseconds:.1} ns");
}

/// The cost of a node's partition for a request for a block, under the lock that requests share, and at the
/// end of a period.
fn feeding() {
    let reach = Reach::of_full_blocks(BLOCKS * BLOCK_BYTES, BLOCK_BYTES);
    let layers = [Layer::L1, Layer::L2, Layer(3)];
    let distances = layers.map(|_| ReuseDistances::sampled(reach));
    let partition = Mutex::new(Partition::even(reach.capacity_bytes, distances.into()));
    let record = |time: &u64| {
        let block = Fingerprint::of_number(part(random(*time), 2 * BLOCKS));
        let layer = layers[(time % 3) as usize];
        let mut partition = partition.lock().expect("nobody panics");
        if partition.requested(layer, block, BLOCK_BYTES) {
            partition.missed(layer, Duration::from_millis(7));
        }
    };
    let times: Vec<u64> = (0..8 * BLOCKS).collect();
    let (warmup, measured) = times.split_at(times.len() / 2);
    warmup.iter().for_each(&record);
    let fed = nanoseconds_each(measured, record);
    let adapting = nanoseconds_each(&[(); 50], |()| {
        let pace = Pace::published(reach.capacity_bytes);
        partition
            .lock()
            .expect("nobody panics")
            .adapt(pace, &[Duration::ZERO; 3]);
    });
    println!(
        "feeding a partition of 3 layers: {fed:.1} ns a request, its lock included; adapting it: {:.3} ms a period",
        adapting / 1e6
    );
}

/// The time `work` takes for each of `items`.
fn nanoseconds_each<T, R>(items: &[T], mut work: impl FnMut(&T) -> R) -> f64 {
    let start = processor_nanoseconds();
    for item in items {
        black_box(work(black_box(item)));
    }
    (processor_nanoseconds() - start) as f64 / items.len() as f64
}

fn random(time: u64) -> u64 {
    Fingerprint::of_number(time).0.rotate_left(32)
}

fn part(fraction: u64, of: u64) -> u64 {
    ((u128::from(fraction) * u128::from(of)) >> 64) as u64
}

/// The processor time of the main thread so far, in nanoseconds, as Linux accounts for it.
fn processor_nanoseconds() -> u64 {
    let account = std::fs::read_to_string("/proc/self/schedstat").expect("Linux accounts for processor time");
    let nanoseconds = account.split(' ').next().and_then(|number| number.parse().ok());
    nanoseconds.expect("the first number is the time on a processor")
}
