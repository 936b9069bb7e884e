//! Stories of plans that the nodes make by themselves.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use shoal_net::clock;
use shoal_s3::time::rfc3339;

use super::{gets, reads, until};
use crate::cluster::Cluster;
use crate::lake::ACCESS_KEY;
use crate::link::metered;
use crate::node::BLOCK;
use crate::waiting::value;

const MINUTE: Duration = Duration::from_mins(1);

/// The history of a job that has read all below `t/` each minute for an hour, last of all half a minute ago.
fn history() -> String {
    let now = clock::utc_now();
    let mut text = "name,submitted,ended,input,input_bytes\n".to_owned();
    for ago in (0..60).rev() {
        let submitted = now - MINUTE * ago - MINUTE / 2;
        let ended = submitted + Duration::from_secs(5);
        let (submitted, ended) = (rfc3339(submitted), rfc3339(ended));
        writeln!(text, "etl,{submitted},{ended},s3://b/t/,{}", 8 * BLOCK).unwrap();
    }
    text
}

async fn planning(cluster: &Cluster) -> Vec<Value> {
    let of = async |node: &crate::node::Node| node.status().await["planning"].clone();
    let all = join_all(cluster.nodes.iter().map(of)).await;
    all.into_iter().filter(|planning| !planning.is_null()).collect()
}

#[tokio::test]
async fn a_cluster_plans_what_recurs_with_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.csv");
    std::fs::write(&path, history()).unwrap();
    let cluster = Cluster::start_with(2, |_, config| {
        metered(config, 1 << 30);
        config.plan.every = Some(MINUTE);
        config.plan.history = vec![path.clone()];
        config.plan.identity = Some(ACCESS_KEY.into());
    })
    .await;
    cluster.put("t/1", 4);
    cluster.put("t/2", 4);
    reads(&cluster, &["t/1"]).await;
    cluster.lake.forget_requests();
    let made = value(
        "a node says so",
        async || planning(&cluster).await,
        |made| !made.is_empty(),
    )
    .await;
    assert!(
        made.len() == 1 && made[0]["plan"].is_string(),
        "one node plans for all: {made:?}"
    );
    let plan = until(&cluster.nodes[0], |plan| plan["state"] == "running").await;
    assert_eq!(made[0]["plan"], plan["id"]);
    let jobs = plan["document"]["jobs"].as_u64().unwrap();
    assert!((1..=3).contains(&jobs), "{plan:#}");
    assert_eq!(plan["document"]["planned_jobs"], jobs, "{plan:#}");
    // What is here already is not fetched, and no more than the rest is.
    let fetched = cluster
        .lake
        .count(|request| gets(request) && request.path.ends_with("/1"));
    assert_eq!(fetched, 0, "{plan:#}");
    cluster.stop().await;
}

#[tokio::test]
async fn a_cluster_that_knows_no_job_says_so_and_plans_nothing() {
    let cluster = Cluster::start_with(2, |_, config| {
        metered(config, 1 << 30);
        config.plan.every = Some(Duration::from_secs(1));
    })
    .await;
    let made = value(
        "a node says so",
        async || planning(&cluster).await,
        |made| !made.is_empty(),
    )
    .await;
    assert_eq!(made[0]["detail"], "no run of a job is known yet");
    assert_eq!(cluster.nodes[0].admin("/plan").await.status, 404);
    cluster.stop().await;
}
