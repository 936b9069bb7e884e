//! Set-ups that several experiments share. Each value was chosen from the paper's text before anything was
//! run.

use shoal_base::seeded::Chance;
use shoal_lab::netco::execution::{Policy, Report, Scenario, run};
use shoal_lab::netco::workload::{Drawn, Sharing, Unit, Workload};
use shoal_plan::model::{LinkChange, Request};

/// An hour of a business unit's day, files shared as in Fig. 2a ("we generate a job trace lasting one hour").
pub fn hour(unit: Unit, seed: u64) -> Workload {
    Workload {
        unit,
        scale: 1.0 / 24.0,
        hours: 1.0,
        sharing: Sharing::Week,
        seed,
        ..Workload::default()
    }
}

/// The slots of an hour's plan.
pub const SLOT_S: f64 = 60.0;

/// The request of a workload, whose link is the least one over which all jobs are in time that read
/// everything from the lake ("sufficient to meet all job deadlines even when each job reads directly from
/// it"), times `links`. The cache has room for this share of the files' bytes.
pub fn medium(drawn: &Drawn, links: f64, cache: f64) -> Request {
    #[expect(clippy::cast_sign_loss, reason = "files have bytes")]
    let mut request = drawn.request(1.0, (drawn.file_bytes() * cache) as u64, SLOT_S);
    let most: f64 = request
        .jobs
        .iter()
        .filter_map(|job| job.bytes_per_second_max)
        .sum();
    let (mut low, mut high) = (0.0, most);
    for _ in 0..24 {
        let middle = f64::midpoint(low, high);
        request.link.bytes_per_second = middle;
        let report = run(&Scenario {
            request: &request,
            policy: Policy::RemoteRead,
            ad_hoc: &[],
        });
        if report.in_time(&request).iter().all(|in_time| *in_time) {
            high = middle;
        } else {
            low = middle;
        }
    }
    request.link.bytes_per_second = high * links;
    request
}

/// Lets the link vary: every 30 s another rate, by the factor of a lognormal law with mean 1 and this
/// coefficient of variation. The paper gives Fig. 1a's values only in a drawing ("5x to 30x" of local
/// storage's).
pub fn vary(request: &Request, variation: f64, seed: u64) -> Request {
    let mut varied = request.clone();
    let mut chance = Chance::stream(seed, 7);
    let spread = (1.0 + variation * variation).ln().sqrt();
    let mut at_s = request.window.start_s;
    varied.link.changes.clear();
    while at_s < request.window.end_s + 7200.0 {
        at_s += 30.0;
        let normal =
            (-2.0 * (1.0 - chance.unit()).ln()).sqrt() * (std::f64::consts::TAU * chance.unit()).cos();
        let factor = (spread * normal - spread * spread / 2.0).exp();
        varied.link.changes.push(LinkChange {
            at_s,
            bytes_per_second: request.link.bytes_per_second * factor,
        });
    }
    varied
}

/// The share of a request's jobs that a run finishes too late.
pub fn missed(request: &Request, report: &Report) -> f64 {
    let late = report
        .in_time(request)
        .iter()
        .filter(|in_time| !**in_time)
        .count();
    late as f64 / request.jobs.len() as f64
}
