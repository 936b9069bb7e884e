//! The interface of write-back: all queries and operations on dirty objects for the rest of a node.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Body;
use md5::{Digest as _, Md5};
use shoal_base::moment::millis_since_1970;
use shoal_cache::held::TierObject;
use shoal_cache::write::{BodyCopy, Spread};
use shoal_net::clock;
use shoal_registry::changes::{ChangedObject, LakeChange};
use shoal_registry::entry::Kind;
use shoal_registry::names::{BeginError, ChangeError, Found};
use shoal_registry::roots::Roots;
use shoal_registry::session::{new_id, new_id_after};
use shoal_registry::{Content, DirtyVersion, Lifetime};
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::etag;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::payload::CheckedBody;
use tokio::time::{Duration, Instant, sleep};
use ulid::Ulid;

use super::clearance::{Clearances, PendingRemoval};
use super::errors::try_again;
use super::lake_writer::{Parts, Shared};
use super::packs::{Packs, PacksParts};
use super::record::acknowledged::Acknowledged;
use super::record::format::encoded;
use super::record::keys::{new_key, registry_name};
use super::record::manifest::{Manifest, Record};
use super::record::part_layout::PartLayout;
use super::record::writing::{PendingWrite, WriteError};
use super::stock::intake::receive_content;
use super::stock::status::WriteBackOutcome;
use super::tiers::entries::{Entries, FlushFailed, Lookup};
use super::tiers::{Tier, TierError, TierParts, TierRegistry, TierSettings};
use crate::tier::{ByteStore, ChunkDigests, TierBytes, TierConfig, TierUnavailable};

/// How long a change of a name waits for dirty objects under that name to be flushed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause between flushes of a name that concurrent writes keep dirty.
const FLUSH_PAUSE: Duration = Duration::from_millis(20);

/// Objects that are acknowledged but not yet at the lake.
///
/// Each node of a cluster has one instance, and all instances give the same answers.
pub struct DirtyObjects {
    /// The entries of the tiers.
    pub entries: Arc<Entries>,
    /// The decisions on writes.
    pub clearances: Clearances,
    /// The time that short-lived objects stay in a tier.
    short_age: Duration,
    pub(crate) shared: Arc<Shared>,
}

/// An object that is about to be committed.
pub(super) struct NewObject<'a> {
    pub(super) name: &'a ObjectName,
    pub(super) size_bytes: u64,
    /// The lifetime that the writer expects; `None` for the rule's.
    pub(super) lifetime: Option<Lifetime>,
    pub(super) record: &'a Record,
    pub(super) bytes: NewBytes,
}

/// The bytes of an object that is about to be committed.
pub(super) enum NewBytes {
    /// The tier's store has them, under these keys. No keys for an empty object.
    Store(Vec<Arc<str>>),
    /// The registry gets them with the entry.
    Entry(Content),
}

