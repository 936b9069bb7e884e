//! Combines concurrent look-ups of blocks in one group: the first one sends the request for all.
//!
//! A response that reads ahead looks up several blocks at once, often in one group. The first look-up yields
//! once to let others join, and then sends the request. If it is dropped before that, the others start again.

use std::collections::HashMap;

use parking_lot::Mutex;
use shoal_policy::NodeId;
use tokio::sync::oneshot;

use crate::{Group, Located, Silent};

type Answer = Result<Located, Silent>;

/// The look-ups that others may still join.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<HashMap<(NodeId, Group), Look>>);

/// One request: its blocks, the leader's first, and the other look-ups that wait for it.
#[derive(Debug)]
pub(super) struct Look {
    indexes: Vec<u32>,
    followers: Vec<oneshot::Sender<Answer>>,
}

/// The role of one look-up.
pub(super) enum Part<'a> {
    /// It sends the request for all.
    Leader(Leader<'a>),
    /// It waits for the leader. An error if the leader was dropped.
    Follower(oneshot::Receiver<Answer>),
}

/// The right to send the request. If it is dropped, the look-ups that joined start again.
pub(super) struct Leader<'a> {
    looks: &'a Looks,
    key: Option<(NodeId, Group)>,
}

impl Looks {
    /// Joins the open look-up of this group, or opens one.
    pub(super) fn join(&self, me: NodeId, group: Group, index: u32) -> Part<'_> {
        let key = (me, group);
        let mut looks = self.0.lock();
        if let Some(look) = looks.get_mut(&key) {
            let (follower, answer) = oneshot::channel();
            look.indexes.push(index);
            look.followers.push(follower);
            return Part::Follower(answer);
        }
        let look = Look {
            indexes: vec![index],
            followers: Vec::new(),
        };
        looks.insert(key, look);
        Part::Leader(Leader {
            looks: self,
            key: Some(key),
        })
    }
}

impl Leader<'_> {
    /// Closes the look-up to others; later ones form another request.
    pub(super) fn close(mut self) -> Look {
        let key = self.key.take().expect("a look is closed once");
        self.looks
            .0
            .lock()
            .remove(&key)
            .expect("only its leader ends a look")
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.looks.0.lock().remove(&key);
        }
    }
}

impl Look {
    /// The blocks to look up, by their index in the version.
    pub(super) fn indexes(&self) -> &[u32] {
        &self.indexes
    }

    /// Gives each follower its answer, and returns the leader's.
    pub(super) fn share(self, answers: Result<Vec<Located>, Silent>) -> Answer {
        debug_assert_eq!(
            self.indexes.len(),
            self.followers.len() + 1,
            "one look-up leads, the others follow"
        );
        let answers = match answers {
            Ok(located) => {
                assert_eq!(located.len(), self.indexes.len(), "each block has an answer");
                located.into_iter().map(Ok).collect()
            }
            Err(silent) => vec![Err(silent); self.indexes.len()],
        };
        let mut answers = answers.into_iter();
        let mine = answers.next().expect("an answer about each block");
        for (follower, answer) in self.followers.into_iter().zip(answers) {
            // A follower may be gone.
            let _ = follower.send(answer);
        }
        mine
    }
}
