//! Recurring jobs: what the runs of a job have in common, and when the next run is due.

pub mod deadline;
mod grouping;
pub mod inputs;
pub mod schedule;
pub(crate) mod words;

use self::deadline::{Deadline, consumers, deadline};
use self::grouping::{Features, JobNames, groups};
pub(crate) use self::grouping::{features, likeness};
use self::inputs::{InputModel, Occurrence, learn};
use self::schedule::{Hit, Schedule, detect};
use crate::moment::Moment;
use crate::path::Paths;
use crate::run::{History, StoredRun};
use crate::stats::Spread;

/// The common properties of the runs of one job.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Name of the job, without dates and ids.
    pub(crate) name: String,
    /// Inputs of its runs, apart from dates, ids and numbers.
    pub(crate) features: Features,
    /// Number of runs that it was learned from.
    pub(crate) runs: usize,
    /// When it runs; `None` if its runs are too few or follow no schedule, or if it no longer runs.
    pub(crate) schedule: Option<Schedule>,
    /// A typical run at each slot of the schedule.
    pub(crate) slots: Vec<SlotModel>,
}

/// A typical run at one slot of a schedule.
#[derive(Clone, Debug)]
pub(crate) struct SlotModel {
    pub(crate) inputs: Vec<InputModel>,
    pub(crate) duration_ms: Option<Spread>,
    pub(crate) deadline: Deadline,
}

/// The jobs of a history.
#[derive(Clone, Debug)]
pub struct Templates {
    pub(crate) names: JobNames,
    pub(crate) paths: Paths,
    pub(crate) list: Vec<Template>,
}

impl Templates {
    /// Learns from the whole history.
    pub fn learn(history: &History) -> Self {
        let until = history.span().map(|(_, end)| end).unwrap_or_default();
        let paths = Paths::new(&history.paths);
        Self::learn_until(history, paths, until.plus_ms(1))
    }

    /// Learns from the runs submitted before `until`, as if there were no later ones.
    pub(crate) fn learn_until(history: &History, paths: Paths, until: Moment) -> Self {
        debug_assert!(
            history.runs.is_sorted_by_key(|run| run.submitted),
            "a history is in order"
        );
        let known = history.runs.partition_point(|run| run.submitted < until);
        let numbers: Vec<usize> = (0..known).collect();
        let names = JobNames::learn(history, &numbers);
        let consumers = consumers(history, &paths, &numbers);
        let list = groups(history, &paths, &names, &numbers)
            .into_iter()
            .map(|group| {
                let times: Vec<Moment> = group
                    .runs
                    .iter()
                    .map(|&run| history.runs[run].submitted)
                    .collect();
                let schedule = detect(&times, until);
                let of = |slot: &[Hit]| slot_model(history, &paths, &group.runs, slot, &consumers, until);
                let slots = schedule.iter().flat_map(|schedule| &schedule.slots);
                Template {
                    slots: slots.map(|slot| of(&slot.hits)).collect(),
                    name: group.name,
                    features: group.features,
                    runs: group.runs.len(),
                    schedule,
                }
            })
            .collect();
        Self { names, paths, list }
    }
}

fn slot_model(
    history: &History,
    paths: &Paths,
    runs: &[usize],
    hits: &[Hit],
    consumers: &deadline::Consumers,
    until: Moment,
) -> SlotModel {
    let of = |hit: &Hit| -> (usize, &StoredRun) { (runs[hit.run], &history.runs[runs[hit.run]]) };
    // The inputs of a run are unknown until it has ended.
    let has_ended = |hit: &&Hit| of(hit).1.ended.is_none_or(|ended| ended <= until);
    let hits: Vec<Hit> = hits.iter().filter(has_ended).copied().collect();
    let occurrences: Vec<_> = hits
        .iter()
        .map(|hit| Occurrence {
            due: hit.due,
            run: of(hit).1,
        })
        .collect();
    let durations: Vec<u64> = occurrences
        .iter()
        .filter_map(|occurrence| u64::try_from(occurrence.run.duration_ms()?).ok())
        .collect();
    SlotModel {
        inputs: learn(&occurrences, paths),
        duration_ms: Spread::from_values(&durations),
        deadline: deadline(hits.iter().map(of), consumers),
    }
}

#[cfg(test)]
mod tests {
    use super::Templates;
    use crate::read::Reader;

    #[test]
    fn no_template_is_learned_from_nothing() {
        let empty = Reader::default().finish().unwrap();
        assert!(Templates::learn(&empty).list.is_empty());
    }
}