/// The bytes of a write, in the store of a tier, or in memory until the registry gets them.
pub struct Received {
    bytes: NewBytes,
    /// The copy for the cache. None is made of an object whose bytes the registry keeps: they are as near
    /// there, many die young, and those that are flushed are cached then.
    copy: Option<BodyCopy>,
    etag: Arc<str>,
    /// The digests of each piece.
    digests: Vec<ChunkDigests>,
    trailer: Option<(HeaderName, HeaderValue)>,
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
        let shared = Arc::new(Shared::new(parts, settings.permission));
        let mut registries = Vec::with_capacity(tiers.len());
        for tier in tiers {
            registries.push(TierRegistry::open(tier, settings.fence, &shared).await?);
        }
        let packs = open_packs(&shared.parts, tiers, &registries, settings.fence).await?;
        let roots: Vec<_> = registries.iter().map(TierRegistry::roots).collect();
        let parts = TierParts {
            shared: Arc::clone(&shared),
            packs: Arc::new(packs),
        };
        let opened = tiers.iter().zip(registries);
        let opened = opened.map(|((config, bytes), registry)| {
            Tier::new(config, registry, Arc::clone(bytes), settings.pace, parts.clone())
        });
        let opened: Vec<_> = opened.collect();
        for tier in &opened {
            tier.begin().await?;
        }
        for ((config, _), roots) in tiers.iter().zip(&roots) {
            check_maps(roots, &parts.packs)
                .await
                .map_err(|error| TierError::new(&config.name, &error))?;
        }
        let entries = Arc::new(Entries {
            tiers: opened,
            packs: parts.packs,
            shared: Arc::clone(&shared),
        });
        Ok(Self {
            clearances: Clearances::new(Arc::clone(&entries), Arc::clone(&shared.permissions)),
            entries,
            short_age: settings.pace.short_age,
            shared,
        })
    }

    /// Returns a reader of a dirty object's bytes.
    pub fn bytes(&self, lookup: &Lookup, manifest: &Manifest) -> TierBytes {
        let store = self.entries.tiers[lookup.tier].store.bytes();
        manifest.bytes(store, &self.shared.damages)
    }

    /// Receives the bytes of an accepted write. They are invisible to reads until they are committed.
    ///
    /// # Errors
    ///
    /// Nothing is kept.
    pub async fn receive<B>(&self, write: &PendingWrite, body: CheckedBody<B>) -> Result<Received, WriteError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let size_bytes = write.size_bytes;
        let (_, tier) = self.entries.rule_of(&write.name)?;
        let mut body = std::pin::pin!(body);
        if tier.keeps_inline(size_bytes) {
            let (content, digests) = receive_content(size_bytes, body.as_mut()).await?;
            let bytes = match digests {
                Some(_) => NewBytes::Entry(Content(content.clone())),
                None => NewBytes::Store(Vec::new()),
            };
            return Ok(Received {
                bytes,
                copy: None,
                etag: etag::of_md5(&Md5::digest(&content)).into(),
                digests: digests.into_iter().collect(),
                trailer: body.trailer(),
            });
        }
        let key = new_key(size_bytes);
        let through = &self.shared.parts.through;
        let copy = through.copy(size_bytes, &write.caller, &write.name);
        let each = |data: &Bytes| {
            if let Ok(copy) = &copy {
                copy.add(vec![data.clone()]);
            }
        };
        let received = tier.store.receive(&key, size_bytes, body.as_mut(), each).await?;
        Ok(Received {
            bytes: NewBytes::Store(vec![key]),
            copy: copy.ok(),
            etag: etag::of_md5(&received.md5).into(),
            digests: vec![received.digests],
            trailer: body.trailer(),
        })
    }

    /// Commits an accepted write: from then on, reads at every node find the object.
    ///
    /// # Errors
    ///
    /// Nothing was written, or the outcome is unknown.
    pub async fn commit(&self, write: PendingWrite, received: Received) -> Result<Arc<Version>, WriteError> {
        let mut headers = write.headers;
        // A checksum may also come in the trailer.
        headers.extend(received.trailer);
        let record = Record {
            writer: write.writer,
            etag: received.etag,
            modified: clock::utc_now(),
            headers,
            of_reads: HeaderMap::new(),
            part_layout: PartLayout::default(),
            acknowledged: Acknowledged::new(received.digests, &[]),
        };
        let entered = self.enter(NewObject {
            name: &write.name,
            size_bytes: write.size_bytes,
            lifetime: write.lifetime,
            record: &record,
            bytes: received.bytes,
        });
        let version = entered.await?;
        if let Some(copy) = received.copy {
            self.cache(&copy, &version);
        }
        Ok(version)
    }

    /// Removes the bytes of a write that was not committed.
    pub async fn discard(&self, write: &PendingWrite, received: Received) {
        if let (NewBytes::Store(keys), Some((_, tier))) = (received.bytes, self.entries.rule(&write.name)) {
            tier.store.discard(&keys).await;
        }
    }

    /// Writes the entry that makes bytes in the tier the current object of the name.
    pub(super) async fn enter(&self, new: NewObject<'_>) -> Result<Arc<Version>, WriteError> {
        let NewObject {
            name,
            lifetime: asked,
            record,
            ..
        } = new;
        let (tier, mut dirty) = self.describe(new);
        debug_assert_eq!(
            dirty.is_inline(),
            dirty.content.is_some(),
            "bytes are in the tier before their entry, or with it"
        );
        let (lifetime, data) = (dirty.lifetime, dirty.data.clone());
        let manifest = loop {
            let manifest = self.entries.manifest(name, &dirty)?;
            match tier.names.write(&registry_name(name), dirty.clone()).await {
                Ok(()) => break manifest,
                Err(ChangeError::OutcomeUnknown) => return Err(WriteError::OutcomeUnknown),
                Err(ChangeError::Outdated(current)) => {
                    dirty.id = new_id_after(current);
                    self.hold(name, asked, &record.writer, dirty.id);
                }
                Err(error) => {
                    tier.store.discard(&data).await;
                    return Err(TierUnavailable::because(&error).into());
                }
            }
        };
        self.shared.outcomes.writes.count(WriteBackOutcome::Committed);
        self.invalidate(name);
        if lifetime == Lifetime::Short
            && let Some(directory) = &self.shared.parts.cache().directory
        {
            directory.mark_short(&manifest.version, self.short_age);
        }
        Ok(Arc::clone(&manifest.version))
    }

    /// Acknowledges a removal that the lake will carry out later: from then on, reads at every node find no
    /// object.
    ///
    /// # Errors
    ///
    /// Nothing was removed, or the outcome is unknown.
    pub async fn remove(&self, PendingRemoval { name, record }: PendingRemoval) -> Result<(), WriteError> {
        let (_, tier) = self.entries.rule_of(&name)?;
        let mut tombstone = record.tombstone(tier.node);
        loop {
            match tier.names.write(&registry_name(&name), tombstone.clone()).await {
                Ok(()) => break,
                Err(ChangeError::OutcomeUnknown) => return Err(WriteError::OutcomeUnknown),
                Err(ChangeError::Outdated(current)) => tombstone.id = new_id_after(current),
                Err(error) => return Err(TierUnavailable::because(&error).into()),
            }
        }
        self.shared.outcomes.writes.count(WriteBackOutcome::Removed);
        self.invalidate(&name);
        Ok(())
    }

    /// Invalidates remembered answers of the lake about a name.
    pub fn invalidate(&self, name: &ObjectName) {
        self.shared.parts.cache().grants.invalidate_object(name);
    }

    /// Caches the blocks of a written object on this node's disk; their names do not change when the object
    /// is flushed. They are sent to their homes only then: the tier is as near as a home, young objects often
    /// die, and the bytes would compete for the links with writes into the tier.
    fn cache(&self, copy: &BodyCopy, version: &Version) {
        let mut answer = version.headers.clone();
        answer.insert(header::ETAG, version.etag_header());
        // Ignored, because the response to the client does not report on the cache: the tier has the bytes in
        // any case.
        let _ = self
            .shared
            .parts
            .through
            .commit(copy, (version.object, &answer), Spread::Here);
    }

    /// Returns the version of an object that is about to be committed, and its tier.
    pub(super) fn describe(&self, new: NewObject<'_>) -> (&Tier, DirtyVersion) {
        let (rule, tier) = self
            .entries
            .rule(new.name)
            .expect("a name that is written back has a tier");
        let id = new_id();
        self.hold(new.name, new.lifetime, &new.record.writer, id);
        let (data, content) = match new.bytes {
            NewBytes::Store(data) => (data, None),
            NewBytes::Entry(content) => (Vec::new(), Some(content)),
        };
        let dirty = DirtyVersion {
            id,
            node: tier.node,
            size_bytes: new.size_bytes,
            lifetime: new.lifetime.unwrap_or(rule.lifetime),
            data,
            record: encoded(new.record),
            is_tombstone: false,
            content,
        };
        (tier, dirty)
    }

    /// Marks an object that is about to be committed, if a run reads what its writer writes there, unless the
    /// writer wants it at the lake as others are.
    pub(super) fn hold(&self, name: &ObjectName, lifetime: Option<Lifetime>, writer: &Arc<str>, id: Ulid) {
        if lifetime == Some(Lifetime::Normal) {
            return;
        }
        let object = TierObject {
            id: id.0,
            bucket: name.bucket.as_bytes(),
            key: &name.key,
        };
        let now_ms = millis_since_1970(clock::utc_now());
        self.shared.parts.cache().held.mark(object, writer, now_ms);
    }

    /// Begins a change of a name at the lake: a write of another object, or a change of the existing one. A
    /// dirty object is flushed first. No other node changes the name at the lake until this change ends.
    ///
    /// # Errors
    ///
    /// The change has not begun, and nothing may be sent to the lake.
    pub async fn begin_at_lake(&self, name: &ObjectName) -> Result<LakeChange, S3Error> {
        self.begin(name, Kind::Write, None).await
    }

    /// Begins the removal of the object that `lookup` found, dirty or not.
    ///
    /// # Errors
    ///
    /// The removal has not begun, and nothing may be sent to the lake.
    pub async fn begin_removal(&self, name: &ObjectName, lookup: Lookup) -> Result<LakeChange, S3Error> {
        self.begin(name, Kind::Delete, Some(lookup.found)).await
    }

    async fn begin(
        &self,
        name: &ObjectName,
        kind: Kind,
        mut known: Option<Found>,
    ) -> Result<LakeChange, S3Error> {
        let (_, tier) = self.entries.rule_of(name).map_err(FlushFailed::from)?;
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
                Ok(change) => match self.entries.is_packed(name).await {
                    Ok(false) => return Ok(change),
                    // A change of a packed object at the lake would leave the packed one in the map.
                    Ok(true) if Instant::now() < deadline => {
                        drop(change.refused().await);
                        self.entries.flush(name).await?;
                    }
                    is_packed => {
                        // Nothing was sent.
                        drop(change.refused().await);
                        is_packed?;
                        return Err(try_again(
                            ErrorCode::SlowDown,
                            &"the object is packed again and again",
                        ));
                    }
                },
                // Concurrent writes may make the name dirty again.
                Err(BeginError::Changed) if Instant::now() < deadline => {
                    self.entries.flush(name).await?;
                    sleep(FLUSH_PAUSE).await;
                }
                Err(BeginError::Changed | BeginError::Busy(_)) => {
                    let busy = "another change of the object is on its way to the lake";
                    return Err(try_again(ErrorCode::SlowDown, &busy));
                }
                Err(error @ (BeginError::NoSession | BeginError::Change(_))) => {
                    return Err(FlushFailed::from(TierUnavailable::because(&error)).into());
                }
            }
        }
    }
}

