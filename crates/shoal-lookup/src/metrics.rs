//! The metrics of the name server and their names.

use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use shoal_net::metrics::{Tally, each};
use shoal_net::{clock, observed};
use shoal_node::admin::members::MemberState;

use super::Shared;
use super::answer::responder::Transport;
use super::poll_status::PolledNode;
use super::rate_limit::Allowance;

/// Counts of one name server.
#[derive(Debug, Default)]
pub struct LookupMetrics {
    /// Messages by transport and code.
    questions: Tally<[&'static str; 2]>,
    limited: Tally<&'static str>,
}

observed! {
    /// Every metric of a name server.
    TABLE of Arc<Shared>:
    Counter lookup_questions{transport, code}
        "Messages received, by transport and response code; \"none\": without an answer."
        => |shared| each(shared.metrics.questions.counts());
    Counter lookup_limited{allowance}
        "Datagrams of networks above 200 answers a second: sent to TCP, or not answered."
        => |shared| each(shared.metrics.limited.counts());
    Gauge lookup_nodes{state} "Nodes considered alive, by state." => |shared| each(living(shared));
    Gauge lookup_polled_up{node} "Whether a node of [lookup] nodes answered the latest poll with its members."
        => |shared| each(shared.polled.lock().iter().map(|node| (&*node.url, node.answers)));
    Gauge lookup_polled_age_seconds{node}
        "Seconds since a node of [lookup] nodes last answered with its members; since the start if it never has."
        => |shared| each(shared.polled.lock().iter().map(|node| (&*node.url, silent_seconds(node))));
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
}

/// Returns the number of living nodes in each state.
fn living(shared: &Shared) -> impl Iterator<Item = (&'static str, usize)> {
    let live = shared.live();
    [MemberState::Serving, MemberState::Draining]
        .into_iter()
        .map(move |state| {
            let in_state = live.iter().filter(|live| live.member.state == state);
            (state.as_str(), in_state.count())
        })
}

fn silent_seconds(node: &PolledNode) -> f64 {
    seconds(node.age(clock::instant()))
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
    use std::sync::Arc;
    use std::time::Duration;

    use hickory_proto::op::ResponseCode;
    use shoal_net::clock;
    use shoal_net::metrics::render;
    use shoal_node::admin::members::Members;
    use shoal_node::config::Lookup;

    use super::{TABLE, seconds};
    use crate::Shared;
    use crate::answer::responder::Transport;
    use crate::live_nodes::tests::member;

    #[test]
    fn questions_are_counted_by_their_answers_and_nodes_by_how_they_stand() {
        let config = Lookup {
            name: Some("s3.example.org".into()),
            nodes: vec!["http://10.0.0.1:9100".into()],
            ..Lookup::default()
        };
        let shared = Arc::new(Shared::new(&config).unwrap());
        let metrics = &shared.metrics;
        metrics.answered(Transport::Udp, Some(ResponseCode::NoError));
        metrics.answered(Transport::Udp, Some(ResponseCode::NoError));
        metrics.answered(Transport::Tcp, Some(ResponseCode::NXDomain));
        metrics.answered(Transport::Udp, None);
        let now = clock::instant();
        let asked_at = now.checked_sub(Duration::from_millis(1_260)).unwrap();
        shared.polled.lock()[0].asked(true, asked_at);
        let members = ["a1", "a2"].map(|name| member(name, "dc1", "10.0.0.1:9000"));
        let speaker = "a1".into();
        let members = members.to_vec();
        let answer = Members { speaker, members };
        shared
            .live_nodes
            .lock()
            .receive(answer, [10, 0, 0, 1].into(), now);
        let text = render(TABLE, Arc::clone(&shared));
        for line in [
            "shoal_lookup_questions_total{transport=\"udp\",code=\"NOERROR\"} 2",
            "shoal_lookup_questions_total{transport=\"tcp\",code=\"NXDOMAIN\"} 1",
            "shoal_lookup_questions_total{transport=\"udp\",code=\"none\"} 1",
            "shoal_lookup_nodes{state=\"serving\"} 2",
            "shoal_lookup_nodes{state=\"draining\"} 0",
            "shoal_lookup_polled_up{node=\"http://10.0.0.1:9100\"} 1",
        ] {
            assert!(text.lines().any(|said| said == line), "{line}\n{text}");
        }
        let age = "shoal_lookup_polled_age_seconds{node=\"http://10.0.0.1:9100\"} ";
        let age = text.lines().find_map(|line| line.strip_prefix(age)).unwrap();
        assert!(age.parse::<f64>().unwrap() >= 1.3, "{age}");
        assert!((seconds(Duration::from_millis(1_260)) - 1.3).abs() < f64::EPSILON);
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
