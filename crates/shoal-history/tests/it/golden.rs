//! Reduced real logs with known inputs, sizes and times.

use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use shoal_history::read::{Application, JobBy, ReadOptions, Reader, Step};
use shoal_history::run::Passed;
use shoal_history::{History, HistoryError, Input, Moment, Run};

const SPARK_3_5: &str = include_str!("../data/spark-3.5.json");
const SPARK_4_3: &str = include_str!("../data/spark-4.3.json");
const PARTITIONED_3_3: &str = include_str!("../data/spark-3.3-partitioned.json");
const PARTITIONED_4_0: &str = include_str!("../data/spark-4.0-partitioned.json");
const REQUESTS: &str = include_str!("../data/requests.jsonl");

fn read(files: &[&[u8]], options: ReadOptions) -> Result<History, HistoryError> {
    let mut reader = Reader::new(options);
    for (number, file) in files.iter().enumerate() {
        reader.file(&format!("f{number}"), None, Cursor::new(file.to_vec()))?;
    }
    reader.finish()
}

fn runs(files: &[&[u8]], options: ReadOptions) -> Vec<Run> {
    read(files, options).expect("the file is a log").runs().collect()
}

fn spark(files: &[&[u8]]) -> Vec<Run> {
    runs(files, ReadOptions::default())
}

fn input(path: &str, bytes: u64) -> Input {
    Input {
        path: path.to_owned(),
        bytes: Some(bytes),
        bytes_per_s: None,
    }
}

#[test]
fn an_application_of_each_spark_is_a_run_with_the_files_that_it_scanned() {
    for (log, submitted_ms, started_ms, ended_ms, fact_bytes, dim_bytes) in [
        (
            SPARK_3_5,
            1_795_197_459_169,
            1_795_197_459_736,
            1_795_197_504_447,
            88_272_840,
            4_835,
        ),
        (
            SPARK_4_3,
            1_795_197_999_423,
            1_795_198_000_392,
            1_795_198_071_231,
            88_273_112,
            4_838,
        ),
    ] {
        let run = Run {
            name: "etl-job-1".to_owned(),
            submitted: Moment::from_ms(submitted_ms),
            started: Some(Moment::from_ms(started_ms)),
            ended: Some(Moment::from_ms(ended_ms)),
            deadline: None,
            inputs: vec![
                input("s3://lake/dim/", dim_bytes),
                input("s3://lake/fact/", fact_bytes),
            ],
            outputs: vec!["s3://lake/out".to_owned()],
        };
        assert_eq!(spark(&[log.as_bytes()]), [run]);
    }
}

/// The last application of some files.
fn last(files: &[&str]) -> Option<Application> {
    let mut reader = Reader::default();
    for (number, file) in files.iter().enumerate() {
        let input = Cursor::new(file.as_bytes().to_vec());
        reader
            .file(&format!("f{number}"), None, input)
            .expect("the file is a log");
    }
    reader.last_application().expect("the history is small")
}

fn step(name: &str, reads: &[(&str, u64)], writes: &[&str]) -> Step {
    Step {
        name: name.to_owned(),
        reads: reads
            .iter()
            .map(|&(path, bytes)| (path.to_owned(), bytes))
            .collect(),
        writes: writes.iter().map(|&path| path.to_owned()).collect(),
    }
}

#[test]
fn an_application_has_steps_in_the_order_in_which_they_began() {
    let steps = |fact_bytes, dim_bytes| {
        [
            step("query-2", &[("s3://lake/fact/", fact_bytes)], &[]),
            step(
                "query-3",
                &[("s3://lake/fact/", fact_bytes), ("s3://lake/dim/", dim_bytes)],
                &["s3://lake/out"],
            ),
        ]
    };
    let first = last(&[SPARK_3_5]).unwrap();
    assert_eq!(first.name, "etl-job-1");
    assert_eq!(first.submitted, Moment::from_ms(1_795_197_459_169));
    assert_eq!(first.steps, steps(88_272_840, 4_835));
    assert_eq!(first.passed, []);
    // That of Spark 4.3 started later.
    for files in [[SPARK_3_5, SPARK_4_3], [SPARK_4_3, SPARK_3_5]] {
        assert_eq!(last(&files).unwrap().steps, steps(88_273_112, 4_838));
    }
    assert_eq!(last(&["name,submitted,input\na,100,s3://b/x\n"]), None);
}

