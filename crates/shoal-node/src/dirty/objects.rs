//! The interface of write-back: everything that the rest of a node asks about dirty objects, or does to them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Body;
use md5::{Digest as _, Md5};
use shoal_registry::changes::{LakeChange, Of};
use shoal_registry::entry::Kind;
use shoal_registry::names::{BeginError, ChangeError, Found};
use shoal_registry::worker::NotFlushed;
use shoal_registry::{DirtyVersion, Lifetime, Name};
use shoal_s3::etag;
use shoal_s3::identity::{CallerId, Identities};
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::payload::CheckedBody;
use shoal_store::Store;
use tokio::time::{Duration, Instant, sleep};

use super::acknowledged::Acknowledged;
use super::cleaner::CleanerParts;
use super::intake::receive_nothing;
use super::lake_writer::LakeWriter;
use super::manifest::{Manifest, Naming, Record};
use super::outcomes::Outcomes;
use super::part_layout::PartLayout;
use super::permission::{Memory, Permissions};
use super::registry_room::RegistryNearlyFull;
use super::status::WriteBackOutcome;
use super::tiers::{Tier, TierError, TierSettings, new_key, registry_name};
use super::writing::{PendingWrite, ReceiveError, WriteError};
use crate::clock;
use crate::directory::BlockDirectory;
use crate::endpoint::Endpoint;
use crate::fetch::Fetcher;
use crate::grants::Grants;
use crate::shutdown::Shutdown;
use crate::tier::{ByteStore, ChunkDigests, Damages, TierBytes, TierConfig, TierUnavailable};
use crate::write::{BackRule, BodyCopy, Fallback, Spread, Uncached, WriteRules, WriteThrough};

/// How long the lake's word on the versions of a bucket is remembered.
const VERSIONED: Duration = Duration::from_mins(1);

/// The number of callers and buckets, in pairs, that this is remembered for.
const BUCKETS_MAX: usize = 10_000;

/// How long a change of a name waits until no object is dirty under it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause before a flush of a name that other writes keep dirty.
const FLUSH_PAUSE: Duration = Duration::from_millis(20);

/// The objects that were acknowledged before the lake has them.
///
/// Every node of a cluster has one, and all of them give the same answers.
pub struct DirtyObjects {
    rules: WriteRules,
    pub(super) lake: Arc<Endpoint>,
    grants: Arc<Grants>,
    through: Arc<WriteThrough>,
    directory: Option<Arc<BlockDirectory>>,
    /// The time for which short-lived objects stay in a tier.
    short_age: Duration,
    pub(super) tiers: Vec<Tier>,
    pub(super) lake_writer: Arc<LakeWriter>,
    pub(super) naming: Naming,
    pub(super) outcomes: Arc<Outcomes>,
    /// Objects whose bytes a tier does not give as they were acknowledged.
    pub(super) damages: Arc<Damages>,
    /// What the lake lets callers do.
    pub(super) permissions: Arc<Permissions>,
    /// Whether buckets keep versions, as their writers are told.
    pub(super) versioned: Memory<(CallerId, Arc<str>), bool>,
}

/// The parts of a node that [`DirtyObjects`] uses.
pub struct Parts {
    /// The rules that say where objects may be dirty, and in which tier.
    pub rules: WriteRules,
    /// The lake.
    pub lake: Arc<Endpoint>,
    /// Blocks on disk.
    pub store: Arc<Store>,
    /// Blocks from elsewhere.
    pub fetcher: Arc<Fetcher>,
    /// Versions and grants. Those of an object are void once it is written.
    pub grants: Arc<Grants>,
    /// The identities in whose names objects are flushed.
    pub identities: Arc<Identities>,
    /// Caches the bytes of writes.
    pub through: Arc<WriteThrough>,
    /// The directory of blocks, if the nodes have one.
    pub directory: Option<Arc<BlockDirectory>>,
    /// The size of a block.
    pub block_bytes: u64,
    /// The id of this node.
    pub node: u64,
}

