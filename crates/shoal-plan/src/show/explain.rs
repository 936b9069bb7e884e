//! Explains the outcome of a job in a plan, as text.

use std::fmt::Write as _;

use shoal_base::amount::{counted, human_amount, human_bytes};

use crate::model::{File, Job, Request};
use crate::plan::{FilePlan, JobPlan, Outcome, Plan, ReadPlan, Reason, Short, TransferPlan};

/// Maximum number of transfers of a file that are listed one by one. More are summarized.
const TRANSFERS: usize = 2;

/// Formats a time of a request.
pub type Clock<'a> = &'a dyn Fn(f64) -> String;

/// Explains the outcome of a job in a plan. Returns `None` if the plan has no job of this name.
pub fn explain(request: &Request, plan: &Plan, name: &str, clock: Clock<'_>) -> Option<String> {
    let job = request.jobs.iter().find(|job| job.name == name)?;
    let planned = plan.jobs.iter().find(|planned| planned.job == name)?;
    let story = Story {
        request,
        plan,
        job,
        clock,
    };
    let mut text = story.beginning(&planned.outcome);
    match &planned.outcome {
        Outcome::Planned => story.reads(&mut text, planned),
        Outcome::BestEffort(reason) => {
            story.inputs(&mut text);
            story.why(&mut text, reason);
        }
    }
    Some(text)
}

/// Formats a time as hours, minutes and seconds since the zero of the request's clock.
pub fn since_zero(time_s: f64) -> String {
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

struct Story<'a> {
    request: &'a Request,
    plan: &'a Plan,
    job: &'a Job,
    clock: Clock<'a>,
}