/// Checks that a rule packs below the prefix of each map: otherwise reads would not find its objects. A
/// registry that does not answer yet is not checked.
async fn check_maps(roots: &Roots, packs: &Packs) -> Result<(), String> {
    let maps = roots.all().await.unwrap_or_default();
    let without_rule = maps.iter().find(|found| packs.named(&found.map).is_none());
    without_rule.map_or(Ok(()), |found| {
        let (bucket, prefix) = found.map.parts();
        let below = format!("s3://{}/{}", bucket.escape_ascii(), prefix.escape_ascii());
        Err(format!(
            "objects below {below} are in packs, and no rule with this prefix has pack = true; put it back, run `shoal \
             unpack {below}`, and then take it away"
        ))
    })
}

/// Opens the maps of the rules that pack.
async fn open_packs(
    parts: &Parts,
    tiers: &[(TierConfig, Arc<dyn ByteStore>)],
    registries: &[TierRegistry],
    fence: Duration,
) -> Result<Packs, TierError> {
    let packs = PacksParts {
        rules: parts.rules.clone(),
        lake: Arc::clone(&parts.cache().lake),
        store: Arc::clone(&parts.cache().store),
        identities: Arc::clone(&parts.identities),
        fence,
    };
    let opened = Packs::open(packs, |tier| registries[tier].roots()).await;
    opened.map_err(|error| TierError::new(&tiers[error.tier].0.name, &error.problem))
}
