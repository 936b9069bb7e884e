//! The text of `/metrics` is a contract with dashboards and alerts.

use std::sync::Arc;
use std::time::Duration;

use shoal_policy::{Found, Source};
use shoal_s3::operation::Operation;

use super::{Metrics, each, one, render};
use crate::observed;

observed! {
    TABLE of Arc<Metrics>:
    Counter requests{operation, status} "Requests answered." => |metrics| each(metrics.requests());
    Histogram request_duration_seconds{operation} "Time to answer." => |metrics| each(metrics.durations());
    Gauge requests_in_flight{} "Requests being answered." => |metrics| one(metrics.requests_in_flight());
    Counter read_bytes{source} "Bytes of objects." => |metrics| each(metrics.read_bytes());
    Counter uncached{reason} "Reads." => |metrics| each(metrics.uncached.counts());
    Counter waited_seconds{} "Time." => |_metrics| one(1.5);
    Gauge answers{} "1 while it answers." => |_metrics| one(true);
}

fn recorded() -> Arc<Metrics> {
    let metrics = Arc::new(Metrics::default());
    metrics.request(Operation::GetObject, 206, Duration::from_millis(3));
    metrics.request(Operation::GetObject, 206, Duration::from_secs(90));
    metrics.request(Operation::GetObject, 418, Duration::ZERO);
    metrics.request(Operation::ListBuckets, 200, Duration::from_millis(3));
    metrics.read(Source::Local, 5);
    metrics.read(Source::Lake, 6);
    metrics
}

#[test]
fn every_metric_of_a_table_is_shown_with_its_labels() {
    let metrics = recorded();
    let _in_flight = metrics.request_began();
    let text = render(TABLE, metrics);
    for line in [
        "# HELP shoal_requests Requests answered.",
        "# TYPE shoal_requests counter",
        "shoal_requests_total{operation=\"get_object\",status=\"206\"} 2",
        "shoal_requests_total{operation=\"get_object\",status=\"418\"} 1",
        "shoal_requests_total{operation=\"list_buckets\",status=\"200\"} 1",
        "# TYPE shoal_request_duration_seconds histogram",
        "shoal_request_duration_seconds_count{operation=\"get_object\"} 3",
        "shoal_request_duration_seconds_count{operation=\"list_buckets\"} 1",
        "shoal_request_duration_seconds_sum{operation=\"get_object\"} 90.003",
        "shoal_request_duration_seconds_bucket{le=\"0.0025\",operation=\"get_object\"} 1",
        "shoal_request_duration_seconds_bucket{le=\"0.005\",operation=\"get_object\"} 2",
        "shoal_request_duration_seconds_bucket{le=\"60.0\",operation=\"get_object\"} 2",
        "shoal_request_duration_seconds_bucket{le=\"+Inf\",operation=\"get_object\"} 3",
        "# TYPE shoal_requests_in_flight gauge",
        "shoal_requests_in_flight 1",
        "shoal_read_bytes_total{source=\"local\"} 5",
        "shoal_read_bytes_total{source=\"lake\"} 6",
        "shoal_waited_seconds_total 1.5",
        "shoal_answers 1",
        concat!("shoal_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(text.lines().any(|shown| shown == line), "no {line} in\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"), "{text}");
}

#[test]
fn what_never_occurred_is_not_shown() {
    let text = render(TABLE, recorded());
    assert!(!text.contains("shoal_uncached"), "{text}");
    assert!(!text.contains("operation=\"put_object\",status"), "{text}");
}

#[test]
fn a_gauge_counts_down_when_what_it_counts_is_dropped() {
    let metrics = recorded();
    drop(metrics.request_began());
    drop(metrics.connections.opened());
    assert_eq!((metrics.requests_in_flight(), metrics.connections.open()), (0, 0));
}

#[test]
fn reads_of_one_block_are_counted_apart_from_those_of_several() {
    let metrics = Metrics::default();
    metrics.object_read(Found::Partial, true);
    assert_eq!(metrics.reads(true)[Found::Partial.as_str()], 1);
    assert_eq!(metrics.reads(false)[Found::Partial.as_str()], 0);
}
