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
        /// The store of a tier has failed its last probe: larger objects go to the lake at once.
        TierStoreUnusable = "tier-store-unusable",
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
    /// Returns what an operator does about the condition.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::LakeNeverAnswered => {
                "read the node's log, which has the reason; check [lake] endpoint and its account"
            }
            Self::LakeSilent => "look at the lake and at the network; the node asks again by itself",
            Self::LakeAccountRefused => "mend the account that the text names: key, secret, region, clock",
            Self::Draining => "stop the node, or take the order back with `shoal node undrain`",
            Self::StorePaused => "look at the disk of the store, and make room on it",
            Self::TierUnreachable => "look at the registry of the tier and at the network",
            Self::TierStoreUnusable => {
                "look at the store of the tier, its bucket and its account, and at the network"
            }
            Self::TierFull => {
                "look for flushes that fail and for uploads that were never completed, or raise its capacity"
            }
            Self::RegistryNearlyFull => "make room in the registry; docs/how-to/tier.md shows how",
            Self::DirtyWithoutRule => "add the rule again until these objects are flushed",
            Self::FlushRefused => {
                "do what the text says; the object stays in the tier and is read from there"
            }
            Self::WrongBytes => "mend the object; docs/how-to/operate.md shows how",
            Self::PacksUnreadable => "do what the text says, such as `shoal pack rebuild`",
            Self::PacksDamaged => "restore the pack at the lake, or write or delete its objects again",
            Self::DirectorySilent => "look at the directory (Redis) and at the network",
            Self::Alone => "check [cooperation] seeds, UDP between the nodes, their secrets and their clocks",
            Self::SeedUnknown => "check [cooperation] seeds and DNS",
            Self::GossipRejected => {
                "repair the node that the text names: its secret, its clock or its release"
            }
            Self::ConfiguredDifferently => "write the same settings on every node",
        }
    }

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
    /// The operator's next step.
    #[serde(default)]
    pub advice: String,
}

impl Condition {
    /// Creates a condition with a description.
    pub fn new(name: ConditionName, detail: impl Into<String>) -> Self {
        Self {
            condition: name.as_str().into(),
            detail: detail.into(),
            unready: name.is_unready(),
            advice: name.advice().into(),
        }
    }
}
