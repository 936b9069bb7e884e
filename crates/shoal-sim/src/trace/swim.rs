//! Hadoop jobs of SWIM (<https://github.com/SWIMProjectUCB/SWIM>): tab-separated, without a header line: job,
//! submit time (s), time since the previous job (s), input, shuffle and output bytes, and in some files the
//! path of the input.
//!
//! The object is the *path*. A job reads the first bytes of it, as many as the job's input has: nearly every
//! path that is read twice is read with different sizes, because the column is the input of the job, not the
//! length of the file. Output has no path: each output is a separate object, and so is an input without a
//! path. Shuffled bytes never leave the compute nodes and are left out.

use shoal_logs::line::Lines;
use shoal_logs::{Mismatch, swim};

use super::{Job, Limits, Piece, TraceError};
use crate::clock::Time;
use crate::names::Names;

pub(super) struct Swim {
    lines: Lines,
    limits: Limits,
    objects: Names,
}

impl Swim {
    pub(super) fn new(lines: Lines, limits: Limits) -> Self {
        Self {
            lines,
            limits,
            objects: Names::default(),
        }
    }

    /// Reads the next job; `None` after the last one.
    pub(super) fn read_next(&mut self) -> Result<Option<Job>, TraceError> {
        let Some(line) = self.lines.next_text()? else {
            return Ok(None);
        };
        let job = self.job(&line);
        Ok(Some(job.map_err(|mismatch| self.lines.place.error(mismatch))?))
    }

    fn job(&mut self, line: &str) -> Result<Job, Mismatch> {
        let job = swim::job(line)?;
        let Some(at_nanos) = job.submit_s.checked_mul(1_000_000_000) else {
            let found = format!("`{}` where the submit time stands", job.submit_s);
            return Err(Mismatch::new(found, "less than 584 years, in seconds"));
        };
        let input = match job.input {
            Some(path) => self.objects.number(path),
            None => self.objects.nameless(),
        };
        let output = self.objects.nameless();
        let piece = |object, bytes| (bytes > 0).then(|| Piece::whole(object, bytes));
        let (read, written) = (piece(input, job.input_bytes), piece(output, job.output_bytes));
        for piece in read.iter().chain(&written) {
            self.limits.check(piece)?;
        }
        Ok(Job {
            at: Time(at_nanos),
            reads: read.into_iter().collect(),
            writes: written.into_iter().collect(),
            ..Job::default()
        })
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
