//! The registry entries of all tiers: which names may be dirty, and what their entries say.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use shoal_cache::write::{BackRule, Fallback, Uncached};
use shoal_net::shutdown::Shutdown;
use shoal_net::trace;
use shoal_registry::changes::{ChangedObject, LakeChange};
use shoal_registry::engine::Range;
use shoal_registry::entry::Kind;
use shoal_registry::names::{BeginError, ChangeError, Found, FoundWithNumber};
use shoal_registry::worker::{NotFlushed, ended};
use shoal_registry::{DirtyVersion, Name};
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;
use tokio::time::{Duration, Instant};

use crate::dirty::lake_writer::Shared;
use crate::dirty::packs::{Look, PackMap, Packs};
use crate::dirty::record::format::Unreadable;
use crate::dirty::record::keys::{object_name, registry_name};
use crate::dirty::record::manifest::Manifest;
use crate::dirty::record::scope::Scope;
use crate::dirty::record::tombstone::Dirty;
use crate::dirty::stock::status::TierStatus;
use crate::dirty::tiers::Tier;
use crate::tier::TierUnavailable;

/// Number of entries on a page of the registry: an S3 page, and one more to show if others follow.
const PAGE: usize = 1001;

/// How long an object that is to be unpacked is flushed instead, while it is written.
const PATIENCE: Duration = Duration::from_secs(5);

/// Number of changes that begin or end at a time as objects are unpacked.
const UNPACKED_PARALLEL: usize = 32;

/// How long a status page waits for the registries.
const REFRESH: Duration = Duration::from_millis(500);

/// The entries of all tiers.
pub struct Entries {
    pub(in crate::dirty) tiers: Vec<Tier>,
    /// The maps of the rules that pack.
    pub(crate) packs: Arc<Packs>,
    pub(crate) shared: Arc<Shared>,
}

/// The state of a name when it was looked up.
#[derive(Clone, Debug)]
pub struct Lookup {
    pub(crate) tier: usize,
    pub(crate) name: Name,
    pub(crate) found: Found,
    /// The dirty object or tombstone; `None` if the lake's response is to be returned.
    pub dirty: Option<Dirty>,
}

/// The dirty objects and tombstones in a part of a bucket, in key order.
#[derive(Clone, Debug, Default)]
pub struct DirtyPage {
    /// Dirty objects and tombstones.
    pub dirty: Vec<Dirty>,
    /// The position up to which nothing is missing; `None` if that is the end.
    pub until: Option<Vec<u8>>,
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

impl Lookup {
    /// Returns what is dirty if it is the caller's own: the one who wrote or removed the object is certain to
    /// have permission to change it.
    pub fn own(&self, caller: &Caller) -> Option<&Dirty> {
        self.dirty.as_ref().filter(|dirty| dirty.is_of(caller))
    }

    /// Returns the dirty object if the caller wrote it.
    pub fn written_by(&self, caller: &Caller) -> Option<&Arc<Manifest>> {
        self.own(caller).and_then(Dirty::object)
    }

    /// Returns the dirty object.
    pub fn object(&self) -> Option<&Arc<Manifest>> {
        self.dirty.as_ref().and_then(Dirty::object)
    }
}

/// Where objects may be dirty.
impl Entries {
    /// Returns true if an object of this name may be dirty; the registry must then be read before the lake.
    /// Only the current object may be: its name has no version, or the version `null` of unversioned objects.
    pub fn may_be_dirty(&self, name: &ObjectName) -> bool {
        let is_current = name.version.as_deref().is_none_or(|version| version == "null");
        is_current && self.shared.parts.rules.allow_back(name)
    }

    /// Returns true if an object of `bucket` whose key begins with `prefix` may be dirty.
    pub fn may_be_dirty_below(&self, bucket: &str, prefix: &[u8]) -> bool {
        self.shared.parts.rules.allow_back_below(bucket, prefix)
    }

    pub(in crate::dirty) fn rule(&self, name: &ObjectName) -> Option<(&BackRule, &Tier)> {
        let rule = self.shared.parts.rules.back_rule(name)?;
        Some((rule, &self.tiers[rule.tier]))
    }

    /// Returns the rule that covers a name, and its tier.
    pub(in crate::dirty) fn rule_of(&self, name: &ObjectName) -> Result<(&BackRule, &Tier), TierUnavailable> {
        let rule = self.rule(name);
        rule.ok_or_else(|| TierUnavailable::because(&"no rule names a tier"))
    }

