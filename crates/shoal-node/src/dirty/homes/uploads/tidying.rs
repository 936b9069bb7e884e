//! Uploads that nobody goes on with, and parts that nobody needs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::table::Held;
use super::{UploadRequest, Uploads};
use crate::clock;
use crate::dirty::homes::messenger::Unheard;
use crate::dirty::homes::{Answer, Homes};
use crate::dirty::multipart::{OpenUpload, UploadEnd};
use crate::shutdown::Shutdown;

/// An upload to which nothing was done for so long is given up.
const IDLE_MAX: Duration = Duration::from_hours(24);

/// A node that is to go waits for uploads to which something was done lately.
const BUSY: Duration = Duration::from_mins(5);

/// How often parts are held against what their keepers know.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// A part that came a moment ago may not have been noted yet.
const NOTED_MAX: Duration = Duration::from_mins(1);

impl Homes {
    /// Looks after uploads until the node stops.
    pub(in crate::dirty) async fn tidy_uploads(self: &Arc<Self>, stopping: Shutdown) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = stopping.begun() => return,
            }
            self.tidy_uploads_at(clock::instant()).await;
        }
    }

    /// Gives up what nobody goes on with, and lets go of what nobody needs, as it is at the moment `now`.
    pub async fn tidy_uploads_at(self: &Arc<Self>, now: Instant) {
        let idle = self.uploads.table.lock().idle(IDLE_MAX, now);
        for id in idle {
            tracing::warn!(upload = %id, "an upload to which nothing was done for a day is given up");
            // One that is being completed after all goes on.
            let _ = self.give_up(id, UploadEnd::Expired).await;
        }
        self.uploads.table.lock().forget_complete(now);
        let all_held = self.uploads.table.lock().held();
        for held in all_held {
            if self.is_unwanted(&held, now).await {
                self.uploads.release(held.part.version.id).await;
            }
        }
    }

    /// Whether a part is held for nothing: its keeper says so, or was not seen for a day.
    async fn is_unwanted(&self, held: &Held, now: Instant) -> bool {
        let (keeper, age) = (held.upload.keeper, now.saturating_duration_since(held.since));
        if age < NOTED_MAX {
            return false;
        }
        let version = held.part.version.id;
        if keeper == self.uploads.me {
            return !self.uploads.table.lock().wants(held.upload, version);
        }
        let wants = UploadRequest::Wants(held.upload, version);
        match self.home.messenger.say_of_upload(keeper, &wants).await {
            Ok(answer) => answer == Answer::Nothing,
            Err(Unheard::Gone) => age > IDLE_MAX,
            Err(_) => false,
        }
    }

    /// Uploads that are kept here and not complete, with their parts.
    pub fn open_uploads(&self) -> Vec<OpenUpload> {
        self.uploads.open()
    }

    /// How many uploads that were kept here ended how since the node started.
    pub fn upload_ends(&self) -> [(UploadEnd, u64); UploadEnd::ALL.len()] {
        self.uploads.ends()
    }

    /// Bytes of parts of uploads, of any keeper, that are here.
    pub fn upload_bytes(&self) -> u64 {
        self.uploads.held_bytes()
    }
}

impl Uploads {
    /// Uploads and parts here that somebody is still busy with, for a node that is to go.
    pub(in crate::dirty) fn busy(&self) -> u64 {
        self.table.lock().busy(BUSY, clock::instant())
    }
}
