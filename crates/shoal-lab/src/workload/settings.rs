//! The `[workload]` of an experiment.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use shoal_base::seeded::Chance;
use shoal_sim::Time;
use shoal_sim::block::Granularity;
use shoal_sim::trace::{self, Format, Trace, TraceError};

use super::generate::{self, Shape};
use super::recorded::{job_of, scaled};
use super::{Assign, Workload};
use crate::units::{Size, Span};

/// The requests of all clients and their times.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSettings {
    /// The source of the jobs.
    pub source: Generator,
    /// The times of the jobs.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// The clients of the jobs, if they come from a trace.
    #[serde(default)]
    pub assign: Assign,
    /// The bytes of input per task, if jobs come from a trace.
    pub split: Option<Size>,
    /// The number of clients that work, beginning with the first, if the workload is generated; all if it is
    /// left out.
    pub clients: Option<u32>,
    /// Only jobs of the trace submitted before this time.
    pub until: Option<Span>,
    /// The number of passes over the trace, one after the other: a pass that is not counted fills the caches
    /// for the next.
    #[serde(default = "once")]
    pub passes: u32,
    /// The factor by which sizes of the trace are multiplied.
    #[serde(default = "one")]
    pub scale: f64,
    /// True if jobs write their output.
    #[serde(default = "yes")]
    pub writes: bool,
}

/// The times of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At their recorded times.
    #[default]
    Recorded,
    /// All at once; clients run them in order, as many at a time as they may.
    Closed,
}

/// The source of jobs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Generator {
    /// A recording.
    Trace {
        /// The file, relative to the folder of the experiment.
        path: PathBuf,
        /// Its format, if name and beginning do not identify it.
        format: Option<Format>,
    },
    /// Every object is equally likely.
    Uniform {
        /// The number of objects.
        objects: u32,
        /// The size of each object.
        object_size: Size,
        /// The number of objects that each client reads.
        reads: u32,
        /// True if each read is a separate job.
        #[serde(default)]
        job_a_read: bool,
    },
    /// Object number k is read in proportion to k^-exponent.
    Zipf {
        /// The number of objects.
        objects: u32,
        /// The size of each object.
        object_size: Size,
        /// The number of objects that each client reads.
        reads: u32,
        /// 0 is uniform, 1 the classic law.
        exponent: f64,
        /// True if each read is a separate job.
        #[serde(default)]
        job_a_read: bool,
    },
    /// Object number k is read in proportion to k^(exponent - 1), as numpy's `power` draws.
    Power {
        /// The number of objects.
        objects: u32,
        /// The size of each object.
        object_size: Size,
        /// The number of objects that each client reads.
        reads: u32,
        /// 1 is uniform; the greater it is, the fewer objects are popular.
        exponent: f64,
        /// True if each read is a separate job.
        #[serde(default)]
        job_a_read: bool,
    },
    /// A hot set that moves.
    HotSet {
        /// The number of objects.
        objects: u32,
        /// The size of each object.
        object_size: Size,
        /// The number of objects that each client reads.
        reads: u32,
        /// The share of hot objects.
        hot: f64,
        /// The share of the reads that goes to them.
        heat: f64,
        /// The number of sets that are hot one after the other.
        shifts: u32,
    },
    /// Jobs that read the same data sets again and again.
    Recurring {
        /// The number of objects.
        objects: u32,
        /// The size of each object.
        object_size: Size,
        /// The number of data sets.
        datasets: u32,
        /// How often each data set is read.
        rounds: u32,
        /// The length of a round.
        period: Span,
        /// How long a job computes.
        compute: Span,
    },
}

