//! Shows the progress of a task on stderr: a bar on a terminal, otherwise an occasional line.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant, SystemTime};

use rustix::termios::tcgetwinsize;
use shoal_net::clock;
use shoal_orders::{Task, TaskState};

use super::plan_state::job_counts;
use crate::cli::output::{bytes, counted, overwrite, talk};

/// Interval of lines if stderr is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Width of the bar in characters.
const BAR: usize = 24;

/// Displays the progress of a task.
#[derive(Debug, Default)]
pub(crate) struct ProgressDisplay {
    /// When the last line was printed.
    line: Option<Instant>,
    has_bar: bool,
}

impl ProgressDisplay {
    /// Displays the current progress of the task.
    pub(crate) fn show(&mut self, task: &Task) {
        if stderr().is_terminal() {
            self.has_bar = true;
            let columns = tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col.max(20)));
            let text: String = line(task, true).chars().take(columns - 1).collect();
            overwrite(&text);
            return;
        }
        let now = clock::instant();
        let is_due = self
            .line
            .is_none_or(|line| now.saturating_duration_since(line) >= LINE_EVERY);
        if is_due {
            self.line = Some(now);
            talk(&format!("{}\n", line(task, false)));
        }
    }

    /// Removes the bar.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.has_bar) {
            overwrite("");
        }
    }
}

/// Formats one line about a task.
pub(crate) fn line(task: &Task, has_bar: bool) -> String {
    let (progress, kind) = (&task.progress, kind(task));
    if progress.state == TaskState::Queued {
        return format!("{kind}: queued");
    }
    let (objects, sizes) = (&progress.tally.objects, &progress.tally.bytes);
    let mut parts = Vec::new();
    match percent(task) {
        Some(percent) if has_bar => parts.push(format!("[{}] {percent}%", bar(percent))),
        Some(percent) => parts.push(format!("{percent}%")),
        None => {}
    }
    let of = if progress.counting { "of at least" } else { "of" };
    parts.push(match sizes.total {
        Some(total) => format!("{} {of} {}", bytes(sizes.done), bytes(total)),
        None => bytes(sizes.done),
    });
    match (&progress.plan, objects.total) {
        (Some(plan), _) => parts.push(format!("jobs: {}", job_counts(&plan.jobs))),
        (None, Some(total)) => parts.push(format!("{} {of} {}", objects.done, counted(total, "object"))),
        (None, None) => parts.push(counted(objects.done, "object")),
    }
    if let Some(rate) = progress.bytes_per_second {
        parts.push(format!("{}/s", bytes(rate)));
    }
    // A plan fetches when it is time.
    let left = time_left(task, clock::utc_now()).filter(|_| progress.plan.is_none());
    if let Some(left) = left {
        parts.push(format!("ETA {}", duration(left)));
    }
    if objects.failed > 0 {
        parts.push(format!("{} failed", objects.failed));
    }
    if progress.at_risk {
        parts.push("deadline at risk".into());
    }
    if let Some(detail) = &progress.detail {
        parts.push(detail.clone());
    }
    format!("{kind}: {}", parts.join(", "))
}

/// Returns the kind of a task, and whether it is a dry run.
pub(crate) fn kind(task: &Task) -> String {
    let request = &task.order.request;
    let dry_run = if request.dry_run { " (dry run)" } else { "" };
    format!("{}{dry_run}", request.kind.as_str())
}

/// Returns the completed percentage of a task: of its bytes, or of its objects while their sizes are unknown.
fn percent(task: &Task) -> Option<usize> {
    let tally = &task.progress.tally;
    let part = |done: u64, total: Option<u64>| {
        let total = total.filter(|total| *total > 0)?;
        Some((u128::from(done) * 100 / u128::from(total)).min(100) as usize)
    };
    let objects = &tally.objects;
    let ended = objects.done + objects.skipped + objects.failed;
    part(tally.bytes.done, tally.bytes.total).or_else(|| part(ended, objects.total))
}

fn bar(percent: usize) -> String {
    let full = percent * BAR / 100;
    let head = if full < BAR { ">" } else { "" };
    format!("{:<BAR$}", "=".repeat(full) + head)
}

