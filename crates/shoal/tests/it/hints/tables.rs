//! Stories about hints that name tables: the files of the current snapshot come, and no replaced ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use http::StatusCode;
use serde_json::{Value, json};
use shoal_node::config::HintRule;

use super::{event, gets, pinned, take, takes_hints, until_brought};
use crate::cluster::Cluster;
use crate::lake::{Access, Content, Lake, Object};
use crate::node::{BLOCK, Node, OTHER_KEY};

/// A table that an engine wrote, from the tests of `shoal-tables`: its README says how.
struct Table {
    folder: PathBuf,
    bucket: String,
    /// Its key, without a slash at the end.
    key: String,
}

impl Table {
    fn named(name: &str) -> Self {
        let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shoal-tables/tests/tables");
        let folder = tables.join(name);
        let location = fs::read_to_string(folder.join("location.txt")).unwrap();
        let (bucket, key) = location
            .trim()
            .strip_prefix("s3://")
            .unwrap()
            .split_once('/')
            .unwrap();
        Self {
            bucket: bucket.into(),
            key: key.into(),
            folder,
        }
    }

    /// Returns the names of objects in a file, below the table.
    fn names(&self, file: &str) -> BTreeSet<String> {
        let text = fs::read_to_string(self.folder.join(file)).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn in_log(&self, name: &str) -> PathBuf {
        self.folder.join("log").join(name)
    }

    fn key_of(&self, name: &str) -> String {
        format!("{}/{name}", self.key)
    }

    /// Brings the table into a lake. Files of the log that no engine needs now, and data, are made up.
    fn put(&self, lake: &Lake) {
        for name in self.names("objects.txt") {
            let content = match fs::read(self.in_log(&name)) {
                Ok(bytes) => bytes.into(),
                Err(_) => Content::synthetic(1_000, name.len() as u64),
            };
            lake.put(&self.bucket, self.key_of(&name), Object::new(content));
        }
    }

    /// Returns the keys of what an engine reads: current files, and the log that leads to them.
    fn current(&self) -> BTreeSet<String> {
        let mut names = self.names("current.txt");
        let is_read = |name: &String| self.in_log(name).exists();
        names.extend(self.names("objects.txt").into_iter().filter(is_read));
        names.into_iter().map(|name| self.key_of(&name)).collect()
    }

    fn start(&self) -> Value {
        let mut start = event("START", 1, "report", &[], &[]);
        let namespace = format!("s3://{}", self.bucket);
        start["inputs"] = json!([{ "namespace": namespace, "name": self.key }]);
        start
    }
}

/// Returns the keys of objects whose bytes the lake has sent.
fn sent(lake: &Lake) -> BTreeSet<String> {
    let requests = lake.requests();
    let gets = requests.iter().filter(|request| gets(request));
    gets.map(|request| String::from_utf8(request.key.clone()).unwrap())
        .collect()
}

/// A hint for a table brings what its engine reads, which then is a hit at every node.
async fn brings_the_current_snapshot(name: &str, pointers: &[&str]) {
    let cluster = Cluster::start_with(3, |_, config| takes_hints(config)).await;
    let table = Table::named(name);
    table.put(&cluster.lake);
    take(&cluster.nodes[0], &table.start()).await;
    let hints = until_brought(&cluster.nodes[1], 1).await;
    assert_eq!(hints[0]["task"]["state"], "done", "{:#}", hints[0]);
    assert_eq!(hints[0]["task"]["detail"], Value::Null, "{:#}", hints[0]);
    let current = table.current();
    let mut expected = current.clone();
    expected.extend(pointers.iter().map(|name| table.key_of(name)));
    assert_eq!(sent(&cluster.lake), expected, "no replaced file comes");
    cluster.settle().await;
    let mut kept = 0;
    for node in &cluster.nodes {
        kept += pinned(node).await;
    }
    assert_eq!(kept, expected.len() as u64, "all of it is kept for the run");

    cluster.lake.forget_requests();
    for (number, key) in current.iter().enumerate() {
        let path = format!(
            "/{}/{}",
            table.bucket,
            key.replace('%', "%25").replace(' ', "%20")
        );
        let reply = cluster.nodes[number % 3].client().get(&path).send().await;
        assert_eq!(reply.status, StatusCode::OK, "{path}");
    }
    assert_eq!(
        cluster.lake.count(gets),
        0,
        "the reader does not wait for the lake"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_hint_for_a_table_of_iceberg_brings_the_current_snapshot_and_no_replaced_file() {
    brings_the_current_snapshot("pyiceberg-v2", &[]).await;
    brings_the_current_snapshot("spark-iceberg-v3", &["metadata/version-hint.text"]).await;
}

#[tokio::test]
async fn a_hint_for_a_table_of_delta_brings_the_current_snapshot_and_no_removed_file() {
    let last = "_delta_log/_last_checkpoint";
    brings_the_current_snapshot("delta-rs", &[last]).await;
    let checksum = "_delta_log/00000000000000000005.crc";
    brings_the_current_snapshot("spark-delta-classic", &[last, checksum]).await;
}

#[tokio::test]
async fn all_objects_below_a_table_that_cannot_be_read_are_brought_and_the_task_says_why() {
    let node = Node::start_with(takes_hints).await;
    let table = Table::named("pyiceberg-v2");
    table.put(&node.lake);
    let mut all = table.names("objects.txt");
    all.retain(|name| name.starts_with("data/"));
    let manifests = table.current();
    for key in manifests.iter().filter(|key| key.ends_with("-m0.avro")) {
        node.lake.put(&table.bucket, key, "Obj\x01 and nothing more");
    }
    take(&node, &table.start()).await;
    let hints = until_brought(&node, 1).await;
    assert_eq!(hints[0]["task"]["state"], "done", "{:#}", hints[0]);
    let remark = hints[0]["task"]["detail"].as_str().unwrap();
    assert!(
        remark.starts_with("all objects below s3://lake/pyiceberg/events are brought: ")
            && remark.contains("Iceberg table is damaged"),
        "{remark}"
    );
    let sent = sent(&node.lake);
    assert!(
        all.iter().all(|name| sent.contains(&table.key_of(name))),
        "{sent:?}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_table_brings_no_object_that_its_reader_may_not_read() {
    let node = Node::start_with(|config| {
        config.hints.rules = vec![HintRule {
            namespace: "etl".into(),
            identity: Some(OTHER_KEY.into()),
        }];
    })
    .await;
    node.lake
        .put("secret", "salaries", Object::new(Content::synthetic(1_000, 1)));
    // The owner has it in the cache.
    let mine = node.client().get("/secret/salaries").send().await;
    assert_eq!(mine.status, StatusCode::OK);
    node.lake.deny(OTHER_KEY, Access::Read, "secret");
    let add = json!({ "add": { "path": "s3://secret/salaries", "size": 1_000, "dataChange": true } });
    node.lake
        .put("b", "t/_delta_log/00000000000000000000.json", &*add.to_string());
    take(&node, &event("START", 1, "j", &["t"], &[])).await;
    let hints = until_brought(&node, 1).await;
    let task = &hints[0]["task"];
    assert_eq!(
        (&task["state"], &task["objects"]["failed"]),
        (&json!("failed"), &json!(1)),
        "{task:#}"
    );
    assert_eq!(pinned(&node).await, 1, "the log alone is kept");
    node.stop().await;
}

#[tokio::test]
async fn sizes_in_the_log_of_a_table_make_no_room_for_its_files() {
    let node = Node::start_with(|config| {
        takes_hints(config);
        // Of 64 MiB.
        config.hints.limits.room_percent = 1;
    })
    .await;
    node.lake
        .put("b", "t/large", Object::new(Content::synthetic(11 * BLOCK, 3)));
    let add = json!({ "add": { "path": "large", "size": 1, "dataChange": true } });
    let commit = "t/_delta_log/00000000000000000000.json";
    node.lake.put("b", commit, &*add.to_string());
    take(&node, &event("START", 1, "j", &["t"], &[])).await;
    let failed = until_brought(&node, 1).await;
    let why = failed[0]["task"]["detail"].as_str().unwrap();
    assert!(why.starts_with("no room: its inputs have 704 KiB"), "{why}");
    assert_eq!(
        sent(&node.lake),
        BTreeSet::from([commit.to_owned()]),
        "the log alone was read"
    );
    node.stop().await;
}
