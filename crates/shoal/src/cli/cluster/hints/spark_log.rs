//! `shoal hint --spark-log`: the START of the next run of an application, from the log of its last one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use shoal_base::chance;
use shoal_base::moment::millis_since_1970;
use shoal_history::read::{Application, Step};
use shoal_orders::Moment;

use crate::cli::failure::Failure;
use crate::cli::output::{Tone, bytes, counted, pretty, print, print_message};
use crate::cli::plan::history::last_application;

/// What nodes take in one event.
const STAGES_MAX: usize = 256;
const NAMES_MAX: usize = 1_000;

/// The longest names of what one stage reads in bytes, together: nodes keep them in a small record.
const READS_BYTES_MAX: usize = 12 << 10;

const PRODUCER: &str = "urn:shoal:hint";
const SCHEMAS: &str = "https://openlineage.io/spec";

/// Prints the event.
pub(super) fn print_start(log: &Path, namespace: &str) -> Result<(), Failure> {
    let application = last_application(log)?;
    let mut stages = stages(&application.steps);
    let count = stages.len();
    stages.truncate(STAGES_MAX);
    let inputs = inputs(&stages);
    let name = &application.name;
    if inputs.is_empty() {
        let what = format!(
            "{name:?}, the last application of {}, read nothing in S3",
            log.display()
        );
        return Err(Failure::misused(
            what,
            "Spark says in the log which tables in S3 its queries scan",
        ));
    }
    if stages.len() < count {
        let what = format!("the event has the first {STAGES_MAX} stages of {count}, as many as nodes take");
        print_message(Tone::Warning, &what, None);
    }
    for (reason, count) in &application.passed {
        print_message(
            Tone::Note,
            &format!("left out: {count} {}", reason.as_str()),
            None,
        );
    }
    let size = bytes(inputs.values().copied().fold(0, u64::saturating_add));
    let what = format!(
        "{name:?} of {} read {size} in {}: {}",
        application.submitted,
        counted(inputs.len() as u64, "input"),
        counted(stages.len() as u64, "stage"),
    );
    print_message(Tone::Note, &what, None);
    print(&pretty(&start(&application, namespace, &stages, &inputs)));
    Ok(())
}

/// Returns the steps as stages. Where a step reads too many names for one, several stages have its reads.
/// Whole buckets are left out, as nodes bring none.
fn stages(steps: &[Step]) -> Vec<Step> {
    let mut stages: Vec<Step> = Vec::new();
    for step in steps {
        let mut part = Step {
            name: step.name.clone(),
            writes: step.writes.clone(),
            ..Step::default()
        };
        let (mut parts, mut length) = (1, 0);
        let has_key = |path: &str| plain(path).matches('/').count() > 2;
        for (path, size) in step.reads.iter().filter(|(path, _)| has_key(path)) {
            if length + path.len() > READS_BYTES_MAX {
                parts += 1;
                let next = Step {
                    name: format!("{}.{parts}", step.name),
                    ..Step::default()
                };
                stages.push(std::mem::replace(&mut part, next));
                length = 0;
            }
            length += path.len();
            part.reads.insert(path.clone(), *size);
        }
        stages.push(part);
    }
    stages
}

/// Returns what stages read and none writes, with its bytes.
fn inputs(stages: &[Step]) -> BTreeMap<&str, u64> {
    let written: BTreeSet<&str> = stages
        .iter()
        .flat_map(|stage| &stage.writes)
        .map(|path| plain(path))
        .collect();
    let mut inputs = BTreeMap::new();
    for (path, size) in stages.iter().flat_map(|stage| &stage.reads) {
        let path = plain(path);
        if !written.contains(path) {
            let known = inputs.entry(path).or_default();
            *known = (*size).max(*known);
        }
    }
    inputs
}

