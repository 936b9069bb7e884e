//! Table 1 of the paper.

use shoal_lab::netco::execution::{self, Policy, Scenario};
use shoal_lab::netco::{SmallSolver, check, table1};
use shoal_plan::instance::Instance;
use shoal_plan::model::{Objective, Request};
use shoal_plan::plan::Outcome;
use shoal_plan::{Plan, plan, planner};

fn planned(plan: &Plan) -> Vec<&str> {
    plan.jobs
        .iter()
        .filter(|job| job.outcome == Outcome::Planned)
        .map(|job| job.job.as_str())
        .collect()
}

/// The link is given, and as few bytes as possible are moved.
fn with_the_whole_link() -> Request {
    let mut request = table1::request();
    request.options.objective = Objective::MostDeadlines;
    request
}

#[test]
fn all_six_jobs_of_table_1_are_planned_and_four_units_are_read() {
    let request = with_the_whole_link();
    let plan = plan(&request, &SmallSolver).unwrap();
    assert_eq!(planned(&plan), ["J1", "J2", "J3", "J4", "J5", "J6"]);
    let units = (plan.quality.fetched_bytes + plan.quality.remote_bytes) / table1::UNIT_BYTES as f64;
    assert!(
        (units - 4.0).abs() < 1e-3,
        "{units} units: {}",
        serde_json::to_string_pretty(&plan).unwrap()
    );
    assert!(plan.quality.peak_share <= 1.0 + 1e-6);
}

#[test]
fn the_least_peak_of_table_1_is_five_sixths_of_the_link() {
    let mut request = table1::request();
    // The paper's files have no blocks.
    request
        .files
        .iter_mut()
        .for_each(|file| file.block_bytes = 1 << 10);
    let plan = plan(&request, &SmallSolver).unwrap();
    assert_eq!(plan.quality.planned, 6);
    assert!(
        (plan.quality.peak_share - 5.0 / 6.0).abs() < 1e-6,
        "{}",
        plan.quality.peak_share
    );
    assert!(plan.quality.peak_share_at_least.unwrap() > 0.83);
}

#[test]
fn with_half_the_link_some_jobs_of_table_1_are_left_out_and_the_plan_holds() {
    let mut request: Request = table1::request();
    request.link.bytes_per_second /= 2.0;
    let instance = Instance::new(&request);
    let decision = planner::decide(&instance, &request.options, &SmallSolver).unwrap();
    check(&decision.schedule, &instance).unwrap();
    let planned = decision.schedule.planned();
    assert!(
        (3..6).contains(&planned),
        "{planned} of {}",
        decision.planned_at_most
    );
}

/// The jobs of Table 1 under a policy: how many are in time, their mean latency, and units read from the
/// lake.
fn executed(policy: Policy<'_>) -> (usize, f64, f64) {
    let request = table1::request();
    let report = execution::run(&Scenario {
        request: &request,
        policy,
        ad_hoc: &[],
    });
    let in_time = report
        .in_time(&request)
        .into_iter()
        .filter(|in_time| *in_time)
        .count();
    let units = report.link_bytes / table1::UNIT_BYTES as f64;
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    (in_time, rounded(report.mean_latency_s(&request)), rounded(units))
}

#[test]
fn lru_serves_two_jobs_of_table_1_in_time_as_printed() {
    assert_eq!(executed(Policy::Lru), (2, 1.875, 5.0));
}

#[test]
fn a_plan_serves_all_jobs_of_table_1_with_four_units_as_printed() {
    let plan = plan(&with_the_whole_link(), &SmallSolver).unwrap();
    let (in_time, latency_s, units) = executed(Policy::Plan {
        plan: &plan,
        is_metered: false,
        replanning: None,
    });
    assert_eq!((in_time, units), (6, 4.0));
    // Printed: 1. The program fetches f2 and lets J1 read f1 remotely, which moves as many bytes; half a
    // second later.
    assert!(latency_s < 1.1, "{latency_s}");
}
