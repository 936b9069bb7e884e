//! Messages between nodes, for the metrics and `/status`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use shoal_policy::eviction::c2p::EventKind;

use super::{Observer, by_word};
use crate::messages::MessageFigures;
use crate::metrics::MessageMetrics;

impl Observer {
    /// Adds the increase since `last` to the metrics.
    pub(super) fn measure_messages(&self, metrics: &MessageMetrics, last: &mut MessageFigures) {
        let now = self.messages.figures();
        for (place, (kind, outcome, total)) in now.messages.iter().enumerate() {
            let before = last.messages.get(place).map_or(0, |(.., before)| *before);
            metrics.messages(kind.as_str(), outcome.as_str(), total - before);
        }
        for (place, (outcome, total)) in now.batches.iter().enumerate() {
            let before = last.batches.get(place).map_or(0, |(_, before)| *before);
            metrics.batches(outcome.as_str(), total - before);
        }
        metrics.bytes("sent", now.bytes_sent - last.bytes_sent);
        metrics.bytes("received", now.bytes_received - last.bytes_received);
        *last = now;
    }

    /// Returns the cache events since the start, for `/status`; `null` unless the store uses C2P.
    pub(super) fn events_page(&self) -> Value {
        let Some(events) = &self.events else {
            return Value::Null;
        };
        let figures = events.figures();
        json!({
            "sent": by_word(&figures.sent, EventKind::as_str),
            "received": by_word(&figures.received, EventKind::as_str),
            "rejected": figures.rejected,
        })
    }

    /// Returns the messages since the start, for `/status`.
    pub(super) fn messages_page(&self) -> Value {
        let figures = self.messages.figures();
        let mut kinds = BTreeMap::<_, BTreeMap<_, _>>::new();
        for (kind, outcome, total) in &figures.messages {
            kinds
                .entry(kind.as_str())
                .or_default()
                .insert(outcome.as_str(), *total);
        }
        let batches = figures.batches.iter();
        let batches: BTreeMap<_, _> = batches
            .map(|(outcome, total)| (outcome.as_str(), *total))
            .collect();
        json!({
            "kinds": kinds,
            "batches": batches,
            "bytes_sent": figures.bytes_sent,
            "bytes_received": figures.bytes_received,
        })
    }
}
