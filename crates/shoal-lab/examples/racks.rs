//! How long a run of the size of D3N's takes: `cargo run --release -p shoal-sim --example racks`.
//!
//! Ten racks of twenty clients, each with 150 requests of 4 MiB in flight (dissertation 6.4.1); 40 Gbit/s to
//! the clients of a rack, 15 Gbit/s between racks, 10 Gbit/s from the lake to each. 25,000 reads a client of
//! 160,000 objects by Zipf's law (exponent 0.6), 64 GiB a node.

use std::time::Instant;

use shoal_sim::Granularity;
use shoal_sim::cluster::{C2pSettings, ClusterSettings, CooperationName, GwfAgeing, GwfReading};
use shoal_sim::network::TOLERANCE;
use shoal_sim::policy::PolicyName;
use shoal_sim::simulation::{ClientSettings, LinkSettings, Setup, run};
use shoal_sim::units::{Rate, Size};
use shoal_sim::workload::{Shape, zipf};

const RACKS: u32 = 10;
const BLOCK_BYTES: u64 = 4 << 20;

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn main() {
    let clients = ClientSettings {
        per_node: 20,
        requests: 150,
        jobs: None,
    };
    let setup = Setup {
        nodes: RACKS as usize,
        links: LinkSettings {
            client: Rate::parse("40Gbit/s"),
            peer: Rate::parse("15Gbit/s"),
            lake: Rate::parse("10Gbit/s"),
            ..LinkSettings::default()
        },
        changes: Vec::new(),
        moves: Vec::new(),
        clients,
        granularity: Granularity::blocks(BLOCK_BYTES),
        tolerance: TOLERANCE,
        warmup: 0.0,
        sample: None,
    };
    let workload = zipf(
        &Shape {
            clients: RACKS * clients.per_node,
            reads: 25_000,
            objects: 160_000,
            object_bytes: BLOCK_BYTES,
            granularity: setup.granularity,
            job_a_read: false,
            seed: 1,
        },
        0.6,
    );
    let nodes = ClusterSettings {
        nodes: RACKS,
        capacity: Size(64 << 30),
        block: Size(BLOCK_BYTES),
        cooperation: CooperationName::Hierarchy,
        policy: PolicyName::LRU,
        l1_share: 0.5,
        adapt_every: None,
        adapt_limit: None,
        gwf_reading: GwfReading::Text,
        gwf_ageing: GwfAgeing::Added,
        claims: false,
        c2p: C2pSettings::default(),
    };
    let started = Instant::now();
    let report = run(&setup, &workload, &mut *nodes.build(1));
    let seconds = started.elapsed().as_secs_f64();
    let sources = report.sources;
    let requests = sources.total().requests;
    println!("simulated   {:.1} s with {requests} requests", report.run_s);
    println!(
        "took        {seconds:.1} s, {:.0} requests/s",
        requests as f64 / seconds
    );
    for (name, volume) in [
        ("local", sources.local),
        ("peer", sources.peer),
        ("lake", sources.lake),
    ] {
        println!(
            "{name:<11} {:.3} of the requests",
            volume.requests as f64 / requests as f64
        );
    }
}
