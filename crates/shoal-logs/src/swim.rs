//! Hadoop jobs of SWIM (<https://github.com/SWIMProjectUCB/SWIM>): tab-separated, without a header line: job,
//! submit time (s), time since the previous job (s), input, shuffle and output bytes, and in some files the
//! path of the input.

use crate::Mismatch;

const EXPECTED: &str = "job, submit time (s), gap (s), input, shuffle and output bytes, and perhaps the input's path, separated by tabs";

/// One job of a SWIM trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwimJob<'line> {
    /// Its name, which no other job of the trace has.
    pub name: &'line str,
    /// Seconds from the beginning of the trace to its submission.
    pub submit_s: u64,
    /// Bytes that it reads.
    pub input_bytes: u64,
    /// Bytes that it writes.
    pub output_bytes: u64,
    /// The path of its input, an opaque word, where the trace has one.
    pub input: Option<&'line str>,
}

/// Parses one line.
///
/// # Errors
///
/// Fails if the line has too few fields, or a word where a number stands.
pub fn job(line: &str) -> Result<SwimJob<'_>, Mismatch> {
    let fields: Vec<_> = line.trim_end().split('\t').map(str::trim).collect();
    let &[name, submit_s, _gap, input, _shuffle, output, ..] = fields.as_slice() else {
        return Err(Mismatch::new(format!("{} fields", fields.len()), EXPECTED));
    };
    let number = |name: &str, text: &str| {
        text.parse::<u64>()
            .map_err(|_| Mismatch::new(format!("`{text}` where the {name} stands"), EXPECTED))
    };
    Ok(SwimJob {
        name,
        submit_s: number("submit time", submit_s)?,
        input_bytes: number("input", input)?,
        output_bytes: number("output", output)?,
        input: fields.get(6).copied().filter(|path| !path.is_empty()),
    })
}