impl Story<'_> {
    fn file(&self, name: &str) -> Option<&File> {
        self.request.files.iter().find(|file| file.name == name)
    }

    fn file_plan(&self, name: &str) -> Option<&FilePlan> {
        self.plan.files.iter().find(|file| file.file == name)
    }

    fn held_bytes(&self, name: &str) -> u64 {
        let held = &self.request.cache.held;
        held.iter()
            .find(|held| held.file == name)
            .map_or(0, |held| held.bytes)
    }

    fn bytes(&self) -> f64 {
        let sizes = self.job.inputs.iter().filter_map(|name| self.file(name));
        sizes.map(|file| file.bytes as f64).sum()
    }

    fn beginning(&self, outcome: &Outcome) -> String {
        let Self { job, clock, .. } = self;
        let bytes = self.bytes();
        let slack_s = job.deadline_s - job.submit_s;
        let fastest = job
            .bytes_per_second_max
            .unwrap_or(f64::INFINITY)
            .min(self.request.link.bytes_per_second);
        let outcome = match outcome {
            Outcome::Planned => "planned, meets its deadline",
            Outcome::BestEffort(_) => "best effort, nothing is promised",
        };
        format!(
            "{}: {outcome}\n  it is submitted at {} and reads {} of {}\n  its deadline is {}, {} later (its slack)\n  \
             over an idle link, reading takes {}\n",
            job.name,
            clock(job.submit_s),
            human_amount(bytes),
            counted(job.inputs.len() as u64, "input"),
            clock(job.deadline_s),
            since_zero(slack_s),
            since_zero(bytes / fastest),
        )
    }

    fn reads(&self, text: &mut String, planned: &JobPlan) {
        for read in &planned.reads {
            let bytes = self.file(&read.file).map_or(0.0, |file| file.bytes as f64);
            // Writing to a string cannot fail; the same below.
            let _ = writeln!(text, "  {} ({})", read.file, human_amount(bytes));
            for part in self.parts(read) {
                let _ = writeln!(text, "    {part}");
            }
        }
    }

    fn parts(&self, read: &ReadPlan) -> Vec<String> {
        let mut parts = Vec::new();
        if read.cached_bytes >= 1.0 {
            parts.extend(self.cached(read));
        }
        if read.paged_bytes >= 1.0 {
            parts.push(format!(
                "{} stay in the cache from what an earlier job has read",
                human_amount(read.paged_bytes)
            ));
        }
        let remote = read.remote_bytes_per_second;
        if remote > 0.0 {
            let kept = if read.keep {
                ", and kept for a later job"
            } else {
                ""
            };
            let bytes = remote * (self.job.deadline_s - self.job.submit_s);
            parts.push(format!(
                "{} are read from the lake at {}/s from submission to deadline{kept}",
                human_amount(bytes),
                human_amount(remote)
            ));
        }
        parts
    }

    /// Explains the cached part of a read: the bytes held at the start, the fetches before submission, and
    /// the end of the pin.
    fn cached(&self, read: &ReadPlan) -> Vec<String> {
        let mut parts = Vec::new();
        let held = self.held_bytes(&read.file);
        if held > 0 {
            parts.push(format!("{} are in the cache already", human_bytes(held)));
        }
        let Some(plan) = self.file_plan(&read.file) else {
            return parts;
        };
        let due = |transfer: &&TransferPlan| transfer.start_s < self.job.submit_s;
        let transfers: Vec<&TransferPlan> = plan.transfers.iter().filter(due).collect();
        let bytes = |transfer: &TransferPlan| {
            let bytes = self.file(&read.file);
            let bytes = bytes.map(|file| transfer.bytes(file.bytes, file.block_bytes));
            bytes.map_or(0, |bytes| bytes.end - bytes.start)
        };
        if transfers.len() <= TRANSFERS {
            let listed = transfers.iter();
            parts.extend(listed.map(|transfer| self.transfer(transfer, bytes(transfer))));
        } else {
            let bytes = transfers.iter().map(|transfer| bytes(transfer)).sum();
            parts.push(self.together(&transfers, bytes));
        }
        let stays = plan
            .cached
            .iter()
            .find(|cached| cached.from_s <= self.job.submit_s && self.job.submit_s < cached.until_s);
        if let Some(stays) = stays {
            let until_s = plan
                .evictions
                .iter()
                .map(|eviction| eviction.at_s)
                .find(|at_s| *at_s > self.job.submit_s)
                .unwrap_or(stays.until_s);
            parts.push(format!(
                "what is cached is pinned until {}",
                (self.clock)(until_s)
            ));
        }
        parts
    }

    fn transfer(&self, transfer: &TransferPlan, bytes: u64) -> String {
        format!(
            "{} are fetched from {} to {} at {}/s",
            human_bytes(bytes),
            (self.clock)(transfer.start_s),
            (self.clock)(transfer.end_s),
            human_amount(transfer.bytes_per_second)
        )
    }

    fn together(&self, transfers: &[&TransferPlan], bytes: u64) -> String {
        let rates = transfers.iter().map(|transfer| transfer.bytes_per_second);
        let starts = transfers.iter().map(|transfer| transfer.start_s);
        let ends = transfers.iter().map(|transfer| transfer.end_s);
        format!(
            "{} are fetched from {} to {}, in {} of at most {}/s",
            human_bytes(bytes),
            (self.clock)(starts.fold(f64::INFINITY, f64::min)),
            (self.clock)(ends.fold(f64::NEG_INFINITY, f64::max)),
            counted(transfers.len() as u64, "transfer"),
            human_amount(rates.fold(0.0, f64::max))
        )
    }

    /// Lists the inputs of a job that is not planned: their cached bytes, and when the lake will have them.
    fn inputs(&self, text: &mut String) {
        for file in self.job.inputs.iter().filter_map(|name| self.file(name)) {
            let _ = write!(text, "  {} ({})", file.name, human_bytes(file.bytes));
            let held = self.held_bytes(&file.name);
            if held > 0 {
                let _ = write!(text, ", of which {} are in the cache already", human_bytes(held));
            }
            let start_s = self.request.window.start_s;
            if let Some(available_s) = file.available_s.filter(|at_s| *at_s > start_s) {
                let _ = write!(text, ", in the lake from {} on", (self.clock)(available_s));
            }
            text.push('\n');
        }
    }

    fn why(&self, text: &mut String, reason: &Reason) {
        let slack_s = self.job.deadline_s - self.job.submit_s;
        let _ = match reason {
            Reason::TooSlow { needs_s, has_s } => writeln!(
                text,
                "  its rate is too low: reading takes {needs_s:.0} s, and it has {has_s:.0} s\n  hint: a deadline {} \
                 later, or more tasks that read at the same time, would let it be planned",
                since_zero((needs_s - has_s).ceil())
            ),
            Reason::TooLarge { bytes, most_bytes } => writeln!(
                text,
                "  even alone, link and cache bring {} of its {} in time\n  hint: {}/s more of the link would let it \
                 be planned;\n  or compare plans with a later deadline or more cache: \
                 --what-if slack=2x --what-if cache=2x",
                human_amount(*most_bytes),
                human_amount(*bytes),
                human_amount((bytes - most_bytes) / slack_s)
            ),
            Reason::NoRoom {
                short,
                missing_bytes,
                link_left_bytes,
                narrowest_s,
            } => {
                let _ = writeln!(
                    text,
                    "  {} are not cached for it; the link has {} left while it runs, the least at {}",
                    human_amount(*missing_bytes),
                    human_amount(*link_left_bytes),
                    (self.clock)(*narrowest_s)
                );
                let more = human_amount((missing_bytes - link_left_bytes).max(0.0) / slack_s);
                match short {
                    Short::Link => writeln!(
                        text,
                        "  the link is short: it cannot bring the rest before the job starts either\n  hint: {more}/s \
                         more of the link while it runs are enough, or a later deadline;\n  compare plans by \
                         --what-if bandwidth=2x --what-if slack=2x"
                    ),
                    Short::Cache => writeln!(
                        text,
                        "  the cache is short: the link could bring the rest before the job starts\n  hint: compare \
                         plans by --what-if cache=2x;\n  without more cache, {more}/s more of the link while it runs \
                         are enough"
                    ),
                }
            }
        };
    }
}
