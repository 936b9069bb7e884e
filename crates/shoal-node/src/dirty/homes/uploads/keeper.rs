//! What the keeper of an upload does for all nodes, and every node for the keepers of its parts.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::HeaderMap;
use shoal_policy::VersionId;

use super::completion::Ended;
use super::record;
use super::request::COMPLETION_ROUND;
use super::table::{Begin, NotNoted};
use super::taking::progress_to_bytes;
use super::{Selection, UploadRequest};
use crate::clock;
use crate::dirty::homes::{Answer, Homes};
use crate::dirty::multipart::{CompletionError, Part, Upload, UploadEnd, UploadId};

/// Holders told at a time that a part is not needed any more.
const RELEASES: usize = 16;

impl Homes {
    /// Answers another node, or this one.
    pub(in crate::dirty) async fn answer_upload(self: &Arc<Self>, request: UploadRequest) -> Answer {
        let uploads = &self.uploads;
        match request {
            UploadRequest::Look(id) => told(uploads.table.lock().known(id).map(|upload| {
                let mut out = Vec::new();
                upload.write(&mut out);
                out
            })),
            UploadRequest::Parts(id) => {
                told(uploads.table.lock().progress(id).as_ref().map(progress_to_bytes))
            }
            UploadRequest::Note(id, part) => self.note(id, Arc::from(part)).await,
            UploadRequest::Complete(id, selection, conditions) => {
                self.complete_here(id, &selection, conditions).await
            }
            UploadRequest::Abort(id) => self.give_up(id, UploadEnd::Aborted).await,
            UploadRequest::Wants(id, version) => told(uploads.table.lock().wants(id, version).then(Vec::new)),
            UploadRequest::List(view, inquiry) => self.tell_uploads(view, &inquiry),
            UploadRequest::Release(version) => {
                uploads.release(version).await;
                Answer::Done(Bytes::new())
            }
        }
    }

    /// Takes a part into its upload, in place of the one of the same number.
    async fn note(self: &Arc<Self>, id: UploadId, part: Arc<Part>) -> Answer {
        let uploads = &self.uploads;
        if uploads.table.lock().get(id).is_none() {
            return Answer::Nothing;
        }
        // Whoever holds it has a record of it; here it says that the part belongs to the upload.
        if part.holder != uploads.me && uploads.write_part(id, &part).await.is_err() {
            return Answer::Unsettled;
        }
        let noted = uploads
            .table
            .lock()
            .note(id, &part, self.object_bytes_max, clock::instant());
        let refused = match noted {
            Ok(replaced) => {
                // Its own bytes, sent once more by a writer that heard no answer, are another part all the
                // same.
                self.release_everywhere(replaced.into_iter().collect());
                return Answer::Done(Bytes::new());
            }
            Err(NotNoted::Nothing) => Answer::Nothing,
            Err(NotNoted::Completing) => Answer::Failed,
            Err(NotNoted::TooLarge) => Answer::Refused,
        };
        if part.holder != uploads.me {
            uploads.drop_record(part.version.id).await;
        }
        refused
    }

    /// Begins to complete an upload, or looks how far that is: whoever asks, asks again until it is over.
    async fn complete_here(
        self: &Arc<Self>,
        id: UploadId,
        selection: &Selection,
        conditions: HeaderMap,
    ) -> Answer {
        let begin = self.uploads.table.lock().begin(id, selection, clock::instant());
        let mut ending = match begin {
            Begin::Nothing => return Answer::Nothing,
            Begin::Changed => return Answer::Refused,
            Begin::Complete(completed) => return ended(&Ok(completed)),
            Begin::Join(ending) => ending,
            Begin::Lead(upload, parts, end) => {
                let ending = end.subscribe();
                let this = Arc::clone(self);
                // A task of its own: whoever waits may go away.
                tokio::spawn(async move {
                    let how = this.complete_of(&upload, &parts, &conditions).await;
                    this.settle_completion(&upload, &how).await;
                    end.send_replace(Some(how));
                });
                ending
            }
        };
        match tokio::time::timeout(COMPLETION_ROUND, ending.wait_for(Option::is_some)).await {
            Ok(Ok(how)) => how.as_ref().map_or(Answer::Unsettled, ended),
            Ok(Err(_broken_off)) => ended(&Err(CompletionError::Later)),
            Err(_elapsed) => Answer::Unsettled,
        }
    }

    /// The parts of what is complete are of no use any more; those of what is not stay.
    async fn settle_completion(self: &Arc<Self>, upload: &Upload, how: &Ended) {
        let uploads = &self.uploads;
        let completed = how.as_ref().ok().map(Arc::clone);
        let is_complete = completed.is_some();
        let unused = uploads.table.lock().ended(upload.id, completed, clock::instant());
        if is_complete {
            uploads.drop_record(record::name_of(upload, &uploads.lake)).await;
            self.release_everywhere(unused);
        }
    }

    /// Ends an upload that is kept here without an object.
    pub(super) async fn give_up(self: &Arc<Self>, id: UploadId, end: UploadEnd) -> Answer {
        let given_up = self.uploads.table.lock().give_up(id, end);
        match given_up {
            Ok(Some((upload, parts))) => {
                let record = record::name_of(&upload, &self.uploads.lake);
                self.uploads.drop_record(record).await;
                self.release_everywhere(parts);
                Answer::Done(Bytes::new())
            }
            Ok(None) => Answer::Nothing,
            Err(_) => Answer::Failed,
        }
    }

    /// Lets whoever holds these parts go of them. Who does not hear it asks by itself after a while.
    fn release_everywhere(self: &Arc<Self>, parts: Vec<Arc<Part>>) {
        let this = Arc::clone(self);
        tokio::spawn(async move {
            stream::iter(parts)
                .for_each_concurrent(RELEASES, |part| {
                    let this = Arc::clone(&this);
                    async move { this.release_at_holder(&part).await }
                })
                .await;
        });
    }

    async fn release_at_holder(&self, part: &Part) {
        let version: VersionId = part.version.id;
        if part.holder != self.uploads.me {
            let release = UploadRequest::Release(version);
            if let Err(error) = self.home.messenger.say_of_upload(part.holder, &release).await {
                tracing::debug!(%error, "a node was not told that it holds a part for nothing");
            }
        }
        // Blocks that came here for the object to be made of them go, too.
        self.uploads.release(version).await;
    }
}

fn told(said: Option<Vec<u8>>) -> Answer {
    said.map_or(Answer::Nothing, |said| Answer::Done(said.into()))
}

fn ended(how: &Ended) -> Answer {
    Answer::Done(super::completion::to_bytes(how).into())
}
