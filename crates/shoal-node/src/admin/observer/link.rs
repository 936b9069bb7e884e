//! The metered link to the lake, for `/status`.

use serde_json::{Map, Value, json};
use shoal_policy::link::Direction;

use super::Observer;
use crate::link::LaneFigures;

impl Observer {
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
