//! Problems of a node, by name: for `/readyz`, `/status`, `shoal status` and the metrics.
//!
//! A node is ready if it serves clients as well as any other node would. A problem that hits all nodes alike
//! does not make one unready: a balancer that takes every node out serves nothing, not even the objects that
//! nodes hold.

use serde::{Deserialize, Serialize};

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// A condition that an operator should know.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ConditionName { $($(#[$doc])* $name,)* }

        impl ConditionName {
            /// Every name.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word on pages and in metrics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

conditions! {
    /// The lake has never accepted this node since its start: nothing can be read through it.
    LakeNeverAnswered = "lake-never-answered",
    /// The lake does not answer now.
    LakeSilent = "lake-silent",
    /// The lake does not accept an account.
    LakeAccountRefused = "lake-account-refused",
    /// The node gives away the blocks that it holds, because it is to be stopped.
    Draining = "draining",
    /// The disk takes no new blocks.
    StorePaused = "store-paused",
    /// The registry of a tier has not heard from this node: names below its rules answer 503.
    TierUnreachable = "tier-unreachable",
    /// The store of a tier has no room: writes go to the lake first, or are refused.
    TierFull = "tier-full",
    /// The registry of a tier is nearly full: nothing new begins below its rules.
    RegistryNearlyFull = "registry-nearly-full",
    /// Dirty objects lie in a tier that no rule names for them: reads do not find them.
    DirtyWithoutRule = "dirty-without-rule",
    /// The lake refuses dirty objects, and will again until a person or a client does something.
    FlushRefused = "flush-refused",
    /// A dirty object has other bytes than were acknowledged, in its tier or as the lake says.
    WrongBytes = "wrong-bytes",
    /// The directory of blocks does not answer: nodes look for blocks at their homes.
    DirectorySilent = "directory-silent",
    /// No other node is seen although there are seeds.
    Alone = "alone",
    /// A seed has no address.
    SeedUnknown = "seed-unknown",
    /// Datagrams of another node are rejected: its secret, its clock or its release differs.
    NodeUnheard = "node-unheard",
    /// Another node is configured differently.
    ConfiguredDifferently = "configured-differently",
}

impl ConditionName {
    /// Whether clients should be sent to other nodes meanwhile.
    pub const fn is_unready(self) -> bool {
        matches!(self, Self::LakeNeverAnswered | Self::Draining)
    }
}

/// A condition that holds, with its details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// [`ConditionName::as_str`]
    pub condition: String,
    /// In words, for people.
    pub detail: String,
    /// Whether it keeps the node from being ready.
    pub unready: bool,
}

impl Condition {
    /// A condition in words.
    pub fn new(name: ConditionName, detail: impl Into<String>) -> Self {
        Self {
            condition: name.as_str().into(),
            detail: detail.into(),
            unready: name.is_unready(),
        }
    }
}
