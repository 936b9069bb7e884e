//! `shoal plan HISTORY...`: makes a plan for the jobs of a window, and explains it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use shoal_base::clock::utc_now;
use shoal_base::moment::millis_since_1970;
use shoal_history::moment::{DAY_MS, MOMENT_FORM};
use shoal_history::run::normalized;
use shoal_history::run::summary::Summary;
use shoal_history::{Moment, Templates, Window, forecast};
use shoal_node::planning::draft::{Draft, Terms};
use shoal_plan::Document;
use shoal_plan::model::Objective;
use shoal_plan::show::plot::picture;
use shoal_sim::units::{self, SIZE_FORM, counted};

use super::history::{HistoryFlags, span};
use super::planner::PlannerFlags;
use super::predict::window;
use super::what_if::{Comparison, WhatIf, bandwidth};
use super::words::{explained, summary};
use crate::cli::failure::Failure;
use crate::cli::output::{Tone, print, print_message, talk};

/// The largest plan or list of cached files that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// A history that ended earlier than this before the window is old.
const STALE_MS: i64 = 3 * DAY_MS;
/// Flags of `shoal plan HISTORY...`: the terms of a plan, and the questions about it.
#[derive(Debug, Args)]
pub(super) struct Make {
    #[command(flatten)]
    history: HistoryFlags,
    /// Start of the window, such as 2026-11-20T02:00:00Z, or `now`; the default is the end of the history
    #[arg(long, value_name = "TIME", value_parser = start)]
    from: Option<Moment>,
    /// Length of the window: jobs that are submitted in it are planned, until their deadlines
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = window)]
    window: Duration,
    /// Bandwidth of the link to the lake, such as 10Gbit
    #[arg(long, value_name = "RATE", value_parser = bandwidth)]
    bandwidth: Option<f64>,
    /// Room for planned files, in the caches of all nodes together, such as 1TiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache: Option<u64>,
    /// Size of the blocks of the nodes, as they are configured
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = block_size)]
    block_size: u64,
    /// What the cache holds at the start: lines of {"path": "s3://...", "bytes": N}; without it, nothing
    #[arg(long, value_name = "FILE")]
    held: Option<PathBuf>,
    /// Length of a slot, within which rates do not change; the default gives at most 400 of them
    #[arg(long, value_name = "TIME", value_parser = span)]
    slot: Option<Duration>,
    /// What to plan for
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Goal::LeastPeak)]
    objective: Goal,
    /// Read this plan instead of making one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "from", "window", "bandwidth", "cache", "block_size", "held", "slot", "objective"])]
    plan: Option<PathBuf>,
    /// Say in words what is planned for a job and why: the name of a run, or of all runs of a job
    #[arg(long, value_name = "JOB")]
    explain: Option<String>,
    /// Draw transfers, link and cache over time into this file
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Say which deadlines another bandwidth, cache or slack would save; can be repeated
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = WhatIf::parse)]
    what_if: Vec<WhatIf>,
    #[command(flatten)]
    planner: PlannerFlags,
    /// Print the answers to --explain and --what-if as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Goal {
    /// All jobs in time with the least peak on the link; where it cannot serve all, the most deadlines
    LeastPeak,
    /// The most deadlines
    MostDeadlines,
}

impl Make {
    pub(super) fn run(self) -> Result<(), Failure> {
        let document = match &self.plan {
            Some(path) => read_document(path)?,
            None => self.document()?,
        };
        if let Some(path) = &self.plot {
            fs::write(path, picture(&document.plan))
                .map_err(|error| Failure::new(&format!("cannot write {}", path.display()), &error))?;
        }
        let explain = self.explain.as_deref();
        let answers = Answers {
            explained: explain.map(|job| explained(&document, job)).transpose()?,
            what_if: self.compared(&document)?,
        };
        if !answers.is_empty() {
            print(&if self.json { json(&answers) } else { answers.text() });
            return Ok(());
        }
        if self.plan.is_none() {
            print(&json(&document));
        }
        talk(&summary(&document));
        Ok(())
    }

    /// Learns, forecasts and plans.
    fn document(&self) -> Result<Document, Failure> {
        let (Some(bytes_per_second), Some(capacity_bytes)) = (self.bandwidth, self.cache) else {
            let hint = "say what the link to the lake and the caches of all nodes have: --bandwidth 10Gbit --cache 1TiB";
            return Err(Failure::misused("a plan needs --bandwidth and --cache", hint));
        };
        let held = self
            .held
            .as_deref()
            .map(read_held)
            .transpose()?
            .unwrap_or_default();
        let held_paths = held.len();
        let history = self.history.read()?;
        let summary = Summary::new(&history);
        let end = summary.to.unwrap_or_default().plus_ms(1);
        let from = self.from.unwrap_or(end);
        if let Some(begin) = summary.from.filter(|&begin| from < begin) {
            let what = format!("the window begins at {from}, before the history at {begin}");
            let hint = "begin the window when the history ends, or later";
            return Err(Failure::misused(what, hint));
        }
        if from.since_ms(end) > STALE_MS {
            let what = format!("the window begins at {from}, long after the history ended at {end}");
            let hint = "take a newer history: jobs that have changed since then are planned as they were";
            print_message(Tone::Warning, &what, Some(hint));
        }
        let window_ms = i64::try_from(self.window.as_millis()).unwrap_or(i64::MAX);
        let forecast = forecast(&Templates::learn(&history), Window::after(from, window_ms));
        if forecast.complete_until < forecast.window.to {
            let until = forecast.complete_until;
            let what = format!("jobs after {until} are not planned: there are too many");
            print_message(Tone::Warning, &what, Some("plan a shorter window"));
        }
        let draft = Draft::new(
            &forecast,
            &Terms {
                bytes_per_second,
                capacity_bytes,
                block_bytes: self.block_size,
                slot: self.slot,
                objective: match self.objective {
                    Goal::LeastPeak => Objective::LeastPeak,
                    Goal::MostDeadlines => Objective::MostDeadlines,
                },
                held,
            },
        );
        if draft.request.jobs.is_empty() {
            return Err(nothing_to_plan(&draft, from));
        }
        if draft.sizeless > 0 {
            let inputs = counted(draft.sizeless, "input");
            let what =
                format!("{inputs} of unknown size are not planned: the history does not contain their sizes");
            print_message(Tone::Warning, &what, None);
        }
        if draft.held_elsewhere > 0 {
            let paths = counted(draft.held_elsewhere, "path");
            let what = format!("{paths} of the {held_paths} that --held names are no input of a job");
            print_message(Tone::Note, &what, None);
        }
        draft.request.check().map_err(|error| refused(&error))?;
        let plan = self.planner.plan(&draft.request)?;
        let document = draft.with(plan);
        document.check().map_err(|error| refused(&error))?;
        Ok(document)
    }

