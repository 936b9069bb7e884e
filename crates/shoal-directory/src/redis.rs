//! A directory in Redis, Redis Cluster (or Valkey), or a Redis that Sentinel watches.
//!
//! ```text
//! <prefix>:b:<version>:<group>   a hash for a group of blocks; lives ENTRY_LIFE from its last change
//!   h<index>                       nodes that hold the block, 8 bytes each
//!   c<index>                       the node that fetches it, 8 bytes, and until when, in ms since 1970
//!   w<index>                       its global weight, in decimal
//! <prefix>:n                     a hash for all nodes: the latest state of each, and when it was sent
//! <prefix>:m:<node>:<marker>     a marker of a node; lives MARKER_LIFE
//! ```
//!
//! The keys about names are in [`names`], those about extensions in [`extensions`].
//!
//! Each request is one script on one key, so it uses one slot of a cluster, and its times are by that
//! server's clock.

mod bounded;
mod extensions;
mod link;
mod names;
mod node;
mod sentinel;
mod settings;

use std::time::Duration;

use async_trait::async_trait;
use redis::{Script, ScriptInvocation};
use shoal_policy::{BlockId, NodeId};

pub use self::settings::{Settings, SettingsError};

use self::link::Link;
use crate::{
    Answers, CLAIM_LIFE, Directory, ENTRY_LIFE, Entry, GROUP_BLOCKS, Group, HOLDERS_MAX, Left, Located,
    MARKER_LIFE, NodeState, STATE_LIFE, Silent,
};

const NODE_BYTES: usize = size_of::<u64>();

// As in `redis/scripts/entries.lua`.
const _: () = assert!(GROUP_BLOCKS == 32);

/// A directory in Redis.
#[derive(Debug)]
pub struct Redis {
    link: Link,
    prefix: String,
    scripts: Scripts,
    /// True if a replaced server may continue to answer unless it rejects writes without replicas.
    needs_replicas: bool,
}

#[derive(Debug)]
struct Scripts {
    locate: Script,
    held: Script,
    dropped: Script,
    used: Script,
    leave: Script,
    take: Script,
    entry: Script,
    exchange: Script,
    mark: Script,
    token: Script,
    begin: Script,
    end: Script,
    attend: Script,
    extend: Script,
    retract: Script,
    extensions: Script,
}

impl Scripts {
    fn new() -> Self {
        let after = |prelude: &str, code: &str| Script::new(&[prelude, code].concat());
        let of_entries = |code| after(include_str!("redis/scripts/entries.lua"), code);
        let of_names = |code| after(include_str!("redis/scripts/server.lua"), code);
        let of_extensions = |code| after(include_str!("redis/scripts/extended.lua"), code);
        Self {
            locate: of_entries(include_str!("redis/scripts/locate.lua")),
            held: of_entries(include_str!("redis/scripts/held.lua")),
            dropped: of_entries(include_str!("redis/scripts/dropped.lua")),
            used: of_entries(include_str!("redis/scripts/used.lua")),
            leave: of_entries(include_str!("redis/scripts/leave.lua")),
            take: of_entries(include_str!("redis/scripts/take.lua")),
            entry: of_entries(include_str!("redis/scripts/entry.lua")),
            exchange: of_entries(include_str!("redis/scripts/exchange.lua")),
            mark: Script::new(include_str!("redis/scripts/mark.lua")),
            token: of_names(include_str!("redis/scripts/token.lua")),
            begin: of_names(include_str!("redis/scripts/begin.lua")),
            end: Script::new(include_str!("redis/scripts/end.lua")),
            attend: of_names(include_str!("redis/scripts/attend.lua")),
            extend: of_extensions(include_str!("redis/scripts/extend.lua")),
            retract: Script::new(include_str!("redis/scripts/retract.lua")),
            extensions: of_extensions(include_str!("redis/scripts/extensions.lua")),
        }
    }
}

impl Redis {
    /// Creates a directory in the Redis of `settings`. The first request, which needs a Tokio runtime,
    /// connects to it.
    ///
    /// # Errors
    ///
    /// Fails if the settings are invalid. Redis need not be reachable yet.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        Ok(Self {
            link: Link::new(settings.connector()?),
            prefix: settings.prefix.clone(),
            scripts: Scripts::new(),
            needs_replicas: settings.is_sentinel(),
        })
    }

    /// Prepares a request about a group.
    fn about<'a>(&self, script: &'a Script, group: Group) -> ScriptInvocation<'a> {
        let Group { version, number } = group;
        script.key(format!("{}:b:{version}:{number}", self.prefix))
    }

    /// Runs a script on the global weights of blocks, each given by its index and a weight.
    async fn change_weights(
        &self,
        script: &Script,
        group: Group,
        weights: &[(u32, u64)],
    ) -> Result<(), Silent> {
        let mut request = self.about(script, group);
        for (index, weight) in weights {
            request.arg(index).arg(weight);
        }
        self.link.run(&request).await
    }
}

