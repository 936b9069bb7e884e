//! Hadoop jobs of SWIM (<https://github.com/SWIMProjectUCB/SWIM>): tab-separated, without a header line: job,
//! submit time (s), time since the previous job (s), input, shuffle and output bytes, and in some files the
//! path of the input.
//!
//! The object is the *path*. A job reads the first bytes of it, as many as the job's input has: nearly every
//! path that is read twice is read with different sizes, because the column is the input of the job, not the
//! length of the file. Output has no path: each output is a separate object, and so is an input without a
//! path. Shuffled bytes never leave the compute nodes and are left out.

use std::io::Read;

use shoal_logs::swim;

use super::{Job, Lines, Piece, TraceError};
use crate::clock::Time;
use crate::names::Names;

pub(super) struct Swim<R> {
    lines: Lines<R>,
    objects: Names,
}

impl<R: Read> Swim<R> {
    pub(super) fn new(lines: Lines<R>) -> Self {
        Self {
            lines,
            objects: Names::default(),
        }
    }

    fn job(&mut self, line: &str) -> Result<Job, TraceError> {
        let job = swim::job(line).map_err(|mismatch| self.lines.mismatch(mismatch))?;
        let Some(at_nanos) = job.submit_s.checked_mul(1_000_000_000) else {
            let found = format!("`{}` where the submit time stands", job.submit_s);
            return Err(self.lines.error(found, "less than 584 years, in seconds"));
        };
        let input = match job.input {
            Some(path) => self.objects.number(path),
            None => self.objects.nameless(),
        };
        let output = self.objects.nameless();
        let piece = |object, bytes| (bytes > 0).then(|| Piece::whole(object, bytes));
        let (read, written) = (piece(input, job.input_bytes), piece(output, job.output_bytes));
        for piece in read.iter().chain(&written) {
            self.lines.check(piece)?;
        }
        Ok(Job {
            at: Time(at_nanos),
            reads: read.into_iter().collect(),
            writes: written.into_iter().collect(),
            ..Job::default()
        })
    }
}

impl<R: Read> Iterator for Swim<R> {
    type Item = Result<Job, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.lines.next_line()?;
        Some(line.and_then(|line| self.job(&line)))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::tests::{jobs, refusal};
    use crate::trace::{Format, Piece};

    /// In the form of `FB-2010_samples_24_times_1hr_withInputPaths_0.tsv` and of the files without paths; the
    /// values are invented.
    const WITH_PATHS: &str =
        "job0\t1\t1\t2267942\t0\t1937944\tinputPath1\t\t\njob1\t2\t1\t500\t7\t0\tinputPath1\t\t\n";
    const WITHOUT: &str = "job0\t1\t1\t100\t0\t0\njob1\t2\t1\t100\t0\t0\n";

    #[test]
    fn a_path_is_one_object_whatever_its_size() {
        let jobs = jobs(WITH_PATHS, Format::Swim).unwrap();
        assert_eq!(jobs[0].reads, [Piece::whole(0, 2_267_942)]);
        assert_eq!(jobs[1].reads, [Piece::whole(0, 500)]);
        assert_eq!(jobs[0].writes, [Piece::whole(1, 1_937_944)]);
        assert!(jobs[1].writes.is_empty(), "a job without output writes nothing");
        assert_eq!(jobs[1].at.0, 2_000_000_000);
    }

    #[test]
    fn without_paths_nothing_is_read_twice() {
        let jobs = jobs(WITHOUT, Format::Swim).unwrap();
        assert_ne!(jobs[0].reads[0].object, jobs[1].reads[0].object);
    }

    #[test]
    fn a_line_that_is_no_job_is_refused_with_its_number() {
        let told = refusal("job0\t1\t1\t100\t0\t0\njob1\t2\n", Format::Swim);
        assert!(
            told.starts_with("t:2: found 2 fields\nhint: expected job, submit"),
            "{told}"
        );
        let told = refusal("job0\tnow\t1\t100\t0\t0\n", Format::Swim);
        assert!(
            told.starts_with("t:1: found `now` where the submit time stands"),
            "{told}"
        );
        let told = refusal("job0\t18446744074\t1\t100\t0\t0\n", Format::Swim);
        assert!(told.starts_with("t:1: found `18446744074`"), "{told}");
    }
}
