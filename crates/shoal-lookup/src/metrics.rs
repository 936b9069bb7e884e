//! The metrics of the name server and their names.

use std::collections::BTreeMap;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use shoal_net::metrics::{Tally, each, render};
use shoal_net::observed;
use shoal_node::admin::members::MemberState;

use super::answer::responder::Transport;
use super::poll_status::PollState;
use super::rate_limit::Allowance;

/// Counts of one name server.
#[derive(Debug, Default)]
pub struct LookupMetrics {
    /// Messages by transport and code.
    questions: Tally<[&'static str; 2]>,
    limited: Tally<&'static str>,
}

/// The figures of a name server at one moment.
pub struct Figures {
    questions: BTreeMap<[&'static str; 2], u64>,
    limited: BTreeMap<&'static str, u64>,
    living: [(&'static str, usize); 2],
    polled: Vec<PollState>,
}

observed! {
    /// Every metric of a name server.
    TABLE of Figures:
    Counter lookup_questions{transport, code}
        "Messages received, by transport and response code; \"none\": without an answer."
        => |figures| each(figures.questions.clone());
    Counter lookup_limited{allowance}
        "Datagrams of networks above 200 answers a second: sent to TCP, or not answered."
        => |figures| each(figures.limited.clone());
    Gauge lookup_nodes{state} "Nodes considered alive, by state." => |figures| each(figures.living);
    Gauge lookup_polled_up{node} "Whether a node of [lookup] nodes answered the latest poll with its members."
        => |figures| each(figures.polled.iter().map(|node| (&*node.url, node.answers)));
    Gauge lookup_polled_age_seconds{node}
        "Seconds since a node of [lookup] nodes last answered with its members; since the start if it never has."
        => |figures| each(figures.polled.iter().map(|node| (&*node.url, seconds(node.age))));
}

impl LookupMetrics {
    /// Counts a message by the code of its answer; `None` if it was not answered.
    pub fn answered(&self, transport: Transport, code: Option<ResponseCode>) {
        let code = code.map_or("none", word);
        self.questions.count([transport.as_str(), code]);
    }

    /// Counts how an answer over UDP was sent.
    pub(super) fn allowed(&self, allowance: Allowance) {
        if allowance != Allowance::Whole {
            self.limited.count(allowance.as_str());
        }
    }

    /// Renders all metrics in the text format of `OpenMetrics`, with the states of living and polled nodes.
    pub fn render(&self, living: &[MemberState], polled: Vec<PollState>) -> String {
        let count = |state| living.iter().filter(|living| **living == state).count();
        let figures = Figures {
            questions: self.questions.counts(),
            limited: self.limited.counts(),
            living: [
                ("serving", count(MemberState::Serving)),
                ("draining", count(MemberState::Draining)),
            ],
            polled,
        };
        render(TABLE, figures)
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

    use super::{LookupMetrics, TABLE};
    use crate::answer::responder::Transport;
    use crate::poll_status::PollState;

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
        let text = metrics.render(&[MemberState::Serving; 2], vec![state]);
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
    #[test]
    fn the_reference_lists_every_metric_with_its_labels_and_no_other() {
        const REFERENCE: &str = include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/metrics.md"
        ));
        let (_, own) = REFERENCE.split_once("\n## Name server").unwrap();
        let listed: Vec<_> = own
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .collect();
        let known: Vec<_> = TABLE.iter().map(shoal_net::metrics::Observed::series).collect();
        assert_eq!(listed, known);
    }
}