    fn compared(&self, document: &Document) -> Result<Option<Comparison>, Failure> {
        if self.what_if.is_empty() {
            return Ok(None);
        }
        let mut comparison = Comparison::new(&document.plan);
        for what_if in &self.what_if {
            let plan = self.planner.plan(&what_if.apply(&document.request))?;
            if plan.jobs.len() != document.plan.jobs.len() {
                let hint = "shoal and shoal-planner must be of one version";
                return Err(Failure::failed("the planner's answer is about other jobs").hinting(hint));
            }
            comparison.add(what_if, &document.plan, plan);
        }
        Ok(Some(comparison))
    }
}

/// The answers that take the place of the plan. All are made before the first is printed, so that a refused
/// command prints nothing.
#[derive(Serialize)]
struct Answers {
    #[serde(skip_serializing_if = "Option::is_none")]
    explained: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_if: Option<Comparison>,
}

impl Answers {
    fn is_empty(&self) -> bool {
        self.explained.is_none() && self.what_if.is_none()
    }

    fn text(&self) -> String {
        let what_if = self.what_if.as_ref().map(Comparison::text);
        let answers = [self.explained.clone(), what_if];
        answers.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("numbers and names are JSON") + "\n"
}

/// Returns why no job is planned.
fn nothing_to_plan(draft: &Draft, from: Moment) -> Failure {
    let (what, hint) = if draft.left_out.is_empty() {
        (
            format!("no job is expected in the window from {from} on"),
            "take a longer --window; `shoal plan predict` says which jobs recur, and when",
        )
    } else {
        (
            "nothing is known of what the expected jobs read".to_owned(),
            "the history needs inputs with their bytes; `shoal plan predict` shows what it has",
        )
    };
    Failure::misused(what, hint)
}

fn refused(error: &dyn std::error::Error) -> Failure {
    Failure::misused_as(error, "see docs/reference/plan.md")
}

fn read_document(path: &Path) -> Result<Document, Failure> {
    let text = read_text(path)?;
    let document: Document = serde_json::from_str(&text).map_err(|error| {
        let what = format!("{} is no plan: {error}", path.display());
        let hint = "make one by `shoal plan HISTORY... --bandwidth RATE --cache SIZE > plan`";
        Failure::misused(what, hint)
    })?;
    document.check().map_err(|error| refused(&error))?;
    Ok(document)
}

/// A line of the list of cached files.
#[derive(Deserialize)]
struct HeldLine {
    path: String,
    bytes: u64,
}

fn read_held(path: &Path) -> Result<HashMap<String, u64>, Failure> {
    let text = read_text(path)?;
    let mut held = HashMap::new();
    let lines = (1..).zip(text.lines());
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let misused = |why: String| {
            let what = format!("{}:{number}: {why}", path.display());
            let hint = "write lines such as {\"path\": \"s3://lake/t/\", \"bytes\": 1000000}";
            Failure::misused(what, hint)
        };
        let HeldLine { path: file, bytes } =
            serde_json::from_str(line).map_err(|error| misused(error.to_string()))?;
        let file = normalized(&file).ok_or_else(|| misused(format!("{file:?} is no path in S3")))?;
        let all = held.entry(file).or_insert(0_u64);
        *all = all.saturating_add(bytes);
    }
    Ok(held)
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let unreadable = |error| Failure::new(&format!("cannot read {}", path.display()), &error);
    let file = File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    if read.map_err(unreadable)? as u64 > FILE_BYTES_MAX {
        let what = format!("{} is larger than 1 GiB", path.display());
        return Err(Failure::misused(what, "plan a shorter window"));
    }
    Ok(text)
}

fn now() -> Moment {
    Moment::from_ms(i64::try_from(millis_since_1970(utc_now())).unwrap_or(i64::MAX))
}

fn start(text: &str) -> Result<Moment, String> {
    let moment = if text == "now" {
        Some(now())
    } else {
        Moment::parse(text)
    };
    moment.ok_or_else(|| format!("hint: write {MOMENT_FORM}, or `now`"))
}

fn block_size(text: &str) -> Result<u64, String> {
    let size = units::size(text).filter(|size| size.is_power_of_two());
    size.ok_or_else(|| "hint: write a power of two, such as 4MiB".into())
}

fn size(text: &str) -> Result<u64, String> {
    units::size(text).ok_or_else(|| format!("hint: write {SIZE_FORM}"))
}
