//! The page `/explain`: the location and the worth of an object's blocks, with reasons. It shows no content,
//! and sends no request to the lake or to other nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use shoal_base::words;
use shoal_cache::directory::BlockDirectory;
use shoal_cache::gwf::Decision;
use shoal_directory::Group;
use shoal_directory::extensions::Extension;
use shoal_orders::tasks::{HintFacts, Moment};
use shoal_policy::eviction::c2p::{DIRECTORY, GROUP_BLOCKS, GroupKnowledge};
use shoal_policy::{BlockId, Layer, NodeId, ObjectId, VersionId};
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::operation::Query;
use shoal_s3::uri::S3Uri;
use shoal_store::Absence;
use ulid::Ulid;

use crate::core::Core;

/// Maximum number of blocks in one answer.
pub const BLOCKS_MAX: u32 = 4_096;

/// Maximum number of blocks looked up in the directory for one answer.
const ENTRIES_MAX: usize = 256;

/// Concurrent lookups in the directory.
const ENTRIES_AT_ONCE: usize = 16;

/// The object and the blocks of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainQuery {
    /// The object.
    pub object: S3Uri,
    /// Its version; `None` for the version known to the node.
    pub version: Option<VersionId>,
    /// The first block.
    pub first: u32,
    /// Maximum number of blocks.
    pub count: u32,
}

/// One node's knowledge of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The node that answers.
    pub node: String,
    /// The version; `None` if the node does not know it.
    pub version: Option<KnownVersion>,
    /// The requested blocks.
    pub blocks: Vec<BlockLocation>,
    /// The orders that pin the object on this node; empty if it is not pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PinEnd>,
    /// The quotas that the object and these blocks fall under: of the object's prefix, and of the identities
    /// that have brought the blocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<String>,
    /// Directory entries of the first of these blocks; empty without a directory, or if it does not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<DirectoryEntry>,
    /// Completeness of the object, by layer and group of blocks; empty unless the store uses C2P.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completeness: Vec<GroupCompleteness>,
}

/// Completeness of a group of blocks in a layer, as far as one node knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupCompleteness {
    /// The layer.
    pub layer: String,
    /// The first block of the group.
    pub first: u32,
    /// Number of blocks in the group.
    pub blocks: u32,
    /// Percentage of the group that counts as present. Blocks of incomplete groups are evicted first.
    pub percent: f64,
    /// Number of blocks in the group that readers used recently.
    pub read: u32,
    /// Of these, the blocks that no known node holds, by index in the object.
    pub missing: Vec<u32>,
    /// Number of blocks in the group that each node holds, as far as known from their events. With a
    /// directory, all other nodes are combined under `others`.
    pub held: BTreeMap<String, u32>,
}

/// An order that pins the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinEnd {
    /// Id of the task.
    pub task: String,
    /// When the pin ends.
    pub until: Moment,
    /// The hint that the task is, if it is one: the object is kept for a running job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Box<HintFacts>>,
}

/// Directory entry of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryEntry {
    /// Index of the block in the object, from 0.
    pub index: u32,
    /// The nodes that hold it.
    pub holders: Vec<String>,
    /// The node that has claimed its fetch.
    pub claimant: Option<String>,
    /// Uses of its copies by nodes that did not hold it, and those of copies that have been evicted.
    pub global_weight: u64,
    /// Extensions recorded for its group of blocks, such as `short`: `name`, or `name=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

/// Worth of a block to one node (GWF).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockWorth {
    /// Number of uses.
    pub weight: u64,
    /// Age at the last use on this node. The rank of the block is the sum of both.
    pub since: u64,
}

/// The relevant facts of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownVersion {
    /// Id of the version, the same on all nodes.
    pub id: String,
    /// The ETag as the lake sent it, with quotes.
    pub etag: String,
    /// Size of the object in bytes.
    pub size_bytes: u64,
    /// Size of a block in bytes.
    pub block_bytes: u64,
    /// Number of blocks.
    pub blocks: u32,
}