    pub(in crate::dirty) fn tiers_below(&self, bucket: &str, prefix: &[u8]) -> impl Iterator<Item = &Tier> {
        let tiers: BTreeSet<usize> = self.shared.parts.rules.tiers_below(bucket, prefix);
        tiers.into_iter().map(|tier| &self.tiers[tier])
    }

    /// Returns true if a write that cannot be written back for this reason must be refused instead of written
    /// through.
    pub fn refuses(&self, name: &ObjectName, why: Uncached) -> bool {
        if why == Uncached::RegistryFull {
            return true;
        }
        let is_for_now = matches!(why, Uncached::TooDirty | Uncached::TierUnavailable);
        let rule = self.shared.parts.rules.back_rule(name);
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
        let found = match self.packs.of(name) {
            Some(map) => {
                let looking = tier.names.find_with_number(&key, map.name());
                let FoundWithNumber { found, number } = trace::wait("wait_for_registry", looking).await?;
                map.seen(Look {
                    number,
                    has_entry: found.is_stored(),
                    at: found.looked(),
                });
                found
            }
            None => trace::wait("wait_for_registry", tier.names.find(&key)).await?,
        };
        let current = found.entry.current.as_ref();
        Ok(Lookup {
            tier: rule.tier,
            name: key,
            dirty: current.map(|version| self.dirty(name, version)).transpose()?,
            found,
        })
    }

    pub(crate) fn manifest(
        &self,
        name: &ObjectName,
        version: &DirtyVersion,
    ) -> Result<Arc<Manifest>, TierUnavailable> {
        let manifest = Manifest::new(name, version, &self.shared.naming);
        manifest.map(Arc::new).map_err(|error| unreadable(name, error))
    }

    fn dirty(&self, name: &ObjectName, version: &DirtyVersion) -> Result<Dirty, TierUnavailable> {
        let dirty = Dirty::new(name, version, &self.shared.naming);
        dirty.map_err(|error| unreadable(name, error))
    }

    /// Returns what is dirty if the node may answer the caller by it without asking the lake.
    pub fn readable_by<'a>(&self, lookup: &'a Lookup, caller: &Caller) -> Option<&'a Dirty> {
        let dirty = lookup.dirty.as_ref();
        dirty.filter(|dirty| self.may_read(caller, dirty))
    }

    /// Returns true if the node may answer the caller by what is dirty without asking the lake: the caller
    /// wrote or removed the object, or is one of the `readers` of its rule.
    pub fn may_read(&self, caller: &Caller, dirty: &Dirty) -> bool {
        dirty.is_of(caller) || (self.rule(dirty.name())).is_some_and(|(rule, _)| rule.allows_reader(caller))
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
}

/// Lists of entries.
impl Entries {
    /// Returns the dirty objects and tombstones of a bucket whose keys begin with `prefix`, in key order. One
    /// that is dirty all the time is among them; of those that are written or flushed meanwhile, some are.
    ///
    /// # Errors
    ///
    /// A registry does not answer.
    pub async fn list(&self, bucket: &str, prefix: &[u8]) -> Result<Vec<Dirty>, TierUnavailable> {
        let page = self
            .list_page(bucket, &Scope::all(prefix), &[], usize::MAX)
            .await?;
        Ok(page.dirty)
    }

