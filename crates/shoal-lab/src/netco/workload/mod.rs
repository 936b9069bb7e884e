//! Workloads like those of the paper's evaluation (Table 2 and section 2.2), from a seed.
//!
//! The traces are not public. The printed facts are kept: the numbers of jobs and files and the bytes that
//! jobs read (Table 2), 4.5 to 6.7 files a job (6.3), 40 to 75% recurring jobs, a quarter of the files read
//! by more than ten jobs with more than half of the bytes that are read (Fig. 2a), rates that do not depend
//! on popularity (Fig. 2b), a prefetch slackness above one for 95% of the files (Fig. 2c), and most jobs
//! submitted at the start of an hour (6.2). The rest is a choice, made before anything was run, and named at
//! its constant below.
//!
//! *The printed numbers contradict each other.* Table 2 has 3.3 files for each job of B1. With 6.7 files a
//! job that is two reads a file; a quarter of the files with more than ten readers needs at least 3.5. Fig.
//! 2a is a week of the whole cluster, Table 2 a day of one business unit. So there are two kinds:
//! [`Sharing::Table`] keeps Table 2's files, [`Sharing::Week`] keeps Fig. 2a and has fewer files.

mod draw;

use shoal_base::seeded::Chance;

use draw::{lognormal, reads_of_files};
use shoal_plan::model::{Cache, File, Job, Link, Options, Request, VERSION, Window};

/// A business unit of Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 9,000 jobs, 720 TB, 30,000 files.
    B1,
    /// 4,000 jobs, 66 TB, 12,000 files.
    B2,
    /// 20,000 jobs, 170 TB, 66,000 files.
    B3,
    /// 1,000 jobs, 200 TB, 3,000 files.
    B4,
}

/// How files are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Table 2's number of files.
    Table,
    /// A quarter of the files are read by more than ten jobs.
    Week,
}

/// The parameters of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// The business unit.
    pub unit: Unit,
    /// The jobs, as a share of the unit's.
    pub scale: f64,
    /// The time over which jobs are submitted.
    pub hours: f64,
    /// How files are shared.
    pub sharing: Sharing,
    /// The mean number of files that a job reads.
    pub files_a_job: f64,
    /// The share of the jobs that recur; the others are ad hoc.
    pub recurring: f64,
    /// The bytes, as a share of the unit's bytes for that many jobs.
    pub bytes_scale: f64,
    /// The seed.
    pub seed: u64,
}

/// Jobs and files, without the link and cache that serve them.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// The files.
    pub files: Vec<File>,
    /// The jobs, in the order of their submission.
    pub jobs: Vec<Job>,
    /// For each job, whether it recurs.
    pub recurring: Vec<bool>,
    /// The end of the submissions. They begin at [`LEAD_S`].
    pub end_s: f64,
}

/// The time before the first submission, in which files of the first jobs arrive. A choice: as long as the
/// median file is there before it is read.
pub const LEAD_S: f64 = 3600.0;
/// The share of the jobs that are submitted in the first minutes of an hour, and how many minutes. The paper
/// says "most jobs"; a choice.
const ON_THE_HOUR: f64 = 0.6;
const ON_THE_HOUR_S: f64 = 300.0;
/// The logarithm's spread of the sizes of files, and of the rates of jobs. A choice: a factor of 30 between
/// the 5th and the 95th percentile.
const SIZE_SPREAD: f64 = 1.0;
const RATE_SPREAD: f64 = 0.6;
/// The median time that a job would read if nothing but its own rate bounded it. A choice.
const READING_S: f64 = 300.0;
/// The deadline is this many reading times after the submission, and a minute at least. A choice.
const DEADLINE_SLACK: (f64, f64) = (1.5, 3.0);
/// A file exists for a time before its first read whose median is an hour; a choice from "a few minutes to
/// several hours" (2.2) ...
const AGE_MEDIAN_S: f64 = 3600.0;
const AGE_SPREAD: f64 = 1.1;
const AGE_MIN_S: f64 = 180.0;
const AGE_MAX_S: f64 = 8.0 * 3600.0;
/// ... and one file in twenty for less than it takes to fetch (Fig. 2c).
const HURRIED: f64 = 0.05;
/// The rate at which one VM reads from a lake: 1 Gbit/s (2.2). Many VMs read a large file, [`VM_BYTES`] each.
const VM_BYTES_PER_SECOND: f64 = 125e6;
const VM_BYTES: f64 = 4e9;

impl Unit {
    /// Jobs, bytes read, files (Table 2).
    pub const fn table(self) -> (u32, f64, u32) {
        match self {
            Self::B1 => (9_000, 720e12, 30_000),
            Self::B2 => (4_000, 66e12, 12_000),
            Self::B3 => (20_000, 170e12, 66_000),
            Self::B4 => (1_000, 200e12, 3_000),
        }
    }
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            unit: Unit::B1,
            scale: 1.0,
            hours: 24.0,
            sharing: Sharing::Table,
            files_a_job: 5.6,
            recurring: 0.6,
            bytes_scale: 1.0,
            seed: 1,
        }
    }
}

