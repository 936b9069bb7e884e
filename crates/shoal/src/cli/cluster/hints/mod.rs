//! `shoal hint` and `shoal hints`: what running jobs read, and what became of it.

mod picture;
mod spark_log;

use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shoal_base::terminal::table;
use shoal_node::admin::members::Members;
use shoal_orders::{HintFacts, HintUse, Moment, TaskState};

use super::admin::{AdminPort, failed};
use super::overview::pages_of;
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::output::{bytes, counted, print, print_result};

const PATH: &str = "/hints";
const BATCH: &str = "/api/v1/lineage/batch";

/// The number of events in one request.
const EVENTS_AT_ONCE: usize = 500;

const AFTER_HELP: &str = "\
FILE has events of OpenLineage, as engines send them: one JSON object, a list, or one object a line. A START has
the inputs of the run brought, and those of the jobs behind it; they are kept until a COMPLETE, FAIL or ABORT of
the same run.

The facet `shoal` of a job adds what OpenLineage lacks: a deadline, which hint goes first (`priority`), and the
stages of the run with what each of them reads and writes, how much it reads (`bytes`), and that what it writes is
of no use after the run (`life`). docs/how-to/hints.md has an example.

With --spark-log, FILE is an event log of Spark, or a folder with some. The command prints the START of a next run
that reads what the last application read, its queries as stages:

  shoal hint --spark-log spark-events --namespace etl > next.json
  shoal hint next.json
  spark-submit report.py
  shoal hint next.json --end";

/// Say what a job is about to read
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Hint {
    /// File with events; - reads stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Say that the runs which FILE starts have ended: a COMPLETE for each START, and nothing else
    #[arg(long)]
    end: bool,
    /// Send nothing, and print the START of a next run, made from an event log of Spark
    #[arg(long, requires = "namespace", conflicts_with_all = ["end", "json"])]
    spark_log: bool,
    /// Namespace of the job of --spark-log, for which the nodes have a `[[hints.rule]]`
    #[arg(long, value_name = "NAME", requires = "spark_log")]
    namespace: Option<String>,
    #[command(flatten)]
    admin: AdminPort,
    /// Print the answer of the node as JSON
    #[arg(long)]
    json: bool,
}

/// List the hints of running jobs, the latest first, and what became of the bytes that they brought
#[derive(Debug, Args)]
pub(crate) struct Hints {
    /// Print what runs that have ended read and wrote, as `shoal plan` reads it, one JSON object a line
    #[arg(long, conflicts_with = "json")]
    runs: bool,
    /// Draw into this file when each hint was announced, its bytes came, were first used, and were released
    #[arg(long, value_name = "FILE.svg", conflicts_with = "runs")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    admin: AdminPort,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Deserialize, Serialize)]
struct HintList {
    hints: Vec<HintUse>,
}

/// The answer to a batch of events.
#[derive(Debug, Default, Deserialize, Serialize)]
struct BatchAnswer {
    summary: Summary,
    failed_events: Vec<FailedEvent>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct Summary {
    received: u64,
    successful: u64,
}

#[derive(Debug, Deserialize, Serialize)]
struct FailedEvent {
    index: usize,
    reason: String,
}

impl Hint {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Some(namespace) = &self.namespace {
            return spark_log::print_start(&self.file, namespace);
        }
        let mut events = self.events()?;
        if self.end {
            events = ends(events);
        }
        if events.is_empty() {
            let what = format!("{} has no events to send", self.file.display());
            return Err(Failure::misused(what, "give events of OpenLineage in JSON"));
        }
        block_on(async move {
            let client = self.admin.client()?;
            let mut all = BatchAnswer::default();
            for (number, part) in events.chunks(EVENTS_AT_ONCE).enumerate() {
                let body = serde_json::to_vec(part).expect("events are JSON");
                let answer = client.post_json::<BatchAnswer>(BATCH, body).await;
                let answer = answer.map_err(failed("the events were not taken"))?;
                all.summary.received += answer.summary.received;
                all.summary.successful += answer.summary.successful;
                all.failed_events
                    .extend(answer.failed_events.into_iter().map(|event| FailedEvent {
                        index: event.index + number * EVENTS_AT_ONCE,
                        ..event
                    }));
            }
            print_result(self.json, &all, || {
                format!(
                    "{} taken; `shoal hints` shows what became of them\n",
                    counted(all.summary.successful, "event")
                )
            });
            let Some(first) = all.failed_events.first() else {
                return Ok(());
            };
            let what = format!(
                "{} not taken, the first one as event {}: {}",
                counted(all.failed_events.len(), "event"),
                first.index + 1,
                first.reason.lines().next().unwrap_or_default()
            );
            let hint = first
                .reason
                .split_once("hint: ")
                .map(|(_, hint)| hint.trim().to_owned());
            Err(Failure::failed(what).hinting_if(hint))
        })
    }