    /// Returns the dirty objects that can appear among the next `names` names of a listing after `after`,
    /// and the tombstones between them, in key order. A tombstone counts as a name. Of the objects behind a
    /// common prefix, some are returned; of the tombstones, all unless an object is before them. Reads no
    /// more of a registry than that.
    ///
    /// # Errors
    ///
    /// A registry does not answer.
    pub async fn list_page(
        &self,
        bucket: &str,
        scope: &Scope,
        after: &[u8],
        names: usize,
    ) -> Result<DirtyPage, TierUnavailable> {
        let (mut dirty, mut until) = (Vec::new(), None);
        for tier in self.tiers_below(bucket, &scope.prefix) {
            let (mut after, mut left) = (scope.behind(after), names);
            while left > 0 {
                let range = Range {
                    prefix: scope.prefix.clone().into(),
                    after: after.into(),
                    limit: if scope.has_groups() { PAGE } else { PAGE.min(left) },
                };
                let page = tier.names.list(bucket, range).await?;
                // The common prefix of the last object.
                let mut last_group: Option<Vec<u8>> = None;
                for (name, version) in page.objects {
                    let Some(name) = object_name(&name).filter(|name| self.may_be_dirty(name)) else {
                        continue;
                    };
                    let group = scope.group(&name.key);
                    if version.is_tombstone || group.is_none() || group != last_group.as_deref() {
                        left = left.saturating_sub(1);
                    }
                    if !version.is_tombstone {
                        last_group = group.map(<[u8]>::to_vec);
                    }
                    dirty.push(self.dirty(&name, &version)?);
                }
                let Some(next) = page.next else { break };
                let (_, next) = next.parts();
                after = match scope.group(next) {
                    // The other keys of this common prefix would add nothing to the listing.
                    Some(group) if last_group.as_deref() == Some(group) => scope.behind(group),
                    _ => next.to_vec(),
                };
                if left == 0 && until.as_ref().is_none_or(|until| after < *until) {
                    until = Some(after.clone());
                }
            }
        }
        dirty.sort_by(|one: &Dirty, other| one.name().key.cmp(&other.name().key));
        Ok(DirtyPage { dirty, until })
    }
}

/// Flushes, and what operators see.
impl Entries {
    /// Flushes dirty objects when they are due, and runs the tiers' other tasks, until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let this = &*self;
        let tiers = this.tiers.iter().enumerate().map(|(number, tier)| {
            let covers = move |name: &ObjectName| {
                let rule = this.shared.parts.rules.back_rule(name);
                rule.is_some_and(|rule| rule.tier == number)
            };
            tier.run(stopping.clone(), covers)
        });
        let tiers: Vec<_> = tiers.collect();
        tokio::select! {
            _ = futures_util::future::join_all(tiers) => {}
            ran = this.packs.run() => match ran {},
        }
    }

    /// Brings an object to the lake under its own name now, if it is dirty or in a pack, for a client that
    /// waits for it.
    ///
    /// # Errors
    ///
    /// The object is still dirty or in a pack, or its state is unknown.
    pub async fn flush(&self, name: &ObjectName) -> Result<(), FlushFailed> {
        let Some((_, tier)) = self.rule(name) else {
            return Ok(());
        };
        let key = registry_name(name);
        let _awaiting = tier.flushes.await_flush(&key);
        self.flush_in_background(name).await?;
        match self.packs.of(name) {
            Some(map) => self.unpack(tier, map, &key).await,
            None => Ok(()),
        }
    }

    /// Takes an object out of its pack, if it is in one and nothing is dirty under its name.
    async fn unpack(&self, tier: &Tier, map: &Arc<PackMap>, name: &Name) -> Result<(), FlushFailed> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if !is_packed(map, name).await? {
                return Ok(());
            }
            let nothing = ChangedObject::Exactly(None);
            let change = match tier.changes.begin(name, Kind::Write, nothing, None).await {
                Ok(change) => change,
                // It was written meanwhile. The flush removes it from the map, too.
                Err(BeginError::Changed) if Instant::now() < deadline => {
                    tier.worker.flush(name).await.map_err(not_flushed)?;
                    continue;
                }
                Err(error) => return Err(not_flushed(error.into())),
            };
            return end_unpacked(tier, map, vec![change])
                .await
                .remove(0)
                .map_err(not_flushed);
        }
    }

    /// Takes the objects of these names out of their packs, together. Returns the number of names that are in
    /// no pack any more.
    pub(crate) async fn unpack_all(&self, map: &Arc<PackMap>, names: &[Name]) -> u64 {
        let of = names.first().and_then(object_name);
        let Some((_, tier)) = of.as_ref().and_then(|name| self.rule(name)) else {
            return 0;
        };
        let begun = names.iter().map(|name| async move {
            let nothing = ChangedObject::Exactly(None);
            match tier.changes.begin(name, Kind::Write, nothing, None).await {
                Ok(change) => Ok(Some(change)),
                // The flush removes it from the map, too.
                Err(BeginError::Changed) => tier.worker.flush(name).await.map(|()| None),
                Err(error) => Err(error.into()),
            }
        });
        let begun: Vec<_> = begun.collect();
        let begun: Vec<_> = stream::iter(begun)
            .buffer_unordered(UNPACKED_PARALLEL)
            .collect()
            .await;
        let flushed = begun.iter().filter(|begun| matches!(begun, Ok(None))).count() as u64;
        let changes = begun
            .into_iter()
            .filter_map(|begun: Result<_, NotFlushed>| match begun {
                Ok(change) => change,
                Err(error) => {
                    tracing::warn!(%error, "an object was not unpacked");
                    None
                }
            });
        let changes: Vec<_> = changes.collect();
        if changes.is_empty() {
            return flushed;
        }
        let unpacked = end_unpacked(tier, map, changes).await;
        flushed + unpacked.iter().filter(|unpacked| unpacked.is_ok()).count() as u64
    }

    /// Returns true if the map of a name has it in a pack, as of now.
    ///
    /// # Errors
    ///
    /// The map cannot be read.
    pub(crate) async fn is_packed(&self, name: &ObjectName) -> Result<bool, FlushFailed> {
        match self.packs.of(name) {
            Some(map) => Ok(is_packed(map, &registry_name(name)).await?),
            None => Ok(false),
        }
    }

    /// Brings what is dirty under these names of one map to the lake, packed. Returns the number of names
    /// under which nothing is dirty any more.
    pub(crate) async fn pack(&self, map: &PackMap, names: &[ObjectName]) -> u64 {
        let Some((_, tier)) = names.first().and_then(|name| self.rule(name)) else {
            return 0;
        };
        let names: Vec<_> = names.iter().map(registry_name).collect();
        let flushed = tier.worker.flush_together(map.name(), &names).await;
        flushed.iter().filter(|flushed| flushed.is_ok()).count() as u64
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
        flushed.map_err(not_flushed)
    }

    /// Counts the dirty objects again. If a registry does not answer soon, the last counts stay.
    pub async fn refresh(&self) {
        let refreshed = futures_util::future::join_all(self.tiers.iter().map(Tier::refresh));
        let _ = tokio::time::timeout(REFRESH, refreshed).await;
    }

    /// Returns the state of each tier.
    pub fn tiers(&self) -> Vec<TierStatus> {
        self.tiers.iter().map(Tier::status).collect()
    }

    /// Flushes every dirty object that this node wrote, and every tombstone, once, so that it can stop.
    /// Returns the number that is left.
    ///
    /// Nothing is lost if the node stops earlier: another node flushes the rest.
    pub async fn drain_round(&self) -> u64 {
        let mut left = 0;
        for tier in &self.tiers {
            tier.worker.flush_all(tier.node).await;
            left += tier
                .count()
                .await
                .map_or(1, |figures| figures.objects + figures.removals);
        }
        left
    }
}

