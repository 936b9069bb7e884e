//! `shoal tasks` and `shoal task`: the tasks of a cluster and their progress.

pub(crate) mod plan_state;
pub(crate) mod progress;

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use shoal_base::terminal::{self, table};
use shoal_node::admin::client::AdminClient;
use shoal_orders::{Task, TaskKind, TaskList, TaskState};
use tokio::signal::unix::{SignalKind, signal};

use self::progress::{ProgressDisplay, kind};
use crate::cli::block_on;
use crate::cli::cluster::admin::{AdminPort, Patience, failed, poll};
use crate::cli::failure::Failure;
use crate::cli::output::{Tone, bytes, counted, print_message, print_result, some_of};

/// Path of the tasks page.
pub(crate) const PATH: &str = "/tasks";

const PATIENCE: Patience = Patience {
    period: Duration::from_millis(250),
    silences_max: 40,
};

/// List the tasks of a cluster, the latest first
#[derive(Debug, Args)]
pub(crate) struct Tasks {
    /// Only tasks in this state
    #[arg(long, value_name = "STATE", value_parser = TaskState::ALL.map(TaskState::as_str))]
    state: Option<String>,
    /// How many tasks to show
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    #[command(flatten)]
    admin: AdminPort,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// Show one task, follow it, or end it
#[derive(Debug, Args)]
pub(crate) struct TaskVerb {
    /// The id that `shoal tasks` shows
    #[arg(value_name = "ID")]
    id: String,
    /// End the task; what it has done stays. Ends the pins of a pin task
    #[arg(long)]
    cancel: bool,
    /// Wait for the end of the task, and show its progress
    #[arg(long, conflicts_with = "cancel")]
    wait: bool,
    #[command(flatten)]
    admin: AdminPort,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

impl Tasks {
    pub(crate) fn run(self) -> Result<(), Failure> {
        block_on(async move {
            let state = self.state.map(|state| format!("&state={state}"));
            let path = format!("{PATH}?limit={}{}", self.limit, state.unwrap_or_default());
            let client = self.admin.client()?;
            let list = client.get::<TaskList>(&path).await;
            let list = list.map_err(failed("the tasks cannot be shown"))?;
            print_result(self.json, &list, || listed(&list.tasks));
            if list.next.is_some() && !self.json {
                let hint = Some("show more of them with --limit");
                print_message(Tone::Note, "there are older tasks", hint);
            }
            Ok(())
        })
    }
}

impl TaskVerb {
    pub(crate) fn run(self) -> Result<(), Failure> {
        block_on(async move {
            let client = self.admin.client()?;
            let id = &self.id;
            if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric()) {
                let what = format!("{id:?} is not the id of a task");
                return Err(Failure::misused(
                    what,
                    "`shoal tasks` lists the tasks with their ids",
                ));
            }
            let task = if self.cancel {
                client.post::<Task>(&format!("{PATH}/{id}/cancel")).await
            } else {
                client.get::<Task>(&format!("{PATH}/{id}")).await
            };
            let task = task.map_err(failed(format!("task {id}")))?;
            if self.wait {
                return follow(&client, task, self.json).await;
            }
            show(&task, self.json);
            Ok(())
        })
    }
}

/// Shows the progress of a task until it ends, and then its result.
pub(crate) async fn follow(client: &AdminClient, task: Task, json: bool) -> Result<(), Failure> {
    let task = ended(client, task).await?;
    show(&task, json);
    match task.progress.state {
        TaskState::Done => Ok(()),
        state => Err(
            Failure::failed(format!("the task {} {}", task.id, state.as_str()))
                .hinting_if(task.progress.detail.filter(|_| !json)),
        ),
    }
}

/// Shows the progress of a task until it ends. Returns it as it is then.
pub(crate) async fn ended(client: &AdminClient, mut task: Task) -> Result<Task, Failure> {
    let mut display = ProgressDisplay::default();
    let interrupt = signal(SignalKind::interrupt());
    let mut interrupt = interrupt.map_err(|error| Failure::new("Ctrl-C cannot be noticed", &error))?;
    if !task.progress.state.is_over() {
        display.show(&task);
        let path = format!("{PATH}/{}", task.id);
        let ended = poll(client, &path, &PATIENCE, |task: Task| {
            let is_over = task.progress.state.is_over();
            if !is_over {
                display.show(&task);
            }
            is_over.then_some(task)
        });
        let ended = tokio::select! {
            ended = ended => ended.map_err(failed("the node stopped answering; the task goes on")),
            _ = interrupt.recv() => {
                let id = &task.id;
                let what = format!("the task {id} goes on");
                let hint = format!("`shoal task {id} --wait` follows it, `shoal task {id} --cancel` ends it");
                Err(Failure::interrupted(what, hint))
            }
        };
        display.end();
        task = ended?;
    }
    Ok(task)
}

pub(crate) fn show(task: &Task, json: bool) {
    print_result(json, task, || match task.order.request.kind {
        TaskKind::Plan => plan_state::summary(task),
        _ => summary(task),
    });
}

/// Formats all tasks as a table.
fn listed(tasks: &[Task]) -> String {
    let head = ["task", "kind", "state", "done", "rate", "objects", "what"].map(str::to_owned);
    let rows = tasks.iter().map(|task| {
        let rate = task.progress.bytes_per_second;
        [
            task.id.clone(),
            kind(task),
            state(task),
            done(task),
            rate.map_or_else(|| "-".into(), |rate| format!("{}/s", bytes(rate))),
            objects(task),
            what(task),
        ]
    });
    table(std::iter::once(head).chain(rows))
}

/// Returns the state, marked if the deadline is at risk.
fn state(task: &Task) -> String {
    let at_risk = if task.progress.at_risk { " (at risk)" } else { "" };
    format!("{}{at_risk}", task.progress.state.as_str())
}

fn done(task: &Task) -> String {
    let counts = &task.progress.tally.bytes;
    match counts.total {
        Some(total) if total > 0 => format!("{}%", u128::from(counts.done) * 100 / u128::from(total)),
        _ => bytes(counts.done),
    }
}

fn objects(task: &Task) -> String {
    if task.order.request.kind == TaskKind::Plan {
        return "-".into();
    }
    let counts = &task.progress.tally.objects;
    match counts.total {
        Some(total) => format!("{} of {total}", counts.done),
        None => counts.done.to_string(),
    }
}

/// Describes the objects of a task.
pub(crate) fn what(task: &Task) -> String {
    let manifest = task.order.manifest.as_ref();
    if let Some(hint) = &task.order.hint {
        let (inputs, reader) = (counted(hint.inputs.len(), "input"), hint.reader.to_string());
        return format!("{inputs} of {}", terminal::line(&reader));
    }
    match (&task.order.request.uri, manifest) {
        (Some(uri), _) => uri.escape_debug().to_string(),
        (None, Some(manifest)) => format!("{} of a list", counted(manifest.objects, "object")),
        (None, None) => {
            let document = task.order.document.as_ref();
            document.map_or_else(|| "-".into(), |document| counted(document.jobs, "job"))
        }
    }
}

/// Describes one task in several lines.
fn summary(task: &Task) -> String {
    let (request, progress) = (&task.order.request, &task.progress);
    let (objects, sizes) = (&progress.tally.objects, &progress.tally.bytes);
    let mut text = format!("{} {} {}: {}\n", task.id, kind(task), what(task), state(task));
    if let Some(detail) = &progress.detail {
        let _ = writeln!(text, "  {}", terminal::line(detail));
    }
    let counts_only = request.dry_run || request.kind == TaskKind::Cached;
    let total = objects
        .total
        .map_or_else(String::new, |total| format!(" of {total}"));
    let word = if counts_only { "counted" } else { "done" };
    let _ = write!(text, "  objects: {}{total} {word}", objects.done);
    let unchanged = unchanged(request.kind, request.dry_run);
    // A count shows how much is cached, even if nothing is.
    if counts_only && objects.unchanged == 0 {
        let _ = write!(text, ", 0 {unchanged}");
    }
    let others = [
        (objects.unchanged, unchanged),
        (objects.skipped, "skipped"),
        (objects.failed, "failed"),
    ];
    text.extend(some_of(&others).map(|other| format!(", {other}")));
    let total = sizes
        .total
        .map_or_else(String::new, |total| format!(" of {}", bytes(total)));
    let _ = write!(text, "\n  bytes: {}{total}", bytes(sizes.done));
    let cached = if counts_only { "cached" } else { "cached before" };
    for (size, word) in [
        (sizes.cached, cached),
        (sizes.from_lake, "from the lake"),
        (sizes.from_peers, "from other nodes"),
        (sizes.pinned, "pinned"),
        (sizes.removed, "removed"),
    ] {
        if size > 0 || (counts_only && word == cached) {
            let _ = write!(text, ", {} {word}", bytes(size));
        }
    }
    text.push('\n');
    for (node, counts) in &progress.tally.nodes {
        let (node, blocks) = (terminal::line(node), counted(counts.blocks, "block"));
        let _ = writeln!(text, "  {node}: {blocks} ({})", bytes(counts.bytes));
    }
    for error in &progress.tally.errors {
        let (object, error) = (terminal::line(&error.object), terminal::line(&error.error));
        let _ = writeln!(text, "  {object}: {error}");
    }
    let named = progress.tally.errors.len() as u64;
    let others = (objects.failed + objects.skipped).saturating_sub(named);
    if others > 0 {
        let _ = writeln!(text, "  and {} more", counted(others, "object"));
    }
    text
}

/// Returns the word for objects that needed no work.
const fn unchanged(kind: TaskKind, dry_run: bool) -> &'static str {
    match kind {
        TaskKind::Prefetch | TaskKind::Pin | TaskKind::Hint if !dry_run => "cached before",
        TaskKind::Prefetch | TaskKind::Pin | TaskKind::Hint | TaskKind::Cached => "wholly cached",
        TaskKind::Unpin => "not pinned",
        TaskKind::Evict | TaskKind::Plan => "not cached",
    }
}
