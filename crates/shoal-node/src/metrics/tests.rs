//! Metric names are a contract with dashboards and alerts.

use std::time::Duration;

use shoal_policy::{Layer, Source};

use super::{Metrics, PeerTraffic};

fn recorded() -> Metrics {
    let metrics = Metrics::new(&["GetObject", "PutObject"]);
    metrics.request("GetObject", 206, Duration::from_millis(3));
    metrics.request("GetObject", 206, Duration::from_secs(90));
    metrics.request("GetObject", 418, Duration::ZERO);
    metrics.request("ListBuckets", 200, Duration::from_millis(3));
    metrics.read(Source::Local, 5);
    metrics.read(Source::Lake, 6);
    metrics.lake_requests("GetObject", 1);
    metrics.lake_read(7);
    metrics.coalesced(1);
    metrics.retried(1);
    metrics.uncached("sse-c");
    metrics.refused("requests", 1);
    metrics.evicted("room", 3);
    metrics.corrupt_blocks(1);
    metrics.set_store_bytes(8, 9);
    metrics.set_fill_bytes(10);
    metrics.set_store_paused(true);
    metrics.set_layer_bytes(Layer::L2, 11, 12);
    metrics.layer_requests(Layer::L1, "hit", 13);
    metrics.peers().hops("brought", 14);
    metrics.peers().answered("served", 15);
    let traffic = PeerTraffic {
        requests: 16,
        failures: 1,
        bytes: 17,
    };
    metrics.peers().asked("a2", traffic);
    metrics.peers().set_reachable([("a2", true), ("a3", false)]);
    metrics.tasks().set_tasks("running", 18);
    metrics.tasks().set_running(19, 20);
    metrics.tasks().ended("pin", "done", 21);
    metrics.tasks().objects("evict", "skipped", 22);
    metrics.tasks().bytes("prefetch", "lake", 23);
    metrics.tasks().set_records(24, 25);
    metrics.tasks().set_pinned(26, 27, 28);
    metrics.tiers().swept("near", 29, 30);
    metrics
}

#[test]
fn every_promised_name_is_there_with_its_labels() {
    let metrics = recorded();
    let _open = metrics.connections().opened();
    let _in_flight = metrics.request_began();
    let text = metrics.render();
    for line in [
        "shoal_requests_total{operation=\"GetObject\",status=\"206\"} 2",
        "shoal_requests_total{operation=\"GetObject\",status=\"418\"} 1",
        "shoal_requests_total{operation=\"ListBuckets\",status=\"200\"} 1",
        "shoal_request_duration_seconds_count{operation=\"GetObject\"} 3",
        "shoal_request_duration_seconds_count{operation=\"ListBuckets\"} 1",
        "shoal_request_duration_seconds_sum{operation=\"GetObject\"} 90.003",
        "shoal_request_duration_seconds_bucket{le=\"0.0025\",operation=\"GetObject\"} 1",
        "shoal_request_duration_seconds_bucket{le=\"0.005\",operation=\"GetObject\"} 2",
        "shoal_request_duration_seconds_bucket{le=\"60.0\",operation=\"GetObject\"} 2",
        "shoal_request_duration_seconds_bucket{le=\"+Inf\",operation=\"GetObject\"} 3",
        "shoal_read_bytes_total{source=\"local\"} 5",
        "shoal_read_bytes_total{source=\"lake\"} 6",
        "shoal_lake_requests_total{operation=\"GetObject\"} 1",
        "shoal_lake_bytes_total 7",
        "shoal_coalesced_requests_total 1",
        "shoal_retries_total 1",
        "shoal_uncached_total{reason=\"sse-c\"} 1",
        "shoal_refusals_total{reason=\"requests\"} 1",
        "shoal_evictions_total{reason=\"room\"} 3",
        "shoal_corrupt_blocks_total 1",
        "shoal_resident_bytes 8",
        "shoal_capacity_bytes 9",
        "shoal_fill_bytes 10",
        "shoal_store_paused 1",
        "shoal_layer_bytes{layer=\"L2\"} 11",
        "shoal_layer_target_bytes{layer=\"L2\"} 12",
        "shoal_layer_requests_total{layer=\"L1\",result=\"hit\"} 13",
        "shoal_hops_total{result=\"brought\"} 14",
        "shoal_peer_answers_total{result=\"served\"} 15",
        "shoal_peer_requests_total{peer=\"a2\"} 16",
        "shoal_peer_failures_total{peer=\"a2\"} 1",
        "shoal_peer_bytes_total{peer=\"a2\"} 17",
        "shoal_peer_reachable{peer=\"a2\"} 1",
        "shoal_peer_reachable{peer=\"a3\"} 0",
        "shoal_tasks{state=\"running\"} 18",
        "shoal_tasks_at_risk 19",
        "shoal_tasks_running_here 20",
        "shoal_tasks_ended_total{kind=\"pin\",state=\"done\"} 21",
        "shoal_task_objects_total{kind=\"evict\",outcome=\"skipped\"} 22",
        "shoal_task_bytes_total{kind=\"prefetch\",source=\"lake\"} 23",
        "shoal_records 24",
        "shoal_record_bytes 25",
        "shoal_pinned_objects 26",
        "shoal_pinned_bytes 27",
        "shoal_pinned_bytes_max 28",
        "shoal_tier_swept_pieces_total{tier=\"near\"} 29",
        "shoal_tier_swept_bytes_total{tier=\"near\"} 30",
        "shoal_connections 1",
        "shoal_requests_in_flight 1",
        concat!("shoal_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(text.lines().any(|shown| shown == line), "no {line} in\n{text}");
    }
}

#[test]
fn a_peer_that_has_left_is_neither_asked_nor_left_alone() {
    let metrics = recorded();
    metrics.peers().set_reachable([("a3", true)]);
    let text = metrics.render();
    assert!(text.contains("shoal_peer_reachable{peer=\"a3\"} 1"), "{text}");
    assert!(!text.contains("shoal_peer_reachable{peer=\"a2\"}"), "{text}");
}

#[test]
fn a_gauge_counts_down_when_its_guard_is_dropped() {
    let metrics = recorded();
    drop(metrics.request_began());
    drop(metrics.connections().opened());
    let text = metrics.render();
    assert!(
        text.contains("\nshoal_requests_in_flight 0\n") && text.contains("\nshoal_connections 0\n"),
        "{text}"
    );
}

#[test]
fn an_unusual_status_and_an_unlisted_operation_are_counted_like_others() {
    let metrics = Metrics::new(&["GetObject"]);
    for _ in 0..3 {
        metrics.request("GetObject", 599, Duration::ZERO);
        metrics.request("Other", 200, Duration::ZERO);
    }
    let text = metrics.render();
    assert!(
        text.contains("{operation=\"GetObject\",status=\"599\"} 3"),
        "{text}"
    );
    assert!(text.contains("{operation=\"Other\",status=\"200\"} 3"), "{text}");
}
