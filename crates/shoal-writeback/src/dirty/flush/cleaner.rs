//! Flushes the dirty objects of a tier, and removes bytes that are no longer needed (dissertation 4.5.2,
//! "Cleaning Dirty Objects"). The registry's worker decides which objects are flushed, and when.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::{HeaderMap, StatusCode};
use shoal_base::encoding::Malformed;
use shoal_cache::obtain::KeptBytes;
use shoal_net::clock;
use shoal_net::log_throttle::LogThrottle;
use shoal_registry::changes::LakeChange;
use shoal_registry::roots::MapTable;
use shoal_registry::worker::{Flushing, Lake, NotFlushed, Packing};
use shoal_registry::{DirtyVersion, MapName, Name};
use shoal_s3::object::ObjectName;

use super::flush_transfers::FlushTransfers;
use super::lake_writer::{LakeWrite, LakeWriteError, Shared, Uploaded};
use super::pacing::Pacing;
use crate::dirty::record::keys::object_name;
use crate::dirty::record::manifest::Manifest;
use crate::dirty::stock::status::WriteBackOutcome;
use crate::dirty::stock::tier_store::TierStore;

/// Cleans one tier.
pub(crate) struct Cleaner {
    pub(crate) store: Arc<TierStore>,
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
        let read = || Manifest::new(&object_name(name).ok_or(Malformed)?, version, &self.shared.naming);
        let manifest = match read() {
            Ok(manifest) => manifest,
            Err(why) => {
                let why = format!("this build cannot read the record of the object: {why}");
                return Err(NotFlushed::Lake(why.into()));
            }
        };
        let bytes = manifest.bytes(self.store.bytes(), &self.shared.damages);
        let bytes: Arc<dyn KeptBytes> = Arc::new(bytes);
        let under_way = self.flushes.begin(name);
        let write = LakeWrite {
            manifest: &manifest,
            bytes: &bytes,
            conditions: &HeaderMap::new(),
            permit: &change.permit(),
            transfer: Some(&under_way),
        };
        let began = clock::instant();
        let written = self.shared.write(write).await;
        drop(under_way);
        let size_bytes = version.size_bytes;
        self.pacing.flushed(written.as_ref(), size_bytes, began);
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
                self.shared.damages.forget(&manifest.location());
                outcomes.count(WriteBackOutcome::Flushed);
                // The flush has left the blocks of an object without any here.
                self.shared.parts.cache().grants.introduce(&manifest.version);
                self.shared.parts.through.spread(&manifest.version);
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

    async fn remove(&self, removals: &[Flushing]) -> Vec<Result<(), NotFlushed>> {
        self.remove_all(removals).await
    }

    fn packing(&self, _: &Name) -> Option<Packing> {
        None
    }

    async fn pack(&self, _: &MapName, objects: &[Flushing]) -> Vec<Result<(), NotFlushed>> {
        let mut outcomes = Vec::with_capacity(objects.len());
        for Flushing { version, change } in objects {
            outcomes.push(self.flush(change.name(), version, change).await);
        }
        outcomes
    }

    async fn reserved_table(&self, _: &MapName, _: u64) -> Result<Option<Vec<MapTable>>, String> {
        Ok(None)
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
    /// Forgets the remembered permission of the writer if the lake refuses the object for lack of one.
    pub(super) fn forget_permission(&self, writer: &Arc<str>, name: &ObjectName, error: &LakeWriteError) {
        if let LakeWriteError::Refused(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) = error
            && let Ok(writer) = self.shared.writer(writer)
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
