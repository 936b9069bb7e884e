//! Conditions of a node: for `/readyz`, `/status`, `shoal status` and the metrics.
//!
//! A node is ready if it serves clients as well as any other node would. A problem that affects all nodes
//! alike does not make a node unready: a load balancer that removes every node serves nothing, not even
//! cached objects.

use serde::{Deserialize, Serialize};

use crate::words;

words! {
    /// A condition that operators should know about.
    pub enum ConditionName {
        /// The lake has not accepted a request since this node started: nothing can be read through it.
        LakeNeverAnswered = "lake-never-answered",
        /// The lake currently does not answer.
        LakeSilent = "lake-silent",
        /// The lake rejects an account.
        LakeAccountRefused = "lake-account-refused",
        /// The node hands its blocks over because it is going to be stopped.
        Draining = "draining",
        /// The disk accepts no new blocks.
        StorePaused = "store-paused",
        /// The registry of a tier cannot be reached: requests below its rules are answered with 503.
        TierUnreachable = "tier-unreachable",
        /// The store of a tier is full: writes go to the lake first, or are refused.
        TierFull = "tier-full",
        /// The registry of a tier is nearly full: no new objects are accepted below its rules.
        RegistryNearlyFull = "registry-nearly-full",
        /// A tier holds dirty objects that no rule assigns to it: reads do not find them.
        DirtyWithoutRule = "dirty-without-rule",
        /// The lake refuses dirty objects, and will keep refusing them until a person or a client acts.
        FlushRefused = "flush-refused",
        /// The bytes of a dirty object, in its tier or according to the lake, differ from those acknowledged.
        WrongBytes = "wrong-bytes",
        /// The map of packed objects cannot be read: requests for names below its rule are rejected.
        PacksUnreadable = "packs-unreadable",
        /// A pack or a table of packed objects is not at the lake as it was written.
        PacksDamaged = "packs-damaged",
        /// The block directory does not answer: nodes look for blocks at their homes.
        DirectorySilent = "directory-silent",
        /// The node has seeds but sees no other node.
        Alone = "alone",
        /// A seed has no address.
        SeedUnknown = "seed-unknown",
        /// Datagrams of another node are rejected: its secret, its clock or its release differs.
        GossipRejected = "gossip-rejected",
        /// Another node is configured differently.
        ConfiguredDifferently = "configured-differently",
    }
}

impl ConditionName {
    /// Returns true if clients should be sent to other nodes while the condition holds.
    pub const fn is_unready(self) -> bool {
        matches!(self, Self::LakeNeverAnswered | Self::Draining)
    }
}

/// A condition that currently holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// [`ConditionName::as_str`]
    pub condition: String,
    /// Description for people.
    pub detail: String,
    /// True if it makes the node unready.
    pub unready: bool,
}

impl Condition {
    /// Creates a condition with a description.
    pub fn new(name: ConditionName, detail: impl Into<String>) -> Self {
        Self {
            condition: name.as_str().into(),
            detail: detail.into(),
            unready: name.is_unready(),
        }
    }
}
