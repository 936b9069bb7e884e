//! Stories of promised rates: a job reads from the lake at the rate that its plan says.

use std::time::Duration;

use futures_util::future::join_all;

use super::{Planned, document_beside, reads, start};
use crate::cluster::Cluster;
use crate::link::metered;

#[tokio::test]
async fn a_job_reads_from_the_lake_at_the_rate_that_its_plan_promises_it() {
    let cluster = Cluster::start_with(3, |_, config| metered(config, 1 << 30)).await;
    let inputs: Vec<String> = (0..100).map(|number| format!("r/{number}")).collect();
    for input in &inputs {
        cluster.put(input, 1);
    }
    cluster.put("ad-hoc", 12);
    // It begins at once, so that nothing can be fetched before.
    let job = Planned {
        submit_s: 0.0,
        deadline_s: 60.0,
        reads: &[("r/", 100)],
    };
    start(&cluster.nodes[1], &document_beside(&[job], Vec::new())).await;
    let promised = async || {
        let of = |node| cluster.metric(node, "shoal_link_promised_bytes_total");
        join_all((0..3).map(of)).await.into_iter().sum::<u64>()
    };
    let mut inputs = inputs.iter();
    while promised().await == 0 {
        let input = inputs.next().expect("the nodes are told of the promise");
        reads(&cluster, &[input]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let before = promised().await;
    reads(&cluster, &["ad-hoc"]).await;
    assert_eq!(promised().await, before, "no plan promises it anything");
    cluster.stop().await;
}