/// Where one block is, as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLocation {
    /// Index of the block in the object, from 0.
    pub index: u32,
    /// Presence of the block on this node.
    pub here: Presence,
    /// The order that brought it here before a reader asked for it; none has so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brought_by: Option<String>,
    /// True if it is here and pinned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Why it was evicted or refused: a label of the metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Worth of the block here, if the store uses GWF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worth: Option<BlockWorth>,
    /// The most recent decision of GWF about the block: kept, copied, dropped, or pushed to a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// The layer that the block belongs to on this node, present or not.
    pub layer: String,
    /// Its homes in each layer beyond L1, from L2 outwards. Empty while a directory locates it.
    pub homes: Vec<String>,
}

words! {
    /// Presence of a block on a node.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Presence {
        /// On disk.
        Resident = "resident",
        /// Being fetched, or waiting to be written to disk.
        Arriving = "arriving",
        /// Evicted.
        Evicted = "evicted",
        /// Fetched, but not stored.
        Refused = "refused",
        /// Not requested from this node, as far as it remembers.
        Unasked = "not asked for yet",
    }
}

impl ExplainQuery {
    /// Formats it as a query string.
    pub fn to_query(&self) -> String {
        let object = self.object.to_string();
        let object = utf8_percent_encode(&object, NON_ALPHANUMERIC);
        let version = self.version.map(|version| format!("&version={version}"));
        let (first, count) = (self.first, self.count);
        format!(
            "object={object}{}&first={first}&count={count}",
            version.unwrap_or_default()
        )
    }

    /// Parses a query string; `None` if a parameter is unknown or malformed, or if `object` is missing.
    pub fn parse(query: &str) -> Option<Self> {
        let (mut object, mut version, mut first, mut count) = (None, None, 0, BLOCKS_MAX);
        for (name, value) in Query::parse(Some(query)).ok()?.iter() {
            match name {
                "object" => object = Some(value.parse::<S3Uri>().ok()?),
                "version" => version = Some(version_id(value)?),
                "first" => first = value.parse().ok()?,
                "count" => count = value.parse::<u32>().ok()?.min(BLOCKS_MAX),
                _ => return None,
            }
        }
        Some(Self {
            object: object.filter(|object| !object.key.is_empty())?,
            version,
            first,
            count,
        })
    }
}

/// Parses the 32 hexadecimal digits of a version.
fn version_id(text: &str) -> Option<VersionId> {
    let number = u128::from_str_radix(text, 16).ok()?;
    (text.len() == 32).then(|| VersionId(number.to_be_bytes()))
}

/// Answers queries about blocks.
pub(crate) struct Explainer<'a>(pub(crate) &'a Core);

