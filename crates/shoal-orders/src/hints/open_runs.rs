//! The runs that have started and not ended, as far as their events came to this node.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use shoal_hints::{Input, RunEvent, Wanted};

use crate::tasks::HintFacts;

/// Maximum number of readers of one run that are remembered.
const BROUGHT_MAX: usize = 1_000;

/// Maximum number of outputs of a run, or of pairs of jobs.
const ITEMS_MAX: usize = 10_000;

/// Maximum number of runs. The one without news for the longest time makes room.
const RUNS_MAX: usize = 4_096;

/// The runs under way, and those that have ended lately.
#[derive(Debug, Default)]
pub(super) struct OpenRuns {
    /// By their ids.
    runs: HashMap<String, OpenRun>,
    /// Runs that have ended, each with true if it ended as it was to: an event that comes again must not open
    /// it again. The oldest one is first in the queue.
    ended: HashMap<String, bool>,
    endings: VecDeque<String>,
}

/// A run under way.
#[derive(Debug)]
struct OpenRun {
    /// When its last event came.
    seen: Instant,
    /// All of its events together.
    event: RunEvent,
    /// Its readers whose inputs were brought.
    brought: Vec<Wanted>,
}

/// The end of the run is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HasEnded;

impl OpenRuns {
    /// Adds an event of a run. Returns all that is known of the run: engines name inputs in its first event
    /// or in later ones, and the run of a DAG says which of its tasks follow each other. Returns `None` if
    /// the run has ended.
    pub(super) fn add(&mut self, mut event: RunEvent, now: Instant) -> Option<RunEvent> {
        if self.ended.contains_key(&event.run) {
            return None;
        }
        let parents = event.parents.iter().filter_map(|parent| self.runs.get(parent));
        let edges: Vec<_> = parents
            .flat_map(|parent| parent.event.edges.iter().cloned())
            .collect();
        extend(&mut event.edges, edges);
        let Some(run) = self.runs.get_mut(&event.run) else {
            self.make_room();
            let run = OpenRun {
                seen: now,
                event: event.clone(),
                brought: Vec::new(),
            };
            self.runs.insert(event.run.clone(), run);
            return Some(event);
        };
        run.seen = now;
        let known = &mut run.event;
        known.at_ms = known.at_ms.min(event.at_ms);
        Input::merge(&mut known.inputs, event.inputs);
        extend(&mut known.outputs, event.outputs);
        extend(&mut known.edges, event.edges);
        extend(&mut known.parts, event.parts);
        if known.parents.is_empty() {
            known.parents = event.parents;
        }
        known.parent_job = known.parent_job.take().or(event.parent_job);
        known.deadline_ms = event.deadline_ms.or(known.deadline_ms);
        known.priority = known.priority.max(event.priority);
        known.expected_bytes = known.expected_bytes.max(event.expected_bytes);
        extend(&mut known.short_lived, event.short_lived);
        known.submit_ms = event.submit_ms.or(known.submit_ms);
        if !event.stages.is_empty() {
            known.stages = event.stages;
        }
        Some(known.clone())
    }

    /// Removes a run that has ended. Returns what was known of it, or an error if its end is known: Spark
    /// sends a COMPLETE after a FAIL.
    pub(super) fn end(&mut self, run: &str, is_complete: bool) -> Result<Option<RunEvent>, HasEnded> {
        if self.ended.contains_key(run) {
            return Err(HasEnded);
        }
        self.ended.insert(run.to_owned(), is_complete);
        self.endings.push_back(run.to_owned());
        if self.endings.len() > RUNS_MAX
            && let Some(oldest) = self.endings.pop_front()
        {
            self.ended.remove(&oldest);
        }
        Ok(self.runs.remove(run).map(|run| run.event))
    }

    /// Notes a reader whose inputs are brought for a run.
    pub(super) fn brought(&mut self, run: &str, wanted: Wanted) {
        if let Some(run) = self.runs.get_mut(run)
            && run.brought.len() < BROUGHT_MAX
        {
            run.brought.push(wanted);
        }
    }

    /// Returns true if these inputs are brought for the run already.
    pub(super) fn has_brought(&self, run: &str, wanted: &Wanted) -> bool {
        let run = self.runs.get(run);
        run.is_some_and(|run| run.brought.contains(wanted))
    }

    /// Returns true if a hint has nothing left to keep objects for: its run has ended, and the hint is for
    /// that run itself or the run failed; or a run around it has ended.
    pub(super) fn ends(&self, hint: &HintFacts) -> bool {
        let of_run = self.ended.get(&hint.run);
        let is_of_run = of_run.is_some_and(|is_complete| !hint.is_behind || !is_complete);
        is_of_run || hint.parents.iter().any(|parent| self.ended.contains_key(parent))
    }

    fn make_room(&mut self) {
        if self.runs.len() < RUNS_MAX {
            return;
        }
        let oldest = self.runs.iter().min_by_key(|(_, run)| run.seen);
        if let Some(oldest) = oldest.map(|(run, _)| run.clone()) {
            self.runs.remove(&oldest);
        }
    }
}

/// Adds the items that are not there.
fn extend<T: Ord>(all: &mut Vec<T>, more: Vec<T>) {
    all.extend(more);
    all.sort_unstable();
    all.dedup();
    all.truncate(ITEMS_MAX);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_hints::{Event, RunEvent};
    use shoal_net::clock;

    use super::{HasEnded, OpenRuns, RUNS_MAX};

    fn event(run: u32, input: &str) -> RunEvent {
        let json = format!(
            r#"{{"eventType":"START","eventTime":"2026-11-29T10:00:00Z",
                "run":{{"runId":"00000000-0000-4000-8000-{run:012x}"}},"job":{{"namespace":"n","name":"j"}},
                "inputs":[{{"namespace":"s3://b","name":"{input}"}}]}}"#
        );
        match Event::parse(json.as_bytes(), &[]).unwrap() {
            Event::Run(event) => *event,
            Event::Other => unreachable!("it has a run"),
        }
    }

    #[test]
    fn events_of_a_run_add_up_and_the_longest_silent_run_makes_room() {
        let (mut open, now) = (OpenRuns::default(), clock::instant());
        open.add(event(0, "x"), now);
        let all = open.add(event(0, "y"), now + Duration::from_secs(9));
        assert_eq!(all.as_ref().unwrap().inputs.len(), 2);
        for run in 1..=RUNS_MAX as u32 {
            open.add(
                event(run, "x"),
                now + Duration::from_secs(1) + Duration::from_millis(run.into()),
            );
        }
        assert_eq!(open.runs.len(), RUNS_MAX);
        assert_eq!(
            open.end(&event(1, "x").run, true),
            Ok(None),
            "it had no news for the longest time"
        );
        assert_eq!(open.end(&event(0, "x").run, true), Ok(all));
        assert_eq!(open.end(&event(0, "x").run, true), Err(HasEnded));
        assert!(
            open.add(event(0, "x"), now).is_none(),
            "an event that comes again opens no run"
        );
    }
}
