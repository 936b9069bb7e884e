//! When a node may rely on a directory's tokens, and when it may change a name at the lake.
//!
//! A directory may lose its entries, and a node may be disconnected from it. A node is **attached** while it
//! can report its changes to the directory, and announces that once a second. A node relies on tokens only
//! while every node is attached:
//!
//! ```text
//!            a change cannot be reported                others have noticed
//! attached ────────────────────────▶ detached ─ 10 s ─▶ changes need no directory
//!     ▲                                                          │
//!     └────────── every change was reported for 30 s ────────────┘
//! ```
//!
//! All timeouts are defined here, because they depend on each other (see the assertions below). This module
//! reads no clock.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use shoal_policy::NodeId;

use crate::names::{CHANGE_LIFE, DirectoryTime, PRESENCE_LIFE, Presence, Promoted, Roll, SETTLING};

/// Interval at which a node announces its presence.
pub const ATTEND_PAUSE: Duration = Duration::from_secs(1);

/// Interval at which changes under way are renewed.
pub const RENEWAL_PAUSE: Duration = Duration::from_secs(3);

/// Timeout for reporting a change. If it is exceeded, the node is detached.
pub const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the directory's answer about the presence of nodes is valid, from the time of the request.
pub const ROLL_LIFE: Duration = Duration::from_secs(3);

/// After a node has been detached for this time, no other node relies on tokens.
pub const NOTICED: Duration = Duration::from_secs(10);

/// Upper bound for the use of an answer of the lake, whatever the name's token.
pub const ANSWER_LIFE: Duration = Duration::from_secs(10);

/// A detached node attaches again after this time without a failed report.
const PROBATION: Duration = Duration::from_secs(30);

const _: () = {
    // By then the last announcement of a detached node has expired, at the directory and at other nodes.
    assert!(PRESENCE_LIFE.as_secs() + ROLL_LIFE.as_secs() < NOTICED.as_secs());
    // A change that a directory has forgotten is reported again, or all nodes have noticed that it cannot be,
    // before the directory settles the name as new.
    assert!(RENEWAL_PAUSE.as_secs() + REPORT_TIMEOUT.as_secs() + NOTICED.as_secs() < SETTLING.as_secs());
    assert!(SETTLING.as_secs() < CHANGE_LIFE.as_secs());
    // A node that attaches has reported all changes under way.
    assert!((RENEWAL_PAUSE.as_secs() + REPORT_TIMEOUT.as_secs()) * 2 < PROBATION.as_secs() / 2);
    // No answer from before a detachment is used after the node has attached again.
    assert!(ANSWER_LIFE.as_secs() <= NOTICED.as_secs());
    assert!(ANSWER_LIFE.as_secs() + ROLL_LIFE.as_secs() < PROBATION.as_secs());
};

/// The state of a node with respect to the directory.
#[derive(Debug)]
pub struct Attachment {
    me: NodeId,
    /// Identifies the rules by which this node reports changes. Not zero.
    rules: u64,
    /// Since when the node is detached; `None` while it is attached.
    detached_since: Option<Instant>,
    /// When a change could last not be reported.
    failed_at: Option<Instant>,
    last_roll: Option<LastRoll>,
    /// The other nodes that did not report changes by the same rules, according to the last answer.
    absent: Vec<NodeId>,
    /// When this node first learned of each promoted server.
    promoted: HashMap<Promoted, Instant>,
}

#[derive(Clone, Copy, Debug)]
struct LastRoll {
    asked_at: Instant,
    answered_at: Instant,
    directory_time: DirectoryTime,
    /// True if this node and all others were attached, by the same rules.
    all_attached: bool,
}

impl Attachment {
    /// Creates the state of a node that starts at `now`, detached. `rules` identifies the rules by which it
    /// reports changes.
    pub fn new(me: NodeId, rules: u64, now: Instant) -> Self {
        Self {
            me,
            rules: rules.max(1),
            detached_since: Some(now),
            failed_at: None,
            last_roll: None,
            absent: Vec::new(),
            promoted: HashMap::new(),
        }
    }

    /// Returns true if this node reports its changes to the directory.
    pub fn is_attached(&self) -> bool {
        self.detached_since.is_none()
    }

    /// The presence to announce, and the directory's time at which it is valid: `None` until the first answer
    /// of the directory.
    pub fn presence(&self, now: Instant) -> (Presence, Option<DirectoryTime>) {
        let rules = if self.is_attached() { self.rules } else { 0 };
        let at = self.last_roll.as_ref().map(|roll| {
            let since = now.saturating_duration_since(roll.answered_at);
            DirectoryTime(roll.directory_time.0 + u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        });
        (Presence { node: self.me, rules }, at)
    }

    /// Records the directory's answer to an announcement sent at `asked_at`, when the other nodes were
    /// `others`. Attaches the node if no report has failed for a while, because it has renewed every change
    /// under way since.
    pub fn record_roll(
        &mut self,
        roll: &Roll,
        others: impl Iterator<Item = NodeId>,
        asked_at: Instant,
        now: Instant,
    ) {
        debug_assert!(asked_at <= now, "an answer follows its question");
        if self.failed_at.is_none_or(|at| at + PROBATION <= asked_at) {
            self.detached_since = None;
        }
        let is_attached = |node: NodeId| {
            let announced = Presence {
                node,
                rules: self.rules,
            };
            roll.present.contains(&announced)
        };
        self.absent = others.filter(|node| !is_attached(*node)).collect();
        self.last_roll = Some(LastRoll {
            asked_at,
            answered_at: now,
            directory_time: roll.at,
            all_attached: is_attached(self.me) && self.absent.is_empty(),
        });
    }

    /// Records that a change could not be reported, and detaches the node.
    pub fn failed(&mut self, now: Instant) {
        self.failed_at = Some(now);
        self.detached_since.get_or_insert(now);
    }

    /// Returns true if tokens are reliable: according to a recent answer this node and all others are
    /// attached, by the same rules.
    pub fn may_use_tokens(&self, now: Instant) -> bool {
        let is_recent = self
            .last_roll
            .is_some_and(|roll| roll.all_attached && now < roll.asked_at + ROLL_LIFE);
        self.is_attached() && is_recent
    }

    /// The other nodes that do not report changes by the same rules, according to the last answer.
    pub fn absent(&self) -> &[NodeId] {
        &self.absent
    }

    /// The earliest time at which a change recorded by the directory may take effect. Later than `now` after
    /// a promotion, because the replaced server may still answer.
    pub fn may_change_at(&mut self, server: Option<Promoted>, now: Instant) -> Instant {
        match server {
            Some(server) => *self.promoted.entry(server).or_insert(now) + SETTLING,
            None => now,
        }
    }

    /// Returns true if a change may take effect before it is reported: all other nodes have noticed that this
    /// one is detached, and it stays detached for longer than a report takes.
    pub fn may_change_before_report(&self, now: Instant) -> bool {
        let is_noticed = self.detached_since.is_some_and(|since| since + NOTICED <= now);
        is_noticed && self.failed_at.is_some_and(|at| now < at + PROBATION / 2)
    }

    /// The earliest time at which a change not recorded by the directory may take effect: all other nodes
    /// have noticed by then that this one is detached.
    pub fn may_change_unreported_at(&self, now: Instant) -> Instant {
        self.detached_since.unwrap_or(now) + NOTICED
    }
}
