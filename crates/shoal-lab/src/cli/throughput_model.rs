//! `shoal-lab throughput-model`: D3N's model beside the simulator (D3N Fig. 3, dissertation Fig. 2·3).
//!
//! For several numbers of nodes and shares of L1, in Gbit/s a node: the model with one curve for both layers,
//! as published; the model whose L1 misses by the requests of one node; the simulator with one request a node
//! at a time, which is what the model describes; and the simulator with as many in flight as in the
//! dissertation's 6.4.1, where links are shared.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use shoal_lab::cluster::Simulated;
use shoal_lab::network::TOLERANCE;
use shoal_lab::simulation::{ClientSettings, LinkSettings, Setup, run};
use shoal_lab::throughput::{Rates, Served};
use shoal_lab::units::{Rate, Size};
use shoal_lab::workload::{Arrivals, Assign, Generator, Order, Shape, Workload, WorkloadSettings, zipf};
use shoal_plot::{Line, Lines};
use shoal_policy::mrc::{MissCurve, Reach, ReuseDistances};
use shoal_sim::Cache;
use shoal_sim::block::{Block, Granularity};
use shoal_sim::cluster::{Hierarchy, Solo};
use shoal_sim::policy::PolicyName;
use shoal_sim::trace::Access;

const NODES: [u32; 3] = [2, 4, 8];
const L1_SHARES: [f64; 5] = [1.0, 0.75, 0.5, 0.25, 0.0];
/// Of the figure; one where the exponent is varied.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;
/// Published: 1 TB a node.
const NODE_BYTES: u64 = 1_000_000_000_000;
/// A curve of 8 TB does not need pieces of 4 MB.
const BLOCK_BYTES: u64 = 4_000_000_000;
/// Two Sigma's input; the figure's trace reads nine tenths of it again.
const INDUSTRY_BYTES: u64 = 245_000_000_000_000;
const INDUSTRY_REUSE: f64 = 0.9;
/// Zipf's own law; the paper says "Zipf-like".
const EXPONENT: f64 = 1.0;

/// Clients of a node, each with one block in flight: one as in the model, and three, which are
/// 20 × 150 × 4 MB in blocks of ours.
const IN_FLIGHT: [u32; 2] = [1, 3];

/// The workload that clients read.
#[derive(Clone, Copy, Debug)]
enum Source<'path> {
    /// The stand-in for TR-FB2010-1.
    Facebook(&'path Path),
    /// Nine tenths are read again; popularity by Zipf's law with this exponent.
    Industry(f64),
}

/// Gbit/s a node.
struct Throughput {
    model: f64,
    model_own: f64,
    simulated: [f64; IN_FLIGHT.len()],
}

/// Compare D3N's throughput model with the simulator
#[derive(Debug, Args)]
pub(crate) struct ThroughputModel {
    /// The trace
    trace: PathBuf,
    /// The folder for tables and plots
    out: PathBuf,
    /// Run one seed
    #[arg(long)]
    quick: bool,
}

impl ThroughputModel {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let out = &self.out;
        let sources = [
            ("facebook", Source::Facebook(&self.trace)),
            ("industry, 0.8", Source::Industry(0.8)),
            ("industry, 1.0", Source::Industry(EXPONENT)),
            ("industry, 1.2", Source::Industry(1.2)),
        ];
        fs::create_dir_all(out)?;
        let mut table =
            "workload,nodes,l1_share,seed,model_gbit,model_own_l1_gbit,one_at_a_time_gbit,loaded_gbit\n"
                .to_owned();
        for (name, source) in sources {
            let mut lines = Vec::new();
            let is_varied = matches!(source, Source::Industry(exponent) if exponent != EXPONENT);
            let seeds = if is_varied || self.quick { 1..=1 } else { SEEDS };
            for nodes in NODES {
                let mut points = [Vec::new(), Vec::new()];
                for seed in seeds.clone() {
                    for (l1_share, throughput) in throughputs(source, nodes, seed)? {
                        let Throughput {
                            model,
                            model_own,
                            simulated: [one, loaded],
                        } = throughput;
                        writeln!(
                            table,
                            "\"{name}\",{nodes},{l1_share},{seed},{model},{model_own},{one},{loaded}"
                        )?;
                        if seed == *seeds.start() {
                            points[0].push((1.0 - l1_share, model));
                            points[1].push((1.0 - l1_share, one));
                        }
                    }
                }
                for (what, points) in ["model", "simulated"].into_iter().zip(points) {
                    lines.push(Line {
                        name: format!("{nodes} nodes, {what}"),
                        points,
                    });
                }
            }
            let plot = Lines {
                title: format!("{name}: throughput of a node"),
                x_label: "share of L2 in a node's room".to_owned(),
                y_label: "Gbit/s".to_owned(),
                lines,
            };
            fs::write(out.join(format!("{}.svg", name.replace(", ", "-"))), plot.svg())?;
        }
        fs::write(out.join("results.csv"), table)?;
        Ok(())
    }
}

