//! The cost of a use, a replacement and a held key for each eviction policy with a million keys:
//! `cargo bench -p shoal-policy`.

#![allow(missing_docs, reason = "a program, not an interface")]

use std::hint::black_box;
use std::process::Command;

use shoal_policy::eviction::c2p::{Closeness, Completeness};
use shoal_policy::eviction::gwf::Ageing;
use shoal_policy::eviction::{
    Belady, C2p, Duel, Eviction, Gwf, Layered, Lfu, Lfuda, Life, Lru, S3Fifo, Sieve,
};
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};
use shoal_policy::route::{Hierarchy, Neighbourhood};
use shoal_policy::{BlockId, NodeId, VersionId};

const KEYS: u64 = 1_000_000;
const ACCESSES: u64 = 10_000_000;

fn main() {
    let Some(policy) = std::env::args().nth(1).filter(|name| !name.starts_with('-')) else {
        println!("| policy | ns a hit | ns a miss | ns an access | bytes a key |");
        println!("|---|---|---|---|---|");
        [
            "lru",
            "lfu",
            "lfuda",
            "sieve",
            "s3-fifo",
            "duel",
            "life",
            "belady",
            "gwf",
            "c2p",
            "c2p+duel",
            "lru-in-3-layers",
        ]
        .into_iter()
        .for_each(measure_apart);
        return;
    };
    let figures = match policy.as_str() {
        "lru" => measure(Lru::default()),
        "lfu" => measure(Lfu::default()),
        "lfuda" => measure(Lfuda::default()),
        "sieve" => measure(Sieve::default()),
        "s3-fifo" => measure(S3Fifo::default()),
        "duel" => measure(Duel::default()),
        "life" => measure(Life::default()),
        "gwf" => measure(Gwf::new(Ageing::Added)),
        "c2p" => measure(C2p::above(Box::new(Closeness::default()), Completeness::Read)),
        "c2p+duel" => measure(C2p::above(Box::new(Duel::default()), Completeness::Read)),
        "belady" => measure(Belady::new(std::iter::empty())),
        "lru-in-3-layers" => measure(three_layers()),
        _ => panic!("no policy {policy}"),
    };
    println!("| {policy} | {figures} |");
}

/// A node whose neighbours are 3 in L2 and 11 in L3, so that no layer is small.
fn three_layers() -> Layered<BlockId, Lru<BlockId>> {
    let neighbourhood = |nodes| Neighbourhood {
        ring: Ring::new((0..nodes).map(|node| (NodeId(node), ORDINARY_WEIGHT)).collect()),
        former: None,
    };
    let hierarchy = Hierarchy {
        node: NodeId(0),
        layers: [4, 12].map(neighbourhood).into(),
    };
    let layers = [5, 3, 1].map(|target_bytes| (Box::default(), target_bytes));
    Layered::new(layers, hierarchy.into())
}

/// In a process of its own, whose memory is that policy's.
fn measure_apart(policy: &str) {
    let program = std::env::current_exe().expect("a program knows where it is");
    let status = Command::new(program).arg(policy).status().expect("it runs again");
    assert!(status.success(), "{policy}: {status}");
}

/// Blocks of objects of 64 blocks, named by digests.
fn block(n: u64) -> BlockId {
    let mut version = [0; 16];
    version[..8].copy_from_slice(&scatter(n / 64).to_le_bytes());
    version[8..].copy_from_slice(&scatter(n / 64 + 1).to_le_bytes());
    BlockId {
        version: VersionId(version),
        index: (n % 64) as u32,
    }
}

/// A number that looks random (the finisher of `SplitMix64`).
const fn scatter(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn measure(mut policy: impl Eviction<BlockId>) -> String {
    let before = resident_bytes();
    for n in 0..KEYS {
        policy.insert(block(n), 4 << 20);
    }
    let bytes_per_key = (resident_bytes() - before) / KEYS;

    let hit = nanoseconds(|i| policy.touch(&block(scatter(i) % KEYS)));
    // A key that was never here, for a victim.
    let miss = nanoseconds(|i| {
        black_box(policy.evict(&mut |_| true));
        policy.insert(block(KEYS + i), 4 << 20);
    });
    // Skewed, as caches are used: half of the accesses go to an eighth of twice as many keys as there is room
    // for.
    let mixed = nanoseconds(|i| {
        let keys = if i % 2 == 0 { KEYS / 4 } else { KEYS * 2 };
        let key = block(scatter(i) % keys);
        if policy.contains(&key) {
            policy.touch(&key);
        } else {
            black_box(policy.evict(&mut |_| true));
            policy.insert(key, 4 << 20);
        }
    });
    format!("{hit} | {miss} | {mixed} | {bytes_per_key}")
}

/// CPU time instead of wall-clock time, because the machine may be shared.
fn nanoseconds(mut access: impl FnMut(u64)) -> u64 {
    let start = processor_nanoseconds();
    for i in 0..ACCESSES {
        access(i);
    }
    (processor_nanoseconds() - start) / ACCESSES
}

fn processor_nanoseconds() -> u64 {
    number_in("/proc/self/schedstat", 0)
}

fn resident_bytes() -> u64 {
    4096 * number_in("/proc/self/statm", 1)
}

fn number_in(file: &str, place: usize) -> u64 {
    let text = std::fs::read_to_string(file).expect("Linux tells about processes");
    let number = text
        .split_whitespace()
        .nth(place)
        .and_then(|word| word.parse().ok());
    number.expect("the file is a line of numbers")
}
