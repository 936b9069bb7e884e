//! The block directory, for `/status`.

use serde_json::{Map, Value, json};
use shoal_directory::guard::Counts;
use shoal_policy::NodeId;
use shoal_policy::eviction::gwf::Weight;

use super::Observer;
use crate::coherence::CoherenceFigures;
use crate::directory::EMBEDDED;
use crate::gwf::GwfFigures;

impl Observer {
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
pub(super) fn ranks(figures: &GwfFigures) -> [u64; 2] {
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