impl Explainer<'_> {
    /// Answers a query from this node's knowledge.
    pub(crate) async fn explain(&self, query: &ExplainQuery) -> Explanation {
        let known = self.known(&query.object).await;
        let asked = query.version;
        // The node may still hold blocks of a version whose metadata it does not know.
        let known = known.filter(|known| asked.is_none_or(|asked| asked == known.id));
        let end = query.first.saturating_add(query.count);
        let end = known.as_ref().map_or(end, |known| end.min(known.block_count()));
        let version = asked.or(known.as_ref().map(|known| known.id));
        let ids = version.map(|version| (query.first..end).map(move |index| BlockId { version, index }));
        let ids: Vec<_> = ids.into_iter().flatten().collect();
        Explanation {
            node: self.0.config.node.name.clone(),
            pins: self.pins(&query.object),
            quotas: self.quotas(&query.object, &ids),
            version: known.as_deref().map(KnownVersion::from),
            blocks: ids
                .iter()
                .map(|block| self.place(*block, known.as_deref()))
                .collect(),
            entries: self.entries(&ids[..ids.len().min(ENTRIES_MAX)]).await,
            completeness: self.completeness(&ids, known.as_deref()),
        }
    }

    /// Returns the completeness of these blocks' groups, by layer, as far as this node knows.
    fn completeness(&self, blocks: &[BlockId], version: Option<&Version>) -> Vec<GroupCompleteness> {
        let (layers, events) = (self.0.store.layers.rooms(), &self.0.store.cache_events);
        let mut groups = Vec::new();
        for members in blocks.chunk_by(|one, other| one.index / GROUP_BLOCKS == other.index / GROUP_BLOCKS) {
            let mut first = members[0];
            first.index -= first.index % GROUP_BLOCKS;
            let end = version.map_or(first.index.saturating_add(GROUP_BLOCKS), Version::block_count);
            let blocks = end.saturating_sub(first.index).min(GROUP_BLOCKS);
            groups.extend(layers.iter().filter_map(|room| {
                let known = events.knowledge(room.layer, first)?;
                Some(self.group(first, room.layer, blocks, &known))
            }));
        }
        groups
    }

    fn group(&self, first: BlockId, layer: Layer, blocks: u32, known: &GroupKnowledge) -> GroupCompleteness {
        let mut held: BTreeMap<_, _> = known
            .others
            .iter()
            .filter(|(_, held)| *held != 0)
            .map(|(node, held)| {
                let name = if *node == DIRECTORY {
                    "others".into()
                } else {
                    self.name_of(*node)
                };
                (name, held.count_ones())
            })
            .collect();
        if known.here != 0 {
            held.insert(self.0.config.node.name.clone(), known.here.count_ones());
        }
        let present = known.others.iter().fold(known.here, |all, (_, held)| all | held);
        let missing = known.read & !present;
        GroupCompleteness {
            layer: layer.to_string(),
            first: first.index,
            blocks,
            percent: (known.presence.fraction() * 1e4).round() / 1e2,
            read: known.read.count_ones(),
            missing: (0..GROUP_BLOCKS)
                .filter(|place| missing & (1 << place) != 0)
                .map(|place| first.index + place)
                .collect(),
            held,
        }
    }

    async fn entries(&self, blocks: &[BlockId]) -> Vec<DirectoryEntry> {
        let Some(directory) = &self.0.directory else {
            return Vec::new();
        };
        let mut noted = HashMap::new();
        for members in blocks.chunk_by(|one, other| Group::containing(*one) == Group::containing(*other)) {
            let group = Group::containing(members[0]);
            noted.insert(group, directory.extensions(group).await);
        }
        let entries = stream::iter(blocks.to_vec()).map(async |block| {
            let entry = directory.entry(block).await?;
            let name = |node: NodeId| self.name_of(node);
            Some(DirectoryEntry {
                index: block.index,
                holders: entry.holders.into_iter().map(name).collect(),
                claimant: entry.claimant.map(name),
                global_weight: entry.global_weight,
                extensions: noted[&Group::containing(block)]
                    .iter()
                    .map(extension_text)
                    .collect(),
            })
        });
        let entries = entries.buffered(ENTRIES_AT_ONCE);
        entries.filter_map(std::future::ready).collect().await
    }

    /// Returns the name of a node, or its id if it is no longer a member.
    fn name_of(&self, node: NodeId) -> String {
        let name = self.0.cooperation.name_of(node);
        name.unwrap_or_else(|| format!("{:016x}", node.0))
    }

    fn decision(&self, block: BlockId) -> Option<String> {
        Some(match self.0.keeper.as_ref()?.decision(block)? {
            Decision::Kept => "kept".into(),
            Decision::Copied => "copied".into(),
            Decision::Dropped => "dropped".into(),
            Decision::Pushed(node) => format!("pushed to {}", self.name_of(node)),
        })
    }

    fn pins(&self, object: &S3Uri) -> Vec<PinEnd> {
        let pins = self.0.store.pinning.orders_of(self.object_id(object)).into_iter();
        let pins = pins.map(|(order, until)| PinEnd {
            task: Ulid(order.0).to_string(),
            until: until.into(),
            hint: None,
        });
        pins.collect()
    }

    fn quotas(&self, object: &S3Uri, blocks: &[BlockId]) -> Vec<String> {
        let of_prefix = self.0.quotas.of_object(&name(object));
        let all = self.0.quotas.all();
        let mut brought = BTreeSet::new();
        for block in blocks {
            let counted = self.0.store.quotas_of(*block);
            let quotas = all.iter().filter(|quota| counted.iter().any(|id| id == quota.id));
            brought.extend(quotas.map(|quota| quota.scope.name().to_owned()));
        }
        let of_prefix = of_prefix.map(|quota| quota.scope.name().to_owned());
        brought.extend(of_prefix);
        brought.into_iter().collect()
    }

    fn object_id(&self, object: &S3Uri) -> ObjectId {
        name(object).id(self.0.lake.url())
    }

    async fn known(&self, object: &S3Uri) -> Option<Arc<Version>> {
        let id = self.object_id(object);
        match self.0.grants.version(id) {
            Some(version) => Some(version),
            None => self.0.store.describe(id).await,
        }
    }

    fn place(&self, block: BlockId, version: Option<&Version>) -> BlockLocation {
        let (here, reason) = if self.0.store.contains(block) {
            (Presence::Resident, None)
        } else if self.0.single_flight.contains(block) {
            (Presence::Arriving, None)
        } else {
            match self.0.store.absence(block) {
                Some(Absence::Removed(reason)) => (Presence::Evicted, Some(reason.as_str())),
                Some(Absence::Refused(refusal)) => (Presence::Refused, Some(refusal.as_str())),
                None => (Presence::Unasked, None),
            }
        };
        let directory = self.0.directory.as_ref().filter(|directory| directory.answers());
        let is_long = |version: &Version| BlockDirectory::enters(version.block_len(block.index));
        let is_entered = directory.is_some() && version.is_none_or(is_long);
        BlockLocation {
            index: block.index,
            here,
            brought_by: self
                .0
                .early
                .brought_by(block)
                .map(|order| Ulid(order).to_string()),
            pinned: self.0.store.pinning.contains_block(block),
            reason: reason.map(str::to_owned),
            worth: self.0.store.worths.worth(block).map(|worth| BlockWorth {
                weight: worth.weight.to_u64_saturating(),
                since: worth.since.to_u64_saturating(),
            }),
            decision: self.decision(block),
            layer: self.0.store.layers.layer_of(block).to_string(),
            homes: if is_entered {
                Vec::new()
            } else {
                self.0.cooperation.homes(block)
            },
        }
    }
}

