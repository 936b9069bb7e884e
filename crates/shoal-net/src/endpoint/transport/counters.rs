//! Counts requests to an endpoint, its responses and failures, for metrics and `/status`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;

use crate::endpoint::Failure;
use crate::endpoint::request::RequestClass;
use crate::metrics::Tally;
use crate::metrics::histogram::{DurationHistogram, HistogramSnapshot};

/// The counters of an endpoint since the node started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Requests sent, by operation, including retries.
    pub requests: BTreeMap<&'static str, u64>,
    /// Responses, by operation and by status. Less common statuses are counted by their class.
    pub answers: BTreeMap<(&'static str, &'static str), u64>,
    /// Requests and bodies that failed, by kind of failure.
    pub failures: BTreeMap<&'static str, u64>,
    /// Time to the first byte of responses: to reads, to writes, and to requests for which the endpoint moves
    /// data itself.
    pub first_byte: [(&'static str, HistogramSnapshot); RequestClass::ALL.len()],
    /// The number of `requests` that repeated an earlier one.
    pub retries: u64,
    /// Bodies that broke off and were resumed.
    pub resumes: u64,
    /// Bytes of response bodies.
    pub bytes_received: u64,
    /// Connections that were opened.
    pub connections: u64,
}

#[derive(Debug, Default)]
pub(in crate::endpoint) struct Counters {
    requests: Tally<&'static str>,
    answers: Tally<(&'static str, &'static str)>,
    failures: Tally<&'static str>,
    first_byte: [DurationHistogram; RequestClass::ALL.len()],
    retries: AtomicU64,
    resumes: AtomicU64,
    bytes_received: AtomicU64,
    connections: AtomicU64,
}

impl Counters {
    pub(in crate::endpoint) fn request(&self, operation: &'static str) {
        self.requests.count(operation);
    }

    /// Counts a response head that arrived after `elapsed`.
    pub(in crate::endpoint) fn answer(
        &self,
        operation: &'static str,
        class: RequestClass,
        status: StatusCode,
        elapsed: Duration,
    ) {
        self.first_byte[class as usize].observe(elapsed);
        self.answers.count((operation, word_of(status)));
    }

    /// Counts a request or a body that failed.
    pub(in crate::endpoint) fn failure(&self, failure: Failure) {
        self.failures.count(failure.as_str());
    }

    pub(in crate::endpoint) fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::endpoint) fn resume(&self) {
        self.resumes.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::endpoint) fn received(&self, bytes: usize) {
        self.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(in crate::endpoint) fn connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::endpoint) fn snapshot(&self) -> EndpointCounts {
        EndpointCounts {
            requests: self.requests.counts(),
            answers: self.answers.counts(),
            failures: self.failures.counts(),
            first_byte: RequestClass::ALL
                .map(|class| (class.as_str(), self.first_byte[class as usize].distribution())),
            retries: self.retries.load(Ordering::Relaxed),
            resumes: self.resumes.load(Ordering::Relaxed),
            bytes_received: self.bytes_received.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }
}

/// Returns the label of a status: a common one itself, or else its class, because a store may return any
/// number of different ones.
fn word_of(status: StatusCode) -> &'static str {
    const COMMON: [(u16, &str); 14] = [
        (304, "304"),
        (400, "400"),
        (401, "401"),
        (403, "403"),
        (404, "404"),
        (409, "409"),
        (412, "412"),
        (416, "416"),
        (429, "429"),
        (500, "500"),
        (501, "501"),
        (502, "502"),
        (503, "503"),
        (504, "504"),
    ];
    let status = status.as_u16();
    let common = COMMON.iter().find(|(common, _)| *common == status);
    common.map_or_else(
        || match status / 100 {
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        },
        |(_, word)| word,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::{Counters, RequestClass};

    fn answered(counters: &Counters, status: u16) {
        let status = StatusCode::from_u16(status).unwrap();
        counters.answer("get_object", RequestClass::Read, status, Duration::from_millis(1));
    }

    #[test]
    fn statuses_that_a_store_invents_share_the_word_of_their_class() {
        let counters = Counters::default();
        for status in [200, 206, 299, 404, 418, 451, 503, 599, 700] {
            answered(&counters, status);
        }
        let answers = counters.snapshot().answers;
        let words: Vec<_> = answers.iter().map(|((_, word), count)| (*word, *count)).collect();
        assert_eq!(
            words,
            [("2xx", 3), ("404", 1), ("4xx", 2), ("503", 1), ("5xx", 2)]
        );
    }
}
