//! A plan in words: the reasons for a job's share, and a summary of the whole.

use std::fmt::Write as _;

use shoal_base::amount::{counted, human_amount};
use shoal_base::spelling::suggestion;
use shoal_history::Moment;
use shoal_plan::document::{DeadlineRule, Document, ExpectedJob, WhyLeftOut};
use shoal_plan::plan::Outcome;
use shoal_plan::show::explain::explain;

use super::what_if::first_of;
use crate::cli::failure::Failure;

/// Runs of one job that are explained at once.
const EXPLAINED: usize = 10;
/// Jobs without a promise that the summary names.
const NAMED: usize = 5;

/// Explains the run with this name, or the first runs of the job with this name. Runs that are left out
/// follow, with the reason.
///
/// # Errors
///
/// Fails if the document has no such run.
pub(super) fn explained(document: &Document, name: &str) -> Result<String, Failure> {
    let clock = |time_s: f64| {
        let moment = Moment::from_ms(at_ms(document, time_s));
        moment.to_string()[..19].replace('T', " ")
    };
    let runs: Vec<(&str, &ExpectedJob)> = document
        .request
        .jobs
        .iter()
        .map(|job| job.name.as_str())
        .zip(&document.jobs)
        .filter(|(run, job)| *run == name || job.name == name)
        .collect();
    let mut text = String::new();
    for (run, job) in runs.iter().take(EXPLAINED) {
        text += &explain(&document.request, &document.plan, run, &clock).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  the run is {:.0}% likely; {}",
            job.probability * 100.0,
            rule(job.deadline_rule)
        );
    }
    if let Some(more) = runs.len().checked_sub(EXPLAINED).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {}; name one of them", counted(more, "more run"));
    }
    let is_run_of = |run: &str| run == name || run.strip_prefix(name).is_some_and(|end| end.starts_with('@'));
    let left_out = document.left_out.iter();
    let left_out: Vec<_> = left_out.filter(|left_out| is_run_of(&left_out.job)).collect();
    for left_out in left_out.iter().take(EXPLAINED) {
        let WhyLeftOut::NothingToRead = left_out.why;
        let _ = writeln!(
            text,
            "{}: not planned, because the history does not contain the sizes of its inputs; it is expected at {}",
            left_out.job,
            clock(left_out.submit_s)
        );
    }
    if let Some(more) = left_out.len().checked_sub(EXPLAINED).filter(|more| *more > 0) {
        let more = counted(more, "more run");
        let _ = writeln!(text, "and {more} that are not planned");
    }
    if text.is_empty() {
        return Err(unknown_job(document, name));
    }
    Ok(text)
}

fn rule(rule: DeadlineRule) -> &'static str {
    match rule {
        DeadlineRule::Given => "the deadline is the one that the history gives",
        DeadlineRule::Consumer => "the deadline is the start of the job that reads what this one writes",
        DeadlineRule::RunTimes => "the deadline is what 19 of 20 runs kept",
        DeadlineRule::Unknown => "the deadline is a guess: no run is known to have ended",
    }
}

fn unknown_job(document: &Document, name: &str) -> Failure {
    let runs = document.request.jobs.iter().map(|job| job.name.as_str());
    let known = runs.chain(document.jobs.iter().map(|job| job.name.as_str()));
    let nearest = suggestion(name, known).map(|nearest| format!(" (nearest: {nearest})"));
    let what = format!("the plan has no job {name}{}", nearest.unwrap_or_default());
    let hint =
        "the names are in the plan below request.jobs; `shoal plan predict` says why a job is not expected";
    Failure::misused(what, hint)
}

/// Summarizes the plan in some lines.
pub(super) fn summary(document: &Document) -> String {
    let quality = &document.plan.quality;
    let best_effort: Vec<&str> = document
        .plan
        .jobs
        .iter()
        .filter(|job| job.outcome != Outcome::Planned)
        .map(|job| job.job.as_str())
        .collect();
    let window = &document.request.window;
    let jobs = document.plan.jobs.len();
    let meet = if jobs == 1 {
        "meets its deadline"
    } else {
        "meet their deadlines"
    };
    let mut text = format!(
        "{} of {} {meet}, with {:.0}% of the link at most ({} to {} UTC).\n{} are fetched before jobs \
         start; jobs read {} from the lake{}.\n",
        quality.planned,
        counted(jobs, "job"),
        quality.peak_share * 100.0,
        Moment::from_ms(at_ms(document, window.start_s)).to_minute(),
        Moment::from_ms(at_ms(document, window.end_s)).to_minute(),
        human_amount(quality.fetched_bytes),
        human_amount(quality.remote_bytes),
        if quality.paged_bytes < 1.0 {
            String::new()
        } else {
            let paged = human_amount(quality.paged_bytes);
            format!(", and {paged} that an earlier job has left in the cache")
        }
    );
    if !best_effort.is_empty() {
        let named = first_of(&best_effort, NAMED);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "Nothing is promised to {named}; --explain says why.");
    }
    if !document.left_out.is_empty() {
        let _ = writeln!(
            text,
            "{} of which no input is known are not planned.",
            counted(document.left_out.len(), "expected job")
        );
    }
    text
}

fn at_ms(document: &Document, time_s: f64) -> i64 {
    let epoch_ms = i64::try_from(document.epoch_ms).unwrap_or(i64::MAX);
    epoch_ms.saturating_add((time_s * 1e3).round() as i64)
}