fn name(object: &S3Uri) -> ObjectName {
    ObjectName {
        bucket: object.bucket.as_str().into(),
        key: object.key.as_bytes().into(),
        version: None,
    }
}

/// Formats an extension as `name`, or as `name=value` if it has a value.
fn extension_text(extension: &Extension) -> String {
    let value = extension.value().escape_ascii();
    let separator = if extension.value().is_empty() { "" } else { "=" };
    format!("{}{separator}{value}", extension.name())
}

impl KnownVersion {
    /// Parses the id; returns `None` if it is malformed.
    pub fn id(&self) -> Option<VersionId> {
        version_id(&self.id)
    }
}

impl From<&Version> for KnownVersion {
    fn from(version: &Version) -> Self {
        Self {
            id: version.id.to_string(),
            etag: version.etag.to_string(),
            size_bytes: version.size_bytes,
            block_bytes: version.block_bytes,
            blocks: version.block_count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use shoal_policy::VersionId;

    use super::{BLOCKS_MAX, ExplainQuery};

    #[test]
    fn a_query_reads_back_unchanged() {
        let query = ExplainQuery {
            object: "s3://b/a key&with=100%25 ä?#".parse().unwrap(),
            version: Some(VersionId([0xab; 16])),
            first: 7,
            count: 9,
        };
        assert_eq!(ExplainQuery::parse(&query.to_query()), Some(query));
        let spaced = ExplainQuery::parse("object=s3://b/a+b").unwrap();
        assert_eq!(spaced.object.key, "a b", "clients encode queries as forms");
        let brief = ExplainQuery::parse("object=s3://b/k").unwrap();
        assert_eq!((brief.version, brief.first, brief.count), (None, 0, BLOCKS_MAX));
    }

    #[test]
    fn a_query_that_names_no_object_is_invalid() {
        for query in [
            "",
            "object=",
            "object=s3://b",
            "object=k",
            "first=1",
            "object=s3://b/k&first=-1",
            "object=s3://b/k&version=0",
            "object=s3://b/k&other=1",
            "object=s3://b/%ff",
        ] {
            assert_eq!(ExplainQuery::parse(query), None, "{query}");
        }
    }

    proptest! {
        #[test]
        fn any_query_string_is_read_or_refused(query in any::<String>()) {
            let _ = ExplainQuery::parse(&query);
        }
    }
}
