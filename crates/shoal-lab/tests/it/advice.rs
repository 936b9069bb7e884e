//! `shoal sim advise` has no network, and finds what the simulator finds on links that never limit.

use shoal_base::seeded::{Chance, Zipf};
use shoal_lab::cluster::Simulated;
use shoal_lab::simulation::{ClientSettings, LinkSettings, Setup, run};
use shoal_lab::workload::{Assign, Workload, job_of};
use shoal_policy::eviction::gwf::{Ageing, Reading};
use shoal_sim::advise::{Advice, AdviceRequest, LAKE_COST, Mode};
use shoal_sim::cluster::{Directory, DirectoryGwf, Hierarchy, Replication};
use shoal_sim::sources::{Sources, Volume};
use shoal_sim::trace::{Access, Accesses, Operation};
use shoal_sim::units::Capacity;
use shoal_sim::{Cache, Granularity, PolicyName, Time};

const NODES: usize = 4;
/// Room of each node.
const NODE_BYTES: u64 = 1_500;

/// The advice for the requests of `clients`.
fn advice(clients: u32, granularity: Granularity) -> Advice {
    let request = AdviceRequest {
        granularity,
        capacity: Some(Capacity::Bytes(NODES as u64 * NODE_BYTES)),
        nodes: NODES as u32,
        lake_cost: LAKE_COST,
        threads: 2,
    };
    let open = || Ok(Box::new(apart(clients).into_iter().map(Ok)) as Accesses);
    request.ask(&open, &mut |_| ()).unwrap()
}

/// The nodes that follow `mode`, empty.
fn nodes(mode: Mode, l1_share: f64) -> Box<dyn Simulated> {
    let policy = PolicyName::of_nodes();
    let chance = Chance::new(1);
    match mode {
        Mode::Hierarchy => Box::new(Hierarchy::new(NODES, NODE_BYTES, l1_share, policy)),
        Mode::Directory => Box::new(DirectoryGwf::new(
            NODES,
            NODE_BYTES,
            Ageing::Added,
            Reading::Text,
            chance,
        )),
        Mode::DirectoryDuel => {
            let caches = (0..NODES).map(|_| Cache::new(NODE_BYTES, policy.build()));
            Box::new(Directory::new(caches.collect(), Replication::Always, chance))
        }
    }
}

/// Reads, and some writes, of objects of several blocks by `clients`, each long after the previous one.
fn apart(clients: u32) -> Vec<Access> {
    let (law, mut chance) = (Zipf::new(60, 0.8), Chance::new(7));
    let access = |number: u32| {
        let object = law.draw(&mut chance);
        let object_bytes = 100 + u64::from(object % 5) * 90;
        Access {
            at: Time(u64::from(number) * 1_000_000_000),
            client: chance.below(u64::from(clients)) as u32,
            object,
            object_bytes,
            offset_bytes: 0,
            bytes: object_bytes,
            operation: if chance.happens(0.02) {
                Operation::Write
            } else {
                Operation::Read
            },
        }
    };
    (0..5_000).map(access).collect()
}

/// Volumes by source and between nodes by the simulator: the same requests and nodes, on links that never
/// limit.
fn simulated(clients: u32, granularity: Granularity, nodes: &mut dyn Simulated) -> (Sources, Volume) {
    let jobs = apart(clients).into_iter().map(|access| Ok(job_of(access)));
    let mut workload = Workload::recorded(jobs, granularity).unwrap();
    Assign::Recorded.apply(&mut workload, NODES as u32, 4, &mut Chance::new(1));
    let setup = Setup {
        nodes: NODES,
        links: LinkSettings::default(),
        changes: Vec::new(),
        moves: Vec::new(),
        clients: ClientSettings {
            per_node: 4,
            requests: 1,
            jobs: None,
        },
        granularity,
        tolerance: 0.0,
        warmup: 0.0,
        sample: None,
    };
    let report = run(&setup, &workload, nodes);
    (report.sources, report.between_nodes)
}

#[test]
fn splits_are_advised_as_the_simulator_finds_them() {
    for clients in [1, 4, 7] {
        let granularity = Granularity::blocks(100);
        let advice = advice(clients, granularity);
        assert_eq!(advice.splits.len(), 5);
        for split in &advice.splits {
            let mut nodes = Hierarchy::new(NODES, NODE_BYTES, split.l1_share, PolicyName::LRU);
            let (sources, _) = simulated(clients, granularity, &mut nodes);
            assert_eq!(split.sources, sources, "{clients} clients, {split:?}");
        }
    }
}

#[test]
fn modes_are_advised_as_the_simulator_finds_them() {
    // Objects of up to five blocks, and the same in one block each. Pushes of GWF land between requests of
    // one read there, and after all of them here, so it is compared with one block a read.
    for (block_bytes, with_gwf) in [(100, false), (1_000, true)] {
        let granularity = Granularity::blocks(block_bytes);
        let advice = advice(7, granularity);
        assert_eq!(advice.modes.len(), 3);
        for tried in &advice.modes {
            if tried.mode == Mode::Directory && !with_gwf {
                continue;
            }
            let mut nodes = nodes(tried.mode, tried.l1_share.unwrap_or(0.0));
            let found = simulated(7, granularity, &mut *nodes);
            assert_eq!((tried.sources, tried.between_nodes), found, "{:?}", tried.mode);
        }
    }
}
