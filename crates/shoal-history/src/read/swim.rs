//! Reads Hadoop jobs of SWIM as runs.
//!
//! The trace numbers its jobs, so no name recurs; only inputs can. A run is named after its input if the
//! trace has paths, otherwise after its own number. Times are relative to the start of 1970. The trace does
//! not record when a job ended.

use std::io::BufRead;

use shoal_logs::line::Lines;
use shoal_logs::{Mismatch, swim};

use crate::error::HistoryError;
use crate::moment::Moment;
use crate::run::{History, Input, Run};

const LINE_BYTES_MAX: usize = 1 << 16;

/// Reads all jobs of `input`.
pub(super) fn read(
    history: &mut History,
    name: &str,
    input: impl BufRead + 'static,
) -> Result<(), HistoryError> {
    Lines::new(name, input, LINE_BYTES_MAX).each(|line| {
        let job = swim::job(line)?;
        let Some(submitted_ms) = i64::try_from(job.submit_s)
            .ok()
            .and_then(|s| s.checked_mul(1_000))
        else {
            let found = format!("`{}` where the submit time stands", job.submit_s);
            return Err(Mismatch::new(found, "a time in seconds"));
        };
        let input = job.input.filter(|_| job.input_bytes > 0);
        let run = Run {
            name: input.unwrap_or(job.name).to_owned(),
            submitted: Moment::from_ms(submitted_ms),
            inputs: input
                .map(|path| Input {
                    path: format!("s3://swim/{path}"),
                    bytes: Some(job.input_bytes),
                    bytes_per_s: None,
                })
                .into_iter()
                .collect(),
            ..Run::default()
        };
        Ok(history.add(name, &run))
    })
}