/// The state of a name at one moment.
#[derive(Clone, Debug)]
pub struct Lookup {
    pub(super) tier: usize,
    name: Name,
    pub(super) found: Found,
    /// The dirty object. `None`: the lake's answer is the answer.
    pub manifest: Option<Arc<Manifest>>,
}

/// The bytes of a write, in the store of a tier.
pub struct Received {
    /// `None` for an empty object.
    key: Option<Arc<str>>,
    copy: Option<BodyCopy>,
    etag: Arc<str>,
    /// Those of each piece.
    digests: Vec<ChunkDigests>,
    trailer: Option<(HeaderName, HeaderValue)>,
}

/// The reason why an object is still dirty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlushFailed {
    /// It may be: its state is not known.
    #[error(transparent)]
    Unavailable(#[from] TierUnavailable),
    /// It could not be brought to the lake.
    #[error("the object is dirty, and could not be flushed to the lake now: {0}")]
    NotFlushed(Arc<str>),
    /// The lake refuses it, and will again until a person or a client does something.
    #[error("the object is dirty, and the lake refuses it: {0}")]
    Refused(Arc<str>),
}

/// The reason why a change of a name cannot begin at the lake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    /// A dirty object must go to the lake first.
    #[error(transparent)]
    Flush(#[from] FlushFailed),
    /// Another change of the name does not end.
    #[error("another change of the object is on its way to the lake")]
    Busy,
    /// The registry has no room for anything that begins.
    #[error(transparent)]
    NearlyFull(#[from] RegistryNearlyFull),
}

impl From<TierUnavailable> for NotBegun {
    fn from(error: TierUnavailable) -> Self {
        Self::Flush(error.into())
    }
}

impl DirtyObjects {
    /// Opens the tiers, each with its store.
    ///
    /// # Errors
    ///
    /// A tier cannot be used as it is configured.
    pub async fn open(
        parts: Parts,
        tiers: &[(TierConfig, Arc<dyn ByteStore>)],
        settings: TierSettings,
    ) -> Result<Self, TierError> {
        let Parts {
            rules,
            lake,
            store,
            fetcher,
            grants,
            identities,
            through,
            directory,
            block_bytes,
            node,
        } = parts;
        let node_folder = store.node_folder();
        let permissions = Arc::new(Permissions::new(Arc::clone(&lake), settings.permission));
        let writers = Arc::clone(&identities);
        let lake_writer = LakeWriter::new(Arc::clone(&lake), store, fetcher, identities);
        let lake_writer = Arc::new(lake_writer);
        let naming = Naming {
            lake: lake.url().into(),
            block_bytes,
        };
        let outcomes = Arc::<Outcomes>::default();
        let damages = Arc::<Damages>::default();
        let cleaner = CleanerParts {
            lake_writer: Arc::clone(&lake_writer),
            through: Arc::clone(&through),
            grants: Arc::clone(&grants),
            permissions: Arc::clone(&permissions),
            identities: writers,
            outcomes: Arc::clone(&outcomes),
            damages: Arc::clone(&damages),
            naming: naming.clone(),
        };
        let mut opened = Vec::with_capacity(tiers.len());
        for (config, bytes) in tiers {
            let me = (node, &*node_folder);
            opened.push(Tier::open(config, Arc::clone(bytes), me, settings, cleaner.clone()).await?);
        }
        for tier in &opened {
            tier.begin().await?;
        }
        Ok(Self {
            rules,
            lake,
            grants,
            through,
            directory,
            short_age: settings.pace.short_age,
            tiers: opened,
            lake_writer,
            naming,
            outcomes,
            damages,
            permissions,
            versioned: Memory::new(VERSIONED, BUCKETS_MAX),
        })
    }

    /// Flushes dirty objects when they are due, and does what else the tiers need, until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let this = &*self;
        let tiers = this.tiers.iter().enumerate().map(|(number, tier)| {
            let covers = move |name: &ObjectName| {
                let rule = this.rules.back_rule(name);
                rule.is_some_and(|rule| rule.tier == number)
            };
            tier.run(stopping.clone(), covers)
        });
        futures_util::future::join_all(tiers).await;
    }
}

