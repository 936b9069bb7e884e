//! A directory in Redis, Redis Cluster (or Valkey), or a Redis that Sentinel watches.
//!
//! ```text
//! <prefix>:b:<version>:<group>   a hash for a group of blocks; lives ENTRY_LIFE from its last change
//!   h<index>                       nodes that hold the block, 8 bytes each
//!   c<index>                       the node that fetches it, 8 bytes, and until when, in ms since 1970
//!   w<index>                       its global weight, in decimal
//! <prefix>:n                     a hash for all nodes: the latest state of each, and when it was sent
//! <prefix>:m:<node>:<marker>     a marker of a node; lives MARKER_LIFE
//! <prefix>:o:<name>              a hash for a name; lives ENTRY_LIFE from its last use
//!   t                              its token, 16 hexadecimal digits
//!   r                              the replication id of the server that the rest is from
//!   s                              from when on it is settled, in ms since 1970
//!   c<change>                      a change under way, and until when, in ms since 1970
//! <prefix>:p                     a hash for all nodes that are present: since when, and their rules
//! <prefix>:x:<version>:<group>   a hash for a group; lives as long as its longest-lived field
//!   <name>                         an extension: until when, in ms since 1970, a space, and the value
//! ```
//!
//! Each request is one script on one key, so it uses one slot of a cluster, and its times are by that
//! server's clock.

mod bounded;
mod link;
mod node;
mod sentinel;
mod settings;

use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Script, ScriptInvocation};
use shoal_base::hex;
use shoal_policy::{BlockId, NodeId, ObjectId};

pub use self::settings::SettingsError;

use self::link::{Connector, Link};
use crate::config::DirectoryConfig;
use crate::extensions::{EXTENSIONS_MAX, Extension};
use crate::names::{
    CHANGE_LIFE, Change, DirectoryTime, PRESENCE_LIFE, Presence, Promoted, Roll, SETTLING, Token,
};
use crate::{
    Answers, CLAIM_LIFE, Directory, ENTRY_LIFE, Entry, GROUP_BLOCKS, Group, HOLDERS_MAX, Left, Located,
    MARKER_LIFE, NodeState, STATE_LIFE, Silent,
};

const NODE_BYTES: usize = size_of::<u64>();

// As in `redis/scripts/entries.lua`.
const _: () = assert!(GROUP_BLOCKS == 32);

/// A directory in Redis.
pub struct Redis {
    link: Link,
    prefix: String,
    /// True if a replaced server may continue to answer unless it rejects writes without replicas.
    needs_replicas: bool,
}

static LOCATE: LazyLock<Script> = LazyLock::new(|| of_entries(include_str!("redis/scripts/locate.lua")));
static HELD: LazyLock<Script> = LazyLock::new(|| of_entries(include_str!("redis/scripts/held.lua")));
static DROPPED: LazyLock<Script> = LazyLock::new(|| of_entries(include_str!("redis/scripts/dropped.lua")));
static USED: LazyLock<Script> = LazyLock::new(|| of_entries(include_str!("redis/scripts/used.lua")));
static LEAVE: LazyLock<Script> = LazyLock::new(|| of_entries(include_str!("redis/scripts/leave.lua")));
static TAKE: LazyLock<Script> = LazyLock::new(|| of_entries(include_str!("redis/scripts/take.lua")));
static ENTRY: LazyLock<Script> = LazyLock::new(|| of_entries(include_str!("redis/scripts/entry.lua")));
static EXCHANGE: LazyLock<Script> = LazyLock::new(|| of_entries(include_str!("redis/scripts/exchange.lua")));
static TOKEN: LazyLock<Script> = LazyLock::new(|| of_names(include_str!("redis/scripts/token.lua")));
static BEGIN: LazyLock<Script> = LazyLock::new(|| of_names(include_str!("redis/scripts/begin.lua")));
static ATTEND: LazyLock<Script> = LazyLock::new(|| of_names(include_str!("redis/scripts/attend.lua")));
static EXTEND: LazyLock<Script> = LazyLock::new(|| of_extensions(include_str!("redis/scripts/extend.lua")));
static EXTENSIONS: LazyLock<Script> =
    LazyLock::new(|| of_extensions(include_str!("redis/scripts/extensions.lua")));
static MARK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/scripts/mark.lua")));
static END: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("redis/scripts/end.lua")));

/// Returns a script about the entries of a group of blocks.
fn of_entries(code: &str) -> Script {
    Script::new(&[include_str!("redis/scripts/entries.lua"), code].concat())
}

/// Returns a script about names or the presence of nodes.
fn of_names(code: &str) -> Script {
    Script::new(&[include_str!("redis/scripts/server.lua"), code].concat())
}

/// Returns a script about the extensions of a group of blocks.
fn of_extensions(code: &str) -> Script {
    Script::new(&[include_str!("redis/scripts/extended.lua"), code].concat())
}

impl Redis {
    /// Creates a directory in the Redis of `settings`. The first request, which needs a Tokio runtime,
    /// connects to it.
    ///
    /// # Errors
    ///
    /// Fails if the settings are invalid. Redis need not be reachable yet.
    pub fn new(settings: &DirectoryConfig) -> Result<Self, SettingsError> {
        let connector = settings.connector()?;
        Ok(Self {
            needs_replicas: matches!(connector, Connector::Sentinel(_)),
            link: Link::new(connector),
            prefix: settings.prefix.clone(),
        })
    }

