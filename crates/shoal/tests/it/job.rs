//! The name of a job: from its requests to the access log, and from there to a forecast.

use std::fs;

use http::StatusCode;
use serde_json::Value;

use crate::client::Client;
use crate::commands::shoal;
use crate::lake::{ACCESS_KEY, Lake, Request, SECRET_KEY};
use crate::misconfigured::Process;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_a_job_is_in_the_access_log_and_never_at_the_lake() {
    let lake = Lake::start().await;
    lake.put("b", "k", vec![7; 10_000]);
    let node = Process::start(&format!(
        "[lake]\nendpoint = \"{}\"\naccess_key = \"{ACCESS_KEY}\"\nsecret_key = \"{SECRET_KEY}\"\n\
         [[identity]]\naccess_key = \"client\"\nsecret_key = \"client-secret\"\n\
         [log]\naccess = true\nformat = \"json\"\n",
        lake.url()
    ));
    let serving: Value = serde_json::from_str(&node.logs(&["serving"])).unwrap();
    let address = serving["s3"].as_str().unwrap().parse().unwrap();
    let client = Client::signing(address, "client", "client-secret");
    let job = "etl \"nightly\"";
    let read = client
        .get("/b/k")
        .range("bytes=2000-2999")
        .header("x-shoal-job", job);
    let reply = read.header("user-agent", "spark/9").send().await;
    assert_eq!(
        (reply.status, reply.body.len()),
        (StatusCode::PARTIAL_CONTENT, 1_000)
    );
    let put = client.put("/b/new", "x").header("x-shoal-job", job).send().await;
    assert_eq!(put.status, StatusCode::OK);

    let line: Value = serde_json::from_str(&node.logs(&["shoal::access", "get_object"])).unwrap();
    assert_eq!(
        (&line["job"], &line["user_agent"]),
        (&job.into(), &"spark/9".into())
    );
    assert_eq!(
        (&line["offset_bytes"], &line["object_bytes"]),
        (&2_000.into(), &10_000.into())
    );
    assert_eq!(lake.count(|request| request.header("x-shoal-job").is_some()), 0);
    assert_eq!(lake.count(Request::is_put), 1);

    // The log is a history: the job read the thousand bytes, and is named by its header.
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    fs::write(&log, format!("{line}\n")).unwrap();
    let output = shoal(&["plan", "predict", "--json", log.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&told["history"]["runs"], &told["history"]["bytes"]),
        (&1.into(), &1_000.into())
    );
    node.stop();
}

#[test]
fn what_is_no_history_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.csv");
    fs::write(&path, "name,submitted\netl,soon\n").unwrap();
    let output = shoal(&["plan", "predict", path.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("jobs.csv:2: found `soon` in the column `submitted`"),
        "{said}"
    );
    assert!(
        said.contains("hint: expected a time such as 2026-11-20T02:00:00Z"),
        "{said}"
    );
    assert!(output.stdout.is_empty());
}