    fn events(&self) -> Result<Vec<Value>, Failure> {
        let text = if self.file.as_os_str() == "-" {
            io::read_to_string(io::stdin())
        } else {
            fs::read_to_string(&self.file)
        };
        let name = self.file.display();
        let text = text.map_err(|error| Failure::new(&format!("{name} cannot be read"), &error))?;
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
        let values = values.map_err(|error| {
            let what = format!("{name} is not JSON: {error}");
            Failure::misused(what, "give one event, a list of events, or one event a line")
        })?;
        let events = values.into_iter().flat_map(|value| match value {
            Value::Array(events) => events,
            event => vec![event],
        });
        Ok(events.collect())
    }
}

/// Returns a COMPLETE for each START, with what that one names.
fn ends(events: Vec<Value>) -> Vec<Value> {
    let is_start = |event: &Value| {
        event["eventType"]
            .as_str()
            .is_some_and(|word| word.eq_ignore_ascii_case("START"))
    };
    let mut ends: Vec<Value> = events.into_iter().filter(is_start).collect();
    for end in &mut ends {
        end["eventType"] = "COMPLETE".into();
        end["eventTime"] = Moment::now().to_string().into();
    }
    ends
}

impl Hints {
    pub(crate) fn run(self) -> Result<(), Failure> {
        block_on(async move {
            let client = self.admin.client()?;
            if self.runs {
                let members: Members = client
                    .get("/members")
                    .await
                    .map_err(failed("the nodes are not known"))?;
                for member in &members.members {
                    let path = if member.name == members.speaker {
                        "/runs".to_owned()
                    } else {
                        format!("{}/runs", pages_of(&member.name))
                    };
                    let what = format!("the runs of {}", member.name);
                    print(&client.text(&path).await.map_err(failed(what))?);
                }
                return Ok(());
            }
            let list: HintList = client
                .get(PATH)
                .await
                .map_err(failed("the hints cannot be shown"))?;
            if let Some(path) = &self.plot {
                if list.hints.is_empty() {
                    let hint = "engines send them to /api/v1/lineage of the admin port";
                    return Err(Failure::failed("there are no hints to draw").hinting(hint));
                }
                fs::write(path, picture::picture(&list.hints, Moment::now()))
                    .map_err(|error| Failure::new(&format!("cannot write {}", path.display()), &error))?;
            }
            print_result(self.json, &list, || listed(&list.hints));
            Ok(())
        })
    }
}

fn listed(hints: &[HintUse]) -> String {
    if hints.is_empty() {
        return "no hints; engines send them to /api/v1/lineage of the admin port\n".into();
    }
    let head = [
        "state", "reader", "stage", "inputs", "size", "brought", "used", "wasted", "early", "holds",
    ];
    let rows = hints.iter().filter_map(|hint| {
        let facts = hint.task.order.hint.as_deref()?;
        let holds: Vec<&String> = facts.short_lived.iter().chain(&facts.awaited).collect();
        let size = hint.task.progress.tally.bytes.total;
        Some([
            state(hint).to_owned(),
            facts.reader.to_string(),
            facts.stage.to_string(),
            inputs(facts),
            size.map_or_else(|| "-".into(), bytes),
            bytes(hint.brought_bytes),
            bytes(hint.used_bytes),
            bytes(hint.wasted_bytes),
            hint.early_ms.map_or_else(|| "-".into(), early),
            paths(&holds),
        ])
    });
    table(std::iter::once(head.map(str::to_owned)).chain(rows))
}

/// Returns the inputs of a hint in short.
fn inputs(facts: &HintFacts) -> String {
    paths(&facts.inputs)
}

/// Returns the first path, and the number of others.
fn paths<P: AsRef<str>>(paths: &[P]) -> String {
    match paths {
        [] => "-".into(),
        [only] => only.as_ref().to_owned(),
        [first, rest @ ..] => format!("{} +{}", first.as_ref(), rest.len()),
    }
}

/// Returns the state of a hint in a word.
fn state(hint: &HintUse) -> &'static str {
    match hint.task.progress.state {
        TaskState::Queued => "queued",
        TaskState::Running => "bringing",
        TaskState::Failed => "failed",
        TaskState::Done if hint.keeps => "kept",
        TaskState::Done | TaskState::Cancelled => "over",
    }
}

fn early(millis: u64) -> String {
    let seconds = Duration::from_millis(millis).as_secs_f64();
    if seconds < 100.0 {
        format!("{seconds:.1}s")
    } else {
        format!("{:.0}m", seconds / 60.0)
    }
}