/// Parses the answer about one block.
fn located(answer: &[u8]) -> Result<Located, Silent> {
    match answer.split_first() {
        Some((b'y', [])) => Ok(Located::Yours),
        Some((b'c', rest)) if rest.len() == NODE_BYTES => Ok(Located::Claimed(nodes(rest)[0])),
        Some((b'h', rest)) if rest.len() >= NODE_BYTES => Ok(Located::Held(nodes(rest))),
        _ => Err(Silent("its answer cannot be read".into())),
    }
}

#[async_trait]
impl Directory for Redis {
    async fn locate(
        &self,
        me: NodeId,
        group: Group,
        indexes: &[u32],
        without: &[NodeId],
    ) -> Result<Answers<Located>, Silent> {
        let mut request = self.about(&self.scripts.locate, group);
        request
            .arg(&bytes(me))
            .arg(millis(CLAIM_LIFE))
            .arg(millis(ENTRY_LIFE))
            .arg(without.len());
        for node in without {
            request.arg(&bytes(*node));
        }
        request.arg(indexes);
        let (answers, elsewhere): (Vec<Vec<u8>>, u32) = self.link.run(&request).await?;
        let each: Result<_, _> = answers.iter().map(|answer| located(answer)).collect();
        Ok(Answers {
            each: each?,
            elsewhere,
        })
    }

    async fn held(&self, node: NodeId, group: Group, indexes: &[u32]) -> Result<(), Silent> {
        let mut request = self.about(&self.scripts.held, group);
        request
            .arg(&bytes(node))
            .arg(HOLDERS_MAX)
            .arg(millis(ENTRY_LIFE))
            .arg(indexes);
        self.link.run(&request).await
    }

    async fn dropped(&self, node: NodeId, group: Group, indexes: &[u32]) -> Result<(), Silent> {
        let mut request = self.about(&self.scripts.dropped, group);
        request.arg(&bytes(node)).arg(indexes);
        self.link.run(&request).await
    }

    async fn used(&self, group: Group, uses: &[(u32, u64)]) -> Result<(), Silent> {
        self.change_weights(&self.scripts.used, group, uses).await
    }

    async fn leave(
        &self,
        node: NodeId,
        group: Group,
        leaving: &[(u32, u64)],
    ) -> Result<Answers<Left>, Silent> {
        let mut request = self.about(&self.scripts.leave, group);
        request.arg(&bytes(node));
        for (index, weight) in leaving {
            request.arg(index).arg(weight);
        }
        let (answer, elsewhere): (Vec<i64>, u32) = self.link.run(&request).await?;
        // A negative number means that other nodes hold the block.
        let left = |number: i64| u64::try_from(number).map_or(Left::Copied, Left::Last);
        Ok(Answers {
            each: answer.into_iter().map(left).collect(),
            elsewhere,
        })
    }

    async fn take(&self, group: Group, weights: &[(u32, u64)]) -> Result<(), Silent> {
        self.change_weights(&self.scripts.take, group, weights).await
    }

    async fn entry(&self, block: BlockId) -> Result<Entry, Silent> {
        let mut request = self.about(&self.scripts.entry, Group::containing(block));
        request.arg(block.index).arg(millis(CLAIM_LIFE));
        let (holders, claimant, global_weight): (Vec<u8>, Vec<u8>, u64) = self.link.run(&request).await?;
        Ok(Entry {
            holders: nodes(&holders),
            claimant: nodes(&claimant).first().copied(),
            global_weight,
        })
    }

    async fn exchange(&self, mine: NodeState) -> Result<Vec<NodeState>, Silent> {
        let mut request = self.scripts.exchange.key(format!("{}:n", self.prefix));
        request
            .arg(&bytes(mine.node))
            .arg(to_text(mine))
            .arg(millis(STATE_LIFE));
        let answer: Vec<(Vec<u8>, Vec<u8>)> = self.link.run(&request).await?;
        let states = answer
            .iter()
            .filter_map(|(node, text)| of_text(*nodes(node).first()?, text));
        Ok(states.collect())
    }

    async fn mark(&self, node: NodeId, marker: u16) -> Result<bool, Silent> {
        let key = format!("{}:m:{:016x}:{marker}", self.prefix, node.0);
        let mut request = self.scripts.mark.key(key);
        request.arg(millis(MARKER_LIFE));
        self.link.run(&request).await
    }
}

fn bytes(node: NodeId) -> [u8; NODE_BYTES] {
    node.0.to_be_bytes()
}

/// The nodes of a list. An incomplete node at the end is ignored.
fn nodes(list: &[u8]) -> Vec<NodeId> {
    let (nodes, _rest) = list.as_chunks::<NODE_BYTES>();
    nodes
        .iter()
        .map(|node| NodeId(u64::from_be_bytes(*node)))
        .collect()
}

fn to_text(state: NodeState) -> String {
    let NodeState {
        age,
        average_rank,
        takes_pushes,
        ..
    } = state;
    format!("{age} {average_rank} {}", u8::from(takes_pushes))
}

/// Inverse of [`to_text`]; `None` if the text is malformed.
fn of_text(node: NodeId, text: &[u8]) -> Option<NodeState> {
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    let state = NodeState {
        node,
        age: words.next()?.parse().ok()?,
        average_rank: words.next()?.parse().ok()?,
        takes_pushes: words.next()? == "1",
    };
    words.next().is_none().then_some(state)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
