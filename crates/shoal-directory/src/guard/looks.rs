//! Looks at blocks of one group that begin at the same moment: the first one asks for all.
//!
//! A response that reads ahead looks for several blocks at once, and they are often of one group. The first
//! look lets the others of its moment join, and then asks. A look whose leader was dropped begins anew.

use std::collections::HashMap;

use parking_lot::Mutex;
use shoal_policy::NodeId;
use tokio::sync::oneshot;

use crate::{Group, Located, Silent};

type Answer = Result<Located, Silent>;

/// The looks that others may still join.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<HashMap<(NodeId, Group), Look>>);

/// One request: the blocks that it is about, the leader's first, and the other looks that wait for it.
#[derive(Debug)]
pub(super) struct Look {
    indexes: Vec<u32>,
    followers: Vec<oneshot::Sender<Answer>>,
}

/// The role of one look.
pub(super) enum Part<'a> {
    /// It asks for all.
    Leader(Leader<'a>),
    /// It waits for the leader. An error if the leader was dropped.
    Follower(oneshot::Receiver<Answer>),
}

/// The right to ask. Dropped, it lets the looks that have joined begin anew.
pub(super) struct Leader<'a> {
    looks: &'a Looks,
    key: Option<(NodeId, Group)>,
}

impl Looks {
    /// Joins the look of this moment, or begins one.
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
    /// Ends the moment: later looks are another request.
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
    /// The blocks to ask about, by their index in the version.
    pub(super) fn indexes(&self) -> &[u32] {
        &self.indexes
    }

    /// Gives each follower its answer, and returns the leader's.
    pub(super) fn share(self, answers: Result<Vec<Located>, Silent>) -> Answer {
        match answers {
            Ok(located) => {
                let mut located = located.into_iter();
                let mine = located.next().expect("an answer about each block");
                for (follower, answer) in self.followers.into_iter().zip(located) {
                    // A follower may be gone.
                    let _ = follower.send(Ok(answer));
                }
                Ok(mine)
            }
            Err(silent) => {
                for follower in self.followers {
                    let _ = follower.send(Err(silent.clone()));
                }
                Err(silent)
            }
        }
    }
}
