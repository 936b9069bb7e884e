//! Counts requests to an endpoint, its responses and failures, for metrics and `/status`.

use std::time::Duration;

use http::StatusCode;
use shoal_base::words::Count;

use crate::endpoint::Failure;
use crate::endpoint::request::RequestClass;
use crate::metrics::Tally;
use crate::metrics::histogram::{DurationHistogram, HistogramSnapshot};

/// The counters of an endpoint since the node started.
#[derive(Debug, Default)]
pub struct EndpointCounters {
    /// Requests sent, by operation, including retries.
    pub requests: Tally<&'static str>,
    /// Responses, by operation and by status. Less common statuses are counted by their class.
    pub answers: Tally<(&'static str, &'static str)>,
    /// Requests and bodies that failed, by kind of failure.
    pub failures: Tally<&'static str>,
    first_byte: [DurationHistogram; RequestClass::ALL.len()],
    /// The number of `requests` that repeated an earlier one.
    pub retries: Count,
    /// Bodies that broke off and were resumed.
    pub resumes: Count,
    /// Bytes of response bodies.
    pub bytes_received: Count,
    /// Connections that were opened.
    pub connections: Count,
}

impl EndpointCounters {
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

    /// Returns the times to the first byte of responses: to reads, to writes, and to requests for which the
    /// endpoint moves data itself.
    pub fn first_byte(&self) -> impl Iterator<Item = (&'static str, HistogramSnapshot)> {
        let classes = RequestClass::ALL.into_iter().zip(&self.first_byte);
        classes.map(|(class, times)| (class.as_str(), times.distribution()))
    }
}

/// Returns the label of a status: a common one itself, or else its class, because a store may return any
/// number of different ones.
fn word_of(status: StatusCode) -> &'static str {
    const COMMON: [&str; 14] = [
        "304", "400", "401", "403", "404", "409", "412", "416", "429", "500", "501", "502", "503", "504",
    ];
    let common = COMMON.into_iter().find(|word| *word == status.as_str());
    common.unwrap_or(match status.as_u16() / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::{EndpointCounters, RequestClass};

    fn answered(counters: &EndpointCounters, status: u16) {
        let status = StatusCode::from_u16(status).unwrap();
        counters.answer("get_object", RequestClass::Read, status, Duration::from_millis(1));
    }

    #[test]
    fn statuses_that_a_store_invents_share_the_word_of_their_class() {
        let counters = EndpointCounters::default();
        for status in [200, 206, 299, 404, 418, 451, 503, 599, 700] {
            answered(&counters, status);
        }
        let answers = counters.answers.counts();
        let words: Vec<_> = answers.iter().map(|((_, word), count)| (*word, *count)).collect();
        assert_eq!(
            words,
            [("2xx", 3), ("404", 1), ("4xx", 2), ("503", 1), ("5xx", 2)]
        );
    }
}
