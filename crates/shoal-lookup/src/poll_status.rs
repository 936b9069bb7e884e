//! The outcome of polling a configured node, for operators. Time is an argument.

use std::time::{Duration, Instant};

/// The state of polling one node.
#[derive(Debug)]
pub struct PolledNode {
    /// The node's admin URL.
    pub url: String,
    /// True if the node answered the last poll.
    pub answers: bool,
    /// When the node last answered, or the start if it never has.
    answered_at: Instant,
}

impl PolledNode {
    /// Starts at `now` with a node that has not been polled.
    pub fn new(url: String, now: Instant) -> Self {
        Self {
            url,
            answers: false,
            answered_at: now,
        }
    }

    /// Records a poll at `now`; `answered` is true if the node has answered.
    pub fn asked(&mut self, answered: bool, now: Instant) {
        self.answers = answered;
        if answered {
            self.answered_at = now;
        }
    }

    /// Returns the time since the node last answered, or since the start if it never has.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.answered_at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_net::clock;

    use super::PolledNode;

    #[test]
    fn an_answer_of_a_node_ages_until_the_next_one() {
        let start = clock::instant();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut node = PolledNode::new("a".into(), start);
        let state = |node: &PolledNode, seconds| (node.answers, node.age(after(seconds)).as_secs());
        assert_eq!(state(&node, 3), (false, 3));
        node.asked(true, after(4));
        assert_eq!(state(&node, 6), (true, 2));
        node.asked(false, after(7));
        assert_eq!(state(&node, 9), (false, 5));
    }
}
