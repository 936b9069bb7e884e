//! Stories of jobs that are announced while a plan is in force: what they get, and why they are refused.

use std::time::Duration;

use serde_json::{Value, json};
use shoal_net::clock;
use shoal_node::config::{Config, HintRule};
use shoal_s3::time::rfc3339;

use super::{Planned, document, gets, reads, start, until};
use crate::cluster::Cluster;
use crate::hints::{event, take, takes_hints, until_brought};
use crate::lake::{Access, Fault, Request};
use crate::link::{metered, moved};
use crate::node::{BLOCK, OTHER_KEY};
use crate::waiting::value;

/// A node that takes announcements and brings nothing for them but by plan.
fn announced_only(config: &mut Config) {
    takes_hints(config);
    config.hints.limits.room_percent = 0;
}

/// Returns the event of a job that reads `key` from `submit_s` to `deadline_s` from now.
fn announcement(run: u32, job: &str, key: &str, submit_s: u64, deadline_s: u64) -> Value {
    let at = |seconds| rfc3339(clock::utc_now() + Duration::from_secs(seconds));
    let mut event = event("START", run, job, &[key], &[]);
    event["job"]["facets"] = json!({ "shoal": { "submit": at(submit_s), "deadline": at(deadline_s) } });
    event
}

/// A plan of one job that reads four blocks of `a` in a minute and a half.
async fn planned(cluster: &Cluster) -> Value {
    cluster.put("a", 4);
    let job = Planned {
        submit_s: 90.0,
        deadline_s: 94.0,
        reads: &[("a", 4)],
    };
    let plan = start(&cluster.nodes[1], &document(&[job])).await;
    until(&cluster.nodes[0], |plan| plan["plan"]["jobs"]["waiting"] == 1).await;
    plan
}

fn arrivals(plan: &Value) -> &[Value] {
    plan["plan"]["arrivals"].as_array().map_or(&[], Vec::as_slice)
}

#[tokio::test]
async fn a_job_that_is_announced_has_its_input_fetched_by_the_plan_in_force() {
    let cluster = Cluster::start_with(2, |_, config| {
        announced_only(config);
        metered(config, 1 << 30);
    })
    .await;
    planned(&cluster).await;
    cluster.put("t/1", 3);
    cluster.put("t/2", 3);
    take(&cluster.nodes[0], &announcement(1, "soon", "t", 20, 60)).await;
    let plan = until(&cluster.nodes[1], |plan| !arrivals(plan).is_empty()).await;
    let arrival = &arrivals(&plan)[0];
    assert_eq!(arrival["why"], Value::Null, "{plan:#}");
    assert!(
        arrival["job"].as_str().unwrap().starts_with("etl/soon@"),
        "{plan:#}"
    );
    until(&cluster.nodes[1], |plan| plan["bytes"]["done"] == 6 * BLOCK).await;
    assert_eq!(cluster.lake.count(gets), 6, "each block once");
    cluster.lake.forget_requests();
    let read = async |key: &str| {
        let client = cluster.nodes[0].client();
        client.get(key).header("x-shoal-job", "etl/soon").send().await
    };
    for key in ["/b/t/1", "/b/t/2"] {
        assert_eq!(read(key).await.body.len() as u64, 3 * BLOCK);
    }
    assert_eq!(cluster.lake.count(gets), 0, "it is here before the job reads");
    let plan = until(&cluster.nodes[0], |plan| plan["plan"]["jobs"]["met"] == 1).await;
    assert_eq!(plan["plan"]["jobs"]["waiting"], 1, "{plan:#}");
    cluster.stop().await;
}

#[tokio::test]
async fn a_job_that_begins_at_once_has_a_rate_and_keeps_it_when_the_coordinator_dies() {
    let mut cluster = Cluster::start_with(3, |_, config| {
        announced_only(config);
        metered(config, 1 << 30);
    })
    .await;
    planned(&cluster).await;
    cluster.put("x", 40);
    take(&cluster.nodes[0], &announcement(1, "now", "x", 0, 60)).await;
    // A later event of the run says the same once more.
    take(&cluster.nodes[2], &announcement(1, "now", "x", 0, 60)).await;
    let running = until(&cluster.nodes[0], |plan| plan["plan"]["jobs"]["running"] == 1).await;
    let rates = async || cluster.metric(0, "shoal_plan_reading_jobs").await;
    value("the node has the job's rate", rates, |jobs| *jobs == 1).await;
    let first = running["runner"].as_str().unwrap().to_owned();
    let dead = (0..3).find(|node| format!("n{node}") == first).unwrap();
    for node in &cluster.nodes {
        until(node, |plan| {
            arrivals(plan).iter().any(|arrival| arrival["why"].is_null())
        })
        .await;
    }
    let stopped = cluster.nodes.remove(dead).halt().await;
    cluster.ways.remove(dead);
    cluster.sees(2).await;
    let next = until(&cluster.nodes[0], |plan| {
        plan["runner"].is_string() && plan["runner"] != *first && plan["plan"]["jobs"]["running"] == 1
    })
    .await;
    assert!(
        arrivals(&next).iter().all(|arrival| arrival["why"].is_null()),
        "{next:#}"
    );
    reads(&cluster, &["x"]).await;
    let met = until(&cluster.nodes[1], |plan| plan["plan"]["jobs"]["met"] == 1).await;
    assert_eq!(met["plan"]["jobs"]["waiting"], 1, "{met:#}");
    drop(stopped);
    cluster.stop().await;
}