/// Where objects may be dirty.
impl DirtyObjects {
    /// Whether an object of this name may be dirty.
    pub fn may_be_dirty(&self, name: &ObjectName) -> bool {
        self.rules.allow_back(name)
    }

    /// Whether an object of `bucket` whose key begins with `prefix` may be dirty.
    pub fn may_be_dirty_below(&self, bucket: &str, prefix: &[u8]) -> bool {
        self.rules.allow_back_below(bucket, prefix)
    }

    /// Whether any object may be dirty.
    pub fn may_be_dirty_anywhere(&self) -> bool {
        self.rules.allow_back_anywhere()
    }

    /// The buckets and prefixes below which objects may be dirty.
    pub(super) fn prefixes(&self) -> Vec<(String, Vec<u8>)> {
        self.rules.back_prefixes()
    }

    pub(super) fn rule(&self, name: &ObjectName) -> Option<(BackRule, &Tier)> {
        let rule = self.rules.back_rule(name)?;
        Some((rule, &self.tiers[rule.tier]))
    }

    /// The rule of a name that is below one, and its tier.
    fn rule_of(&self, name: &ObjectName) -> Result<(BackRule, &Tier), TierUnavailable> {
        let rule = self.rule(name);
        rule.ok_or_else(|| TierUnavailable::because(&"no rule names a tier"))
    }

    pub(super) fn tiers_below(&self, bucket: &str, prefix: &[u8]) -> impl Iterator<Item = &Tier> {
        let tiers: BTreeSet<usize> = self.rules.tiers_below(bucket, prefix);
        tiers.into_iter().map(|tier| &self.tiers[tier])
    }
}

/// Objects.
impl DirtyObjects {
    /// Whether a write that may not be dirty for this reason is refused, and does not go to the lake instead.
    pub fn refuses(&self, name: &ObjectName, why: Uncached) -> bool {
        if why == Uncached::RegistryFull {
            return true;
        }
        let is_for_now = matches!(why, Uncached::TooDirty | Uncached::TierUnavailable);
        let rule = self.rules.back_rule(name);
        is_for_now && rule.is_some_and(|rule| rule.fallback == Fallback::Refuse)
    }

    /// Looks a name up, below a rule that lets it be dirty.
    ///
    /// # Errors
    ///
    /// The registry does not answer. The lake's answer is not the answer then.
    pub async fn find(&self, name: &ObjectName) -> Result<Lookup, TierUnavailable> {
        let (rule, tier) = self.rule_of(name)?;
        let key = registry_name(name);
        let found = tier.names.find(&key).await.map_err(TierUnavailable::from)?;
        let manifest = found
            .entry
            .current
            .as_ref()
            .map(|version| self.manifest(name, version));
        Ok(Lookup {
            tier: rule.tier,
            name: key,
            manifest: manifest.transpose()?,
            found,
        })
    }

    pub(super) fn manifest(
        &self,
        name: &ObjectName,
        version: &DirtyVersion,
    ) -> Result<Arc<Manifest>, TierUnavailable> {
        let manifest = Manifest::of(name, version, &self.naming);
        manifest.map(Arc::new).map_err(|error| {
            TierUnavailable::because(&format!("the record of {name:?} cannot be read: {error}"))
        })
    }

