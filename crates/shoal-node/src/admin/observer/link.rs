//! The metered link to the lake, for the metrics and `/status`.

use serde_json::{Map, Value, json};
use shoal_policy::link::{Class, Direction};

use super::Observer;
use crate::link::{ClassFigures, LaneFigures};
use crate::metrics::{LinkMetrics, TransferFigures};

/// Totals already added to the metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct LastReported {
    classes: [[ClassFigures; Class::ALL.len()]; 2],
    promised_bytes: [u64; 2],
}

impl Observer {
    /// Adds the transfers since `last_reported` to the metrics.
    pub(super) fn measure_link(&self, metrics: &LinkMetrics, last_reported: &mut LastReported) {
        let Some(link) = self.lake.link() else { return };
        let figures = link.figures();
        metrics.set_bandwidth(figures.bandwidth);
        let lanes = figures.lanes.into_iter().zip(&mut last_reported.classes);
        for (((direction, lane), before), promised_before) in lanes.zip(&mut last_reported.promised_bytes) {
            metrics.set_share(direction.as_str(), lane.share);
            metrics.promised(lane.promised_bytes - *promised_before);
            *promised_before = lane.promised_bytes;
            for ((class, now), before) in lane.classes.into_iter().zip(before) {
                let growth = TransferFigures {
                    bytes: now.bytes - before.bytes,
                    waits: now.waits - before.waits,
                    waited: now.waited.saturating_sub(before.waited),
                    waiting: now.waiting as u64,
                    rate: now.rate,
                };
                metrics.transfers(direction.as_str(), class.as_str(), growth);
                *before = now;
            }
        }
    }

    /// Returns the link part of `/status`; `null` if the link is not metered.
    pub(super) fn link_page(&self) -> Value {
        let Some(link) = self.lake.link() else {
            return Value::Null;
        };
        let figures = link.figures();
        let [down, up] = figures.lanes.map(|(_, lane)| lane_page(&lane));
        json!({
            "bandwidth_bytes_per_second": figures.bandwidth,
            "scope": figures.scope.as_str(),
            "nodes": figures.nodes,
            (Direction::Down.as_str()): down,
            (Direction::Up.as_str()): up,
        })
    }
}

fn lane_page(lane: &LaneFigures) -> Value {
    let classes = lane.classes.iter().map(|(class, figures)| {
        let page = json!({
            "bytes": figures.bytes,
            "rate_bytes_per_second": figures.rate,
            "waiting": figures.waiting,
            "waits": figures.waits,
            "waited_ms": figures.waited.as_millis() as u64,
        });
        (class.as_str().to_owned(), page)
    });
    json!({
        "share_bytes_per_second": lane.share,
        "rate_bytes_per_second": lane.rate(),
        "classes": classes.collect::<Map<_, _>>(),
    })
}
