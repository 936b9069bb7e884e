//! Stories about plans that a cluster carries out: fetched once, pinned, found by readers, and going on when
//! the coordinator dies.

mod arrivals;
mod by_itself;
mod commands;
mod leaving;
mod promise;

use std::time::UNIX_EPOCH;

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::Value;
use shoal_lab::netco::SmallSolver;
use shoal_net::clock;
use shoal_plan::document::{DeadlineRule, Document, ExpectedFile, ExpectedJob, Extent};
use shoal_plan::model::{Cache, File, Job, Link, Options, Promise, Request as PlanRequest, VERSION, Window};

use super::Cluster;
use crate::client::{Client, Reply};
use crate::lake::{ACCESS_KEY, Access, Request};
use crate::link::metered;
use crate::node::{BLOCK, Node};
use crate::waiting::value;

fn gets(request: &Request) -> bool {
    request.is_get() && request.is_of_object()
}

/// A job of a plan: its submission and deadline in seconds from now, and the objects that it reads, each with
/// its number of blocks.
pub(crate) struct Planned<'a> {
    pub(crate) submit_s: f64,
    pub(crate) deadline_s: f64,
    pub(crate) reads: &'a [(&'a str, u64)],
}

/// Jobs `j0`, `j1`, … that read objects of bucket `b`, planned from now on in slots of half a second. No job
/// can read its objects from the lake in time.
pub(crate) fn document(jobs: &[Planned<'_>]) -> Document {
    document_beside(jobs, jobs.iter().map(busy).collect())
}

/// The same for a link that others use as promised to them.
fn document_beside(jobs: &[Planned<'_>], promised: Vec<Promise>) -> Document {
    let mut files: Vec<(&str, u64)> = jobs.iter().flat_map(|job| job.reads).copied().collect();
    files.sort_unstable();
    files.dedup();
    let request = PlanRequest {
        version: VERSION,
        window: Window {
            start_s: 0.0,
            end_s: jobs.iter().map(|job| job.submit_s).fold(0.0, f64::max) + 1.0,
            slot_s: 0.5,
        },
        link: Link {
            bytes_per_second: 16.0 * BLOCK as f64,
            changes: Vec::new(),
            promised,
        },
        cache: Cache {
            capacity_bytes: 1 << 30,
            bytes_per_second: None,
            held: Vec::new(),
        },
        files: files
            .iter()
            .map(|(name, blocks)| File {
                name: (*name).to_owned(),
                bytes: blocks * BLOCK,
                available_s: None,
                block_bytes: BLOCK,
            })
            .collect(),
        jobs: jobs
            .iter()
            .enumerate()
            .map(|(number, job)| Job {
                name: format!("j{number}"),
                submit_s: job.submit_s,
                deadline_s: job.deadline_s,
                inputs: job.reads.iter().map(|(name, _)| (*name).to_owned()).collect(),
                bytes_per_second_max: None,
            })
            .collect(),
        options: Options::default(),
    };
    let plan = shoal_plan::plan(&request, &SmallSolver).unwrap();
    let since = clock::utc_now().duration_since(UNIX_EPOCH).unwrap();
    Document {
        version: VERSION,
        epoch_ms: since.as_millis() as u64,
        files: files
            .iter()
            .map(|(name, blocks)| expected(name, blocks * BLOCK))
            .collect(),
        jobs: request
            .jobs
            .iter()
            .map(|job| ExpectedJob {
                name: job.name.clone(),
                early_s: job.submit_s,
                late_s: job.submit_s,
                probability: 1.0,
                deadline_rule: DeadlineRule::Given,
            })
            .collect(),
        left_out: Vec::new(),
        request,
        plan,
    }
}

/// The link has nothing for a job while it runs.
fn busy(job: &Planned<'_>) -> Promise {
    Promise {
        start_s: job.submit_s,
        end_s: job.deadline_s,
        bytes_per_second: 16.0 * BLOCK as f64,
    }
}

fn expected(name: &str, bytes: u64) -> ExpectedFile {
    ExpectedFile {
        path: format!("s3://b/{name}"),
        extent: if name.ends_with('/') {
            Extent::Prefix
        } else {
            Extent::Object
        },
        bytes_low: bytes,
        bytes_high: bytes,
        objects: None,
    }
}

async fn post(node: &Node, body: String) -> Reply {
    let client = Client::anonymous(node.admin_address());
    let call = client.post(&format!("/plan?identity={ACCESS_KEY}"), body);
    call.header("content-type", "application/json").send().await
}

/// Hands a plan to a node, which takes it.
pub(crate) async fn start(node: &Node, document: &Document) -> Value {
    let reply = post(node, serde_json::to_string(document).unwrap()).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

/// Waits until the plan is as it should be on a node.
pub(crate) async fn until(node: &Node, is: impl Fn(&Value) -> bool) -> Value {
    let plan = async || {
        let reply = node.admin("/plan").await;
        let is_there = reply.status == StatusCode::OK;
        is_there.then(|| serde_json::from_slice::<Value>(&reply.body).unwrap())
    };
    let plan = value("the plan is as it should be", plan, |plan| {
        plan.as_ref().is_some_and(&is)
    })
    .await;
    plan.expect("the wait is over when there is one")
}

async fn pinned_bytes(cluster: &Cluster) -> u64 {
    let pinned = async |node: &Node| node.status().await["store"]["pins"]["bytes"].as_u64().unwrap();
    join_all(cluster.nodes.iter().map(pinned)).await.into_iter().sum()
}

async fn reads(cluster: &Cluster, keys: &[&str]) {
    for (number, key) in keys.iter().enumerate() {
        let bytes = cluster.lake.object("b", key).unwrap().content.all();
        cluster.read(number % cluster.nodes.len(), key, &bytes).await;
    }
}

#[tokio::test]
async fn a_plan_fetches_each_block_once_at_its_rate_pins_it_and_readers_find_it() {
    let cluster = Cluster::start_with(3, |_, config| metered(config, 1 << 30)).await;
    cluster.put("a", 6);
    cluster.put("p/1", 3);
    cluster.put("p/2", 3);
    let document = document(&[
        Planned {
            submit_s: 9.0,
            deadline_s: 13.0,
            reads: &[("a", 6)],
        },
        Planned {
            submit_s: 13.0,
            deadline_s: 17.0,
            reads: &[("p/", 6), ("a", 6)],
        },
    ]);
    let taken = start(&cluster.nodes[1], &document).await;
    assert_eq!(
        (&taken["document"]["jobs"], &taken["document"]["planned_jobs"]),
        (&2.into(), &2.into()),
        "{taken:#}"
    );
    let fetched = until(&cluster.nodes[0], |plan| plan["bytes"]["done"] == 12 * BLOCK).await;
    assert_eq!(cluster.lake.count(gets), 12, "each block once");
    assert_eq!(fetched["bytes"]["from_lake"], 12 * BLOCK, "{fetched:#}");
    // A block is pinned once it is on the disk, which is later than its bytes are here. There it has a
    // footer.
    let pinned = async || pinned_bytes(&cluster).await;
    value("the blocks are pinned", pinned, |bytes| *bytes >= 12 * BLOCK).await;
    let moved = async |node: &Node| {
        let status = node.status().await;
        let down = &status["link"]["down"]["classes"];
        let moved = |class: &str| down[class]["bytes"].as_u64().unwrap_or_default();
        (moved("planned"), moved("prefetch"))
    };
    let moved = join_all(cluster.nodes.iter().map(moved)).await;
    let planned: u64 = moved.iter().map(|moved| moved.0).sum();
    assert!(
        planned >= 12 * BLOCK && moved.iter().all(|moved| moved.1 == 0),
        "{moved:?}"
    );

    cluster.lake.forget_requests();
    reads(&cluster, &["a", "p/1", "p/2"]).await;
    assert_eq!(cluster.lake.count(gets), 0, "readers find it");
    let over = until(&cluster.nodes[2], |plan| plan["state"] == "done").await;
    assert_eq!(
        (&over["plan"]["jobs"]["met"], &over["plan"]["replans"]),
        (&2.into(), &0.into()),
        "{over:#}"
    );
    let met =
        join_all((0..3).map(|node| cluster.metric(node, "shoal_plan_deadlines_total{outcome=\"met\"}")))
            .await;
    assert_eq!(met.iter().sum::<u64>(), 2);
    until(&cluster.nodes[0], |plan| plan["state"] == "done").await;
    assert_eq!(cluster.metric(0, "shoal_plan_in_force").await, 0);
    cluster.stop().await;
}

#[tokio::test]
async fn another_node_goes_on_when_the_coordinator_dies_and_fetches_nothing_twice() {
    let mut cluster = Cluster::start(3).await;
    cluster.put("a", 4);
    cluster.put("z", 4);
    let gate = cluster
        .lake
        .hold(|request| gets(request) && request.path.ends_with("/z"));
    let document = document(&[
        Planned {
            submit_s: 5.0,
            deadline_s: 10.0,
            reads: &[("a", 4)],
        },
        Planned {
            submit_s: 20.0,
            deadline_s: 30.0,
            reads: &[("z", 4)],
        },
    ]);
    start(&cluster.nodes[0], &document).await;
    until(&cluster.nodes[0], |plan| plan["bytes"]["done"] == 4 * BLOCK).await;
    reads(&cluster, &["a"]).await;
    let running = until(&cluster.nodes[0], |plan| plan["plan"]["jobs"]["met"] == 1).await;
    let first = running["runner"].as_str().unwrap().to_owned();
    for node in &cluster.nodes {
        until(node, |plan| plan["plan"]["jobs"]["met"] == 1).await;
    }
    let dead = (0..3).find(|node| format!("n{node}") == first).unwrap();
    let homes = cluster
        .lake
        .count(|request| gets(request) && request.path.ends_with("/a"));
    assert_eq!(homes, 4);
    let stopped = cluster.nodes.remove(dead).halt().await;
    cluster.ways.remove(dead);
    cluster.sees(2).await;
    gate.open();
    let next = until(&cluster.nodes[0], |plan| {
        plan["runner"] != *first && plan["runner"].is_string()
    })
    .await;
    assert_eq!(next["plan"]["jobs"]["met"], 1, "what was met stays so: {next:#}");
    until(&cluster.nodes[1], |plan| plan["bytes"]["done"] == 8 * BLOCK).await;
    let bytes = cluster.lake.object("b", "z").unwrap().content.all();
    cluster.read(0, "z", &bytes).await;
    let over = until(&cluster.nodes[1], |plan| plan["state"] == "done").await;
    assert_eq!(over["plan"]["jobs"]["met"], 2, "{over:#}");
    // Blocks of the dead node are fetched again by their new homes, and no others.
    for node in &cluster.nodes {
        node.settle().await;
    }
    let mut blocks: Vec<(String, Option<String>)> = cluster
        .lake
        .requests()
        .iter()
        .filter(|request| gets(request) && request.path.ends_with("/z"))
        .map(|request| (request.path.clone(), request.header("range").map(str::to_owned)))
        .collect();
    blocks.sort();
    let all = blocks.len();
    blocks.dedup();
    assert_eq!(blocks.len(), 4);
    assert!(
        all <= 8,
        "a block is fetched again only if the node that fetched it died: {all}"
    );
    drop(stopped);
    cluster.stop().await;
}

#[tokio::test]
async fn a_missing_file_is_planned_anew_reported_and_fetched_when_it_comes() {
    let cluster = Cluster::start_with(3, |_, config| {
        config.plan.planner = Some("/nowhere/shoal-planner".into());
    })
    .await;
    cluster.put("a", 4);
    let document = document(&[
        Planned {
            submit_s: 5.0,
            deadline_s: 8.0,
            reads: &[("a", 4)],
        },
        Planned {
            submit_s: 15.0,
            deadline_s: 19.0,
            reads: &[("late", 4)],
        },
        Planned {
            submit_s: 6.0,
            deadline_s: 8.0,
            reads: &[("never", 2)],
        },
    ]);
    start(&cluster.nodes[0], &document).await;
    let told = until(&cluster.nodes[0], |plan| {
        plan["plan"]["replans"].as_u64() > Some(0)
    })
    .await;
    assert_eq!(told["plan"]["replanned"]["by"], "node", "{told:#}");
    assert!(
        told["plan"]["replanned"]["detail"]
            .as_str()
            .unwrap()
            .contains("/nowhere"),
        "{told:#}"
    );
    let told = until(&cluster.nodes[1], |plan| {
        let troubled = plan["plan"]["troubled"].as_array();
        let is_late = |job: &Value| job["job"] == "j1" && job["status"] == "at-risk";
        troubled.is_some_and(|jobs| jobs.iter().any(is_late)) && !plan["plan"]["issues"].is_null()
    })
    .await;
    let issues = told["plan"]["issues"].as_array().unwrap();
    assert!(
        issues
            .iter()
            .any(|issue| issue["error"].as_str().unwrap().contains("404")),
        "{told:#}"
    );
    cluster.put("late", 4);
    let over = until(&cluster.nodes[2], |plan| plan["state"] == "done").await;
    let troubled = over["plan"]["troubled"].as_array().unwrap();
    let status = |name: &str| {
        troubled
            .iter()
            .find(|job| job["job"] == name)
            .map(|job| &job["status"])
    };
    // What the second job waited for came, and nothing was read.
    assert_eq!(status("j1"), Some(&"unread".into()), "{over:#}");
    assert_eq!(status("j2"), Some(&"missed".into()), "{over:#}");
    // So did the file of the first job, unless the machine is too slow for its transfer.
    let issues = over["plan"]["issues"].as_array().unwrap();
    let is_behind =
        |issue: &Value| issue["file"] == "a" && issue["error"].as_str().unwrap().contains("behind");
    if !issues.iter().any(is_behind) {
        assert_eq!(status("j0"), Some(&"unread".into()), "{over:#}");
    }
    cluster.lake.forget_requests();
    // The other file has left with its job.
    reads(&cluster, &["late"]).await;
    assert_eq!(cluster.lake.count(gets), 0);
    cluster.stop().await;
}

#[tokio::test]
async fn a_later_plan_takes_the_place_of_the_one_in_force_and_an_end_ends_its_pins() {
    let mut cluster = Cluster::start(2).await;
    cluster.put("a", 4);
    let plan = || {
        document(&[Planned {
            submit_s: 60.0,
            deadline_s: 60.4,
            reads: &[("a", 4)],
        }])
    };
    let mut early = plan();
    // Everything is due at once.
    for file in &mut early.plan.files {
        for transfer in &mut file.transfers {
            (transfer.start_s, transfer.end_s) = (0.0, 1.0);
            transfer.bytes_per_second = 8.0 * BLOCK as f64;
        }
    }
    let first = start(&cluster.nodes[0], &early).await;
    until(&cluster.nodes[1], |plan| plan["bytes"]["done"] == 4 * BLOCK).await;
    assert!(pinned_bytes(&cluster).await >= 4 * BLOCK);
    // Both nodes remember it.
    for node in 0..2 {
        cluster.restart(node, |_| ()).await;
        cluster.sees(2).await;
    }
    until(&cluster.nodes[0], |plan| {
        plan["id"] == first["id"] && plan["state"] == "running"
    })
    .await;
    let second = start(&cluster.nodes[1], &plan()).await;
    assert_eq!(second["document"]["replaces"], first["id"]);
    until(&cluster.nodes[0], |plan| plan["id"] == second["id"]).await;
    let replaced = crate::tasks::task(&cluster.nodes[0], first["id"].as_str().unwrap()).await;
    assert_eq!(replaced["state"], "cancelled", "{replaced:#}");
    let client = Client::anonymous(cluster.nodes[0].admin_address());
    let reply = client.call(http::Method::DELETE, "/plan").send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    let again = client.call(http::Method::DELETE, "/plan").send().await;
    assert!(
        again.status == StatusCode::CONFLICT && again.text().contains("\nhint: "),
        "{}",
        again.text()
    );
    until(&cluster.nodes[1], |plan| plan["state"] == "cancelled").await;
    let pinned = async || pinned_bytes(&cluster).await;
    value("its pins are gone", pinned, |bytes| *bytes == 0).await;
    // While a node is away, the other one is at home for its blocks, and fetches them.
    assert!(
        cluster.lake.count(gets) <= 8,
        "what is there is not fetched again"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn orders_about_plans_that_come_at_once_at_different_nodes_count_in_their_order() {
    let cluster = Cluster::start(3).await;
    cluster.put("a", 4);
    let plan = document(&[Planned {
        submit_s: 600.0,
        deadline_s: 600.4,
        reads: &[("a", 4)],
    }]);
    let mut before = Value::Null;
    for round in 0..9 {
        let node = &cluster.nodes[round % 3];
        let started = start(node, &plan).await;
        assert_eq!(started["document"]["replaces"], before, "plan {round}");
        before = started["id"].clone();
    }
    for node in &cluster.nodes {
        until(node, |plan| plan["id"] == before && plan["state"] == "running").await;
    }
    for round in 0..3 {
        let last = start(&cluster.nodes[round], &plan).await;
        let client = Client::anonymous(cluster.nodes[(round + 1) % 3].admin_address());
        let reply = client.call(http::Method::DELETE, "/plan").send().await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        let stopped: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(stopped["id"], last["id"]);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_bad_plan_is_refused_with_a_hint() {
    let node = Node::start().await;
    let good = document(&[Planned {
        submit_s: 5.0,
        deadline_s: 6.0,
        reads: &[("a", 4)],
    }]);
    let changed = |change: fn(&mut Document)| {
        let mut document = good.clone();
        change(&mut document);
        serde_json::to_string(&document).unwrap()
    };
    let over = clock::utc_now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64 - 3_600_000;
    let mut past = good.clone();
    past.epoch_ms = over;
    for (body, told) in [
        ("{}".to_owned(), "not a plan"),
        ("[".to_owned(), "not a plan"),
        (changed(|d| d.version = 7), "version 7"),
        (changed(|d| d.files[0].path = "b/a".into()), "cannot be fetched"),
        (changed(|d| d.plan.jobs.clear()), "contradicts"),
        (serde_json::to_string(&past).unwrap(), "is over since"),
    ] {
        let reply = post(&node, body).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{told}: {}", reply.text());
        assert!(
            reply.text().contains(told) && reply.text().contains("\nhint: "),
            "{told}: {}",
            reply.text()
        );
    }
    let client = Client::anonymous(node.admin_address());
    let call = client.post("/plan?identity=nobody", serde_json::to_string(&good).unwrap());
    let reply = call.header("content-type", "application/json").send().await;
    assert!(
        reply.status == StatusCode::BAD_REQUEST && reply.text().contains("nobody"),
        "{}",
        reply.text()
    );
    let reply = node.admin("/plan").await;
    assert!(
        reply.status == StatusCode::NOT_FOUND && reply.text().contains("\nhint: "),
        "{}",
        reply.text()
    );
    node.stop().await;
}

#[tokio::test]
async fn a_plan_never_sees_what_the_lake_refuses_its_identity() {
    let cluster = Cluster::start(2).await;
    cluster.put("a", 4);
    cluster.lake.deny(crate::node::OTHER_KEY, Access::Read, "b/");
    let document = document(&[Planned {
        submit_s: 2.0,
        deadline_s: 2.4,
        reads: &[("a", 4)],
    }]);
    let client = Client::anonymous(cluster.nodes[0].admin_address());
    let path = format!("/plan?identity={}", crate::node::OTHER_KEY);
    let call = client.post(&path, serde_json::to_string(&document).unwrap());
    let reply = call.header("content-type", "application/json").send().await;
    assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
    let over = until(&cluster.nodes[1], |plan| plan["state"] == "done").await;
    assert_eq!(
        (&over["plan"]["jobs"]["missed"], &over["bytes"]["from_lake"]),
        (&1.into(), &0.into()),
        "{over:#}"
    );
    assert!(over["plan"]["issues"].to_string().contains("403"), "{over:#}");
    cluster.stop().await;
}