impl Workload {
    /// Draws the workload. The same parameters give the same one.
    #[expect(clippy::cast_sign_loss, reason = "numbers of things are positive")]
    pub fn draw(&self) -> Drawn {
        let (jobs, bytes, files) = self.unit.table();
        let count = |all: u32| ((f64::from(all) * self.scale).round() as usize).max(1);
        let jobs = count(jobs);
        let mut chance = Chance::stream(self.seed, 0);
        let reads = (jobs as f64 * self.files_a_job).round() as usize;
        let readers = reads_of_files(&mut chance, self.sharing, reads, count(files), jobs);
        let mut submits: Vec<f64> = (0..jobs).map(|_| self.submission(&mut chance)).collect();
        submits.sort_unstable_by(f64::total_cmp);
        let inputs = draw::inputs(&mut chance, jobs, &readers);
        let sizes = sizes(&mut chance, &readers, bytes * self.scale * self.bytes_scale);
        let mut first_s = vec![f64::INFINITY; readers.len()];
        for (job, files) in inputs.iter().enumerate() {
            for &file in files {
                first_s[file] = first_s[file].min(submits[job]);
            }
        }
        let files =
            (0..readers.len()).map(|number| file(&mut chance, number, sizes[number], first_s[number]));
        let files: Vec<File> = files.collect();
        let jobs = inputs.iter().enumerate().map(|(number, inputs)| {
            let bytes: f64 = inputs.iter().map(|&file| sizes[file] as f64).sum();
            let names = inputs.iter().map(|&file| files[file].name.clone()).collect();
            job(&mut chance, number, submits[number], bytes, names)
        });
        let jobs: Vec<Job> = jobs.collect();
        let recurring = jobs.iter().map(|_| chance.happens(self.recurring)).collect();
        Drawn {
            files,
            jobs,
            recurring,
            end_s: LEAD_S + self.hours * 3600.0,
        }
    }

    #[expect(clippy::cast_sign_loss, reason = "a time is positive")]
    fn submission(&self, chance: &mut Chance) -> f64 {
        let hours_s = self.hours * 3600.0;
        if self.hours >= 1.0 && chance.happens(ON_THE_HOUR) {
            let hour = chance.below(self.hours as u64) as f64;
            return LEAD_S + hour * 3600.0 + chance.unit() * ON_THE_HOUR_S;
        }
        LEAD_S + chance.unit() * hours_s
    }
}

impl Drawn {
    /// The request to plan all jobs, from [`LEAD_S`] before the first one on.
    pub fn request(&self, link_bytes_per_second: f64, capacity_bytes: u64, slot_s: f64) -> Request {
        Request {
            version: VERSION,
            window: Window {
                start_s: 0.0,
                end_s: self.end_s,
                slot_s,
            },
            link: Link {
                bytes_per_second: link_bytes_per_second,
                changes: Vec::new(),
                promised: Vec::new(),
            },
            cache: Cache {
                capacity_bytes,
                bytes_per_second: None,
                held: Vec::new(),
            },
            files: self.files.clone(),
            jobs: self.jobs.clone(),
            options: Options::default(),
        }
    }

    /// The bytes that jobs read, each read counted.
    pub fn read_bytes(&self) -> f64 {
        let sizes: std::collections::HashMap<&str, u64> = self
            .files
            .iter()
            .map(|file| (file.name.as_str(), file.bytes))
            .collect();
        self.jobs
            .iter()
            .flat_map(|job| &job.inputs)
            .map(|name| sizes[name.as_str()] as f64)
            .sum()
    }

    /// The bytes of all files.
    pub fn file_bytes(&self) -> f64 {
        self.files.iter().map(|file| file.bytes as f64).sum()
    }
}

/// Sizes, so that all reads together have `read_bytes`.
fn sizes(chance: &mut Chance, readers: &[usize], read_bytes: f64) -> Vec<u64> {
    let drawn: Vec<f64> = readers
        .iter()
        .map(|_| lognormal(chance, 1.0, SIZE_SPREAD))
        .collect();
    let sum: f64 = drawn
        .iter()
        .zip(readers)
        .map(|(size, &readers)| size * readers as f64)
        .sum();
    #[expect(clippy::cast_sign_loss, reason = "a size is positive")]
    let bytes = |size: &f64| ((size / sum * read_bytes).round() as u64).max(1);
    drawn.iter().map(bytes).collect()
}

fn file(chance: &mut Chance, number: usize, bytes: u64, first_s: f64) -> File {
    let vms = (bytes as f64 / VM_BYTES).ceil();
    let fetch_s = bytes as f64 / (vms * VM_BYTES_PER_SECOND);
    let age_s = if chance.happens(HURRIED) {
        fetch_s * chance.unit()
    } else {
        let age_s = lognormal(chance, AGE_MEDIAN_S, AGE_SPREAD);
        age_s.clamp(AGE_MIN_S, AGE_MAX_S).max(fetch_s * 1.01)
    };
    File {
        name: format!("f{number}"),
        bytes,
        available_s: Some((first_s - age_s).max(0.0)),
        block_bytes: File::default_block_bytes(),
    }
}

fn job(chance: &mut Chance, number: usize, submit_s: f64, bytes: f64, inputs: Vec<String>) -> Job {
    let reading_s = lognormal(chance, READING_S, RATE_SPREAD);
    let (least, most) = DEADLINE_SLACK;
    let slack = least + chance.unit() * (most - least);
    Job {
        name: format!("j{number}"),
        submit_s,
        deadline_s: submit_s + (reading_s * slack).max(60.0),
        inputs,
        bytes_per_second_max: Some(bytes / reading_s),
    }
}
