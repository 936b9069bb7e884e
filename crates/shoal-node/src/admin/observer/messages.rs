//! Messages between nodes, for `/status`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use shoal_policy::eviction::c2p::EventKind;

use super::{Observer, by_word};
use crate::ahead::AheadOutcome;

impl Observer {
    /// Returns the cache events since the start, for `/status`; `null` unless the store uses C2P.
    pub(super) fn events_page(&self) -> Value {
        let Some(events) = &self.events else {
            return Value::Null;
        };
        let figures = events.figures();
        json!({
            "told": by_word(&figures.told, EventKind::as_str),
            "heard": by_word(&figures.heard, EventKind::as_str),
            "disbelieved": figures.disbelieved,
            "fetched_ahead": self.fetch_ahead.as_ref().map(|ahead| by_word(&ahead.counts(), AheadOutcome::as_str)),
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
