//! Runs jobs over a link and a cache: the comparison of section 6, in simulated time and at the level of
//! files.
//!
//! Bytes flow like a fluid. A job reads all its inputs at once, each at a share of its own greatest rate that
//! is proportional to its bytes; cached bytes come from the cache, the others over the link. The link is
//! shared max-min fairly among jobs (Table 1: "divided equally across all jobs"), never more than a job can
//! use. With a plan, planned reads come first, up to their planned rate, then planned fetches, and then
//! everything else.
//!
//! A job reads from the cache the bytes that are cached when it starts. It reads the rest from the lake, even
//! if another job fetches it in the meantime ("files not in the cache on job start are read from the remote
//! store").
//!
//! Not modelled: processors, placement on nodes, writes, the cost of a miss beyond its bytes.

mod ahead;
mod flows;
mod fluid;
mod planned;
mod reactive;
mod replanning;
mod share;

use shoal_plan::model::Request;
use shoal_plan::plan::Plan;

/// The interval over which the peak is averaged (6.1).
pub const PEAK_INTERVAL_S: f64 = 2.0;

/// How the cache is managed (6.1).
#[derive(Clone, Copy, Debug)]
pub enum Policy<'a> {
    /// Every job reads everything from the lake.
    RemoteRead,
    /// Files that jobs read are cached, and the least recently used one leaves first.
    Lru,
    /// The same, but incompletely cached files are evicted first, then the largest one (PACMan).
    Life,
    /// LIFE, and the inputs of a job are fetched from a fixed time before its start on, at a constant rate.
    FixedTimePrefetch {
        /// That time.
        ahead_s: f64,
        /// The starts that are expected: the request's jobs as they were forecast.
        forecast: &'a Request,
    },
    /// A plan is carried out.
    Plan {
        /// The plan.
        plan: &'a Plan,
        /// True if the remote reads of planned jobs are held to the rate that their deadlines need, as the
        /// paper's slaves do (5), and the rest of the link is left free. Else they may use the free rest.
        is_metered: bool,
        /// How the plan follows the run; `None` if it does not change.
        replanning: Option<Replanning<'a>>,
    },
}

/// A plan that follows the run (the paper's future work): it is renewed from time to time, from the
/// contents of the cache, the running jobs, the sizes of the files that exist by then, and the forecast
/// of the rest.
#[derive(Clone, Copy, Debug)]
pub struct Replanning<'a> {
    /// The jobs and files that are expected.
    pub forecast: &'a Request,
    /// The time between two plans.
    pub every_s: f64,
}

/// The input of a run: the jobs as they come, which may differ from a forecast, and the policy.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<'a> {
    /// Files, jobs, link, cache.
    pub request: &'a Request,
    /// The management of the cache.
    pub policy: Policy<'a>,
    /// For each job, whether it is ad hoc: it reads what the others leave of the link, and is never planned,
    /// fetched for or cached. Empty for none.
    pub ad_hoc: &'a [bool],
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// When each job had read everything, in the order of the request.
    pub ends_s: Vec<f64>,
    /// The bytes that came over the link.
    pub link_bytes: f64,
    /// Of which fetched before jobs asked for them.
    pub fetched_bytes: f64,
    /// The rate of the link in intervals of [`PEAK_INTERVAL_S`].
    pub rates: Vec<f64>,
}

impl Report {
    /// The greatest rate of any interval.
    pub fn peak_bytes_per_second(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// For each job, whether it met its deadline. A thousandth of its time is the rounding of slots.
    pub fn in_time(&self, request: &Request) -> Vec<bool> {
        let in_time = |(end_s, job): (&f64, &shoal_plan::model::Job)| {
            *end_s <= job.deadline_s + 1e-3 * (job.deadline_s - job.submit_s)
        };
        self.ends_s.iter().zip(&request.jobs).map(in_time).collect()
    }

    /// The mean time from submission to end.
    pub fn mean_latency_s(&self, request: &Request) -> f64 {
        let sum: f64 = self
            .ends_s
            .iter()
            .zip(&request.jobs)
            .map(|(end_s, job)| end_s - job.submit_s)
            .sum();
        sum / request.jobs.len().max(1) as f64
    }
}

/// Runs a checked request to the end of its last job.
pub fn run(scenario: &Scenario<'_>) -> Report {
    fluid::Fluid::new(scenario).run()
}
