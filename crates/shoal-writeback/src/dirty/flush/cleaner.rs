//! Flushes the dirty objects of a tier, and removes bytes that are no longer needed (dissertation 4.5.2,
//! "Cleaning Dirty Objects"). The registry's worker decides which objects are flushed, and when.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::{HeaderMap, StatusCode};
use shoal_base::encoding::Malformed;
use shoal_base::moment::millis_since_1970;
use shoal_cache::obtain::KeptBytes;
use shoal_net::clock;
use shoal_net::log_throttle::LogThrottle;
use shoal_registry::changes::LakeChange;
use shoal_registry::roots::MapTable;
use shoal_registry::worker::{Flushing, Lake, NotFlushed, Packing};
use shoal_registry::{DirtyVersion, MapName, Name};
use shoal_s3::object::ObjectName;
use ulid::Ulid;

use super::flush_transfers::FlushTransfers;
use super::pacing::Pacing;
use crate::dirty::lake_writer::{LakeWrite, LakeWriteError, Shared, Uploaded};
use crate::dirty::packs::{PackMap, Packs};
use crate::dirty::record::format::Unreadable;
use crate::dirty::record::keys::object_name;
use crate::dirty::record::manifest::Manifest;
use crate::dirty::stock::status::WriteBackOutcome;
use crate::dirty::stock::tier_store::TierStore;

/// Cleans one tier.
pub(crate) struct Cleaner {
    pub(crate) store: Arc<TierStore>,
    /// The maps of the rules that pack into this tier's lake.
    pub(crate) packs: Arc<Packs>,
    /// Gets the lake's responses.
    pub(crate) pacing: Arc<Pacing>,
    /// True once the lake has refused to remove many objects by one request.
    pub(crate) takes_one_at_a_time: AtomicBool,
    /// Has the flushes in flight.
    pub(crate) flushes: Arc<FlushTransfers>,
    pub(crate) shared: Arc<Shared>,
}

impl Lake for Cleaner {
    async fn flush(
        &self,
        name: &Name,
        version: &DirtyVersion,
        change: &LakeChange,
    ) -> Result<(), NotFlushed> {
        assert_eq!(change.name(), name, "a flush writes the object of its change");
        self.flush_alone(version, change).await
    }

    fn packing(&self, name: &Name) -> Option<Packing> {
        let map = self.map_of(name)?;
        Some(Packing {
            map: map.name().clone(),
            idle: map.settings.config.idle,
        })
    }

    fn holds(&self, id: Ulid, _: &Name) -> bool {
        let now_ms = millis_since_1970(clock::utc_now());
        self.shared.parts.cache().held.has(id.0, now_ms)
    }

    async fn pack(&self, map: &MapName, objects: &[Flushing]) -> Vec<Result<(), NotFlushed>> {
        let map = self.packs.named(map).expect("a round is of a map that packs");
        self.pack_all(map, objects).await
    }

    async fn remove(&self, removals: &[Flushing]) -> Vec<Result<(), NotFlushed>> {
        let mut outcomes = self.remove_all(removals).await;
        let mut of_maps: HashMap<&MapName, Vec<usize>> = HashMap::new();
        for (number, removal) in removals.iter().enumerate() {
            if let (Ok(()), Some(map)) = (&outcomes[number], self.map_of(removal.change.name())) {
                of_maps.entry(map.name()).or_default().push(number);
            }
        }
        for (map, numbers) in of_maps {
            let map = self.packs.named(map).expect("the map was just found");
            let changes: Vec<_> = numbers.iter().map(|number| &removals[*number].change).collect();
            if let Err(error) = self.unname(map, &changes).await {
                for number in numbers {
                    outcomes[number] = Err(error.clone());
                }
            }
        }
        outcomes
    }

    async fn reserved_table(&self, map: &MapName, number: u64) -> Result<Option<Vec<MapTable>>, String> {
        let map = self
            .packs
            .named(map)
            .ok_or("no rule packs below its prefix any more")?;
        let listed = map.map_of_table(number).await;
        listed.map_err(|error| error.to_string())
    }

    async fn discard(&self, key: &str) -> bool {
        let removed = self.store.remove(&[Arc::from(key)]).await;
        if let Err(error) = &removed {
            tracing::debug!(%error, key, "obsolete bytes could not be removed from a tier");
        }
        removed.is_ok()
    }
}

