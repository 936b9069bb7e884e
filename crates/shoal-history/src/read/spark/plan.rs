//! Plans of queries: their file scans and outputs.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::location::{Location, location};

/// Maximum bytes parsed per plan, as a multiple of its length, because each level of a plan is parsed again.
const PASSES_MAX: usize = 256;

/// The inputs and outputs of a plan.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) scans: Vec<Scan>,
    pub(super) outputs: Vec<String>,
}

/// A scan of files.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) location: Location,
    /// Accumulator of the size of the files read.
    pub(super) size: Option<i64>,
    /// Accumulator of their number.
    pub(super) files: Option<i64>,
}

#[derive(Deserialize)]
struct Node<'line> {
    #[serde(rename = "nodeName", borrow, default)]
    name: Cow<'line, str>,
    #[serde(rename = "simpleString", borrow, default)]
    text: Cow<'line, str>,
    #[serde(borrow, default)]
    children: Vec<&'line RawValue>,
    #[serde(borrow, default)]
    metadata: Metadata<'line>,
    #[serde(borrow, default)]
    metrics: Vec<Metric<'line>>,
}

#[derive(Default, Deserialize)]
struct Metadata<'line> {
    #[serde(rename = "Location", borrow, default)]
    location: Option<Cow<'line, str>>,
    #[serde(rename = "PartitionFilters", borrow, default)]
    filters: Option<Cow<'line, str>>,
}

#[derive(Deserialize)]
struct Metric<'line> {
    #[serde(borrow)]
    name: Cow<'line, str>,
    #[serde(rename = "accumulatorId")]
    accumulator: i64,
}

/// Parses a plan without recursion, because plans nest deeper than JSON parsers allow.
pub(super) fn plan(root: &str) -> Result<Plan, serde_json::Error> {
    let mut plan = Plan::default();
    let mut left = root.len().saturating_mul(PASSES_MAX);
    let mut open = vec![root];
    while let Some(text) = open.pop() {
        if text.len() > left {
            // Stop at a plan that nests too deeply, and keep the parts found so far.
            break;
        }
        left -= text.len();
        let node: Node<'_> = serde_json::from_str(text)?;
        plan.add(&node);
        open.extend(node.children.iter().rev().map(|child| child.get()));
    }
    Ok(plan)
}

impl Plan {
    fn add(&mut self, node: &Node<'_>) {
        const WRITES: &str = "Execute InsertIntoHadoopFsRelationCommand ";
        if let Some(rest) = node.text.strip_prefix(WRITES) {
            let path = rest.split(", ").next().unwrap_or(rest);
            self.outputs.push(path.to_owned());
        }
        let metadata = &node.metadata;
        if let Some(location) = location(
            &node.text,
            metadata.location.as_deref(),
            metadata.filters.as_deref(),
        ) {
            let accumulator = |name| {
                let metric = node.metrics.iter().find(|metric| metric.name == name);
                metric.map(|metric| metric.accumulator)
            };
            // Only nodes named as scans, because a cached table repeats the locations below it.
            if node.name.contains("Scan") {
                self.scans.push(Scan {
                    location,
                    size: accumulator("size of files read"),
                    files: accumulator("number of files read"),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::plan;

    #[test]
    fn a_plan_of_any_depth_is_read() {
        let scan = r#"{"nodeName":"Scan parquet ","simpleString":"FileScan parquet [a#1] Location: InMemoryFileIndex(1 paths)[s3a://lake/t]","children":[],"metadata":{"Location":"InMemoryFileIndex(1 paths)[s3a://lake/t]"},"metrics":[{"name":"size of files read","accumulatorId":5,"metricType":"size"}]}"#;
        let depth = 200;
        let root = format!(
            "{}{scan}{}",
            r#"{"nodeName":"Project","simpleString":"Project [a#1]","children":["#.repeat(depth),
            r#"],"metadata":{},"metrics":[]}"#.repeat(depth)
        );
        let plan = plan(&root).unwrap();
        assert_eq!(plan.scans.len(), 1);
        assert_eq!((plan.scans[0].size, plan.scans[0].files), (Some(5), None));
        let hostile = format!("{}{}", r#"{"children":["#.repeat(5_000), "]}".repeat(5_000));
        assert!(super::plan(&hostile).unwrap().scans.is_empty());
    }

    #[test]
    fn a_write_names_its_path() {
        let root = r#"{"nodeName":"Execute InsertIntoHadoopFsRelationCommand","simpleString":"Execute InsertIntoHadoopFsRelationCommand s3a://lake/fact, false, Parquet, [path=s3a://lake/fact], Overwrite, [id, k]","children":[],"metadata":{},"metrics":[]}"#;
        assert_eq!(plan(root).unwrap().outputs, ["s3a://lake/fact"]);
    }
}
