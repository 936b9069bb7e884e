//! `/history`: the counters of the last hour, so that a console that is opened now shows how it came to this.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_net::clock;
use shoal_net::shutdown::Shutdown;
use shoal_s3::operation::Query;

use super::observer::Observer;

/// The time between two samples, and their number: an hour.
const EVERY: Duration = Duration::from_secs(10);
const SAMPLES: usize = 360;

/// Samples of a node's counters, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    samples: Mutex<VecDeque<Sample>>,
}

/// The counters at a moment.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    /// Unix time in seconds.
    at: u64,
    /// In the order of the names.
    values: Vec<u64>,
}

/// The page `/history`. The names of the values are those of the metrics without `shoal_` and `_total`, with
/// the values of their labels behind slashes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// Seconds between two samples.
    pub every_seconds: u64,
    /// The names of the values.
    pub names: Vec<String>,
    /// Unix time in seconds, and then the values.
    pub rows: Vec<Vec<u64>>,
}

impl History {
    /// Samples the node's counters until the node stops.
    pub(crate) async fn run(node: Arc<Observer>, stopping: Shutdown) {
        for number in 1_usize.. {
            node.history.record(&node);
            if number.is_multiple_of(SAMPLES) {
                node.core.metrics.age();
            }
            tokio::select! {
                () = stopping.begun() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    fn record(&self, node: &Arc<Observer>) {
        let values = Arc::clone(node).samples();
        let mut samples = self.samples.lock();
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(Sample {
            at: clock::utc_now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
            values: values.into_iter().map(|(_, value)| value).collect(),
        });
    }

    /// Returns the samples after the time in the query, `since=SECONDS`; all of them without one.
    pub(super) fn page(&self, names: Vec<String>, query: &str) -> HistoryPage {
        let since = Query::parse(Some(query)).ok();
        let since = since.and_then(|query| query.get("since")?.parse().ok());
        let samples = self.samples.lock();
        let recent = samples.iter().filter(|sample| Some(sample.at) > since);
        HistoryPage {
            every_seconds: EVERY.as_secs(),
            names,
            rows: recent
                .map(|sample| [&[sample.at], &*sample.values].concat())
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{History, HistoryPage, Sample};

    #[test]
    fn a_page_has_the_samples_after_a_time() {
        let history = History::default();
        let sample = |at| Sample {
            at,
            values: vec![at * 10],
        };
        history.samples.lock().extend([sample(1), sample(2), sample(3)]);
        let rows = |query: &str| history.page(vec!["requests".into()], query).rows;
        assert_eq!(rows("since=1"), [[2, 20], [3, 30]]);
        for all in ["", "since=", "since=yesterday"] {
            assert_eq!(rows(all).len(), 3, "{all:?}");
        }
        assert_eq!(HistoryPage::default().rows, Vec::<Vec<u64>>::new());
    }
}