#[test]
fn a_step_that_reads_what_the_application_wrote_names_what_was_written() {
    let write = r#"{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart","executionId":0,"sparkPlanInfo":{"nodeName":"Execute InsertIntoHadoopFsRelationCommand","simpleString":"Execute InsertIntoHadoopFsRelationCommand s3a://lake/dim, false, Parquet, [path=s3a://lake/dim], Overwrite, [k, g]","children":[],"metadata":{},"metrics":[]},"time":1795197470673}"#;
    let job = r#"{"Event":"SparkListenerJobStart","Job ID":1,"Submission Time":1795197480000,"Stage Infos":[{"Stage ID":1,"RDD Info":[{"Name":"s3a://words/a.txt,/tmp/b.txt,hdfs://n/c"}]}]}"#;
    let mut lines: Vec<&str> = SPARK_3_5.lines().collect();
    lines.splice(2..2, [write, job]);
    let application = last(&[&lines.join("\n")]).unwrap();
    assert_eq!(
        application.steps[..2],
        [
            step("query-0", &[], &["s3://lake/dim"]),
            step("job-1", &[("s3://words/a.txt", 0)], &[])
        ]
    );
    let reads: Vec<&str> = application.steps[3].reads.keys().map(String::as_str).collect();
    assert_eq!(reads, ["s3://lake/dim", "s3://lake/fact/"]);
    assert_eq!(application.passed, [(Passed::NotInS3, 2)]);
}

#[test]
fn partitions_that_filters_select_are_inputs() {
    let day = |day: u32| format!("s3://lake/x/by_dt/dt=2026-11-{day:02}/");
    let rest = [
        "s3://lake/x/by_ymd/year=2026/month=11/day=9/".to_owned(),
        "s3://lake/x/dim.csv".to_owned(),
    ];
    // Spark 3.3 was stopped before the last query.
    for (log, days) in [
        (PARTITIONED_3_3, vec![11, 12, 13, 15, 16, 17, 18, 19]),
        (PARTITIONED_4_0, vec![11, 12, 13, 14, 15, 16, 17, 18, 19]),
    ] {
        let run = &spark(&[log.as_bytes()])[0];
        let paths: Vec<&str> = run.inputs.iter().map(|input| input.path.as_str()).collect();
        let expected: Vec<String> = days.into_iter().map(day).chain(rest.clone()).collect();
        assert_eq!(paths, expected);
        assert!(
            run.inputs
                .iter()
                .all(|input| input.bytes.is_some_and(|bytes| bytes > 0)),
            "{run:?}"
        );
    }
}

#[test]
fn a_log_may_be_rolled_and_packed() {
    let whole = spark(&[SPARK_4_3.as_bytes()]);
    let lines: Vec<&str> = SPARK_4_3.split_inclusive('\n').collect();
    let (first, second) = (lines[..12].concat(), lines[12..].concat());
    // The state of the application is an empty file next to the parts.
    assert_eq!(spark(&[b"", first.as_bytes(), second.as_bytes()]), whole);
    let gzip = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder
            .write_all(text.as_bytes())
            .expect("a vector takes everything");
        encoder.finish().expect("a vector takes everything")
    };
    let zstd = |text: &str| {
        ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
    };
    assert_eq!(spark(&[&zstd(&first), &zstd(&second)]), whole);
    assert_eq!(spark(&[&gzip(&first), &gzip(&second)]), whole);
    // A compacted part repeats the start event.
    assert_eq!(
        spark(&[SPARK_4_3.as_bytes(), lines[..2].concat().as_bytes()]),
        whole
    );
    assert_eq!(spark(&[SPARK_4_3.as_bytes(), SPARK_3_5.as_bytes()]).len(), 2);
}

