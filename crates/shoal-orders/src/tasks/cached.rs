//! Pages of the objects below a prefix: how much of each is cached, and on which nodes.
//!
//! The lake is listed in the name of an identity, so a page never shows what the lake would refuse that
//! identity. A page is about as many blocks as one question to a node may be.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use shoal_cache::lake::{LakeRefusal, PAGE_KEYS};
use shoal_policy::NodeId;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::target;
use shoal_s3::uri::S3Uri;
use shoal_s3::xml::ListedObject;
use tokio::time::timeout;

use super::parts::holdings::{Holdings, questions};
use super::parts::lake_view::LakeView;
use super::parts::messages::{Answer, BlockBits, Question};
use super::parts::nodes::Nodes;
use super::parts::task_identity::TaskIdentity;
use super::refusal::TaskRefusal;
use super::service::Tasks;

/// Maximum number of objects on a page.
pub const CACHED_OBJECTS_MAX: usize = PAGE_KEYS;

/// The time within which a node has to say what it holds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The objects of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedQuery {
    /// The bucket, and the beginning of the keys as it is written: a `*` is a character like others.
    pub uri: S3Uri,
    /// The access key of the identity that lists the lake; `None` for the only one that the nodes know.
    pub identity: Option<String>,
    /// `next` of the page before; `None` for the first page.
    pub after: Option<String>,
    /// Maximum number of objects, [`CACHED_OBJECTS_MAX`] at most.
    pub limit: usize,
}

/// A page of objects, in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedPage {
    /// The objects.
    pub objects: Vec<CachedObject>,
    /// The nodes that did not say what they hold. Their blocks count as not cached.
    pub silent: Vec<String>,
    /// `after` of the next page; `None` on a page without objects, which is the last.
    #[serde(default)]
    pub next: Option<String>,
}

/// An object at the lake or in a tier, and what of its current version is cached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedObject {
    /// The key. Bytes that are not UTF-8 are replaced.
    pub key: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes that at least one node holds.
    pub cached_bytes: u64,
    /// The nodes that hold blocks of it, with their bytes.
    pub nodes: BTreeMap<String, u64>,
    /// True if an order pins the object on a node.
    pub pinned: bool,
    /// True if the lake does not have this version yet.
    pub dirty: bool,
}

/// An object of a page, with the version that the listing names.
struct Listed {
    object: ListedObject,
    version: Version,
}

/// The blocks that one node holds of the objects of a page.
struct Held {
    node: NodeId,
    name: String,
    holdings: Holdings,
    /// For each object, true if it is pinned; empty if the node does not say.
    pinned: Vec<bool>,
}

impl Tasks {
    /// Returns a page of objects with what of them is cached.
    ///
    /// # Errors
    ///
    /// Fails if the nodes do not know the identity, or if the lake refuses it or does not answer.
    pub async fn cached(&self, query: &CachedQuery) -> Result<CachedPage, TaskRefusal> {
        let (nodes, parts) = (&self.base.nodes, &self.base.nodes.parts);
        let name = parts.identity(query.identity.as_deref())?;
        // A task waits for a key of its identity, and an operator does not.
        let is_known = parts.caller(name.as_deref());
        is_known.map_err(|why| TaskRefusal::bad(format!("this node {why}")))?;
        let identity = TaskIdentity::named(name.as_deref(), parts, &Arc::default());
        let listed = listed(query, &LakeView::new(parts, identity)).await;
        let listed = listed.map_err(|refusal| not_listed(query, &refusal))?;
        let asked = questions(&listed, |listed| listed.version.block_count());
        let asked = asked.first().copied().unwrap_or_default();
        let all = if asked.is_empty() { Vec::new() } else { nodes.all() };
        let answers = join_all(all.iter().map(|node| Held::ask(nodes, *node, asked))).await;
        let silent = all.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
        let silent = silent.map(|(node, _)| nodes.name_of(*node)).collect();
        let held: Vec<Held> = answers.into_iter().flatten().collect();
        let objects = asked.iter().enumerate();
        Ok(CachedPage {
            objects: objects
                .map(|(place, listed)| listed.cached(place, &held))
                .collect(),
            silent,
            next: asked.last().map(|last| target::key(&last.object.key)),
        })
    }
}

/// Lists the objects of a page and their versions.
async fn listed(query: &CachedQuery, lake: &LakeView) -> Result<Vec<Listed>, LakeRefusal> {
    let S3Uri { bucket, key } = &query.uri;
    let after = query.after.as_deref().unwrap_or_default();
    let after: Vec<u8> = percent_decode_str(after).collect();
    let objects = lake.list(bucket, key.as_bytes(), &after).await?;
    let objects = objects.into_iter().take(query.limit);
    let listed = objects.map(|object| {
        let name = ObjectName {
            bucket: bucket.as_str().into(),
            key: object.key.as_slice().into(),
            version: None,
        };
        let version = lake.listed_version(&name, &object);
        Listed { object, version }
    });
    Ok(listed.collect())
}

/// Returns the answer to an operator whose objects were not listed: a lake that refuses the identity will do
/// so again, and one that does not answer may answer later.
fn not_listed(query: &CachedQuery, refusal: &LakeRefusal) -> TaskRefusal {
    let (status, hint) = match refusal {
        LakeRefusal::Refused { .. } | LakeRefusal::Uncacheable(_) => (
            StatusCode::BAD_REQUEST,
            "name a bucket of the lake, and an identity that may list it",
        ),
        LakeRefusal::Trouble(_) => (StatusCode::BAD_GATEWAY, "`shoal doctor` checks the lake"),
    };
    let why = format!("{} cannot be listed: {refusal}\nhint: {hint}", query.uri);
    TaskRefusal::new(status, why)
}

impl Held {
    /// Asks a node; returns `None` if it does not answer in time.
    async fn ask(nodes: &Nodes, node: NodeId, objects: &[Listed]) -> Option<Self> {
        let versions: Vec<&Version> = objects.iter().map(|listed| &listed.version).collect();
        let pinned = Question::Pinned(versions.iter().map(|version| version.object).collect());
        let asked = [node];
        let answers =
            async { tokio::join!(Holdings::ask(nodes, &asked, &versions), nodes.ask(node, pinned)) };
        let (holdings, pinned) = timeout(PATIENCE, answers).await.ok()?;
        holdings.include(node).then(|| Self {
            node,
            name: nodes.name_of(node),
            holdings,
            pinned: match pinned {
                Ok(Answer::Pinned(pinned)) => pinned,
                _ => Vec::new(),
            },
        })
    }
}

impl Listed {
    /// Returns what of the object at this place of the page is cached.
    fn cached(&self, place: usize, held: &[Held]) -> CachedObject {
        let Version {
            size_bytes,
            block_bytes,
            ..
        } = self.version;
        let (mut nodes, mut together) = (BTreeMap::new(), BlockBits::default());
        for held in held {
            let bits = held.holdings.of(held.node, self.version.id);
            if let Some(bits) = bits.filter(|bits| bits.count() > 0) {
                nodes.insert(held.name.clone(), bits.bytes(size_bytes, block_bytes));
                together.add(bits);
            }
        }
        CachedObject {
            key: String::from_utf8_lossy(&self.object.key).into_owned(),
            size_bytes,
            cached_bytes: together.bytes(size_bytes, block_bytes),
            nodes,
            pinned: held.iter().any(|held| held.pinned.get(place) == Some(&true)),
            dirty: self.object.is_dirty,
        }
    }
}
