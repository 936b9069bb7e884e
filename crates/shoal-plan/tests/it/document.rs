//! Documents that were changed, or read again.

use shoal_lab::netco::{SmallSolver, table1};
use shoal_plan::document::{DeadlineRule, Document, DocumentError, ExpectedFile, ExpectedJob, Extent};
use shoal_plan::model::{File, Job, VERSION};

fn document() -> Document {
    let request = table1::request();
    let plan = shoal_plan::plan(&request, &SmallSolver).expect("the example has a plan");
    let file = |file: &File| ExpectedFile {
        path: format!("s3://lake/{}", file.name),
        extent: Extent::Object,
        bytes_low: file.bytes,
        bytes_high: file.bytes,
        objects: None,
    };
    let job = |job: &Job| ExpectedJob {
        name: job.name.clone(),
        early_s: job.submit_s,
        late_s: job.submit_s,
        probability: 1.0,
        deadline_rule: DeadlineRule::Given,
    };
    Document {
        version: VERSION,
        epoch_ms: 1_795_000_000_000,
        files: request.files.iter().map(file).collect(),
        jobs: request.jobs.iter().map(job).collect(),
        left_out: Vec::new(),
        request,
        plan,
    }
}

#[test]
fn a_document_survives_json_and_is_sound() {
    let document = document();
    let text = serde_json::to_string(&document).expect("numbers and names are JSON");
    let read: Document = serde_json::from_str(&text).expect("it was written here");
    // Reading may round the last digit of a number.
    assert_eq!((read.check(), document.check()), (Ok(()), Ok(())));
    assert_eq!((&read.request, &read.files), (&document.request, &document.files));
    assert_eq!(read.plan.files.len(), 3);
}

type Change = fn(&mut Document);

#[test]
fn a_document_that_was_changed_is_refused() {
    let changes: [(Change, &str); 10] = [
        (|d| d.version = 9, "version 9"),
        (|d| d.request.link.bytes_per_second = 0.0, "is 0"),
        (|d| d.files.truncate(1), "1 files, and the request has 3"),
        (|d| d.plan.jobs.swap(0, 1), "stands where"),
        (
            |d| d.plan.jobs[1].reads[0].file = "f1".to_owned(),
            "does not read",
        ),
        (|d| d.plan.files[0].file = "f9".to_owned(), "no job reads f9"),
        (
            |d| d.plan.files[0].transfers[0].blocks = u64::MAX,
            "more are planned",
        ),
        (
            |d| d.plan.files[0].transfers[0].bytes_per_second = f64::NAN,
            "NaN",
        ),
        (|d| d.plan.files[0].cached[0].until_s = -1e9, "has an interval"),
        (
            |d| d.plan.usage.cached_bytes.truncate(1),
            "different numbers of slots",
        ),
    ];
    for (change, message) in changes {
        let mut document = document();
        change(&mut document);
        let error = document.check().expect_err(message);
        let text = error.to_string();
        assert!(text.contains(message) && text.contains("\nhint: "), "{text}");
    }
    let mut document = document();
    document.plan.version = 0;
    assert!(matches!(
        document.check(),
        Err(DocumentError::Version { found: 0, .. })
    ));
}