/// Estimates the remaining time of a task from its recent rate; by objects while their sizes are unknown.
fn time_left(task: &Task, now: SystemTime) -> Option<Duration> {
    let tally = &task.progress.tally;
    if let Some(total) = tally.bytes.total {
        let left = total.checked_sub(tally.bytes.done)?;
        let rate = task.progress.bytes_per_second.filter(|rate| *rate > 0)?;
        return Some(Duration::from_secs(left.div_ceil(rate)));
    }
    let ended = u32::try_from(tally.objects.dealt_with())
        .ok()
        .filter(|ended| *ended > 0)?;
    let left = u32::try_from(tally.objects.total?.checked_sub(ended.into())?).ok()?;
    let lasted = now.duration_since(task.progress.started?.time()).ok()?;
    (lasted / ended).checked_mul(left)
}

/// `7 s`, `3 min`, `2 h 5 min`, `3 d`
fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds.div_ceil(60)),
        3_600..172_800 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shoal_orders::Task;

    use super::{duration, line, time_left};
    use std::time::Duration;

    fn task(progress: &serde_json::Value) -> Task {
        let mut task = json!({
            "id": "01J", "kind": "prefetch", "uri": "s3://b/", "created": "2026-11-24T00:00:00Z", "accepted_by": "n0", "forgotten": "2026-12-02T00:00:00Z",
            "objects": { "done": 3, "unchanged": 0, "skipped": 0, "failed": 0, "total": null },
            "bytes": { "done": 1 << 20, "cached": 0, "from_lake": 1 << 20, "from_peers": 0, "pinned": 0, "removed": 0, "total": null },
        });
        let fields = progress.as_object().unwrap().clone();
        task.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(task).unwrap()
    }

    #[test]
    fn a_line_tells_what_is_known() {
        let running = |more: serde_json::Value| {
            let mut running = json!({ "state": "running" });
            running
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            task(&running)
        };
        assert_eq!(
            line(&task(&json!({ "state": "queued" })), true),
            "prefetch: queued"
        );
        assert_eq!(line(&running(json!({})), true), "prefetch: 1.0 MiB, 3 objects");
        let counted = json!({
            "objects": { "done": 3, "unchanged": 0, "skipped": 0, "failed": 1, "total": 8 },
            "bytes": { "done": 1 << 20, "cached": 0, "from_lake": 0, "from_peers": 0, "pinned": 0, "removed": 0, "total": 4 << 20 },
            "bytes_per_second": 1 << 19, "at_risk": true,
        });
        assert_eq!(
            line(&running(counted.clone()), true),
            "prefetch: [======>                 ] 25%, 1.0 MiB of 4.0 MiB, 3 of 8 objects, 512 KiB/s, ETA 6 s, 1 failed, deadline at risk"
        );
        assert!(line(&running(counted.clone()), false).starts_with("prefetch: 25%, 1.0 MiB"));
        let mut counting = counted.clone();
        counting["counting"] = true.into();
        assert!(
            line(&running(counting), false).contains("1.0 MiB of at least 4.0 MiB, 3 of at least 8 objects")
        );
        let dry = json!({ "dry_run": true });
        assert_eq!(
            line(&running(dry), true),
            "prefetch (dry run): 1.0 MiB, 3 objects"
        );
        let listed =
            json!({ "objects": { "done": 3, "unchanged": 0, "skipped": 0, "failed": 1, "total": 8 } });
        assert!(line(&running(listed), false).starts_with("prefetch: 50%, 1.0 MiB, 3 of 8 objects"));
    }

    #[test]
    fn the_time_that_is_left_is_known_by_bytes_or_else_by_objects() {
        let listed = json!({
            "state": "running", "started": "2026-11-24T00:00:00Z",
            "objects": { "done": 1, "unchanged": 0, "skipped": 1, "failed": 0, "total": 8 },
        });
        let now = "2026-11-24T00:00:10Z"
            .parse::<shoal_orders::Moment>()
            .unwrap()
            .time();
        assert_eq!(time_left(&task(&listed), now), Some(Duration::from_secs(30)));
        let none = json!({ "state": "running", "started": "2026-11-24T00:00:00Z" });
        assert_eq!(time_left(&task(&none), now), None);
    }

    #[test]
    fn times_are_told_in_their_unit() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (61, "2 min"),
            (7_500, "2 h 5 min"),
            (900_000, "10 d"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }
}