#[test]
fn an_application_that_was_killed_has_what_its_log_tells() {
    let cut = &SPARK_3_5[..SPARK_3_5.len() - 60];
    let history = read(&[cut.as_bytes()], ReadOptions::default()).unwrap();
    let run = history.runs().next().unwrap();
    assert_eq!(run.inputs.len(), 2);
    assert!(run.ended > run.started, "{run:?}");
    assert_eq!(history.passed().collect::<Vec<_>>(), [(Passed::NoEnd, 1)]);
    let later = SPARK_3_5.split_inclusive('\n').skip(5).collect::<String>();
    let history = read(&[later.as_bytes()], ReadOptions::default()).unwrap();
    assert!(history.is_empty());
    assert!(history.passed().all(|(reason, _)| reason == Passed::NoStart));
}

#[test]
fn what_an_application_wrote_before_it_read_it_is_no_input() {
    let write = r#"{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart","executionId":0,"sparkPlanInfo":{"nodeName":"Execute InsertIntoHadoopFsRelationCommand","simpleString":"Execute InsertIntoHadoopFsRelationCommand s3a://lake/dim, false, Parquet, [path=s3a://lake/dim], Overwrite, [k, g]","children":[],"metadata":{},"metrics":[]},"time":1795197470673}"#;
    let mut lines: Vec<&str> = SPARK_3_5.lines().collect();
    lines.insert(2, write);
    let history = read(&[lines.join("\n").as_bytes()], ReadOptions::default()).unwrap();
    let run = history.runs().next().unwrap();
    assert_eq!(run.inputs, [input("s3://lake/fact/", 88_272_840)]);
    assert_eq!(history.passed().collect::<Vec<_>>(), [(Passed::OwnWrite, 1)]);
}

#[test]
fn text_files_of_rdds_are_inputs_with_the_bytes_of_their_tasks() {
    let log = concat!(
        r#"{"Event":"SparkListenerApplicationStart","App Name":"words","App ID":"a","Timestamp":1795197459736,"User":"root"}"#,
        "\n",
        r#"{"Event":"SparkListenerJobStart","Job ID":0,"Submission Time":1795197460000,"Stage Infos":[{"Stage ID":3,"RDD Info":[{"RDD ID":1,"Name":"s3a://lake/words/*.txt"},{"RDD ID":0,"Name":"s3a://lake/words/*.txt"},{"RDD ID":2,"Name":"PythonRDD"}]}],"Stage IDs":[3],"Properties":{}}"#,
        "\n",
        r#"{"Event":"SparkListenerTaskEnd","Stage ID":3,"Task Info":{"Finish Time":1795197461000},"Task Metrics":{"Input Metrics":{"Bytes Read":700,"Records Read":5}}}"#,
        "\n",
        r#"{"Event":"SparkListenerTaskEnd","Stage ID":3,"Task Info":{"Finish Time":1795197462000},"Task Metrics":{"Input Metrics":{"Bytes Read":300,"Records Read":5}}}"#,
        "\n",
    );
    let runs = spark(&[log.as_bytes()]);
    assert_eq!(runs[0].inputs, [input("s3://lake/words/", 1_000)]);
    assert_eq!(runs[0].ended, Some(Moment::from_ms(1_795_197_462_000)));
}

