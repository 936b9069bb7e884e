//! The outcome of polling each configured node, for operators. Time is an argument.

use std::time::{Duration, Instant};

/// The polled nodes.
#[derive(Debug)]
pub struct PollStatus {
    nodes: Vec<PolledNode>,
}

#[derive(Debug)]
struct PolledNode {
    url: String,
    answers: bool,
    /// When the node last answered, or the start if it never has.
    answered_at: Instant,
}

/// The state of polling one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollState {
    /// The node's admin URL.
    pub url: String,
    /// True if the node answered the last poll.
    pub answers: bool,
    /// The time since the node last answered, or since the start if it never has.
    pub age: Duration,
}

impl PollStatus {
    /// Starts at `now` with nodes that have not been polled.
    pub fn new(urls: impl Iterator<Item = String>, now: Instant) -> Self {
        let node = |url| PolledNode {
            url,
            answers: false,
            answered_at: now,
        };
        let nodes = urls.map(node).collect();
        Self { nodes }
    }

    /// Records at `now` whether the node at this index of the configuration has answered.
    pub fn asked(&mut self, place: usize, answered: bool, now: Instant) {
        let node = self.nodes.get_mut(place).expect("each poller has a place");
        node.answers = answered;
        if answered {
            node.answered_at = now;
        }
    }

    /// The state of each node, in the order of the configuration.
    pub fn states(&self, now: Instant) -> Vec<PollState> {
        let state = |node: &PolledNode| PollState {
            url: node.url.clone(),
            answers: node.answers,
            age: now.saturating_duration_since(node.answered_at),
        };
        self.nodes.iter().map(state).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_net::clock;

    use super::PollStatus;

    #[test]
    fn an_answer_of_a_node_ages_until_the_next_one() {
        let start = clock::instant();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut poll_status = PollStatus::new(["a", "b"].map(String::from).into_iter(), start);
        let states = |poll_status: &PollStatus, seconds| {
            let states = poll_status.states(after(seconds)).into_iter();
            states
                .map(|state| (state.url, state.answers, state.age.as_secs()))
                .collect::<Vec<_>>()
        };
        poll_status.asked(0, true, after(1));
        assert_eq!(
            states(&poll_status, 3),
            [("a".into(), true, 2), ("b".into(), false, 3)]
        );
        poll_status.asked(0, false, after(4));
        poll_status.asked(1, true, after(5));
        assert_eq!(
            states(&poll_status, 6),
            [("a".into(), false, 5), ("b".into(), true, 1)]
        );
    }
}
