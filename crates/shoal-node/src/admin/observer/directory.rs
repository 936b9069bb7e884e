//! The block directory, for the metrics and `/status`.

use serde_json::{Map, Value, json};
use shoal_directory::guard::{Counts, Kind};
use shoal_policy::NodeId;
use shoal_policy::eviction::gwf::Weight;

use super::Observer;
use crate::coherence::{CoherenceFigures, Look};
use crate::directory::EMBEDDED;
use crate::gwf::{GwfFigures, PushOutcome};
use crate::metrics::DirectoryMetrics;

/// Totals already added to the metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct LastReported {
    requests: [Counts; Kind::ALL.len()],
    kept: u64,
    pushes: [u64; PushOutcome::ALL.len()],
    coherent_looks: [u64; Look::ALL.len()],
    coherent_waits: u64,
}

impl Observer {
    /// Adds the requests to the directory since `last_reported` to the metrics.
    pub(super) fn measure_directory(&self, metrics: &DirectoryMetrics, last_reported: &mut LastReported) {
        let Some(directory) = &self.directory else { return };
        for ((kind, now), before) in directory.counts().into_iter().zip(&mut last_reported.requests) {
            let kind = kind.as_str();
            metrics.requests(kind, "answered", now.answered - before.answered);
            metrics.requests(kind, "silent", now.silent - before.silent);
            metrics.requests(kind, "held-back", now.held_back - before.held_back);
            metrics.answered_within(kind, now.answer_time.saturating_sub(before.answer_time));
            *before = now;
        }
        metrics.set_answers(directory.answers());
        self.measure_coherence(metrics, last_reported);
        let Some(keeper) = &self.keeper else { return };
        let figures = keeper.figures();
        metrics.kept(figures.kept - last_reported.kept);
        last_reported.kept = figures.kept;
        for ((outcome, now), before) in figures.pushes.into_iter().zip(&mut last_reported.pushes) {
            metrics.pushes(outcome.as_str(), now - *before);
            *before = now;
        }
        let [age, average] = ranks(&figures);
        metrics.set_ranks(age, average);
    }

    fn measure_coherence(&self, metrics: &DirectoryMetrics, last_reported: &mut LastReported) {
        let Some(coherence) = &self.coherence else { return };
        let figures = coherence.figures();
        for ((look, now), before) in figures.looks.into_iter().zip(&mut last_reported.coherent_looks) {
            metrics.coherent_looks(look.as_str(), now - *before);
            *before = now;
        }
        metrics.coherent_waits(figures.waits - last_reported.coherent_waits);
        last_reported.coherent_waits = figures.waits;
        metrics.set_coherent(figures.attached, figures.under_way as u64);
    }

    /// Returns the directory part of `/status`; `null` without a directory.
    pub(super) fn directory_page(&self) -> Value {
        let Some(directory) = &self.directory else {
            return Value::Null;
        };
        let is_embedded = self.config.directory_url == EMBEDDED;
        let counts = directory.counts().into_iter();
        let requests: Map<_, _> = counts
            .map(|(kind, counts)| (kind.as_str().into(), page(counts)))
            .collect();
        json!({
            "kind": if is_embedded { EMBEDDED } else { "redis" },
            "answers": directory.answers(),
            "requests": requests,
            "gwf": self.keeper.as_ref().map(|keeper| gwf_page(&keeper.figures())),
            "coherent": self.coherence.as_ref().map(|coherence| self.coherent_page(&coherence.figures())),
        })
    }

    fn coherent_page(&self, figures: &CoherenceFigures) -> Value {
        let looks: Map<_, _> = figures
            .looks
            .iter()
            .map(|(look, count)| (look.as_str().into(), json!(count)))
            .collect();
        let name = |node: &NodeId| {
            self.cooperation
                .name_of(*node)
                .unwrap_or_else(|| format!("{:016x}", node.0))
        };
        json!({
            "attached": figures.attached,
            "absent": figures.absent.iter().map(name).collect::<Vec<_>>(),
            "changes_under_way": figures.under_way,
            "waits": figures.waits,
            "looks": looks,
        })
    }
}

fn gwf_page(figures: &GwfFigures) -> Value {
    let [age, average_rank] = ranks(figures);
    let pushes: Map<_, _> = figures
        .pushes
        .iter()
        .map(|(outcome, count)| (outcome.as_str().into(), json!(count)))
        .collect();
    json!({
        "age": age,
        "average_rank": average_rank,
        "kept": figures.kept,
        "pushes": pushes,
        "pushes_under_way": figures.pushes_under_way,
    })
}

/// Returns the age and the average rank.
fn ranks(figures: &GwfFigures) -> [u64; 2] {
    [figures.ranks.age, figures.ranks.average].map(Weight::to_u64_saturating)
}

fn page(counts: Counts) -> Value {
    let answered = u32::try_from(counts.answered).unwrap_or(u32::MAX);
    let mean = counts.answer_time.checked_div(answered);
    json!({
        "answered": counts.answered,
        "silent": counts.silent,
        "held-back": counts.held_back,
        "mean_answer_ms": mean.map(|mean| mean.as_secs_f64() * 1e3),
    })
}