impl WorkloadSettings {
    /// Builds the workload for `clients` of each of `nodes`. Paths start from `folder`.
    ///
    /// # Errors
    ///
    /// Fails if the trace of the workload cannot be read.
    pub fn build(
        &self,
        folder: &Path,
        granularity: Granularity,
        nodes: u32,
        clients: u32,
        seed: u64,
    ) -> Result<Workload, TraceError> {
        let shape = |objects, Size(object_bytes): Size, reads, job_a_read| Shape {
            clients: self.clients.unwrap_or(u32::MAX).min(nodes * clients),
            reads,
            objects,
            object_bytes,
            granularity,
            job_a_read,
            seed,
        };
        let mut workload = match self.source {
            Generator::Trace { ref path, format } => {
                let mut workload = self.recorded(&folder.join(path), format, granularity)?;
                // Different from the stream of any client.
                let mut chance = Chance::stream(seed, u64::MAX);
                self.assign.apply(&mut workload, nodes, clients, &mut chance);
                workload
            }
            Generator::Uniform {
                objects,
                object_size,
                reads,
                job_a_read,
            } => generate::uniform(&shape(objects, object_size, reads, job_a_read)),
            Generator::Zipf {
                objects,
                object_size,
                reads,
                exponent,
                job_a_read,
            } => generate::zipf(&shape(objects, object_size, reads, job_a_read), exponent),
            Generator::Power {
                objects,
                object_size,
                reads,
                exponent,
                job_a_read,
            } => generate::power(&shape(objects, object_size, reads, job_a_read), exponent),
            Generator::HotSet {
                objects,
                object_size,
                reads,
                hot,
                heat,
                shifts,
            } => generate::hot_set(&shape(objects, object_size, reads, false), hot, heat, shifts),
            Generator::Recurring {
                objects,
                object_size,
                datasets,
                rounds,
                period: Span(period),
                compute: Span(compute),
            } => {
                let shape = shape(objects, object_size, 0, false);
                generate::recurring(&shape, datasets, rounds, period, compute)
            }
        };
        if self.arrivals == Arrivals::Closed {
            workload.jobs.iter_mut().for_each(|job| job.at = Time::ZERO);
        }
        if !self.writes {
            workload.jobs.iter_mut().for_each(|job| job.writes.clear());
        }
        Ok(workload)
    }

    /// The size of a generator's objects.
    pub const fn object_size(&self) -> Option<Size> {
        match self.source {
            Generator::Trace { .. } => None,
            Generator::Uniform { object_size, .. }
            | Generator::Zipf { object_size, .. }
            | Generator::Power { object_size, .. }
            | Generator::HotSet { object_size, .. }
            | Generator::Recurring { object_size, .. } => Some(object_size),
        }
    }

    /// Returns true if the workload comes from a trace and not from a generator.
    pub const fn is_recorded(&self) -> bool {
        matches!(self.source, Generator::Trace { .. })
    }

    /// The jobs of a recording. A request becomes a job that reads or writes one object.
    fn recorded(
        &self,
        path: &Path,
        format: Option<Format>,
        granularity: Granularity,
    ) -> Result<Workload, TraceError> {
        let format = match format {
            Some(format) => format,
            None => Format::of_file(path)?,
        };
        let jobs: trace::Jobs = match Trace::open(path, format, Granularity::Objects)? {
            Trace::Jobs(jobs) => jobs,
            Trace::Accesses(accesses) => Box::new(accesses.map(|access| access.map(job_of))),
        };
        let jobs = jobs.map(|job| job.map(|job| scaled(job, self.scale)));
        let mut workload = Workload::recorded(jobs, granularity)?;
        if let Some(Span(until)) = self.until {
            workload.jobs.retain(|job| job.at - Time::ZERO < until);
        }
        workload.repeat(self.passes);
        if let (Some(Size(bytes)), Granularity::Blocks(block_bytes)) = (self.split, granularity) {
            workload.split(bytes.div_ceil(block_bytes.get()).max(1) as u32);
        }
        Ok(workload)
    }
}

const fn yes() -> bool {
    true
}

const fn once() -> u32 {
    1
}

const fn one() -> f64 {
    1.0
}
