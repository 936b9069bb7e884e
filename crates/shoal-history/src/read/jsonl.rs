//! Job runs as JSON, one object a line:
//!
//! ```json
//! {"name": "etl", "submitted": "2026-11-20T02:00:00Z", "inputs": [{"path": "s3://b/k", "bytes": 5}]}
//! ```
//!
//! `name` and `submitted` are required; `id`, `started`, `ended`, `deadline`, `inputs` (each with `path`,
//! `bytes` and `bytes_per_s`) and `outputs` (paths) are optional. Times are RFC 3339, or seconds or
//! milliseconds since 1970.

use serde::Deserialize;
use shoal_logs::Mismatch;

use crate::moment::Moment;
use crate::run::{Input, Run};

use super::in_order;

/// Maximum length of a line: a few hundred thousand inputs.
pub(super) const LINE_BYTES_MAX: usize = 32 << 20;

const EXPECTED: &str = "one run a line: {\"name\":\"etl\",\"submitted\":\"2026-11-20T02:00:00Z\",\"inputs\":[{\"path\":\"s3://b/k\",\"bytes\":5}]}";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunLine {
    name: String,
    submitted: Moment,
    #[serde(default, rename = "id")]
    _id: Option<serde_json::Value>,
    #[serde(default)]
    started: Option<Moment>,
    #[serde(default)]
    ended: Option<Moment>,
    #[serde(default)]
    deadline: Option<Moment>,
    #[serde(default)]
    inputs: Vec<Input>,
    #[serde(default)]
    outputs: Vec<String>,
}

/// Parses a line.
pub(super) fn run(line: &str) -> Result<Run, Mismatch> {
    let line: RunLine =
        serde_json::from_str(line).map_err(|error| Mismatch::new(error.to_string(), EXPECTED))?;
    if line.name.trim().is_empty() {
        return Err(Mismatch::new("an empty `name`", "the name of the job"));
    }
    in_order(Run {
        name: line.name,
        submitted: line.submitted,
        started: line.started,
        ended: line.ended,
        deadline: line.deadline,
        inputs: line.inputs,
        outputs: line.outputs,
    })
}
