//! Small runs that are computed by hand, and properties of every run.

use std::time::Duration;

use shoal_sim::Time;
use shoal_sim::block::Granularity;
use shoal_sim::policy::PolicyName;

use super::{ClientSettings, DemandMove, LinkChange, LinkKind, LinkSettings, Setup, run};
use crate::cluster::{C2pSettings, ClusterSettings, CooperationName, GwfAgeing, GwfReading};
use crate::report::Report;
use crate::units::{Rate, Size, Span};
use crate::workload::{Job, Read, Shape, Workload, zipf};

/// Two nodes with one client each; blocks of 100 bytes; 100 B/s from the lake, 200 B/s between nodes, 400 B/s
/// to clients.
fn setup() -> Setup {
    let rate = |bytes_per_second| Some(Rate(bytes_per_second));
    Setup {
        nodes: 2,
        links: LinkSettings {
            client: rate(400.0),
            peer: rate(200.0),
            lake: rate(100.0),
            ..LinkSettings::default()
        },
        changes: Vec::new(),
        moves: Vec::new(),
        clients: ClientSettings {
            per_node: 1,
            requests: 1,
            jobs: None,
        },
        granularity: Granularity::blocks(100),
        tolerance: 0.0,
        warmup: 0.0,
        sample: None,
    }
}

fn cluster(cooperation: CooperationName, capacity_bytes: u64) -> ClusterSettings {
    ClusterSettings {
        nodes: 2,
        capacity: Size(capacity_bytes),
        block: Size(100),
        cooperation,
        policy: PolicyName::LRU,
        l1_share: 0.5,
        adapt_every: None,
        adapt_limit: None,
        gwf_reading: GwfReading::Text,
        gwf_ageing: GwfAgeing::Added,
        claims: false,
        c2p: C2pSettings::default(),
    }
}

/// Jobs one after the other, each reading one object on one client.
fn one_by_one(reads: &[(u32, u32)]) -> Workload {
    let objects = reads.iter().map(|(_, object)| *object).max().unwrap() + 1;
    let job = |(number, &(client, object)): (u32, &(u32, u32))| Job {
        client,
        reads: vec![Read {
            client,
            object,
            first: 0,
            end: 1,
        }],
        after: number.checked_sub(1).into_iter().collect(),
        ..Job::default()
    };
    Workload {
        objects: vec![100; objects as usize],
        jobs: (0..).zip(reads).map(job).collect(),
    }
}

fn report(setup: &Setup, cluster: &ClusterSettings, workload: &Workload) -> Report {
    run(setup, workload, &mut *cluster.build(1))
}

/// Requests by source: local, peer, lake, joined.
fn requests(report: &Report) -> [u64; 4] {
    let sources = &report.sources;
    [sources.local, sources.peer, sources.lake, sources.joined].map(|volume| volume.requests)
}

/// The first object whose first read satisfies `is_right`.
fn first_object(cooperation: CooperationName, is_right: impl Fn(&Report) -> bool) -> u32 {
    let right = |object: &u32| {
        let reads = one_by_one(&[(0, *object)]);
        is_right(&report(&setup(), &cluster(cooperation, 1000), &reads))
    };
    (0..100).find(right).unwrap()
}

fn bytes(report: &Report, kind: LinkKind, node: usize) -> u64 {
    let mut links = report.links.iter();
    links
        .find(|link| link.link == kind && link.node == Some(node))
        .unwrap()
        .bytes
}

/// An object that comes through node 1, its home.
fn homed_on_1() -> u32 {
    first_object(CooperationName::Hierarchy, |report| {
        bytes(report, LinkKind::LakeIn, 1) == 100
    })
}

#[test]
fn solo_nodes_do_not_know_what_their_neighbours_hold() {
    let reads = one_by_one(&[(0, 0), (0, 0), (1, 0)]);
    let report = report(&setup(), &cluster(CooperationName::Solo, 1000), &reads);
    assert_eq!(requests(&report), [1, 0, 2, 0]);
    // Two at 100 B/s, three at 400 B/s.
    assert!((report.run_s - 2.75).abs() < 1e-6, "{}", report.run_s);
    assert_eq!(report.link_bytes(LinkKind::LakeIn), 200);
    assert_eq!(report.link_bytes(LinkKind::PeerIn), 0);
}