/// Unpacks the objects of changes that have begun, and ends the changes. Returns the outcome of each.
async fn end_unpacked(
    tier: &Tier,
    map: &Arc<PackMap>,
    changes: Vec<LakeChange>,
) -> Vec<Result<(), NotFlushed>> {
    let unpacked = tier.worker.lake().unpack(map, &changes).await;
    let ends = changes
        .into_iter()
        .zip(unpacked)
        .map(|(change, unpacked)| async move {
            let name = change.name().clone();
            let ended = ended(change, unpacked).await;
            ended.inspect_err(|error| tracing::warn!(?name, %error, "an object was not unpacked"))
        });
    let ends: Vec<_> = ends.collect();
    stream::iter(ends).buffered(UNPACKED_PARALLEL).collect().await
}

fn not_flushed(error: NotFlushed) -> FlushFailed {
    match error {
        NotFlushed::Begin(BeginError::Change(ChangeError::Engine(error))) => {
            TierUnavailable::from(error).into()
        }
        NotFlushed::Refused(why) => FlushFailed::Refused(why),
        error => FlushFailed::NotFlushed(error.to_string().into()),
    }
}

async fn is_packed(map: &Arc<PackMap>, name: &Name) -> Result<bool, TierUnavailable> {
    let newest = map
        .newest()
        .await
        .map_err(|error| TierUnavailable::because(&error))?;
    let (_, key) = name.parts();
    let found = newest.map.get(key);
    let found = found.map_err(|damaged| TierUnavailable::because(&damaged))?;
    Ok(found.is_some())
}

fn unreadable(name: &ObjectName, error: Unreadable) -> TierUnavailable {
    TierUnavailable::because(&format!("the record of {name:?} cannot be read: {error}"))
}
