//! `shoal-lab throughput-footprint`: the footprint behind D3N's published gains (D3N Fig. 3).
//!
//! The paper draws its miss-ratio curve and gives neither the footprint behind it nor its law. Here nine of
//! ten requests are for something read before, as published, footprint and exponent of Zipf's law are varied,
//! and the lake's part is read in both ways that the text allows: the layers hold the same blocks (`nested`,
//! as in `shoal_lab::throughput`), or what one holds says nothing of the other (`independent`). The model
//! alone: nothing is simulated.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use shoal_base::seeded::{Chance, Zipf};
use shoal_lab::throughput::{Rates, Served};
use shoal_policy::mrc::{MissCurve, Reach, ReuseDistances};
use shoal_sim::block::Block;

const NODES: [u64; 3] = [2, 4, 8];
/// Published: 1 TB a node.
const NODE_BYTES: u64 = 1_000_000_000_000;
const FOOTPRINTS_TB: [f64; 9] = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 12.0, 24.5];
const EXPONENTS: [f64; 8] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4];
/// The number of blocks in a footprint; each is read ten times on average.
const BLOCKS: u32 = 5_000;
const READS_OF_A_BLOCK: u32 = 10;
/// Splits that are tried between all room for L1 and all for L2.
const STEPS: u64 = 200;

/// How a request that both layers may miss reaches the lake.
#[derive(Clone, Copy)]
enum Reading {
    Nested,
    Independent,
}

impl Reading {
    fn served(self, l1_missed: f64, l2_missed: f64) -> Served {
        match self {
            Self::Nested => Served::from_miss_ratios(l1_missed, l2_missed),
            Self::Independent => Served {
                l1: 1.0 - l1_missed,
                l2: l1_missed * (1.0 - l2_missed),
                lake: l1_missed * l2_missed,
            },
        }
    }
}

/// Vary the footprint and the law behind D3N's throughput model
#[derive(Debug, Args)]
pub(crate) struct ThroughputFootprint {
    /// The table to write
    #[arg(value_name = "OUT.csv")]
    out: PathBuf,
}

impl ThroughputFootprint {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let mut table = "reading,nodes,footprint_tb,exponent,l1_gbit,best_gbit,l2_gbit\n".to_owned();
        for footprint_tb in FOOTPRINTS_TB {
            for exponent in EXPONENTS {
                #[expect(clippy::cast_sign_loss, reason = "a footprint is positive")]
                let curve = curve((footprint_tb * 1e12) as u64 / u64::from(BLOCKS), exponent);
                for (name, reading) in [("nested", Reading::Nested), ("independent", Reading::Independent)] {
                    for nodes in NODES {
                        let [l1, best, l2] = rates(&curve, nodes, reading);
                        writeln!(
                            table,
                            "{name},{nodes},{footprint_tb},{exponent},{l1:.3},{best:.3},{l2:.3}"
                        )?;
                    }
                }
            }
        }
        std::fs::write(self.out, table)?;
        Ok(())
    }
}

/// The miss-ratio curve of requests for blocks of `block_bytes` by Zipf's law.
fn curve(block_bytes: u64, exponent: f64) -> MissCurve {
    let (law, mut chance) = (Zipf::new(BLOCKS, exponent), Chance::new(1));
    let mut distances = ReuseDistances::exact(Reach::of_full_blocks(8 * NODE_BYTES, block_bytes));
    for _ in 0..BLOCKS * READS_OF_A_BLOCK {
        let object = law.draw(&mut chance);
        distances.record(Block { object, index: 0 }.fingerprint(), block_bytes);
    }
    distances.curve()
}

/// Gbit/s a node with all room for L1, with the best split, and with all room for L2.
fn rates(curve: &MissCurve, nodes: u64, reading: Reading) -> [f64; 3] {
    // A node is home to one in `nodes` of all blocks, and serves them to its own clients as L1 would.
    let least = NODE_BYTES / nodes;
    let rate = |l1_bytes: u64| {
        let l2_bytes = (NODE_BYTES - l1_bytes) * nodes;
        reading
            .served(curve.ratio(l1_bytes), curve.ratio(l2_bytes))
            .rate(Rates::PUBLISHED)
    };
    let splits = (0..=STEPS).map(|step| least + (NODE_BYTES - least) / STEPS * step);
    [
        rate(NODE_BYTES),
        splits.map(rate).fold(0.0, f64::max),
        rate(least),
    ]
}
