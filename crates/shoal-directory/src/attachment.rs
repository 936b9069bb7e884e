//! When a node may believe the tokens of a directory, and when it may change a name at the lake.
//!
//! A directory may lose what it was told, and a node may be cut off from it. A node is **attached** while it
//! can tell the directory of its changes, and says so once a second. It believes tokens only while every
//! other node is attached:
//!
//! ```text
//!            a change cannot be told                    others have noticed
//! attached ────────────────────────▶ detached ─ 10 s ─▶ changes need no directory
//!     ▲                                                          │
//!     └────────── every change was told for 30 s ────────────────┘
//! ```
//!
//! Only this module knows the times, and they depend on each other (the assertions below). It reads no clock.

#[cfg(test)]
mod model;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use shoal_policy::NodeId;

use crate::names::{CHANGE_LIFE, DirectoryTime, PRESENCE_LIFE, Presence, Promoted, Roll, SETTLING};

/// The pause between two words of a node about its presence.
pub const ATTEND_PAUSE: Duration = Duration::from_secs(1);

/// The pause between two renewals of the changes under way.
pub const RENEWAL_PAUSE: Duration = Duration::from_secs(3);

/// A change is told within this time, or its node is detached.
pub const TELL_PATIENCE: Duration = Duration::from_secs(1);

/// The directory's answer about the presence of nodes counts for this time after the node has asked.
pub const HEARD_LIFE: Duration = Duration::from_secs(3);

/// After this time no other node believes tokens, because this one is detached.
pub const NOTICED: Duration = Duration::from_secs(10);

/// The lake's answer is used for this time, however the name's token is.
pub const ANSWER_LIFE: Duration = Duration::from_secs(10);

/// A detached node attaches again when it has not failed to tell a change for this time.
const PROBATION: Duration = Duration::from_secs(30);

const _: () = {
    // The last word of a detached node is forgotten, and so is what others have heard of it.
    assert!(PRESENCE_LIFE.as_secs() + HEARD_LIFE.as_secs() < NOTICED.as_secs());
    // A change that a directory has forgotten is told again, or all have noticed that it cannot be, before a
    // name that it takes for new is settled.
    assert!(RENEWAL_PAUSE.as_secs() + TELL_PATIENCE.as_secs() + NOTICED.as_secs() < SETTLING.as_secs());
    assert!(SETTLING.as_secs() < CHANGE_LIFE.as_secs());
    // A node that attaches has told all changes that are under way.
    assert!((RENEWAL_PAUSE.as_secs() + TELL_PATIENCE.as_secs()) * 2 < PROBATION.as_secs() / 2);
    // No answer from before a node was detached is used after it is attached again.
    assert!(ANSWER_LIFE.as_secs() <= NOTICED.as_secs());
    assert!(ANSWER_LIFE.as_secs() + HEARD_LIFE.as_secs() < PROBATION.as_secs());
};

/// How a node stands with the directory.
#[derive(Debug)]
pub struct Attachment {
    me: NodeId,
    /// Stands for the rules by which this node tells changes. Not zero.
    rules: u64,
    standing: Standing,
    /// When a change could not be told last.
    failed_at: Option<Instant>,
    heard: Option<Heard>,
    /// The other nodes that did not tell changes by the rules of this one when it heard of them last.
    absent: Vec<NodeId>,
    /// When this node first heard of a promoted server.
    promoted: HashMap<Promoted, Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Attached,
    Detached { since: Instant },
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    asked_at: Instant,
    answered_at: Instant,
    directory_time: DirectoryTime,
    /// Whether this node and all others were attached, by the same rules.
    all_attached: bool,
}

impl Attachment {
    /// A node that begins at `now`, detached. `rules` stands for the rules by which it tells changes.
    pub fn new(me: NodeId, rules: u64, now: Instant) -> Self {
        Self {
            me,
            rules: rules.max(1),
            standing: Standing::Detached { since: now },
            failed_at: None,
            heard: None,
            absent: Vec::new(),
            promoted: HashMap::new(),
        }
    }

    /// Whether this node tells the directory of its changes.
    pub fn is_attached(&self) -> bool {
        self.standing == Standing::Attached
    }

    /// Presence of this node, and the directory's time at which it is true: `None` before the node has heard
    /// that time.
    pub fn presence(&self, now: Instant) -> (Presence, Option<DirectoryTime>) {
        let rules = if self.is_attached() { self.rules } else { 0 };
        let at = self.heard.as_ref().map(|heard| {
            let since = now.saturating_duration_since(heard.answered_at);
            DirectoryTime(heard.directory_time.0 + u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        });
        (Presence { node: self.me, rules }, at)
    }

    /// Notes the directory's answer to a word that was sent at `asked_at`, when these were the `others`. A
    /// node that has not failed to tell a change for a while attaches: it has renewed every change under
    /// way meanwhile.
    pub fn heard(
        &mut self,
        roll: &Roll,
        others: impl Iterator<Item = NodeId>,
        asked_at: Instant,
        now: Instant,
    ) {
        if self.failed_at.is_none_or(|at| at + PROBATION <= asked_at) {
            self.standing = Standing::Attached;
        }
        let is_attached = |node: NodeId| {
            let told = Presence {
                node,
                rules: self.rules,
            };
            roll.present.contains(&told)
        };
        self.absent = others.filter(|node| !is_attached(*node)).collect();
        self.heard = Some(Heard {
            asked_at,
            answered_at: now,
            directory_time: roll.at,
            all_attached: is_attached(self.me) && self.absent.is_empty(),
        });
    }

    /// Notes that a change could not be told.
    pub fn failed(&mut self, now: Instant) {
        self.failed_at = Some(now);
        if self.is_attached() {
            self.standing = Standing::Detached { since: now };
        }
    }

    /// Whether tokens can be believed: this node has just heard that it and all others are attached, by the
    /// same rules.
    pub fn believes(&self, now: Instant) -> bool {
        let just_heard = self
            .heard
            .is_some_and(|heard| heard.all_attached && now < heard.asked_at + HEARD_LIFE);
        self.is_attached() && just_heard
    }

    /// The other nodes that do not tell changes by the rules of this one, as far as it has heard.
    pub fn absent(&self) -> &[NodeId] {
        &self.absent
    }

    /// From when on a change that the directory has noted may take effect. A server that has just been
    /// promoted may not be the only one that answers.
    pub fn may_change_at(&mut self, server: Option<Promoted>, now: Instant) -> Instant {
        match server {
            Some(server) => *self.promoted.entry(server).or_insert(now) + SETTLING,
            None => now,
        }
    }

    /// Whether a change may take effect before the directory was told of it: all other nodes have noticed
    /// that this one is detached, and it stays so for as long as it takes to tell.
    pub fn need_not_tell_first(&self, now: Instant) -> bool {
        let is_noticed = match self.standing {
            Standing::Detached { since } => since + NOTICED <= now,
            Standing::Attached => false,
        };
        is_noticed && self.failed_at.is_some_and(|at| now < at + PROBATION / 2)
    }

    /// From when on a change that the directory has not noted may take effect: all other nodes have noticed
    /// by then that this one is detached.
    pub fn may_change_untold_at(&self, now: Instant) -> Instant {
        match self.standing {
            Standing::Detached { since } => since + NOTICED,
            Standing::Attached => now + NOTICED,
        }
    }
}
