//! The nodes of the cluster, as a task asks them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use shoal_cache::cooperation::Cooperation;
use shoal_net::pauses::Pauses;
use shoal_policy::{NodeId, ObjectId};

use super::helper::TaskHelper;
use super::messages::{ANSWER_BYTES_MAX, Answer, Question, TASKS};

/// The time within which a node brings a block, or says why not.
const PATIENCE: Duration = Duration::from_mins(2);

/// The number of attempts at a block, an object or a node that fail for reasons that may pass.
pub(in crate::tasks) const TRIES: u32 = 5;

/// The pauses before further attempts.
pub(in crate::tasks) const fn pauses() -> Pauses {
    Pauses::new(Duration::from_millis(200), Duration::from_secs(10))
}

/// Asks nodes, this one included.
pub struct Nodes {
    cooperation: Arc<Cooperation>,
    helper: Arc<TaskHelper>,
    /// The name of this node.
    name: String,
}

/// A node that does not do what it is asked, in words that follow its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {why}")]
pub struct NodeError {
    /// The node.
    pub name: String,
    why: String,
}

impl Nodes {
    /// The nodes that `cooperation` knows; `helper` answers for this one, which has this name.
    pub fn new(cooperation: &Arc<Cooperation>, helper: &Arc<TaskHelper>, name: &str) -> Self {
        Self {
            cooperation: Arc::clone(cooperation),
            helper: Arc::clone(helper),
            name: name.into(),
        }
    }

    /// All living nodes, each with its name.
    pub fn all(&self) -> Vec<(NodeId, String)> {
        let members = self.cooperation.members();
        if members.is_empty() {
            return vec![(self.cooperation.me(), self.name.clone())];
        }
        members
            .iter()
            .map(|member| (member.id(), member.name.clone()))
            .collect()
    }

    /// The name of a node.
    pub fn name_of(&self, node: NodeId) -> String {
        if node == self.cooperation.me() {
            return self.name.clone();
        }
        let name = self.cooperation.name_of(node);
        name.unwrap_or_else(|| format!("{:016x}", node.0))
    }

    /// Asks nodes at the same time.
    pub async fn ask_each(
        &self,
        nodes: impl IntoIterator<Item = NodeId>,
        question: impl Fn() -> Question,
    ) -> Vec<(NodeId, Result<Answer, NodeError>)> {
        let asked = nodes.into_iter().map(|node| {
            let question = question();
            async move { (node, self.ask(node, question).await) }
        });
        join_all(asked).await
    }

    /// Asks all nodes about some objects at the same time, with as many attempts as it takes, and hands each
    /// answer to `note`.
    ///
    /// # Errors
    ///
    /// A node does not answer, although it is there.
    pub async fn ask_all(
        &self,
        question: impl Fn(Vec<ObjectId>) -> Question,
        objects: &[ObjectId],
        mut note: impl FnMut(&str, Answer),
    ) -> Result<(), NodeError> {
        let (mut left, mut pauses) = (self.all(), pauses());
        for tries in 1.. {
            let nodes = left.iter().map(|(node, _)| *node);
            let answers = self.ask_each(nodes, || question(objects.to_vec()));
            let (mut silent, mut last) = (Vec::new(), None);
            for ((node, name), (_, answer)) in left.iter().cloned().zip(answers.await) {
                match answer {
                    Ok(answer) => note(&name, answer),
                    Err(error) => {
                        silent.push((node, name));
                        last = Some(error);
                    }
                }
            }
            let Some(error) = last else { break };
            if tries == TRIES {
                return Err(error);
            }
            // A node that has left no longer holds anything.
            let alive: BTreeSet<NodeId> = self.all().into_iter().map(|(node, _)| node).collect();
            left = silent
                .into_iter()
                .filter(|(node, _)| alive.contains(node))
                .collect();
            pauses.wait().await;
        }
        Ok(())
    }

    /// Asks one node.
    ///
    /// # Errors
    ///
    /// The node cannot be reached, or refuses.
    pub async fn ask(&self, node: NodeId, question: Question) -> Result<Answer, NodeError> {
        let failed = |why: String| NodeError {
            name: self.name_of(node),
            why,
        };
        let answer = if node == self.cooperation.me() {
            self.helper.answer(question).await
        } else {
            let peer = self.cooperation.peer(node);
            let peer = peer.ok_or_else(|| failed("has left".into()))?;
            let bytes = question
                .to_bytes()
                .ok_or_else(|| failed("cannot be asked: the question is too long".into()))?;
            let answer = peer.ask(TASKS, bytes, ANSWER_BYTES_MAX, PATIENCE).await;
            let answer = answer.map_err(|error| failed(format!("does not answer: {error}")))?;
            Answer::of_bytes(&answer).map_err(|_| failed("sent an answer that cannot be read".into()))?
        };
        match answer {
            Answer::Refused(why) => Err(failed(format!("refuses: {why}"))),
            answer => Ok(answer),
        }
    }
}
