//! Stories of promised rates: a job reads from the lake at the rate that its plan says.

use std::time::Duration;

use futures_util::future::join_all;
use shoal_net::clock;

use super::{Planned, document_beside, reads, start};
use crate::cluster::Cluster;
use crate::link::metered;
use crate::node::BLOCK;
use crate::waiting::value;

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

#[tokio::test]
async fn a_job_that_names_itself_reads_no_faster_than_it_needs_and_others_do() {
    const BLOCKS: u64 = 1_000;
    const MIB: f64 = (1_u64 << 20) as f64;
    // Without a metered link, too.
    let cluster = Cluster::start(2).await;
    cluster.put("r", BLOCKS);
    cluster.put("ad-hoc", BLOCKS);
    let job = Planned {
        submit_s: 0.0,
        deadline_s: 600.0,
        reads: &[("r", BLOCKS)],
    };
    start(&cluster.nodes[1], &document_beside(&[job], Vec::new())).await;
    let read = async |key: &str, job: &str| {
        let client = cluster.nodes[0].client();
        let read = client
            .get(&format!("/b/{key}"))
            .header("x-shoal-job", job)
            .send()
            .await;
        assert_eq!(read.body.len() as u64, BLOCKS * BLOCK);
    };
    // Nodes name their jobs' rates when they have the plan.
    let rates = async || cluster.metric(0, "shoal_plan_reading_jobs").await;
    value("the node has the job's rate", rates, |jobs| *jobs == 1).await;
    let others = async {
        read("ad-hoc", "another").await;
        read("r", "another").await;
    };
    // The job's ceiling is 1 MiB/s, or a quarter more while it moves from one node to the other.
    let began = clock::instant();
    tokio::select! {
        () = read("r", "j0") => {}
        () = others => {}
    }
    let most = 2.0 * MIB * (clock::instant() - began).as_secs_f64() + 4.0 * MIB;
    let read = async |node| cluster.metric(node, "shoal_plan_read_bytes_total").await;
    let bytes = [read(0).await, read(1).await];
    assert!(
        bytes.iter().all(|bytes| *bytes > 0),
        "homes know the job that they fetch for: {bytes:?}"
    );
    assert!(
        (bytes[0] + bytes[1]) as f64 <= most,
        "{bytes:?}, and at most {most}"
    );
    cluster.stop().await;
}