impl Cleaner {
    /// Writes an object to the lake under its own name, and removes it from the map of its rule.
    pub(super) async fn flush_alone(
        &self,
        version: &DirtyVersion,
        change: &LakeChange,
    ) -> Result<(), NotFlushed> {
        let manifest = self.manifest(version, change)?;
        let bytes = manifest.bytes(self.store.bytes(), &self.shared.damages);
        self.write_alone(&manifest, &(Arc::new(bytes) as _), change)
            .await?;
        match self.map_of(change.name()) {
            Some(map) => self.unname(map, &[change]).await,
            None => Ok(()),
        }
    }

    /// Reads the manifest of the object that a change flushes.
    pub(super) fn manifest(
        &self,
        version: &DirtyVersion,
        change: &LakeChange,
    ) -> Result<Manifest, NotFlushed> {
        let name = object_name(change.name()).ok_or_else(|| Unreadable::from(Malformed));
        let manifest = name.and_then(|name| Manifest::new(&name, version, &self.shared.naming));
        manifest.map_err(|why| {
            let why = format!("this build cannot read the record of the object: {why}");
            NotFlushed::Lake(why.into())
        })
    }

    /// Writes an object to the lake under its own name.
    pub(super) async fn write_alone(
        &self,
        manifest: &Manifest,
        bytes: &Arc<dyn KeptBytes>,
        change: &LakeChange,
    ) -> Result<(), NotFlushed> {
        let under_way = self.flushes.begin(change.name());
        let write = LakeWrite {
            manifest,
            bytes,
            conditions: &HeaderMap::new(),
            permit: &change.permit(),
            transfer: Some(&under_way),
        };
        let began = clock::instant();
        let written = self.shared.write(write).await;
        drop(under_way);
        self.pacing
            .flushed(written.as_ref(), manifest.version.size_bytes, began);
        self.shared.parts.cache().grants.invalidate_object(&manifest.name);
        let outcomes = &self.shared.outcomes.writes;
        match written {
            Ok(uploaded) => {
                if let Uploaded::OtherEtag(named) = uploaded {
                    outcomes.count(WriteBackOutcome::Renamed);
                    tracing::warn!(
                        object = ?manifest.name, acknowledged = %manifest.version.etag, ?named,
                        "the lake has the acknowledged bytes of an object, under a different ETag"
                    );
                }
                self.flushed(manifest);
                Ok(())
            }
            Err(failure) => {
                outcomes.count(WriteBackOutcome::Failed);
                self.forget_permission(&manifest.record.writer, &manifest.name, &failure.error);
                if let Some(hint) = failure.error.hint_about_bytes() {
                    let object = manifest.location().into();
                    self.shared.damages.note(&object, failure.to_string(), hint);
                }
                let why = failure.to_string();
                Err(match failure.error.remedy() {
                    _ if failure.may_exist => NotFlushed::Unknown(why.into()),
                    None => NotFlushed::Lake(why.into()),
                    Some(remedy) => {
                        log_refused(&manifest.name, &why, remedy);
                        NotFlushed::Refused(format!("{why}; {remedy}").into())
                    }
                })
            }
        }
    }

    /// Has the rest of the node know that the lake has an object.
    pub(super) fn flushed(&self, manifest: &Manifest) {
        self.shared.damages.forget(&manifest.location());
        self.shared.outcomes.writes.count(WriteBackOutcome::Flushed);
        let cache = self.shared.parts.cache();
        cache.grants.invalidate_object(&manifest.name);
        // The flush has left the blocks of an object without any here.
        cache.grants.introduce(&manifest.version);
        self.shared.parts.through.spread(&manifest.version);
    }

    /// Returns the map of the rule that packs objects of this name.
    pub(super) fn map_of(&self, name: &Name) -> Option<&Arc<PackMap>> {
        self.packs.of(&object_name(name)?)
    }

    /// Forgets the remembered permission of the writer if the lake refuses the object for lack of one.
    pub(super) fn forget_permission(&self, writer: &Arc<str>, name: &ObjectName, error: &LakeWriteError) {
        if let LakeWriteError::Refused(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) = error
            && let Ok(writer) = self.shared.writer(writer, name)
        {
            self.shared.permissions.forget(writer.id(), &name.bucket);
        }
    }
}

/// Logs that the lake refuses an object or a removal, at most once a second.
pub(super) fn log_refused(name: &ObjectName, why: &str, remedy: &str) {
    static LINES: LogThrottle = LogThrottle::new();
    if let Some(unsaid) = LINES.admit(clock::instant()) {
        tracing::warn!(
            object = ?name, why, remedy, unsaid,
            "the lake refuses a dirty object, which stays in the tier"
        );
    }
}
