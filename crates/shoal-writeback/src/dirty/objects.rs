//! The interface of write-back: all queries and operations on dirty objects for the rest of a node.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use crate::tier::{ByteStore, ChunkDigests, Damages, TierBytes, TierConfig, TierUnavailable};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Body;
use md5::{Digest as _, Md5};
use shoal_cache::directory::BlockDirectory;
use shoal_cache::fetch::Fetcher;
use shoal_cache::grants::Grants;
use shoal_cache::write::{BackRule, BodyCopy, Fallback, Spread, Uncached, WriteRules, WriteThrough};
use shoal_net::clock;
use shoal_net::endpoint::Endpoint;
use shoal_net::shutdown::Shutdown;
use shoal_registry::changes::{ChangedObject, LakeChange};
use shoal_registry::entry::Kind;
use shoal_registry::names::{BeginError, ChangeError, Found};
use shoal_registry::worker::NotFlushed;
use shoal_registry::{DirtyVersion, Lifetime, Name};
use shoal_s3::etag;
use shoal_s3::identity::{Caller, CallerId, Identities};
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::payload::CheckedBody;
use shoal_store::Store;
use tokio::time::{Duration, Instant, sleep};

use super::acknowledged::Acknowledged;
use super::cleaner::CleanerParts;
use super::intake::receive_nothing;
use super::lake_writer::LakeWriter;
use super::manifest::{Manifest, Naming, Record, is_writer};
use super::outcomes::Outcomes;
use super::part_layout::PartLayout;
use super::permission::{Memory, Permissions};
use super::registry_room::RegistryNearlyFull;
use super::status::WriteBackOutcome;
use super::tiers::{Tier, TierError, TierSettings, new_key, registry_name};
use super::writing::{PendingWrite, ReceiveError, WriteError};

/// How long an answer of the lake on a bucket's versioning is remembered.
const VERSIONED: Duration = Duration::from_mins(1);

/// Number of pairs of caller and bucket for which it is remembered.
const BUCKETS_MAX: usize = 10_000;

/// How long a change of a name waits for dirty objects under that name to be flushed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause between flushes of a name that concurrent writes keep dirty.
const FLUSH_PAUSE: Duration = Duration::from_millis(20);

/// Objects that are acknowledged but not yet at the lake.
///
/// Each node of a cluster has one instance, and all instances give the same answers.
pub struct DirtyObjects {
    rules: WriteRules,
    pub(super) lake: Arc<Endpoint>,
    grants: Arc<Grants>,
    through: Arc<WriteThrough>,
    directory: Option<Arc<BlockDirectory>>,
    /// The time that short-lived objects stay in a tier.
    short_age: Duration,
    pub(super) tiers: Vec<Tier>,
    pub(super) lake_writer: Arc<LakeWriter>,
    pub(super) naming: Naming,
    pub(super) outcomes: Arc<Outcomes>,
    /// Objects whose bytes in the tier differ from the acknowledged ones.
    pub(super) damages: Arc<Damages>,
    /// The lake's permissions to callers, remembered.
    pub(super) permissions: Arc<Permissions>,
    /// True for buckets that keep versions, as the lake reported to each caller.
    pub(super) versioned: Memory<(CallerId, Arc<str>), bool>,
}