#[test]
fn any_number_of_paths_that_a_plan_does_not_name_is_counted() {
    let log = concat!(
        r#"{"Event":"SparkListenerApplicationStart","App Name":"hostile","App ID":"a","Timestamp":1795197459736,"User":"root"}"#,
        "\n",
        r#"{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart","executionId":0,"sparkPlanInfo":{"nodeName":"Scan parquet ","simpleString":"FileScan parquet [a#1]","children":[],"metadata":{"Location":"InMemoryFileIndex(18446744073709551615 paths)[s3a://lake/t/, ... 9 entries]","PartitionFilters":"[dt#3 IN (1,2,3)]"},"metrics":[]},"time":1795197470673}"#,
        "\n",
    );
    let history = read(&[log.as_bytes()], ReadOptions::default()).unwrap();
    assert_eq!(history.runs().next().unwrap().inputs.len(), 3);
    let cut_off = history.passed().find(|(reason, _)| *reason == Passed::CutOff);
    assert!(cut_off.is_some_and(|(_, count)| count > 1_000_000), "{cut_off:?}");
}

#[test]
fn a_broken_line_within_an_event_log_is_refused() {
    let broken = SPARK_3_5.replacen("\"Timestamp\":", "\"Timestamp\":x", 1);
    let refused = read(&[broken.as_bytes()], ReadOptions::default())
        .unwrap_err()
        .to_string();
    assert!(refused.starts_with("f0:2: found expected value"), "{refused}");
    assert!(
        refused.contains("hint: expected an event of a Spark event log"),
        "{refused}"
    );
}

fn by(job_by: JobBy, gap_ms: i64) -> Vec<Run> {
    runs(&[REQUESTS.as_bytes()], ReadOptions { job_by, gap_ms })
}

#[test]
fn requests_become_runs_of_programs() {
    let told: Vec<String> = by(JobBy::UserAgent, 300_000)
        .into_iter()
        .map(|run| {
            let bytes: u64 = run.inputs.iter().filter_map(|input| input.bytes).sum();
            format!("{} {} {bytes}", run.name, run.inputs.len())
        })
        .collect();
    // Program, objects and bytes, each byte once; counted independently by a script. aws-cli reads back
    // objects that it wrote itself.
    assert_eq!(
        told,
        [
            "cachejob_dag-42 5 47901894",
            "cachejob_dag-42 5 57213886",
            "aiobotocore 4 85967064",
            "Boto3 1 22067986",
            "aws-sdk-cpp 4 8264387",
            "polars 4 39125426",
            "duckdb 4 19685217",
            "aws-cli 0 0",
            "aws-sdk-go 1 40000000",
            "rclone 5 88273112",
            "s3torchconnector 4 88273112",
        ]
    );
    let options = ReadOptions {
        job_by: JobBy::UserAgent,
        gap_ms: 300_000,
    };
    let history = read(&[REQUESTS.as_bytes()], options).unwrap();
    let own = history.passed().find(|(reason, _)| *reason == Passed::OwnWrite);
    assert_eq!(own, Some((Passed::OwnWrite, 5)));
}

#[test]
fn one_prefix_is_one_job_whichever_way_s3a_writes_it() {
    let names: Vec<String> = by(JobBy::UserAgent, 300_000)
        .into_iter()
        .map(|run| run.name)
        .collect();
    let of_job = names.iter().filter(|name| *name == "cachejob_dag-42").count();
    // Two applications, ten minutes apart; the second one has both spellings.
    assert_eq!(of_job, 2, "{names:?}");
    assert!(
        by(JobBy::Header, 300_000).is_empty(),
        "these requests have no x-shoal-job"
    );
    assert!(
        by(JobBy::Identity, 300_000).is_empty(),
        "the proxy did not record who signed"
    );
}

#[test]
fn a_longer_gap_joins_runs_and_a_shorter_one_divides_them() {
    let count = |gap_ms| {
        by(JobBy::UserAgent, gap_ms)
            .iter()
            .filter(|run| run.name == "cachejob_dag-42")
            .count()
    };
    assert_eq!(count(3_600_000), 1);
    assert!(count(1_000) > 2);
}