fn throughputs(source: Source, nodes: u32, seed: u64) -> Result<Vec<(f64, Throughput)>, Box<dyn Error>> {
    let workloads = [
        workload(source, nodes, IN_FLIGHT[0], seed)?,
        workload(source, nodes, IN_FLIGHT[1], seed)?,
    ];
    let requests = requests(source, &workloads[0]);
    let shared = curve(requests.iter().map(|(_, block)| *block));
    let own = curve(
        requests
            .iter()
            .filter(|(client, _)| *client == 0)
            .map(|(_, block)| *block),
    );
    let at = |l1_share: f64| {
        // The model's L1 has at least what the node is home to: 1/N of L2.
        #[expect(clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
        let l1_bytes = ((NODE_BYTES as f64 * l1_share) as u64).max(NODE_BYTES / u64::from(nodes));
        let l2_missed = shared.ratio((NODE_BYTES - l1_bytes) * u64::from(nodes));
        let rate =
            |l1: &MissCurve| Served::from_miss_ratios(l1.ratio(l1_bytes), l2_missed).rate(Rates::PUBLISHED);
        let simulated = [0, 1].map(|load| simulated(&workloads[load], nodes, IN_FLIGHT[load], l1_share));
        (
            l1_share,
            Throughput {
                model: rate(&shared),
                model_own: rate(&own),
                simulated,
            },
        )
    };
    Ok(L1_SHARES.map(at).into())
}

fn workload(source: Source, nodes: u32, clients: u32, seed: u64) -> Result<Workload, Box<dyn Error>> {
    let granularity = Granularity::blocks(BLOCK_BYTES);
    match source {
        Source::Facebook(path) => {
            let settings = WorkloadSettings {
                clients: None,
                scale: 1.0,
                source: Generator::Trace {
                    path: path.to_owned(),
                    format: None,
                },
                arrivals: Arrivals::Closed,
                assign: Assign::Random,
                split: Some(Size(BLOCK_BYTES)),
                until: None,
                passes: 1,
                writes: false,
            };
            Ok(settings.build(Path::new(""), granularity, nodes, clients, seed)?)
        }
        Source::Industry(exponent) => {
            let reads = (INDUSTRY_BYTES / BLOCK_BYTES) as f64;
            #[expect(clippy::cast_sign_loss, reason = "counts are not negative")]
            let shape = Shape {
                clients: nodes * clients,
                reads: (reads / f64::from(nodes * clients)) as u32,
                objects: (reads * (1.0 - INDUSTRY_REUSE)) as u32,
                object_bytes: BLOCK_BYTES,
                granularity,
                job_a_read: false,
                seed,
            };
            Ok(zipf(&shape, exponent))
        }
    }
}

/// Client and block of each request.
fn requests(source: Source, workload: &Workload) -> Vec<(u32, Block)> {
    let granularity = Granularity::blocks(BLOCK_BYTES);
    let order = match source {
        Source::Facebook(_) => Order::Jobs,
        Source::Industry(_) => Order::Clients,
    };
    let blocks = |access: &Access| {
        let client = access.client;
        granularity
            .blocks_of(access)
            .map(move |(block, _)| (client, block))
            .collect::<Vec<_>>()
    };
    workload
        .merged(order, granularity)
        .iter()
        .flat_map(blocks)
        .collect()
}

fn curve(blocks: impl Iterator<Item = Block>) -> MissCurve {
    let mut distances = ReuseDistances::exact(Reach::of_full_blocks(8 * NODE_BYTES, BLOCK_BYTES));
    blocks.for_each(|block| {
        distances.record(block.fingerprint(), BLOCK_BYTES);
    });
    distances.curve()
}

/// Gbit/s a node. A block that a node holds comes at the model's rate of L1, one of a peer at that of L2, one
/// of the lake at the lake's.
fn simulated(workload: &Workload, nodes: u32, clients: u32, l1_share: f64) -> f64 {
    let rate = |gbits: f64| Some(Rate(gbits * 1e9 / 8.0));
    let setup = Setup {
        nodes: nodes as usize,
        links: LinkSettings {
            disk: rate(Rates::PUBLISHED.l1),
            peer: rate(Rates::PUBLISHED.l2),
            lake: rate(Rates::PUBLISHED.lake),
            ..LinkSettings::default()
        },
        changes: Vec::new(),
        moves: Vec::new(),
        clients: ClientSettings {
            per_node: clients,
            requests: 1,
            jobs: None,
        },
        granularity: Granularity::blocks(BLOCK_BYTES),
        tolerance: TOLERANCE,
        warmup: 0.0,
        sample: None,
    };
    // Without L2 no block has a home: each node caches alone.
    let mut cooperation: Box<dyn Simulated> = if l1_share < 1.0 {
        Box::new(Hierarchy::new(
            nodes as usize,
            NODE_BYTES,
            l1_share,
            PolicyName::LRU,
        ))
    } else {
        let cache = |_| Cache::new(NODE_BYTES, PolicyName::LRU.build());
        Box::new(Solo::new((0..nodes).map(cache).collect(), None))
    };
    let report = run(&setup, workload, &mut *cooperation);
    report.sources.total().bytes as f64 * 8.0 / 1e9 / report.run_s / f64::from(nodes)
}