#[test]
fn a_block_read_through_its_home_is_held_there_and_by_the_reader() {
    let object = homed_on_1();
    let reads = one_by_one(&[(0, object), (0, object), (1, object)]);
    let report = report(&setup(), &cluster(CooperationName::Hierarchy, 1000), &reads);
    // Through the home from the lake; from L1; from L2 of the home itself.
    assert_eq!(requests(&report), [2, 0, 1, 0]);
    assert_eq!(bytes(&report, LinkKind::LakeIn, 0), 0);
    assert_eq!(bytes(&report, LinkKind::LakeIn, 1), 100);
    assert_eq!(bytes(&report, LinkKind::PeerIn, 0), 100);
    assert!((report.run_s - 1.75).abs() < 1e-6, "{}", report.run_s);
}

#[test]
fn a_home_has_a_block_when_the_lake_has_sent_it_however_slow_its_reader_is() {
    let object = homed_on_1();
    let mut reads = one_by_one(&[(0, object), (1, object)]);
    reads.jobs[1].after.clear();
    reads.jobs[1].at = Time::from_secs_f64(0.5);
    let mut setup = setup();
    setup.links.peer = Some(Rate(10.0));
    setup.sample = Some(Duration::from_secs(2));
    let report = report(&setup, &cluster(CooperationName::Hierarchy, 1000), &reads);
    // The lake takes 1 s, the path to the reader 10 s from the start, the path to its client 0.25 s.
    assert!((report.run_s - 10.25).abs() < 1e-6, "{}", report.run_s);
    let after_2_s = |node| {
        let mut samples = report.samples.iter();
        let sample = samples.find(|sample| (sample.at_s, sample.node) == (2.0, node));
        sample.unwrap().sources.total().requests
    };
    assert_eq!(
        (after_2_s(0), after_2_s(1)),
        (0, 1),
        "the home's client is served"
    );
}

#[test]
fn a_block_is_read_when_its_home_has_all_of_it_however_fast_the_way_from_there_is() {
    let mut setup = setup();
    setup.links.lake = Some(Rate(10.0));
    let reads = one_by_one(&[(0, homed_on_1())]);
    let report = report(&setup, &cluster(CooperationName::Hierarchy, 1000), &reads);
    assert!((report.run_s - 10.25).abs() < 1e-6, "{}", report.run_s);
}

#[test]
fn without_a_first_layer_every_read_goes_to_the_home() {
    let object = homed_on_1();
    let reads = one_by_one(&[(0, object), (0, object), (0, object)]);
    let l2_only = ClusterSettings {
        l1_share: 0.0,
        ..cluster(CooperationName::Hierarchy, 1000)
    };
    let report = report(&setup(), &l2_only, &reads);
    assert_eq!(requests(&report), [0, 2, 1, 0]);
    // Once at 100 B/s, twice at 200 B/s, three times at 400 B/s to the client.
    assert!((report.run_s - 2.75).abs() < 1e-6, "{}", report.run_s);
}

#[test]
fn a_use_keeps_a_block_from_leaving_first_however_nodes_cooperate() {
    let mut setup = setup();
    setup.nodes = 1;
    // Room for two; without the second use of 0, object 0 would leave for 2.
    let reads = one_by_one(&[(0, 0), (0, 1), (0, 0), (0, 2), (0, 0)]);
    for &cooperation in CooperationName::ALL {
        let nodes = ClusterSettings {
            nodes: 1,
            l1_share: 0.0,
            ..cluster(cooperation, 200)
        };
        assert_eq!(
            requests(&report(&setup, &nodes, &reads)),
            [2, 0, 3, 0],
            "{cooperation:?}"
        );
    }
}

#[test]
fn one_replica_stays_where_it_was_read_first_and_replicas_spread() {
    let reads = one_by_one(&[(0, 0), (1, 0), (1, 0)]);
    let one = report(&setup(), &cluster(CooperationName::AllOneReplica, 1000), &reads);
    assert_eq!(requests(&one), [0, 2, 1, 0]);
    let all = report(&setup(), &cluster(CooperationName::AllReplicate, 1000), &reads);
    assert_eq!(requests(&all), [1, 1, 1, 0]);
}

