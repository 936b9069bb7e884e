//! When dirty objects go to the lake, and what becomes of it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use shoal_s3::object::ObjectName;

use super::home::Home;
use super::messenger::Answer;
use super::view::View;
use crate::clock;
use crate::dirty::WriteBackOutcome;
use crate::dirty::flush_schedule::FlushStart;
use crate::dirty::lake_writer::{Cancel, LakeWriteError, Uploaded};
use crate::dirty::manifest::Manifest;
use crate::shutdown::Shutdown;

/// Objects on their way to the lake at a time.
const FLUSHES: usize = 4;

/// How often what is due is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why an object is dirty yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlushError {
    /// Somebody is about to write or remove it.
    #[error("somebody is about to write or remove it")]
    Held,
    /// A part of it is gone.
    #[error("a part of it is lost")]
    Lost,
    /// The lake, or the nodes that hold it.
    #[error("{0}")]
    Failed(Arc<str>),
}

impl Home {
    /// Flushes what is due until the node stops; everything at once when room for dirty blocks is short.
    pub(crate) async fn flush_when_due(self: Arc<Self>, stopping: Shutdown) {
        let mut soon = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.hurry.notified() => soon = true,
                () = stopping.begun() => return,
            }
            self.flush_due(soon || self.records.is_crowded()).await;
            soon = false;
        }
    }

    /// Nothing is due before this node has settled: others may know that an object was overwritten, removed
    /// or lost.
    async fn flush_due(self: &Arc<Self>, soon: bool) {
        let Some(view) = self.settled_view() else {
            return;
        };
        let now = clock::instant();
        let mut due = self.at_home(&view);
        {
            let schedule = self.schedule.lock();
            due.retain(|manifest| schedule.is_due(manifest.version.object, now, soon));
        }
        stream::iter(due)
            .for_each_concurrent(FLUSHES, |manifest| async move {
                // Shown in `/status`, and tried again.
                let _ = self.flush(&manifest.name).await;
            })
            .await;
    }

    /// Brings an object to the lake, if it is dirty, unless somebody does already: then this waits for that.
    pub(crate) async fn flush(self: &Arc<Self>, name: &ObjectName) -> Result<(), FlushError> {
        let Some(manifest) = self.records.get(name) else {
            return Ok(());
        };
        let object = manifest.version.object;
        let begin = self.schedule.lock().begin(object, clock::instant());
        let mut ended = match begin {
            FlushStart::Join(ended) => ended,
            FlushStart::Held => return Err(FlushError::Held),
            FlushStart::Lost => return Err(FlushError::Lost),
            FlushStart::Lead(cancel, over) => {
                let ended = over.subscribe();
                let (this, manifest) = (Arc::clone(self), Arc::clone(&manifest));
                // A task of its own: whoever waits may go away.
                tokio::spawn(async move {
                    this.carry(&manifest, &cancel).await;
                    drop(over);
                });
                ended
            }
        };
        // The sender goes with the flush.
        let _ = ended.changed().await;
        let is_dirty = self
            .records
            .get(name)
            .is_some_and(|known| known.sequence == manifest.sequence);
        if !is_dirty {
            return Ok(());
        }
        let standing = self.schedule.lock().standing(object);
        Err(match standing.error {
            _ if standing.lost => FlushError::Lost,
            Some(error) => FlushError::Failed(error),
            None => FlushError::Held,
        })
    }

    pub(in crate::dirty) async fn flush_for(self: &Arc<Self>, view: u64, name: &ObjectName) -> Answer {
        if !self.decides(view, name.id(&self.lake)) {
            return Answer::Unsettled;
        }
        match self.flush(name).await {
            Ok(()) => Answer::Done(bytes::Bytes::new()),
            Err(FlushError::Lost) => Answer::Nothing,
            Err(_) => Answer::Failed,
        }
    }

    async fn carry(&self, manifest: &Manifest, cancel: &Cancel) {
        let object = manifest.version.object;
        // Who is home now may have asked this node already. If not it finds this flush, for that is under way
        // from here on, and breaks it off.
        let is_home = self.settled_view().is_some_and(|view| view.is_first_home(object));
        let uploaded = if is_home {
            self.lake_writer.write(manifest, cancel).await
        } else {
            Err(LakeWriteError::Cancelled)
        };
        let error = match uploaded {
            Ok(uploaded) => self.settle_flushed(manifest, &uploaded).await,
            Err(LakeWriteError::Cancelled) => None,
            Err(error) => {
                self.count(WriteBackOutcome::Failed);
                tracing::warn!(object = ?manifest.name, %error, "a dirty object was not flushed; it is tried again");
                if matches!(error, LakeWriteError::BlockMissing) {
                    self.look_after(manifest).await;
                }
                Some(error.to_string().into())
            }
        };
        self.schedule.lock().ended(object, error, clock::instant());
    }

    /// The lake has it. What keeps it dirty yet, if anything does.
    async fn settle_flushed(&self, manifest: &Manifest, uploaded: &Uploaded) -> Option<Arc<str>> {
        if let Uploaded::OtherEtag(etag) = uploaded {
            self.count(WriteBackOutcome::Renamed);
            tracing::error!(
                object = ?manifest.name, ?etag, acknowledged = ?manifest.version.etag,
                "the lake calls a flushed object by another ETag than its writer was told; do not write back where the lake encrypts with KMS"
            );
        }
        let object = manifest.version.object;
        let _turn = self.turn(object).await;
        self.grants.invalidate_object(&manifest.name);
        if !self.forget(manifest).await {
            return Some("its record cannot be removed".into());
        }
        self.count(WriteBackOutcome::Flushed);
        let mut schedule = self.schedule.lock();
        if !schedule.is_held(object, clock::instant()) {
            schedule.forget(object);
        }
        None
    }

    /// A block was not where it was: is it gone, or was its node only out of reach?
    pub(in crate::dirty) async fn look_after(&self, manifest: &Manifest) {
        let mut lost = !self.records.vouches_for(manifest);
        let me = View::of(&self.cooperation).me;
        for node in manifest.placement.nodes().iter().filter(|node| **node != me) {
            if let Ok(page) = self.ask_held(*node, &manifest.name).await {
                let has = page
                    .manifests
                    .iter()
                    .any(|held| held.sequence == manifest.sequence);
                lost |= !has;
            }
        }
        if lost {
            self.set_lost(manifest, true);
        }
    }

    /// Notes whether an object can be had whole, and says so when that has changed.
    pub(in crate::dirty) fn set_lost(&self, manifest: &Manifest, lost: bool) {
        let changed = self
            .schedule
            .lock()
            .set_lost(manifest.version.object, lost, clock::instant());
        match (changed, lost) {
            (true, true) => {
                self.count(WriteBackOutcome::Lost);
                tracing::error!(object = ?manifest.name, writer = %manifest.writer, "a dirty object is lost: a node that held a part of it is gone, and the lake does not have it");
            }
            (true, false) => {
                tracing::info!(object = ?manifest.name, "a dirty object that was lost is found again");
            }
            (false, _) => {}
        }
    }
}