    /// Prepares a request about a group: about its blocks (`b`) or its extensions (`x`).
    fn about<'a>(&self, script: &'a Script, part: char, group: Group) -> ScriptInvocation<'a> {
        let Group { version, number } = group;
        script.key(format!("{}:{part}:{version}:{number}", self.prefix))
    }

    fn about_name<'a>(&self, script: &'a Script, name: ObjectId) -> ScriptInvocation<'a> {
        script.key(format!("{}:o:{}", self.prefix, hex::text(&name.0)))
    }

    /// Prepares a request that gives the name the token `fresh` if it has none.
    fn settling<'a>(&self, script: &'a Script, name: ObjectId, fresh: Token) -> ScriptInvocation<'a> {
        let mut request = self.about_name(script, name);
        request
            .arg(hex::text(&fresh.0.to_be_bytes()))
            .arg(u8::from(self.needs_replicas))
            .arg(millis(SETTLING))
            .arg(millis(ENTRY_LIFE));
        request
    }

    /// Runs a script on the global weights of blocks, each given by its index and a weight.
    async fn change_weights(
        &self,
        script: &Script,
        group: Group,
        weights: &[(u32, u64)],
    ) -> Result<(), Silent> {
        let mut request = self.about(script, 'b', group);
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
        _ => Err(unreadable()),
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
        let mut request = self.about(&LOCATE, 'b', group);
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
        let mut request = self.about(&HELD, 'b', group);
        request
            .arg(&bytes(node))
            .arg(HOLDERS_MAX)
            .arg(millis(ENTRY_LIFE))
            .arg(indexes);
        self.link.run(&request).await
    }

    async fn dropped(&self, node: NodeId, group: Group, indexes: &[u32]) -> Result<(), Silent> {
        let mut request = self.about(&DROPPED, 'b', group);
        request.arg(&bytes(node)).arg(indexes);
        self.link.run(&request).await
    }

    async fn used(&self, group: Group, uses: &[(u32, u64)]) -> Result<(), Silent> {
        self.change_weights(&USED, group, uses).await
    }

    async fn leave(
        &self,
        node: NodeId,
        group: Group,
        leaving: &[(u32, u64)],
    ) -> Result<Answers<Left>, Silent> {
        let mut request = self.about(&LEAVE, 'b', group);
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
        self.change_weights(&TAKE, group, weights).await
    }

    async fn entry(&self, block: BlockId) -> Result<Entry, Silent> {
        let mut request = self.about(&ENTRY, 'b', Group::containing(block));
        request.arg(block.index).arg(millis(CLAIM_LIFE));
        let (holders, claimant, global_weight): (Vec<u8>, Vec<u8>, u64) = self.link.run(&request).await?;
        Ok(Entry {
            holders: nodes(&holders),
            claimant: nodes(&claimant).first().copied(),
            global_weight,
        })
    }

    async fn exchange(&self, mine: NodeState) -> Result<Vec<NodeState>, Silent> {
        let mut request = EXCHANGE.key(format!("{}:n", self.prefix));
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
        let mut request = MARK.key(key);
        request.arg(millis(MARKER_LIFE));
        self.link.run(&request).await
    }

    async fn token(&self, name: ObjectId, fresh: Token) -> Result<Option<Token>, Silent> {
        let request = self.settling(&TOKEN, name, fresh);
        let answer: String = self.link.run(&request).await?;
        Ok(optional(&answer)?.map(Token))
    }

    async fn begin(&self, name: ObjectId, change: Change, fresh: Token) -> Result<Option<Promoted>, Silent> {
        let mut request = self.settling(&BEGIN, name, fresh);
        request
            .arg(hex::text(&change.0.to_be_bytes()))
            .arg(millis(CHANGE_LIFE));
        let answer: String = self.link.run(&request).await?;
        Ok(optional(&answer)?.map(Promoted))
    }

    async fn end(&self, name: ObjectId, change: Change) -> Result<(), Silent> {
        let mut request = self.about_name(&END, name);
        request.arg(hex::text(&change.0.to_be_bytes()));
        self.link.run(&request).await
    }

    async fn attend(&self, mine: Presence, at: Option<DirectoryTime>) -> Result<Roll, Silent> {
        let mut request = ATTEND.key(format!("{}:p", self.prefix));
        request
            .arg(&bytes(mine.node))
            .arg(hex::text(&mine.rules.to_be_bytes()))
            .arg(at.map_or(String::new(), |at| at.0.to_string()))
            .arg(millis(PRESENCE_LIFE));
        let (time, present): (u64, Vec<(Vec<u8>, String)>) = self.link.run(&request).await?;
        let present = present.iter().filter_map(|(node, rules)| {
            let node = *nodes(node).first()?;
            number(rules).map(|rules| Presence { node, rules })
        });
        Ok(Roll {
            at: DirectoryTime(time),
            present: present.collect(),
        })
    }

    async fn extend(&self, group: Group, extension: &Extension, life: Duration) -> Result<bool, Silent> {
        let mut request = self.about(&EXTEND, 'x', group);
        request
            .arg(extension.name())
            .arg(extension.value())
            .arg(millis(life.min(ENTRY_LIFE)))
            .arg(EXTENSIONS_MAX);
        self.link.run(&request).await
    }

    async fn extensions(&self, group: Group) -> Result<Vec<Extension>, Silent> {
        let request = self.about(&EXTENSIONS, 'x', group);
        let answer: Vec<(Vec<u8>, Vec<u8>)> = self.link.run(&request).await?;
        // Fields that are not valid extensions are ignored.
        let extensions = answer.iter().filter_map(|(name, value)| {
            let name = std::str::from_utf8(name).ok()?;
            Extension::new(name, value)
        });
        Ok(extensions.collect())
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

fn number(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// Parses a number that may be missing.
fn optional(digits: &str) -> Result<Option<u64>, Silent> {
    if digits.is_empty() {
        return Ok(None);
    }
    number(digits).map(Some).ok_or_else(unreadable)
}

fn unreadable() -> Silent {
    Silent("its answer cannot be read".into())
}
