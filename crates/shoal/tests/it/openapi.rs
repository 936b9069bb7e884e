//! The description of the admin port, `docs/reference/openapi.yaml`, against the answers of nodes: each
//! answer is as described, each path is described, and the answers that are described come.

mod schema;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use shoal_net::clock;
use shoal_node::config::HintRule;
use shoal_orders::{Moment, TaskKind, TaskState};
use shoal_policy::eviction::PolicyName;

use self::schema::Document;
use crate::client::{Client, Reply};
use crate::cluster::{Cluster, plan};
use crate::lake::{ACCESS_KEY, Fault};
use crate::node::Node;
use crate::tasks::{begin, carry_out, is_over, order, until};
use crate::waiting;

/// Answers that need more than a story: a full disk, as many tasks as nodes remember, too many events, 512
/// KiB of an order, 64 MiB of a plan, a rule that packs.
const NOT_TESTED: [&str; 11] = [
    "delete /plan 503",
    "post /api/v1/lineage 503",
    "post /plan 413",
    "post /plan 503",
    "post /rebuild 202",
    "post /rebuild 409",
    "post /tasks 413",
    "post /tasks 503",
    "post /tasks/{id}/cancel 503",
    "post /unpack 202",
    "post /unpack 409",
];

/// Requests to nodes, checked against the description.
struct Story {
    document: Document,
    seen: BTreeSet<String>,
}

impl Story {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.yaml");
        Self {
            document: Document::parse(&fs::read_to_string(path).unwrap()),
            seen: BTreeSet::new(),
        }
    }

    /// Sends a request, and checks the answer.
    async fn ask(&mut self, node: &Node, method: &Method, target: &str, body: &str) -> Reply {
        self.ask_as(node, method, target, "application/json", body).await
    }

    async fn ask_as(&mut self, node: &Node, method: &Method, target: &str, media: &str, body: &str) -> Reply {
        let client = Client::anonymous(node.admin_address());
        let call = client.call(method.clone(), target).body(body.to_owned());
        let reply = call.header("content-type", media).send().await;
        let path = target.split('?').next().unwrap();
        let response = self.document.response(method, path, reply.status);
        if response.said["content"].is_null() {
            assert!(reply.body.is_empty(), "{} tells of no body", response.name);
            self.seen.insert(response.name);
            return reply;
        }
        let media = reply.header("content-type").unwrap().split(';').next().unwrap();
        let schema = &response.said["content"][media]["schema"];
        assert!(!schema.is_null(), "{} tells of no {media}", response.name);
        let value = match media {
            "application/json" => serde_json::from_slice(&reply.body).unwrap(),
            _ => Value::from(reply.text()),
        };
        if let Err(why) = self.document.check(&value, schema) {
            panic!("{}: {why} in {value:#}", response.name);
        }
        self.seen.insert(response.name);
        reply
    }

    async fn get(&mut self, node: &Node, target: &str) -> Value {
        let reply = self.ask(node, &Method::GET, target, "").await;
        serde_json::from_slice(&reply.body).unwrap_or(Value::Null)
    }

    async fn post(&mut self, node: &Node, target: &str, body: &Value) -> StatusCode {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.ask(node, &Method::POST, target, &body).await.status
    }
}

#[tokio::test]
async fn answers_are_as_they_are_described() {
    let mut story = Story::new();
    // Under this policy nodes explain how complete an object is, too.
    let cluster = Cluster::start_with(2, |_, config| {
        config.store.policy = Some(PolicyName::C2pLru);
        config.hints.rules = vec![HintRule {
            namespace: "etl".into(),
            identity: Some(ACCESS_KEY.into()),
        }];
    })
    .await;
    let node = &cluster.nodes[0];
    for object in 0..3 {
        cluster.put(&format!("p/{object}"), 3);
    }
    orders(&mut story, node).await;
    plans(&mut story, node).await;
    events(&mut story, node).await;
    pages(&mut story, node).await;
    for target in ["/drain", "/undrain"] {
        assert_eq!(story.post(node, target, &Value::Null).await, StatusCode::ACCEPTED);
        if target == "/drain" {
            story.get(node, "/readyz").await;
        }
    }
    cluster.stop().await;
    refusals(&mut story).await;
    let mut missing = story.document.responses();
    // The refusals of requests without a token have their own story.
    missing.retain(|name| !story.seen.contains(name) && !name.ends_with(" 401"));
    missing.sort();
    assert_eq!(missing, NOT_TESTED);
}