/// The parts of a node that [`DirtyObjects`] uses.
pub struct Parts {
    /// The rules for where objects may be dirty, and in which tier.
    pub rules: WriteRules,
    /// The lake.
    pub lake: Arc<Endpoint>,
    /// The blocks on this node's disk.
    pub store: Arc<Store>,
    /// Fetches blocks from elsewhere.
    pub fetcher: Arc<Fetcher>,
    /// Remembered versions and grants, which a write invalidates.
    pub grants: Arc<Grants>,
    /// The identities on whose behalf objects are flushed.
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

/// The state of a name when it was looked up.
#[derive(Clone, Debug)]
pub struct Lookup {
    pub(super) tier: usize,
    name: Name,
    pub(super) found: Found,
    /// The dirty object; `None` if the lake's response is to be returned.
    pub manifest: Option<Arc<Manifest>>,
}

/// The bytes of a write, in the store of a tier.
pub struct Received {
    /// The key of the bytes; `None` for an empty object.
    key: Option<Arc<str>>,
    copy: Option<BodyCopy>,
    etag: Arc<str>,
    /// The digests of each piece.
    digests: Vec<ChunkDigests>,
    trailer: Option<(HeaderName, HeaderValue)>,
}

/// The reason why a flush did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlushFailed {
    /// The state of the object is unknown, so it may still be dirty.
    #[error(transparent)]
    Unavailable(#[from] TierUnavailable),
    /// The flush failed and will be retried.
    #[error("the object is dirty, and could not be flushed to the lake now: {0}")]
    NotFlushed(Arc<str>),
    /// The lake refuses the object, and will until an operator or a client intervenes.
    #[error("the object is dirty, and the lake refuses it: {0}")]
    Refused(Arc<str>),
}

/// The reason why a change of a name cannot begin at the lake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    /// A dirty object must be flushed first, and was not.
    #[error(transparent)]
    Flush(#[from] FlushFailed),
    /// Another change of the name has not ended in time.
    #[error("another change of the object is on its way to the lake")]
    Busy,
    /// The registry has no room for new entries.
    #[error(transparent)]
    NearlyFull(#[from] RegistryNearlyFull),
}

impl Lookup {
    /// Returns the dirty object if the caller wrote it. The node answers only its writer, who is certain to
    /// have permission.
    pub fn written_by(&self, caller: &Caller) -> Option<&Arc<Manifest>> {
        let manifest = self.manifest.as_ref();
        manifest.filter(|manifest| is_writer(caller, &manifest.writer))
    }
}

impl From<TierUnavailable> for NotBegun {
    fn from(error: TierUnavailable) -> Self {
        Self::Flush(error.into())
    }
}

impl DirtyObjects {
    /// Opens the tiers and their stores.
    ///
    /// # Errors
    ///
    /// A tier cannot work as configured.
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

    /// Flushes dirty objects when they are due, and runs the tiers' other tasks, until the node stops.
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
    /// Returns true if an object of this name may be dirty; the registry must then be read before the lake.
    /// Only the current object may be: its name has no version, or the version `null` of unversioned objects.
    pub fn may_be_dirty(&self, name: &ObjectName) -> bool {
        let is_current = name.version.as_deref().is_none_or(|version| version == "null");
        is_current && self.rules.allow_back(name)
    }

    /// Returns true if an object of `bucket` whose key begins with `prefix` may be dirty.
    pub fn may_be_dirty_below(&self, bucket: &str, prefix: &[u8]) -> bool {
        self.rules.allow_back_below(bucket, prefix)
    }

    /// Returns true if any object may be dirty.
    pub fn may_be_dirty_anywhere(&self) -> bool {
        self.rules.allow_back_anywhere()
    }

    /// Returns the buckets and prefixes below which objects may be dirty.
    pub(super) fn prefixes(&self) -> Vec<(String, Vec<u8>)> {
        self.rules.back_prefixes()
    }

    pub(super) fn rule(&self, name: &ObjectName) -> Option<(BackRule, &Tier)> {
        let rule = self.rules.back_rule(name)?;
        Some((rule, &self.tiers[rule.tier]))
    }

    /// Returns the rule that covers a name, and its tier.
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
    /// Returns true if a write that cannot be written back for this reason must be refused instead of written
    /// through.
    pub fn refuses(&self, name: &ObjectName, why: Uncached) -> bool {
        if why == Uncached::RegistryFull {
            return true;
        }
        let is_for_now = matches!(why, Uncached::TooDirty | Uncached::TierUnavailable);
        let rule = self.rules.back_rule(name);
        is_for_now && rule.is_some_and(|rule| rule.fallback == Fallback::Refuse)
    }

    /// Looks up the registry entry of a name that a rule allows to be dirty.
    ///
    /// # Errors
    ///
    /// The registry does not answer. The lake must not be read instead: it may be out of date.
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

    /// Returns true if the entry of a name has not changed since `lookup`. A 404 of the lake is valid only if
    /// this holds after it.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn is_as_found(&self, lookup: &Lookup) -> Result<bool, TierUnavailable> {
        let names = &self.tiers[lookup.tier].names;
        let is_as_found = names.is_as_found(&lookup.name, &lookup.found).await;
        is_as_found.map_err(TierUnavailable::from)
    }

    /// Returns a reader of a dirty object's bytes.
    pub fn bytes(&self, lookup: &Lookup, manifest: &Manifest) -> TierBytes {
        self.bytes_in(&self.tiers[lookup.tier], manifest)
    }

    pub(super) fn bytes_in(&self, tier: &Tier, manifest: &Manifest) -> TierBytes {
        manifest.bytes(Arc::clone(tier.store.bytes()), &self.damages)
    }

    /// Receives the bytes of an accepted write. They are invisible to reads until they are committed.
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

    /// Commits an accepted write: from then on, reads at every node find the object.
    ///
    /// # Errors
    ///
    /// Nothing was written, or the outcome is unknown.
    pub async fn commit(&self, write: PendingWrite, received: Received) -> Result<Arc<Version>, WriteError> {
        let PendingWrite {
            name,
            writer,
            size_bytes,
            mut headers,
            lifetime,
            ..
        } = write;
        // A checksum may also come in the trailer.
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

    /// Removes the bytes of a write that was not committed.
    pub async fn discard(&self, write: &PendingWrite, received: Received) {
        if let (Some(key), Some((_, tier))) = (received.key, self.rule(&write.name)) {
            tier.store.discard(&[key]).await;
        }
    }

    /// Writes the entry that makes bytes in the tier the current object of the name.
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

    /// Invalidates remembered answers of the lake about a name.
    pub fn invalidate(&self, name: &ObjectName) {
        self.grants.invalidate_object(name);
    }

    /// Caches the blocks of a written object on this node's disk; their names do not change when the object
    /// is flushed. They are sent to their homes only then: the tier is as near as a home, young objects often
    /// die, and the bytes would compete for the links with writes into the tier.
    fn cache(&self, copy: &BodyCopy, version: &Version) {
        let mut answer = version.headers.clone();
        answer.insert(header::ETAG, version.etag_header());
        // Ignored, because the response to the client does not report on the cache: the tier has the bytes in
        // any case.
        let _ = self.through.commit(copy, (version.object, &answer), Spread::Here);
    }

    /// Returns the version of an object that is about to be committed.
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

    /// Flushes an object now if it is dirty, for a client that waits for it.
    ///
    /// # Errors
    ///
    /// The object is still dirty, or its state is unknown.
    pub async fn flush(&self, name: &ObjectName) -> Result<(), FlushFailed> {
        let Some((_, tier)) = self.rule(name) else {
            return Ok(());
        };
        let _awaiting = tier.flushes.await_flush(&registry_name(name));
        self.flush_in_background(name).await
    }

    /// Flushes an object if it is dirty, at the priority of the cleaner, below that of clients.
    ///
    /// # Errors
    ///
    /// The object is still dirty, or its state is unknown.
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

    /// Begins a change of a name at the lake: a write of another object, or a change of the existing one. A
    /// dirty object is flushed first. No other node changes the name at the lake until this change ends.
    ///
    /// # Errors
    ///
    /// The change has not begun, and nothing may be sent to the lake.
    pub async fn begin_at_lake(&self, name: &ObjectName) -> Result<LakeChange, NotBegun> {
        self.begin(name, Kind::Write, None).await
    }

    /// Begins the removal of the object that `lookup` found, dirty or not.
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
        // The removal of a dirty object frees room, so it needs none.
        let is_dirty = |found: &Found| found.entry.current.is_some();
        if kind != Kind::Delete || !known.as_ref().is_some_and(is_dirty) {
            tier.check_room()?;
        }
        let key = registry_name(name);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let begun = tier
                .changes
                .begin(&key, kind, ChangedObject::Current, known.take());
            match begun.await {
                Ok(change) => return Ok(change),
                // Concurrent writes may make the name dirty again.
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