#[test]
fn a_directory_forgets_nodes_that_lost_a_block() {
    // One block of room: object 1 evicts object 0.
    let reads = one_by_one(&[(0, 0), (0, 1), (1, 0)]);
    let report = report(&setup(), &cluster(CooperationName::AllReplicate, 100), &reads);
    assert_eq!(requests(&report), [0, 0, 3, 0]);
}

#[test]
fn a_storage_node_answers_every_node_for_its_blocks() {
    let stored_on_1 = |report: &Report| bytes(report, LinkKind::LakeIn, 1) == 100;
    let object = first_object(CooperationName::Storage, stored_on_1);
    let reads = one_by_one(&[(0, object), (1, object)]);
    let report = report(&setup(), &cluster(CooperationName::Storage, 1000), &reads);
    assert_eq!(requests(&report), [1, 0, 1, 0]);
    assert_eq!((report.reads.hits, report.reads.complete_misses), (1, 1));
}

#[test]
fn a_reader_of_a_block_in_flight_waits_for_it() {
    let mut both = one_by_one(&[(0, 0), (0, 0)]);
    both.jobs[1].after.clear();
    let mut setup = setup();
    setup.clients.requests = 2;
    let report = report(&setup, &cluster(CooperationName::Solo, 1000), &both);
    assert_eq!(requests(&report), [0, 0, 1, 1]);
    assert_eq!(report.link_bytes(LinkKind::LakeIn), 100, "one fetch a block");
    // Both together at 400 B/s after it has arrived.
    assert!((report.run_s - 1.5).abs() < 1e-6, "{}", report.run_s);
}

#[test]
fn nodes_that_want_the_same_from_its_home_cause_one_fetch() {
    let object = homed_on_1();
    let mut both = one_by_one(&[(0, object), (1, object)]);
    both.jobs[1].after.clear();
    let report = report(&setup(), &cluster(CooperationName::Hierarchy, 1000), &both);
    assert_eq!(requests(&report), [0, 0, 1, 1]);
    assert_eq!(report.link_bytes(LinkKind::LakeIn), 100);
}

#[test]
fn a_job_reads_all_then_computes_then_writes() {
    let mut jobs = one_by_one(&[(0, 0)]);
    jobs.jobs[0].compute = Duration::from_secs(3);
    jobs.jobs[0].writes = vec![(0, 100)];
    jobs.jobs.push(Job {
        after: vec![0],
        reads: jobs.jobs[0].reads.clone(),
        ..Job::default()
    });
    let report = report(&setup(), &cluster(CooperationName::Solo, 1000), &jobs);
    // Read 1.25 s, compute 3 s, write 1 s; the written object must be read again, 1.25 s.
    assert!((report.run_s - 6.5).abs() < 1e-6, "{}", report.run_s);
    assert_eq!(requests(&report), [0, 0, 2, 0]);
    assert_eq!(report.link_bytes(LinkKind::LakeOut), 100);
    assert_eq!((report.job_seconds.count, report.job_seconds.max), (2, 6.5));
}

#[test]
fn latency_is_before_the_first_byte_and_congestion_while_it_lasts() {
    let mut setup = setup();
    setup.links.lake_latency = Some(Span(Duration::from_secs(2)));
    let change = |at_s, bytes_per_second| LinkChange {
        kind: LinkKind::LakeIn,
        node: Some(0),
        after: Duration::from_secs_f64(at_s),
        bytes_per_second,
    };
    setup.changes = vec![change(2.5, 10.0), change(4.5, 100.0)];
    let report = report(
        &setup,
        &cluster(CooperationName::Solo, 1000),
        &one_by_one(&[(0, 0)]),
    );
    // 2 s latency, 50 bytes at 100 B/s, 20 at 10 B/s, 30 at 100 B/s; 0.25 s to the client.
    assert!((report.run_s - 5.05).abs() < 1e-6, "{}", report.run_s);
}

#[test]
fn changes_of_links_are_timed_from_the_end_of_the_warm_up() {
    let mut setup = setup();
    setup.warmup = 0.5;
    setup.changes = vec![LinkChange {
        kind: LinkKind::LakeIn,
        node: None,
        after: Duration::from_millis(500),
        bytes_per_second: 10.0,
    }];
    let reads = one_by_one(&[(0, 0), (0, 1)]);
    let report = report(&setup, &cluster(CooperationName::Solo, 1000), &reads);
    // The second read: 50 bytes at 100 B/s, 50 at 10 B/s, and 0.25 s to the client.
    assert!((report.run_s - 5.75).abs() < 1e-6, "{}", report.run_s);
}