/// Orders of every kind but plans, all the way to their ends.
async fn orders(story: &mut Story, node: &Node) {
    let end = Moment::from(clock::utc_now() + std::time::Duration::from_hours(1)).to_string();
    let comes_otherwise = |kind: &TaskKind| matches!(kind, TaskKind::Plan | TaskKind::Hint);
    let kinds = TaskKind::ALL.into_iter().filter(|kind| !comes_otherwise(kind));
    for kind in kinds.map(TaskKind::as_str) {
        let mut order = order(kind, "s3://b/p/");
        if kind == "pin" {
            order["until"] = json!(end);
        }
        if kind == "prefetch" {
            order["rate_bytes_per_second"] = json!(1 << 30);
            order["to"] = json!("n1");
        }
        story
            .document
            .check(&order, &json!({ "$ref": "#/components/schemas/Order" }))
            .unwrap();
        let id = begin(node, &order).await;
        story.get(node, &format!("/tasks/{id}")).await;
        until(node, &id, is_over).await;
        let task = story.get(node, &format!("/tasks/{id}")).await;
        assert_eq!(task["state"], "done", "{task:#}");
        if kind == "pin" {
            story.get(node, "/explain?object=s3://b/p/0").await;
        }
        let cancelled = story
            .post(node, &format!("/tasks/{id}/cancel"), &Value::Null)
            .await;
        let expected = if kind == "pin" {
            StatusCode::OK
        } else {
            StatusCode::CONFLICT
        };
        assert_eq!(cancelled, expected, "{kind}");
    }
    let query = format!("kind=prefetch&identity={ACCESS_KEY}&dry_run=true&to=dc1&deadline={end}");
    let target = format!("/tasks?{query}&rate_bytes_per_second=9999999");
    let list = "s3://b/p/0\ns3://b/lost\n";
    let listed = story
        .ask_as(node, &Method::POST, &target, "text/plain", list)
        .await;
    let listed: Value = serde_json::from_slice(&listed.body).unwrap();
    let task = until(node, listed["id"].as_str().unwrap(), is_over).await;
    assert_eq!(task["errors"][0]["object"], "s3://b/lost", "{task:#}");
    let notification = json!({ "Records": [{ "eventName": "ObjectCreated:Put",
        "s3": { "bucket": { "name": "b" }, "object": { "key": "p/1" } } }] });
    let announced = story
        .post(
            node,
            &format!("/tasks?kind=prefetch&identity={ACCESS_KEY}"),
            &notification,
        )
        .await;
    assert_eq!(announced, StatusCode::ACCEPTED);
    let removal = json!({ "Records": [{ "eventName": "ObjectRemoved:Delete",
        "s3": { "bucket": { "name": "b" }, "object": { "key": "p/1" } } }] });
    let target = format!("/tasks?kind=prefetch&identity={ACCESS_KEY}");
    assert_eq!(story.post(node, &target, &removal).await, StatusCode::NO_CONTENT);
    for state in TaskState::ALL.map(TaskState::as_str) {
        story.get(node, &format!("/tasks?state={state}&limit=3")).await;
    }
    let part = story.get(node, "/tasks?limit=1").await;
    story
        .get(node, &format!("/tasks?before={}", part["next"].as_str().unwrap()))
        .await;
}

