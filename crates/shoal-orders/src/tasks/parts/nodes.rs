//! The nodes of the cluster, as a task asks them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use shoal_net::membership::Member;
use shoal_net::pauses::Pauses;
use shoal_policy::{NodeId, ObjectId};

use super::TaskParts;
use super::helper::TaskHelper;
use super::messages::{ANSWER_BYTES_MAX, Answer, NAMES_MAX, Question, TASKS};

/// The time within which a node brings a block, or says why not.
const PATIENCE: Duration = Duration::from_mins(2);

/// The number of attempts at a block, an object or a node that fail for reasons that may pass.
pub(in crate::tasks) const TRIES: u32 = 5;

/// Returns the pauses before further attempts.
pub(in crate::tasks) const fn pauses() -> Pauses {
    Pauses::new(Duration::from_millis(200), Duration::from_secs(10))
}

/// Asks nodes, this one included.
pub struct Nodes {
    /// The parts of this node.
    pub parts: Arc<TaskParts>,
    helper: Arc<TaskHelper>,
}

impl Nodes {
    /// Creates the nodes as the node of `helper` sees them.
    pub fn new(helper: &Arc<TaskHelper>) -> Arc<Self> {
        Arc::new(Self {
            parts: Arc::clone(&helper.parts),
            helper: Arc::clone(helper),
        })
    }

    /// Returns all living nodes.
    pub fn all(&self) -> Vec<NodeId> {
        let members = self.parts.cache().cooperation.members();
        if members.is_empty() {
            return vec![self.parts.cache().cooperation.me];
        }
        members.iter().map(Member::id).collect()
    }

    /// Returns the name of a node.
    pub fn name_of(&self, node: NodeId) -> String {
        if node == self.parts.cache().cooperation.me {
            return self.parts.name.clone();
        }
        let name = self.parts.cache().cooperation.name_of(node);
        name.unwrap_or_else(|| format!("{:016x}", node.0))
    }

    /// Asks nodes at the same time. Returns their answers, or errors, in the same order.
    pub async fn ask_each(
        &self,
        nodes: &[NodeId],
        question: impl Fn() -> Question,
    ) -> Vec<Result<Answer, String>> {
        join_all(nodes.iter().copied().map(|node| self.ask(node, question()))).await
    }

    /// Asks nodes about objects, as many at a time as a question may name, and passes each answer to `note`.
    /// `problem` is the message in the log about a node that does not answer.
    pub async fn ask_about(
        &self,
        nodes: &[NodeId],
        objects: &[ObjectId],
        question: impl Fn(Vec<ObjectId>) -> Question,
        problem: &str,
        mut note: impl FnMut(Answer),
    ) {
        for part in objects.chunks(NAMES_MAX) {
            for answer in self.ask_each(nodes, || question(part.to_vec())).await {
                match answer {
                    Ok(answer) => note(answer),
                    Err(error) => tracing::debug!(%error, "{problem}"),
                }
            }
        }
    }

    /// Asks all nodes about some objects at the same time, with as many attempts as it takes, and passes each
    /// answer to `note` with the name of the node.
    ///
    /// # Errors
    ///
    /// Fails if a living node does not answer.
    pub async fn ask_all(
        &self,
        question: impl Fn(Vec<ObjectId>) -> Question,
        objects: &[ObjectId],
        mut note: impl FnMut(&str, Answer),
    ) -> Result<(), String> {
        let named = |node| (node, self.name_of(node));
        // A node may have left when its answer is here.
        let mut left: Vec<_> = self.all().into_iter().map(named).collect();
        let mut pauses = pauses();
        for tries in 1.. {
            let nodes: Vec<_> = left.iter().map(|(node, _)| *node).collect();
            let answers = self.ask_each(&nodes, || question(objects.to_vec())).await;
            let (mut silent, mut last) = (Vec::new(), None);
            for (node, answer) in left.into_iter().zip(answers) {
                match answer {
                    Ok(answer) => note(&node.1, answer),
                    Err(error) => {
                        silent.push(node);
                        last = Some(error);
                    }
                }
            }
            let Some(error) = last else { break };
            if tries == TRIES {
                return Err(error);
            }
            // A node that has left no longer holds anything.
            let alive = self.all();
            silent.retain(|(node, _)| alive.contains(node));
            left = silent;
            pauses.wait().await;
        }
        Ok(())
    }

    /// Asks one node.
    ///
    /// # Errors
    ///
    /// The node cannot be reached, or refuses: its name, and why.
    pub async fn ask(&self, node: NodeId, question: Question) -> Result<Answer, String> {
        let answer = match self.answer_of(node, question).await {
            Ok(Answer::Refused(why)) => Err(format!("refuses: {why}")),
            answer => answer,
        };
        answer.map_err(|why| format!("{} {why}", self.name_of(node)))
    }

    /// Returns the answer of a node, or an error that follows its name.
    async fn answer_of(&self, node: NodeId, question: Question) -> Result<Answer, String> {
        let cooperation = &self.parts.cache().cooperation;
        if node == cooperation.me {
            return Ok(self.helper.answer(question).await);
        }
        let peer = cooperation.peer(node).ok_or("has left")?;
        let too_long = "cannot be asked: the question is too long";
        let question = question.to_bytes().ok_or(too_long)?;
        let answer = peer.ask(TASKS, question, ANSWER_BYTES_MAX, PATIENCE).await;
        let answer = answer.map_err(|error| format!("does not answer: {error}"))?;
        Answer::from_bytes(&answer).map_err(|_| "sent an answer that cannot be read".into())
    }

    /// Ensures that the file of an order is on this disk: another node may have it.
    pub async fn bring_file(&self, id: u128, bytes: u64) -> Result<(), String> {
        let (order_files, me) = (&self.parts.order_files, self.parts.cache().cooperation.me);
        if order_files.size(id) == Some(bytes) {
            return Ok(());
        }
        let mut last = "no other node is there".to_owned();
        for node in self.all().into_iter().filter(|node| *node != me) {
            let part = |offset| async move {
                match self.ask(node, Question::Manifest(id, offset)).await {
                    Ok(Answer::Manifest(part)) => Some(part),
                    _ => None,
                }
            };
            match order_files.copy(id, bytes, part).await {
                Ok(()) => return Ok(()),
                Err(error) => last = format!("{}: {error}", self.name_of(node)),
            }
        }
        Err(format!(
            "no node has its list of objects or its document ({last})"
        ))
    }
}