#[test]
fn demand_moves_with_what_has_not_been_asked_for() {
    let mut reads = one_by_one(&[(0, 0), (0, 1), (0, 0)]);
    reads.jobs[1].after.clear();
    reads.jobs[2].after.clear();
    // The last job is submitted long after its client's demand has moved.
    reads.jobs[2].at = Time::from_secs_f64(10.0);
    let mut setup = setup();
    setup.sample = Some(Duration::from_secs(10));
    setup.moves = vec![DemandMove {
        from: 0,
        to: 1,
        after: Duration::from_millis(500),
    }];
    let report = report(&setup, &cluster(CooperationName::Solo, 1000), &reads);
    // The first object is on its way to node 0. Node 1 asks for the second half a second later, and has not
    // seen the third.
    let lake_requests = |node| report.samples.iter().filter(move |sample| sample.node == node);
    let most = |node| {
        lake_requests(node)
            .map(|sample| sample.sources.lake.requests)
            .max()
    };
    assert_eq!((most(0), most(1)), (Some(1), Some(1)));
    assert_eq!(requests(&report), [0, 0, 3, 0]);
    assert!((report.run_s - 11.25).abs() < 1e-6, "{}", report.run_s);
}

#[test]
fn jobs_of_a_client_run_as_many_at_a_time_as_it_may() {
    let mut jobs = one_by_one(&[(0, 0), (0, 1), (0, 2)]);
    jobs.jobs.iter_mut().for_each(|job| {
        job.after.clear();
        job.compute = Duration::from_secs(10);
    });
    let mut setup = setup();
    for (most, seconds) in [(Some(1), 33.75), (None, 13.75)] {
        setup.clients.jobs = most;
        let report = report(&setup, &cluster(CooperationName::Solo, 1000), &jobs);
        assert!(
            (report.run_s - seconds).abs() < 1e-6,
            "{most:?}: {}",
            report.run_s
        );
    }
}

#[test]
fn counting_begins_after_the_warm_up() {
    let setup = Setup {
        warmup: 0.5,
        ..setup()
    };
    let reads = one_by_one(&[(0, 0), (0, 1), (0, 0), (0, 1)]);
    let report = report(&setup, &cluster(CooperationName::Solo, 1000), &reads);
    assert_eq!(requests(&report), [2, 0, 0, 0]);
    assert_eq!(report.link_bytes(LinkKind::LakeIn), 0);
    assert!((report.run_s - 0.5).abs() < 1e-6, "{}", report.run_s);
}

#[test]
fn a_request_made_during_the_warm_up_does_not_count_when_it_ends() {
    let setup = Setup {
        warmup: 0.5,
        ..setup()
    };
    let mut reads = one_by_one(&[(0, 0), (1, 1)]);
    reads.jobs[1].after.clear();
    reads.jobs[1].at = Time::from_secs_f64(0.5);
    let report = report(&setup, &cluster(CooperationName::Solo, 1000), &reads);
    assert_eq!(requests(&report), [0, 0, 1, 0]);
    assert_eq!(
        (report.request_seconds.count, report.reads.complete_misses),
        (1, 1)
    );
}

#[test]
fn a_job_waits_for_its_time_and_for_those_before_it() {
    let mut jobs = one_by_one(&[(0, 0), (0, 0), (0, 0)]);
    jobs.jobs[1].at = Time::from_secs_f64(10.0);
    let report = report(&setup(), &cluster(CooperationName::Solo, 1000), &jobs);
    // The second job starts at its time, the third when the second is done.
    assert!((report.run_s - 10.5).abs() < 1e-6, "{}", report.run_s);
    assert_eq!(report.job_seconds.count, 3);
}

/// Twelve clients, some hundred requests in flight, small caches: every kind of event happens.
fn busy(cooperation: CooperationName, seed: u64) -> Report {
    let mut setup = setup();
    (setup.nodes, setup.clients.per_node, setup.clients.requests) = (4, 3, 10);
    setup.tolerance = crate::network::TOLERANCE;
    setup.sample = Some(Duration::from_secs(50));
    let shape = Shape {
        clients: 12,
        reads: 300,
        objects: 200,
        object_bytes: 250,
        granularity: setup.granularity,
        job_a_read: false,
        seed,
    };
    let nodes = ClusterSettings {
        nodes: 4,
        ..cluster(cooperation, 6_000)
    };
    run(&setup, &zipf(&shape, 0.8), &mut *nodes.build(seed))
}