fn start(application: &Application, namespace: &str, stages: &[Step], inputs: &BTreeMap<&str, u64>) -> Value {
    // Nodes order stages by what one writes and a later one reads. Steps came one after the other, so each
    // writes a mark for the next one, in a bucket that cannot exist: what a stage writes is never brought.
    let mark = |number: usize| format!("s3://order.invalid/{number}");
    let facets = stages.iter().enumerate().map(|(number, stage)| {
        let reads = stage.reads.keys().map(|path| plain(path).to_owned());
        let writes = stage.writes.iter().map(|path| plain(path).to_owned());
        let after = (number > 0).then(|| mark(number - 1));
        json!({
            "name": stage.name,
            "reads": reads.chain(after).collect::<Vec<_>>(),
            "writes": writes.chain([mark(number)]).collect::<Vec<_>>(),
        })
    });
    let mut largest: Vec<_> = inputs.iter().collect();
    largest.sort_by_key(|(_, size)| std::cmp::Reverse(**size));
    largest.truncate(NAMES_MAX);
    let read: Vec<Value> = largest
        .into_iter()
        .map(|(path, size)| {
            let mut input = dataset(path);
            input["inputFacets"] = json!({ "inputStatistics": {
                "_producer": PRODUCER,
                "_schemaURL": format!("{SCHEMAS}/facets/1-0-0/InputStatisticsInputDatasetFacet.json"),
                "size": size,
            } });
            input
        })
        .collect();
    let written = stages
        .iter()
        .flat_map(|stage| &stage.writes)
        .map(|path| plain(path));
    let written: BTreeSet<&str> = written.collect();
    let written: Vec<Value> = written.into_iter().take(NAMES_MAX).map(dataset).collect();
    let now = Moment::now();
    json!({
        "eventType": "START",
        "eventTime": now,
        "producer": PRODUCER,
        "schemaURL": format!("{SCHEMAS}/2-0-2/OpenLineage.json#/$defs/RunEvent"),
        "run": { "runId": run_id(millis_since_1970(now.time()), [chance::bits(), chance::bits()]) },
        "job": { "namespace": namespace, "name": application.name, "facets": { "shoal": {
            "_producer": PRODUCER,
            "_schemaURL": format!("{SCHEMAS}/2-0-2/OpenLineage.json#/$defs/JobFacet"),
            "stages": facets.collect::<Vec<_>>(),
        } } },
        "inputs": read,
        "outputs": written,
    })
}

/// Returns a path as nodes compare it.
fn plain(path: &str) -> &str {
    path.trim_end_matches('/')
}

fn dataset(path: &str) -> Value {
    let rest = path.strip_prefix("s3://").unwrap_or(path);
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    json!({ "namespace": format!("s3://{bucket}"), "name": key })
}

/// Returns a UUID of version 7: 48 bits of time, the version, 12 bits of chance, the variant, 62 of chance.
fn run_id(millis: u64, chance: [u64; 2]) -> String {
    let high = millis << 16 | 7 << 12 | chance[0] >> 52;
    let low = 0b10 << 62 | chance[1] >> 2;
    let digits = format!("{high:016x}{low:016x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::{READS_BYTES_MAX, Step, inputs, run_id, stages};

    fn step(name: &str, reads: &[&str], writes: &[&str]) -> Step {
        Step {
            name: name.to_owned(),
            reads: reads.iter().map(|path| ((*path).to_owned(), 1)).collect(),
            writes: writes.iter().map(|path| (*path).to_owned()).collect(),
        }
    }

    #[test]
    fn a_step_that_reads_more_names_than_a_stage_may_have_becomes_several() {
        let paths: Vec<String> = (0..1000)
            .map(|day| format!("s3://lake/table/day={day:05}/"))
            .collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let steps = [
            step("query-1", &paths, &["s3://lake/out"]),
            step("query-2", &["s3://bucket/"], &["s3://lake/b"]),
        ];
        let stages = stages(&steps);
        let names: Vec<&str> = stages.iter().map(|stage| &*stage.name).collect();
        assert_eq!(names, ["query-1", "query-1.2", "query-1.3", "query-2"]);
        for stage in &stages {
            assert!(stage.reads.keys().map(String::len).sum::<usize>() <= READS_BYTES_MAX);
        }
        let reads: Vec<usize> = stages.iter().map(|stage| stage.reads.len()).collect();
        assert_eq!(
            (reads.iter().sum::<usize>(), reads[3]),
            (1000, 0),
            "no bucket is brought"
        );
        assert_eq!(stages.iter().map(|stage| stage.writes.len()).sum::<usize>(), 2);
    }

    #[test]
    fn what_an_application_writes_is_no_input_however_its_path_ends() {
        let steps = [
            step("query-1", &["s3://b/a/"], &["s3://b/tmp"]),
            step("query-2", &["s3://b/tmp/", "s3://b/c.csv"], &[]),
        ];
        let inputs: Vec<&str> = inputs(&steps).into_keys().collect();
        assert_eq!(inputs, ["s3://b/a", "s3://b/c.csv"]);
    }

    #[test]
    fn a_run_has_an_id_with_its_time_in_it() {
        let id = run_id(0x019a_d3f0_1234, [u64::MAX, 0]);
        assert_eq!(id, "019ad3f0-1234-7fff-8000-000000000000");
    }
}
