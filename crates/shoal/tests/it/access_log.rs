//! Stories of the access log in the format of Amazon S3: what a node writes, and what reads it.

use std::fs;
use std::path::{Path, PathBuf};

use http::StatusCode;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::commands::shoal;
use crate::lake::{ACCESS_KEY, Access, Lake, SECRET_KEY};
use crate::process::Process;
use crate::waiting::value;

/// A node that logs into a file of this folder, in front of a lake.
struct Story {
    lake: Lake,
    folder: TempDir,
    node: Process,
}

impl Story {
    async fn start(settings: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let settings = settings.replace("FOLDER", folder.path().to_str().unwrap());
        let lake = Lake::start().await;
        lake.create_bucket("b");
        let file = folder.path().join("shoal.toml");
        let identity =
            format!("[[identity]]\naccess_key = \"{ACCESS_KEY}\"\nsecret_key = \"{SECRET_KEY}\"\n");
        fs::write(&file, format!("{settings}{identity}")).unwrap();
        let (endpoint, store) = (lake.url(), folder.path().join("store"));
        let arguments = [
            "--config",
            file.to_str().unwrap(),
            "--lake-endpoint",
            &endpoint,
            "--store-path",
            store.to_str().unwrap(),
        ];
        let node = Process::serve(&arguments).await;
        Self { lake, folder, node }
    }

    async fn into_file() -> Self {
        Self::start("[log]\naccess = \"s3\"\naccess_file = \"FOLDER/access.log\"\n").await
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Reads an object whose name says which request it is.
    async fn reads(&self, key: &str) {
        self.lake.put("b", key, "bytes");
        let read = self.node.client(ACCESS_KEY, SECRET_KEY).get(&format!("/b/{key}"));
        assert_eq!(read.send().await.text(), "bytes");
    }
}

/// Waits until a file has this many lines.
async fn lines(path: &Path, number: usize) -> Vec<String> {
    let read = async || {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    value("the lines are written", read, |lines| lines.len() >= number).await
}

fn fields(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_a_node_is_a_trace_and_a_history() {
    let story = Story::into_file().await;
    let client = story.node.client(ACCESS_KEY, SECRET_KEY);
    story.lake.put("b", "dt=1/a \"x\"", vec![7; 10_000]);
    let read = client
        .get("/b/dt%3D1/a%20%22x%22")
        .range("bytes=2000-2999")
        .header("user-agent", "etl\"nightly/1");
    assert_eq!(read.send().await.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(client.put("/b/new", "12345").send().await.status, StatusCode::OK);
    story.lake.deny(ACCESS_KEY, Access::Read, "b/new");
    assert_eq!(client.get("/b/new").send().await.status, StatusCode::FORBIDDEN);
    let log = story.file("access.log");
    let lines = lines(&log, 3).await;
    let [read, written, refused] = <[String; 3]>::try_from(lines).unwrap();
    let read = fields(&read);
    assert_eq!(read[..2], ["-", "b"]);
    assert_eq!((read[4], read[5]), ("127.0.0.1", ACCESS_KEY));
    assert_eq!(read[7..9], ["REST.GET.OBJECT", "dt%253D1/a%2520%2522x%2522"]);
    assert_eq!(read[12..16], ["206", "-", "1000", "10000"]);
    assert!(read.contains(&"\"etl\\x22nightly/1\"") && read.contains(&"AuthHeader"));
    let written = fields(&written);
    assert_eq!((written[7], written[15]), ("REST.PUT.OBJECT", "5"));
    assert_eq!(fields(&refused)[12], "403");

    let log = log.to_str().unwrap();
    let sim = shoal(&["sim", log, "--policy", "lru", "--capacity", "100%", "--json"]);
    let simulated = { sim }.output().unwrap();
    assert_eq!(simulated.status.code(), Some(0), "{simulated:?}");
    let plan = shoal(&["plan", "predict", "--job-by", "user-agent", "--json", log]);
    let planned = { plan }.output().unwrap();
    assert_eq!(planned.status.code(), Some(0), "{planned:?}");
    let history: Value = serde_json::from_slice(&planned.stdout).unwrap();
    let learned = &history["history"];
    assert_eq!(
        (&learned["runs"], &learned["bytes"]),
        (&1.into(), &1_000.into()),
        "{history}"
    );
    let metrics = story.node.metrics().await;
    assert!(
        metrics.contains("shoal_access_log_lines_total{outcome=\"written\"} 3"),
        "{metrics}"
    );
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_was_moved_away_is_begun_anew_at_sighup() {
    let story = Story::into_file().await;
    let [log, first, second] = ["access.log", "access.log.1", "access.log.2"].map(|name| story.file(name));
    story.reads("one").await;
    lines(&log, 1).await;
    fs::rename(&log, &first).unwrap();
    story.reads("two").await;
    assert_eq!(lines(&first, 2).await.len(), 2, "the old file until the signal");
    story.node.signal(Signal::HUP);
    story.node.says("configuration reloaded").await;
    story.reads("three").await;
    assert!(lines(&log, 1).await[0].contains(" three "));

    // Also by a signal with which a wrong configuration comes.
    fs::rename(&log, &second).unwrap();
    fs::write(story.file("shoal.toml"), "[log]\naccess = \"s4\"\n").unwrap();
    story.node.signal(Signal::HUP);
    story.node.says("the new configuration is refused").await;
    story.reads("four").await;
    assert!(lines(&log, 1).await[0].contains(" four "));
    assert_eq!(lines(&first, 2).await.len(), 2);
    assert_eq!(lines(&second, 1).await.len(), 1);
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_costs_lines_and_no_answer() {
    let story = Story::start("[log]\naccess = \"s3\"\naccess_file = \"/dev/full\"\n").await;
    story.reads("one").await;
    story.reads("two").await;
    let metrics = async || story.node.metrics().await;
    value("the lines are counted", metrics, |metrics| {
        metrics.contains("shoal_access_log_lines_total{outcome=\"failed\"} 2")
    })
    .await;
    story.node.says("lines of the access log are lost").await;
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_file_the_lines_are_between_those_of_the_log() {
    let story = Story::start("[log]\naccess = \"s3\"\n").await;
    story.reads("k").await;
    let line = story.node.says("REST.GET.OBJECT k ").await;
    assert!(
        line.as_str().is_some_and(|line| line.starts_with("- b [")),
        "{line}"
    );
    assert!(story.node.lines("shoal::access").is_empty());
    assert_eq!(story.node.stop().await, Some(0));
}

#[test]
fn a_file_that_cannot_be_opened_is_named_at_the_start() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("missing/access.log");
    let node = shoal(&[
        "serve",
        "--s3-listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
        "--log-access=s3",
        "--log-access-file",
        file.to_str().unwrap(),
        "--store-path",
        folder.path().join("store").to_str().unwrap(),
    ]);
    let output = { node }.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("[log] access_file cannot be opened") && said.contains("hint:"),
        "{said}"
    );
}