#[test]
fn with_claims_nodes_that_miss_a_block_together_read_the_lake_once() {
    let mut reads = one_by_one(&[(0, 0), (1, 0), (1, 0)]);
    reads.jobs[1].after.clear();
    reads.jobs[1].at = Time::from_secs_f64(0.5);
    for cooperation in [CooperationName::AllReplicate, CooperationName::Gwf] {
        let cluster = |claims| ClusterSettings {
            claims,
            ..cluster(cooperation, 1000)
        };
        let together = report(&setup(), &cluster(false), &reads);
        assert_eq!(requests(&together), [1, 0, 2, 0], "{cooperation:?}");
        let claimed = report(&setup(), &cluster(true), &reads);
        assert_eq!(requests(&claimed), [1, 1, 1, 0], "{cooperation:?}");
        assert_eq!(claimed.link_bytes(LinkKind::LakeIn), 100);
        assert_eq!(claimed.between_nodes.bytes, 100);
        // 1 s from the lake to node 0, 0.5 s to node 1, twice 0.25 s to its client.
        assert!((claimed.run_s - 2.0).abs() < 1e-6, "{}", claimed.run_s);
    }
}

#[test]
fn a_push_counts_as_sent_between_nodes() {
    // The third object drives the first one to node 1, which holds nothing; then node 0 reads on until the
    // push has arrived.
    let reads = one_by_one(&[(0, 0), (0, 1), (0, 1), (0, 2), (0, 2), (0, 2), (0, 2)]);
    let report = report(&setup(), &cluster(CooperationName::Gwf, 200), &reads);
    assert_eq!(requests(&report), [4, 0, 3, 0]);
    let between = report.between_nodes;
    assert_eq!((between.requests, between.bytes), (1, 100));
    assert_eq!(bytes(&report, LinkKind::PeerIn, 1), 100);
}

#[test]
fn a_seed_is_a_report_byte_for_byte() {
    for &cooperation in CooperationName::ALL {
        let text = |seed| serde_json::to_string(&busy(cooperation, seed)).unwrap();
        assert_eq!(text(1), text(1), "{cooperation:?}");
        assert_ne!(text(1), text(2), "{cooperation:?}");
    }
}

#[test]
fn every_byte_that_clients_get_came_from_somewhere() {
    for &cooperation in CooperationName::ALL {
        let report = busy(cooperation, 3);
        let (sources, bytes) = (&report.sources, 12 * 300 * 250);
        assert_eq!(sources.total().bytes, bytes, "{cooperation:?}");
        assert_eq!(sources.total().requests, 12 * 300 * 3);
        assert_eq!(report.link_bytes(LinkKind::Client), bytes);
        assert_eq!(report.link_bytes(LinkKind::LakeIn), sources.lake.bytes);
        // Bytes that are on their way when the last job ends are counted on the links and have not arrived.
        let on_the_way = report.link_bytes(LinkKind::PeerIn) - report.between_nodes.bytes;
        assert!(on_the_way <= 12 * 8 * 100, "{cooperation:?}: {on_the_way} bytes");
        let unasked = report.between_nodes.requests - sources.peer.requests;
        let forwards = cooperation == CooperationName::Hierarchy;
        assert_eq!(unasked > 0, forwards, "{cooperation:?}: {unasked} forwarded");
        assert_eq!(report.distinct_bytes, 200 * 250);
        assert_eq!(report.request_seconds.count, sources.total().requests);
        let reads = report.reads;
        assert_eq!(
            reads.hits + reads.partial_misses + reads.complete_misses,
            12 * 300
        );
        assert!(sources.lake.requests >= 600, "each block came from the lake once");
        for sample in &report.samples {
            let room = sample.room;
            assert!(room.l1_used_bytes <= room.l1_capacity_bytes);
            assert!(room.l2_used_bytes <= room.l2_capacity_bytes);
            assert_eq!(room.l1_capacity_bytes + room.l2_capacity_bytes, 6_000);
        }
    }
}
