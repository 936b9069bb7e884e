//! The metrics of the name server and their names.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use shoal_node::admin::members::MemberState;
use shoal_node::metrics::MetricRegistry;

use super::poll_status::PollState;
use super::rate_limit::Allowance;
use super::responder::Transport;

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuestionLabels {
    transport: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    allowance: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabel {
    node: String,
}

/// All metrics of one name server.
#[derive(Debug)]
pub struct LookupMetrics {
    registry: Registry,
    questions: Family<QuestionLabels, Counter>,
    limited: Family<LimitLabel, Counter>,
    living: Family<StateLabel, Gauge>,
    answers: Family<NodeLabel, Gauge>,
    age_seconds: Family<NodeLabel, Seconds>,
}

impl Default for LookupMetrics {
    fn default() -> Self {
        let mut names = MetricRegistry::default();
        Self {
            questions: names.metric(
                "lookup_questions",
                "Messages received, by transport and response code; \"none\": without an answer.",
            ),
            limited: names.metric(
                "lookup_limited",
                "Datagrams of networks above 200 answers a second: sent to TCP, or not answered.",
            ),
            living: names.metric("lookup_nodes", "Nodes considered alive, by state."),
            answers: names.metric(
                "lookup_polled_up",
                "Whether a node of [lookup] nodes answered the latest poll with its members.",
            ),
            age_seconds: names.metric(
                "lookup_polled_age_seconds",
                "Seconds since a node of [lookup] nodes last answered with its members; since the start if it never has.",
            ),
            registry: names.into_registry(),
        }
    }
}

impl LookupMetrics {
    /// Counts a message by the code of its answer; `None` if it was not answered.
    pub fn answered(&self, transport: Transport, code: Option<ResponseCode>) {
        let transport = match transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        };
        let code = code.map_or("none", word);
        self.questions
            .get_or_create(&QuestionLabels { transport, code })
            .inc();
    }

    /// Counts how an answer over UDP was sent.
    pub(super) fn allowed(&self, allowance: Allowance) {
        let allowance = match allowance {
            Allowance::Whole => return,
            Allowance::Truncated => "truncated",
            Allowance::Silence => "none",
        };
        self.limited.get_or_create(&LimitLabel { allowance }).inc();
    }

    /// Renders all metrics in the text format of `OpenMetrics`, with the states of living and polled nodes.
    pub fn render(&self, living: &[MemberState], poll_status: &[PollState]) -> String {
        for (state, word) in [
            (MemberState::Serving, "serving"),
            (MemberState::Draining, "draining"),
        ] {
            let count = living.iter().filter(|living| **living == state).count();
            let living = self.living.get_or_create(&StateLabel { state: word });
            living.set(i64::try_from(count).expect("nodes are few"));
        }
        for PollState { url, answers, age } in poll_status {
            let node = NodeLabel { node: url.clone() };
            self.answers.get_or_create(&node).set(i64::from(*answers));
            self.age_seconds.get_or_create(&node).set(seconds(*age));
        }
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}

/// Rounds to tenths, enough for nodes that are polled each second.
fn seconds(age: Duration) -> f64 {
    (age.as_secs_f64() * 10.0).round() / 10.0
}

/// The code as `dig` shows it.
fn word(code: ResponseCode) -> &'static str {
    match code {
        ResponseCode::NoError => "NOERROR",
        ResponseCode::FormErr => "FORMERR",
        ResponseCode::ServFail => "SERVFAIL",
        ResponseCode::NXDomain => "NXDOMAIN",
        ResponseCode::NotImp => "NOTIMP",
        ResponseCode::Refused => "REFUSED",
        ResponseCode::BADVERS => "BADVERS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hickory_proto::op::ResponseCode;
    use shoal_node::admin::members::MemberState;

    use super::LookupMetrics;
    use crate::poll_status::PollState;
    use crate::responder::Transport;

    #[test]
    fn questions_are_counted_by_their_answers_and_nodes_by_how_they_stand() {
        let metrics = LookupMetrics::default();
        metrics.answered(Transport::Udp, Some(ResponseCode::NoError));
        metrics.answered(Transport::Udp, Some(ResponseCode::NoError));
        metrics.answered(Transport::Tcp, Some(ResponseCode::NXDomain));
        metrics.answered(Transport::Udp, None);
        let state = PollState {
            url: "http://10.0.0.1:9100".into(),
            answers: true,
            age: Duration::from_millis(1_260),
        };
        let text = metrics.render(&[MemberState::Serving; 2], &[state]);
        for line in [
            "shoal_lookup_questions_total{transport=\"udp\",code=\"NOERROR\"} 2",
            "shoal_lookup_questions_total{transport=\"tcp\",code=\"NXDOMAIN\"} 1",
            "shoal_lookup_questions_total{transport=\"udp\",code=\"none\"} 1",
            "shoal_lookup_nodes{state=\"serving\"} 2",
            "shoal_lookup_nodes{state=\"draining\"} 0",
            "shoal_lookup_polled_up{node=\"http://10.0.0.1:9100\"} 1",
            "shoal_lookup_polled_age_seconds{node=\"http://10.0.0.1:9100\"} 1.3",
        ] {
            assert!(text.lines().any(|said| said == line), "{line}\n{text}");
        }
    }
}
