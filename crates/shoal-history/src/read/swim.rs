//! Reads Hadoop jobs of SWIM as runs.
//!
//! The trace numbers its jobs, so no name recurs; only inputs can. A run is named after its input if the
//! trace has paths, otherwise after its own number. Times are relative to the start of 1970. The trace does
//! not record when a job ended.

use shoal_logs::{Mismatch, swim};

use crate::moment::Moment;
use crate::run::{Input, Run};

/// Maximum length of a line.
pub(super) const LINE_BYTES_MAX: usize = 1 << 16;

/// Parses a line.
pub(super) fn run(line: &str) -> Result<Run, Mismatch> {
    let job = swim::job(line)?;
    let submitted_s = i64::try_from(job.submit_s).ok();
    let Some(submitted_ms) = submitted_s.and_then(|seconds| seconds.checked_mul(1_000)) else {
        let found = format!("`{}` where the submit time stands", job.submit_s);
        return Err(Mismatch::new(found, "a time in seconds"));
    };
    let path = job.input.filter(|_| job.input_bytes > 0);
    let input = path.map(|path| Input {
        path: format!("s3://swim/{path}"),
        bytes: Some(job.input_bytes),
        bytes_per_s: None,
    });
    Ok(Run {
        name: path.unwrap_or(job.name).to_owned(),
        submitted: Moment::from_ms(submitted_ms),
        inputs: input.into_iter().collect(),
        ..Run::default()
    })
}
