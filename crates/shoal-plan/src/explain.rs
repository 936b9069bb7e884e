//! What a job gets, and why, as text.

use std::fmt::Write as _;

use crate::model::Request;
use crate::plan::{JobPlan, Outcome, Plan, ReadPlan, Reason, Short};

/// Explains what a plan does for a job; `None` if the plan has no job of this name.
pub fn explain(request: &Request, plan: &Plan, name: &str) -> Option<String> {
    let job = request.jobs.iter().find(|job| job.name == name)?;
    let planned = plan.jobs.iter().find(|planned| planned.job == name)?;
    let bytes: f64 = {
        let size = |name: &String| {
            request
                .files
                .iter()
                .find(|file| file.name == *name)
                .map_or(0, |file| file.bytes)
        };
        job.inputs.iter().map(|name| size(name) as f64).sum()
    };
    let mut text = format!(
        "{name}: reads {} of {} between {} and {}",
        human(bytes),
        counted(job.inputs.len(), "file"),
        clock(job.submit_s),
        clock(job.deadline_s),
    );
    let _ = match &planned.outcome {
        Outcome::Planned => writeln!(text, ": planned, meets its deadline"),
        Outcome::BestEffort(_) => writeln!(text, ": best effort, nothing is promised"),
    };
    match &planned.outcome {
        Outcome::Planned => reads(&mut text, plan, planned),
        Outcome::BestEffort(reason) => why(&mut text, reason),
    }
    Some(text)
}

fn reads(text: &mut String, plan: &Plan, job: &JobPlan) {
    for read in &job.reads {
        let _ = writeln!(text, "  {}: {}", read.file, parts(plan, read).join(", "));
    }
}

fn parts(plan: &Plan, read: &ReadPlan) -> Vec<String> {
    let mut parts = Vec::new();
    if read.cached_bytes >= 1.0 {
        let transfers = plan
            .files
            .iter()
            .find(|file| file.file == read.file)
            .map_or(&[][..], |file| &file.transfers);
        let fetched = match (transfers.first(), transfers.last()) {
            (Some(first), Some(last)) => format!(
                "fetched between {} and {}",
                clock(first.start_s),
                clock(last.end_s)
            ),
            _ => "there from before".to_owned(),
        };
        parts.push(format!("{} cached ({fetched})", human(read.cached_bytes)));
    }
    if read.paged_bytes >= 1.0 {
        parts.push(format!(
            "{} that an earlier job has read",
            human(read.paged_bytes)
        ));
    }
    if read.remote_bytes_per_second > 0.0 {
        let kept = if read.keep { ", kept for a later job" } else { "" };
        parts.push(format!(
            "the rest from the lake at {}/s{kept}",
            human(read.remote_bytes_per_second)
        ));
    }
    parts
}

fn why(text: &mut String, reason: &Reason) {
    let _ = match reason {
        Reason::TooSlow { needs_s, has_s } => writeln!(
            text,
            "  its rate is too low: reading takes {needs_s:.0} s, and it has {has_s:.0} s\n  hint: a later deadline, or \
             more tasks, would let it be planned"
        ),
        Reason::TooLarge { bytes, most_bytes } => writeln!(
            text,
            "  even alone, link and cache bring {} of its {} in time\n  hint: a later deadline, a wider link or more \
             cache would let it be planned",
            human(*most_bytes),
            human(*bytes)
        ),
        Reason::NoRoom {
            short,
            missing_bytes,
            link_left_bytes,
            narrowest_s,
        } => {
            let _ = writeln!(
                text,
                "  {} are not cached for it, and the link has {} left while it runs; the least at {}",
                human(*missing_bytes),
                human(*link_left_bytes),
                clock(*narrowest_s)
            );
            match short {
                Short::Link => writeln!(
                    text,
                    "  the link is short: it cannot bring the rest before the job starts either\n  hint: compare plans \
                     with more bandwidth, or give the job a later deadline"
                ),
                Short::Cache => writeln!(
                    text,
                    "  the cache is short: the link could bring the rest before the job starts\n  hint: compare plans \
                     with more cache"
                ),
            }
        }
    };
}

/// A time, as hours, minutes and seconds since the zero of the request's clock.
fn clock(time_s: f64) -> String {
    let sign = if time_s < 0.0 { "-" } else { "" };
    #[expect(clippy::cast_sign_loss, reason = "an absolute value is positive")]
    let seconds = time_s.abs().round() as u64;
    format!(
        "{sign}{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Bytes with three digits and a decimal unit.
fn human(bytes: f64) -> String {
    let units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)];
    let (name, scale) = units
        .into_iter()
        .find(|(_, scale)| bytes >= *scale)
        .unwrap_or(("B", 1.0));
    let count = bytes / scale;
    let digits = if name == "B" || count >= 100.0 {
        0
    } else if count >= 10.0 {
        1
    } else {
        2
    };
    format!("{count:.digits$} {name}")
}