    /// Whether a name is still in the state that was found. The lake's word that there is no object is the
    /// answer only if this holds afterwards.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn is_as_found(&self, lookup: &Lookup) -> Result<bool, TierUnavailable> {
        let names = &self.tiers[lookup.tier].names;
        let is_as_found = names.is_as_found(&lookup.name, &lookup.found).await;
        is_as_found.map_err(TierUnavailable::from)
    }

    /// The bytes of a dirty object.
    pub fn bytes(&self, lookup: &Lookup, manifest: &Manifest) -> TierBytes {
        self.bytes_in(&self.tiers[lookup.tier], manifest)
    }

    pub(super) fn bytes_in(&self, tier: &Tier, manifest: &Manifest) -> TierBytes {
        manifest.bytes(Arc::clone(tier.store.bytes()), &self.damages)
    }

    /// Receives the bytes of an accepted write. No read finds them before they are committed.
    ///
    /// # Errors
    ///
    /// Nothing is kept.
    pub async fn receive<B>(
        &self,
        write: &PendingWrite,
        body: CheckedBody<B>,
    ) -> Result<Received, ReceiveError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let size_bytes = write.size_bytes;
        let (_, tier) = self.rule_of(&write.name)?;
        let key = (size_bytes > 0).then(|| new_key(size_bytes));
        let copy = self.through.copy(size_bytes);
        let mut body = std::pin::pin!(body);
        let each = |data: &Bytes| {
            if let Ok(copy) = &copy {
                copy.add(vec![data.clone()]);
            }
        };
        let (md5, digests) = if let Some(key) = &key {
            let received = tier.store.receive((key, size_bytes), body.as_mut(), each).await?;
            (received.md5, vec![received.digests])
        } else {
            receive_nothing(body.as_mut()).await?;
            (Md5::digest([]).into(), Vec::new())
        };
        Ok(Received {
            key,
            copy: copy.ok(),
            etag: etag::of_md5(&md5).into(),
            digests,
            trailer: body.trailer(),
        })
    }

    /// Commits the object of an accepted write: from then on every node finds it.
    ///
    /// # Errors
    ///
    /// Nothing was written, or that is not known.
    pub async fn commit(&self, write: PendingWrite, received: Received) -> Result<Arc<Version>, WriteError> {
        let PendingWrite {
            name,
            writer,
            size_bytes,
            mut headers,
            lifetime,
            ..
        } = write;
        // A checksum that comes behind the bytes says the same as one before them.
        headers.extend(received.trailer);
        let record = Record {
            writer,
            etag: received.etag,
            modified: clock::utc_now(),
            headers,
            of_reads: HeaderMap::new(),
            part_layout: PartLayout::default(),
            acknowledged: Acknowledged::new(Some(received.digests), Vec::new()),
        };
        let data = received.key.into_iter().collect();
        let version = self.enter(&name, (size_bytes, lifetime), (&record, data)).await?;
        if let Some(copy) = received.copy {
            self.cache(&copy, &version);
        }
        Ok(version)
    }

    /// Removes the bytes of a write that is not committed.
    pub async fn discard(&self, write: &PendingWrite, received: Received) {
        if let (Some(key), Some((_, tier))) = (received.key, self.rule(&write.name)) {
            tier.store.discard(&[key]).await;
        }
    }

    /// Makes bytes in the tier the object that reads of the name find.
    pub(super) async fn enter(
        &self,
        name: &ObjectName,
        (size_bytes, lifetime): (u64, Option<Lifetime>),
        (record, data): (&Record, Vec<Arc<str>>),
    ) -> Result<Arc<Version>, WriteError> {
        let (_, tier) = self.rule(name).expect("a name that is written back has a tier");
        let dirty = self.describe(name, (size_bytes, lifetime), (record, data.clone()));
        let lifetime = dirty.lifetime;
        let manifest = self.manifest(name, &dirty)?;
        match tier.names.write(&registry_name(name), dirty).await {
            Ok(()) => {}
            Err(ChangeError::OutcomeUnknown) => return Err(WriteError::OutcomeUnknown),
            Err(error) => {
                tier.store.discard(&data).await;
                return Err(TierUnavailable::because(&error).into());
            }
        }
        self.outcomes.count(WriteBackOutcome::Committed);
        self.invalidate(name);
        if lifetime == Lifetime::Short
            && let Some(directory) = &self.directory
        {
            directory.mark_short(&manifest.version, self.short_age);
        }
        Ok(Arc::clone(&manifest.version))
    }

    /// Forgets the lake's earlier answers about a name.
    pub(super) fn invalidate(&self, name: &ObjectName) {
        self.grants.invalidate_object(name);
    }

    /// Keeps the blocks of a written object on this node's disk. They have the same names before and after
    /// the object goes to the lake. The homes get them then: the tier is as near as a home, a young object
    /// often dies, and the bytes would take the same links as the writes into the tier.
    fn cache(&self, copy: &BodyCopy, version: &Version) {
        let mut answer = version.headers.clone();
        answer.insert(header::ETAG, version.etag_header());
        // The answer to the client says nothing about the cache: the tier has the bytes in any case.
        let _ = self.through.commit(copy, (version.object, &answer), Spread::Here);
    }

    /// Describes an object that is to be committed.
    pub(super) fn describe(
        &self,
        name: &ObjectName,
        (size_bytes, lifetime): (u64, Option<Lifetime>),
        (record, data): (&Record, Vec<Arc<str>>),
    ) -> DirtyVersion {
        let (rule, tier) = self.rule(name).expect("a name that is written back has a tier");
        DirtyVersion {
            id: shoal_registry::session::new_id(),
            node: tier.node,
            size_bytes,
            lifetime: lifetime.unwrap_or(rule.lifetime),
            data,
            record: record.to_bytes().into(),
        }
    }

    /// Brings an object to the lake now, if it is dirty, for a client that waits for it.
    ///
    /// # Errors
    ///
    /// The object is still dirty, or that is not known.
    pub async fn flush(&self, name: &ObjectName) -> Result<(), FlushFailed> {
        let Some((_, tier)) = self.rule(name) else {
            return Ok(());
        };
        let _awaiting = tier.flushes.await_flush(&registry_name(name));
        self.flush_in_background(name).await
    }

    /// Brings an object to the lake, if it is dirty, as the cleaner would. Clients go first.
    ///
    /// # Errors
    ///
    /// The object is still dirty, or that is not known.
    pub async fn flush_in_background(&self, name: &ObjectName) -> Result<(), FlushFailed> {
        let Some((_, tier)) = self.rule(name) else {
            return Ok(());
        };
        let flushed = tier.worker.flush(&registry_name(name)).await;
        flushed.map_err(|error| match error {
            NotFlushed::Begin(BeginError::Change(ChangeError::Engine(error))) => {
                TierUnavailable::from(error).into()
            }
            NotFlushed::Refused(why) => FlushFailed::Refused(why),
            error => FlushFailed::NotFlushed(error.to_string().into()),
        })
    }

    /// Begins a change of a name at the lake: a write of another object there, or a change of the object.
    /// A dirty object goes to the lake first. No other node changes the name there until the change ends.
    ///
    /// # Errors
    ///
    /// The change has not begun, and nothing may be sent to the lake.
    pub async fn begin_at_lake(&self, name: &ObjectName) -> Result<LakeChange, NotBegun> {
        self.begin(name, Kind::Write, None).await
    }

    /// Begins the removal of the object under a name, dirty or not, that was looked up before.
    ///
    /// # Errors
    ///
    /// The removal has not begun, and nothing may be sent to the lake.
    pub async fn begin_removal(&self, name: &ObjectName, lookup: Lookup) -> Result<LakeChange, NotBegun> {
        self.begin(name, Kind::Delete, Some(lookup.found)).await
    }

    async fn begin(
        &self,
        name: &ObjectName,
        kind: Kind,
        mut known: Option<Found>,
    ) -> Result<LakeChange, NotBegun> {
        let (_, tier) = self.rule_of(name)?;
        // The removal of a dirty object makes room.
        let is_dirty = |found: &Found| found.entry.current.is_some();
        if kind != Kind::Delete || !known.as_ref().is_some_and(is_dirty) {
            tier.check_room()?;
        }
        let key = registry_name(name);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match tier.changes.begin(&key, (kind, Of::Current), known.take()).await {
                Ok(change) => return Ok(change),
                // Other writes may keep the name dirty.
                Err(BeginError::Changed) if Instant::now() < deadline => {
                    self.flush(name).await?;
                    sleep(FLUSH_PAUSE).await;
                }
                Err(BeginError::Changed | BeginError::Busy(_)) => return Err(NotBegun::Busy),
                Err(error @ (BeginError::NoSession | BeginError::Change(_))) => {
                    return Err(TierUnavailable::because(&error).into());
                }
            }
        }
    }
}