#[tokio::test]
async fn a_job_for_which_nothing_is_left_is_refused_with_the_reason_and_the_others_stay() {
    let cluster = Cluster::start_with(2, |_, config| {
        announced_only(config);
        config.hints.rules.push(HintRule {
            namespace: "etl-other".into(),
            identity: Some(OTHER_KEY.into()),
        });
    })
    .await;
    planned(&cluster).await;
    cluster.put("large", 400);
    cluster.put("secret", 4);
    cluster.lake.deny(OTHER_KEY, Access::Read, "b/secret");
    take(&cluster.nodes[0], &announcement(1, "large", "large", 0, 5)).await;
    let mut secret = announcement(2, "secret", "secret", 0, 50);
    secret["job"]["namespace"] = "etl-other".into();
    take(&cluster.nodes[1], &secret).await;
    take(&cluster.nodes[1], &announcement(3, "none", "none", 0, 50)).await;
    let plan = until(&cluster.nodes[0], |plan| arrivals(plan).len() == 3).await;
    for (job, why) in [
        ("etl/large@", "even alone, link and cache bring "),
        ("etl-other/secret@", "403"),
        ("etl/none@", "404"),
    ] {
        let of_job = |arrival: &&Value| arrival["job"].as_str().unwrap().starts_with(job);
        let refused = arrivals(&plan).iter().find(of_job).unwrap();
        assert!(refused["why"].as_str().unwrap().contains(why), "{plan:#}");
    }
    assert_eq!(
        plan["plan"]["jobs"],
        json!({
            "waiting": 1, "running": 0, "at_risk": 0, "met": 0, "missed": 0, "unread": 0, "unplanned": 0,
        })
    );
    assert_eq!(cluster.lake.count(gets), 0, "nothing is fetched for them");
    cluster.stop().await;
}

#[tokio::test]
async fn a_job_that_the_plan_expects_is_not_planned_twice() {
    let cluster = Cluster::start_with(2, |_, config| announced_only(config)).await;
    cluster.put("a", 4);
    let mut document = document(&[Planned {
        submit_s: 4.0,
        deadline_s: 60.0,
        reads: &[("a", 4)],
    }]);
    document.jobs[0].name = "etl/nightly_*".into();
    start(&cluster.nodes[0], &document).await;
    take(
        &cluster.nodes[1],
        &announcement(1, "nightly_2026-11-30", "a", 0, 50),
    )
    .await;
    // Another run of the job is another job.
    take(
        &cluster.nodes[1],
        &announcement(2, "nightly_2026-11-29", "a", 0, 50),
    )
    .await;
    let plan = until(&cluster.nodes[0], |plan| !arrivals(plan).is_empty()).await;
    let job = arrivals(&plan)[0]["job"].as_str().unwrap();
    assert!(job.starts_with("etl/nightly_2026-11-29@"), "{plan:#}");
    assert_eq!(arrivals(&plan).len(), 1, "{plan:#}");
    cluster.stop().await;
}

#[tokio::test]
async fn a_job_whose_inputs_the_lake_did_not_name_is_looked_at_again_and_not_refused() {
    let cluster = Cluster::start_with(2, |_, config| announced_only(config)).await;
    planned(&cluster).await;
    cluster.put("t/1", 3);
    let lists = |request: &Request| request.query.contains("list-type");
    cluster.lake.misbehave(Fault::status(503).when(lists).always());
    cluster.lake.forget_requests();
    take(&cluster.nodes[0], &announcement(1, "soon", "t", 60, 80)).await;
    let asked = async || cluster.lake.count(lists);
    // A node sends a request four times at most before it gives up.
    value("the lake is asked again", asked, |asked| *asked > 4).await;
    cluster.lake.behave();
    let plan = until(&cluster.nodes[1], |plan| !arrivals(plan).is_empty()).await;
    assert_eq!(arrivals(&plan)[0]["why"], Value::Null, "{plan:#}");
    cluster.stop().await;
}

#[tokio::test]
async fn the_inputs_of_a_run_with_a_deadline_come_at_a_rate_of_their_own_unless_a_plan_is_in_force() {
    let cluster = Cluster::start_with(2, |_, config| {
        takes_hints(config);
        metered(config, 1 << 30);
    })
    .await;
    for key in ["any/1", "urgent/1", "decided/1"] {
        cluster.put(key, 4);
    }
    let moved_as_planned = async || {
        let mut bytes = 0;
        for node in &cluster.nodes {
            bytes += moved(node, "down", "planned").await;
        }
        bytes
    };
    let deadline = rfc3339(clock::utc_now() + Duration::from_hours(1));
    let urgent = |run, job, key| {
        let mut event = event("START", run, job, &[key], &[]);
        event["job"]["facets"] = json!({ "shoal": { "deadline": deadline } });
        event
    };
    take(&cluster.nodes[0], &event("START", 1, "any", &["any"], &[])).await;
    until_brought(&cluster.nodes[1], 1).await;
    assert_eq!(moved_as_planned().await, 0, "it has no deadline");

    // It comes now, and not by its deadline.
    take(&cluster.nodes[0], &urgent(2, "urgent", "urgent")).await;
    let hints = until_brought(&cluster.nodes[1], 2).await;
    assert_eq!(moved_as_planned().await, 4 * BLOCK);
    assert_eq!(hints[0]["brought_bytes"], 4 * BLOCK, "{:#}", hints[0]);

    planned(&cluster).await;
    take(&cluster.nodes[1], &urgent(3, "decided", "decided")).await;
    until_brought(&cluster.nodes[0], 3).await;
    assert_eq!(moved_as_planned().await, 4 * BLOCK, "the plan decides");
    cluster.stop().await;
}