/// A plan from its start to its end.
async fn plans(story: &mut Story, node: &Node) {
    story.get(node, "/plan").await;
    story.get(node, "/plan/timeline").await;
    let gone = story.ask(node, &Method::DELETE, "/plan", "").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    let reads = [("p/0", 3), ("p/lost", 3)];
    let document = plan::document(&[plan::Planned {
        submit_s: 10.0,
        deadline_s: 10.4,
        reads: &reads,
    }]);
    let body = json!(document);
    let target = format!("/plan?identity={ACCESS_KEY}");
    assert_eq!(story.post(node, &target, &body).await, StatusCode::ACCEPTED);
    let told = plan::until(node, |plan| plan["plan"]["jobs"]["at_risk"] == 1).await;
    assert_eq!(told["plan"]["troubled"][0]["job"], "j0", "{told:#}");
    let timeline = story.get(node, "/plan/timeline").await;
    assert_eq!(timeline["jobs"][0]["job"], "j0", "{timeline:#}");
    story.get(node, "/plan").await;
    assert_eq!(story.post(node, &target, &body).await, StatusCode::ACCEPTED);
    assert_eq!(
        story.post(node, "/plan", &json!({})).await,
        StatusCode::BAD_REQUEST
    );
    let wrong = story
        .ask_as(node, &Method::POST, &target, "text/plain", "x")
        .await;
    assert_eq!(wrong.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    for status in [StatusCode::OK, StatusCode::CONFLICT] {
        let ended = story.ask(node, &Method::DELETE, "/plan", "").await;
        assert_eq!(ended.status, status);
    }
}

/// Events of running jobs, and what became of them.
async fn events(story: &mut Story, node: &Node) {
    let mut event = json!({
        "eventType": "START", "eventTime": "2026-11-30T10:00:00Z",
        "run": { "runId": "00000000-0000-4000-8000-000000000001" },
        "job": { "namespace": "etl", "name": "j" },
        "inputs": [{ "namespace": "s3://b", "name": "p" }],
    });
    assert_eq!(
        story.post(node, "/api/v1/lineage", &event).await,
        StatusCode::CREATED
    );
    let batch = json!([event, {}]);
    assert_eq!(
        story.post(node, "/api/v1/lineage/batch", &batch).await,
        StatusCode::OK
    );
    let hints = waiting::value(
        "the hint is carried out",
        async || story.get(node, "/hints").await,
        |hints: &Value| hints["hints"][0]["task"]["state"] == "done",
    );
    assert_eq!(hints.await["hints"][0]["keeps"], true);
    story.get(node, "/explain?object=s3://b/p/0").await;
    event["eventType"] = "COMPLETE".into();
    assert_eq!(
        story.post(node, "/api/v1/lineage", &event).await,
        StatusCode::CREATED
    );
    for target in ["/runs", "/nodes/n1/runs"] {
        story.get(node, target).await;
    }
    event["job"]["namespace"] = "other".into();
    assert_eq!(
        story.post(node, "/api/v1/lineage", &event).await,
        StatusCode::FORBIDDEN
    );
    let long = json!(vec![0; 1_001]);
    assert_eq!(
        story.post(node, "/api/v1/lineage/batch", &long).await,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    let long = " ".repeat((4 << 20) + 1);
    let long = story.ask(node, &Method::POST, "/api/v1/lineage", &long).await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
    for target in ["/api/v1/lineage", "/api/v1/lineage/batch"] {
        assert_eq!(
            story.post(node, target, &json!({})).await,
            StatusCode::BAD_REQUEST
        );
        let client = Client::anonymous(node.admin_address());
        let call = client.post(target, "").header("content-encoding", "br");
        assert_eq!(
            call.send().await.status,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "{target}"
        );
        story.seen_in(&Method::POST, target, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
}

/// Pages that only show something.
async fn pages(story: &mut Story, node: &Node) {
    for target in [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/status",
        "/members",
        "/history",
        "/nodes/n1/history?since=1",
        "/tasks",
        "/explain?object=s3://b/p/0&first=1&count=1",
        "/explain?object=s3://b/never-asked-for",
        "/explain?object=b/p",
        "/nodes/n1/status",
        "/nodes/n1/metrics",
        "/nodes/n7/status",
        "/nodes/n1/explain?object=nothing",
        "/tasks?limit=many",
        "/tasks?before=nothing",
    ] {
        story.get(node, target).await;
    }
    for target in [
        "/flush",
        "/flush?below=s3://b/p",
        "/flush?below=p",
        "/cached?uri=p",
    ] {
        story.post(node, target, &Value::Null).await;
    }
    for objects in ["s3://b/p/&limit=1", "s3://b/p/&after=p/2", "s3://nowhere/"] {
        let target = format!("/cached?identity={ACCESS_KEY}&uri={objects}");
        story.post(node, &target, &Value::Null).await;
    }
    for target in [
        "/unpack?below=s3://b/p/",
        "/rebuild?below=s3://b/p/&from_packs=true",
    ] {
        story.post(node, target, &Value::Null).await;
    }
}

/// Requests that a node refuses: for their content, for its state, or for their origin.
async fn refusals(story: &mut Story) {
    let alone = Node::start().await;
    let status = story.get(&alone, "/status").await;
    assert!(status["drain"].is_null(), "{status:#}");
    for target in ["/drain", "/undrain"] {
        assert_eq!(
            story.post(&alone, target, &Value::Null).await,
            StatusCode::CONFLICT
        );
    }
    for id in ["01JDBZZZZZZZZZZZZZZZZZZZZZ", "nothing"] {
        story.get(&alone, &format!("/tasks/{id}")).await;
        story
            .post(&alone, &format!("/tasks/{id}/cancel"), &Value::Null)
            .await;
    }
    assert_eq!(
        story.post(&alone, "/tasks", &json!({ "kind": "pin" })).await,
        StatusCode::BAD_REQUEST
    );
    let unknown = story
        .ask_as(&alone, &Method::POST, "/tasks", "image/png", "x")
        .await;
    assert_eq!(unknown.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    for target in [
        "/drain",
        "/undrain",
        "/flush",
        "/unpack",
        "/rebuild",
        "/tasks",
        "/tasks/x/cancel",
        "/cached",
        "/api/v1/lineage/batch",
    ] {
        let client = Client::anonymous(alone.admin_address());
        let call = client.post(target, "").header("origin", "https://example.com");
        assert_eq!(call.send().await.status, StatusCode::FORBIDDEN, "{target}");
        story.seen_in(&Method::POST, target, StatusCode::FORBIDDEN);
    }
    alone.lake.misbehave(Fault::status(503).when(|_| true).always());
    let target = format!("/cached?identity={ACCESS_KEY}&uri=s3://b/");
    assert_eq!(
        story.post(&alone, &target, &Value::Null).await,
        StatusCode::BAD_GATEWAY
    );
    alone.lake.behave();
    for method in [Method::POST, Method::DELETE] {
        let client = Client::anonymous(alone.admin_address());
        let call = client
            .call(method.clone(), "/plan")
            .header("origin", "https://example.com");
        assert_eq!(call.send().await.status, StatusCode::FORBIDDEN, "{method}");
        story.seen_in(&method, "/plan", StatusCode::FORBIDDEN);
    }
    alone.stop().await;
}

impl Story {
    /// Notes an answer that was asked for in another way.
    fn seen_in(&mut self, method: &Method, path: &str, status: StatusCode) {
        let response = self.document.response(method, path, status);
        self.seen.insert(response.name);
    }
}

#[tokio::test]
async fn what_needs_a_token_is_described_with_its_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    fs::write(&file, "a-token-of-this-story\n").unwrap();
    let node = Node::start_with(|config| config.admin.token_file = Some(file)).await;
    let mut story = Story::new();
    for name in story.document.responses() {
        let Some((method, path)) = name.strip_suffix(" 401").and_then(|name| name.split_once(' ')) else {
            continue;
        };
        // A GET over loopback needs no token.
        if method != "get" {
            let path = path.replace("{id}", "01JDBZZZZZZZZZZZZZZZZZZZZZ");
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let answer = story.ask(&node, &method, &path, "").await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {path}");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn every_path_and_field_is_described() {
    let story = Story::new();
    let node = Node::start().await;
    let client = Client::anonymous(node.admin_address());
    let told = client.get("/nothing").send().await;
    let words = told.text().split([' ', ',', '\n']);
    let top = |path: &str| format!("/{}", path.split('/').nth(1).unwrap());
    let here: BTreeSet<String> = words.filter(|word| word.starts_with('/')).map(top).collect();
    let described: BTreeSet<String> = story.document.paths();
    let tops: BTreeSet<String> = described.iter().map(|path| top(path)).collect();
    assert_eq!(tops, here);
    for path in &described {
        let target = path.replace("{id}", "01JDBZZZZZZZZZZZZZZZZZZZZZ");
        let target = target.replace("{name}", "n1").replace("{page}", "status");
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let reply = client.call(method.clone(), &target).send().await;
            let is_described = story.document.has(&method, path);
            let is_known = reply.status != StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(is_described, is_known, "{method} {path}: {}", reply.status);
        }
    }
    let unknown = crate::tasks::post(&node, &json!({ "kind": "pin", "zzzz": 1 })).await;
    let fields = unknown.text().split("the fields are ").nth(1).unwrap();
    let fields: BTreeSet<&str> = fields.trim().split(", ").collect();
    let schemas = &story.document.schemas();
    let of_order = schemas["Order"]["properties"].as_object().unwrap();
    assert_eq!(
        of_order.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        fields
    );
    let mut in_query = story.document.query_parameters(&Method::POST, "/tasks");
    in_query.insert("uri".into());
    assert_eq!(
        in_query.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        fields
    );
    assert_eq!(
        schemas["TaskKind"]["enum"],
        json!(TaskKind::ALL.map(TaskKind::as_str))
    );
    assert_eq!(
        schemas["TaskState"]["enum"],
        json!(TaskState::ALL.map(TaskState::as_str))
    );
    // The description of a task that was carried out is the same on the command line.
    let task = carry_out(&node, &order("cached", "s3://b/p")).await;
    assert!(serde_json::from_value::<shoal_orders::Task>(task).is_ok());
    node.stop().await;
}
