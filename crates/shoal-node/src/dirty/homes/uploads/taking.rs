//! Uploads by way of any node: the one that a request comes to takes the bytes, and asks the keeper for the
//! rest.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Body;
use http_body_util::BodyExt;
use shoal_base::chance;
use shoal_base::encoding::{Malformed, Reader};
use shoal_policy::NodeId;
use shoal_s3::error::S3Error;
use shoal_s3::etag;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::payload::{Algorithm, Digests};

use super::completion::{self, Ended, read_completed, write_completed};
use super::{Selection, UploadRequest};
use crate::clock;
use crate::dirty::checksums::{Checksum, ChecksumSpec};
use crate::dirty::homes::intake::Intake;
use crate::dirty::homes::messenger::Unheard;
use crate::dirty::homes::{Answer, Homes};
use crate::dirty::multipart::{
    Completed, CompletionError, Part, PartError, Upload, UploadId, UploadProgress, UploadUnavailable,
};
use crate::dirty::writing::PendingWrite;
use crate::dirty::{AuthorityUnreachable, ReceiveError};
use crate::write::Uncached;

impl Homes {
    /// Begins an upload of what was accepted; this node keeps it.
    pub async fn begin_upload(&self, order: PendingWrite) -> Result<UploadId, Uncached> {
        let id = UploadId::new(self.uploads.me, [chance::bits(), chance::bits()]);
        let upload = Upload {
            id,
            name: order.name,
            writer: order.writer,
            target: order.target,
            headers: order.headers,
            begun: clock::utc_now(),
        };
        let kept = self.uploads.keep(upload).await;
        kept.map(|()| id).map_err(|_refusal| Uncached::NotKept)
    }

    /// The upload of that id.
    pub async fn upload(self: &Arc<Self>, id: UploadId) -> Result<Upload, UploadUnavailable> {
        match self.ask_keeper(id, UploadRequest::Look(id)).await? {
            Answer::Done(body) => {
                Ok(Upload::read(&mut Reader::new(&body)).map_err(|_| AuthorityUnreachable)?)
            }
            Answer::Nothing => Err(UploadUnavailable::NotFound),
            _ => Err(AuthorityUnreachable.into()),
        }
    }

    /// How far an upload is.
    pub async fn progress(self: &Arc<Self>, id: UploadId) -> Result<UploadProgress, UploadUnavailable> {
        match self.ask_keeper(id, UploadRequest::Parts(id)).await? {
            Answer::Done(body) => Ok(progress_of_bytes(&body).map_err(|_| AuthorityUnreachable)?),
            Answer::Nothing => Err(UploadUnavailable::NotFound),
            _ => Err(AuthorityUnreachable.into()),
        }
    }

    /// Takes the bytes of a part onto this node's disk, and has the keeper note it. `size_bytes`: as
    /// announced.
    pub async fn take_part<B>(
        self: &Arc<Self>,
        upload: &Upload,
        (number, size_bytes): (u16, u64),
        body: B,
    ) -> Result<Arc<Part>, PartError>
    where
        B: Body<Data = Bytes, Error = S3Error> + Unpin,
    {
        if size_bytes > self.object_bytes_max {
            return Err(PartError::TooLarge);
        }
        if self.home.records.is_full(size_bytes) {
            self.home.hurry.notify_one();
            return Err(self.without_room(upload.id, number, size_bytes).await);
        }
        let part = Arc::new(self.store_part(upload, (number, size_bytes), body).await?);
        let note = UploadRequest::Note(upload.id, Box::new(Part::clone(&part)));
        let refused = match self.ask_keeper(upload.id, note).await {
            Ok(Answer::Done(_)) => return Ok(part),
            Ok(Answer::Nothing) => UploadUnavailable::NotFound.into(),
            Ok(Answer::Failed) => UploadUnavailable::Completing.into(),
            Ok(Answer::Refused) => PartError::TooLarge,
            Ok(_) | Err(AuthorityUnreachable) => UploadUnavailable::Unreachable(AuthorityUnreachable).into(),
        };
        self.uploads.release(part.version.id).await;
        Err(refused)
    }

    /// Why there is no room for a part: it is of no use to send it again when its own upload takes the room.
    async fn without_room(self: &Arc<Self>, id: UploadId, number: u16, size_bytes: u64) -> PartError {
        let parts = match self.progress(id).await {
            Ok(UploadProgress::Open(parts)) => parts,
            Ok(UploadProgress::Complete(_)) => return UploadUnavailable::NotFound.into(),
            Err(error) => return error.into(),
        };
        let others = parts.iter().filter(|part| part.number != number);
        let object_bytes = others.map(|part| part.size_bytes()).sum::<u64>() + size_bytes;
        if object_bytes > self.object_bytes_max {
            PartError::TooLarge
        } else {
            PartError::TooDirty
        }
    }

    /// Puts a part where it survives a restart.
    async fn store_part<B>(
        &self,
        upload: &Upload,
        (number, size_bytes): (u16, u64),
        mut body: B,
    ) -> Result<Part, PartError>
    where
        B: Body<Data = Bytes, Error = S3Error> + Unpin,
    {
        let checksum_spec = ChecksumSpec::of(&upload.headers).ok().flatten();
        let mut digests = Digests::default();
        digests.add(Algorithm::Md5);
        if let Some(ChecksumSpec { algorithm, .. }) = checksum_spec {
            digests.add(algorithm);
        }
        let mut intake = Intake::new(
            Arc::clone(&self.store),
            Arc::clone(&self.fetcher),
            size_bytes,
            self.block_bytes,
            None,
        );
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(ReceiveError::Body)?.into_data() {
                digests.update(&data);
                intake.add(data).await?;
            }
        }
        let blocks = intake.finish().await?;
        let checksum = checksum_spec.map(|ChecksumSpec { algorithm, .. }| Checksum {
            algorithm,
            digest: digests.of(algorithm),
        });
        let version = self.version_of_part(upload, number, size_bytes, &digests, checksum);
        let version = Arc::new(version);
        // Until the record does it.
        let _protection = self.store.protect(version.id);
        for (index, draft) in (0..).zip(blocks.drafts) {
            let named = draft.name(Arc::clone(&version), index).await;
            named.map_err(PartError::Disk)?;
        }
        let part = Arc::new(Part {
            number,
            version,
            holder: self.uploads.me,
        });
        let held = self.uploads.hold(upload.id, &part).await;
        held.map_err(PartError::Disk)?;
        Ok(Part::clone(&part))
    }

    /// A version like no other: the same bytes sent again are another part.
    fn version_of_part(
        &self,
        upload: &Upload,
        number: u16,
        size_bytes: u64,
        digests: &Digests,
        checksum: Option<Checksum>,
    ) -> Version {
        let attempt = format!("{}/{number}/{:016x}", upload.id, chance::bits());
        let name = ObjectName {
            bucket: Arc::clone(&upload.name.bucket),
            key: attempt.as_bytes().into(),
            version: None,
        };
        let text = |text: &str| HeaderValue::from_str(text).expect("an ETag or a date is a header value");
        let mut headers = HeaderMap::new();
        headers.insert(header::ETAG, text(&etag::of_md5(&digests.of(Algorithm::Md5))));
        headers.insert(
            header::LAST_MODIFIED,
            text(&httpdate::fmt_http_date(clock::utc_now())),
        );
        headers.extend(checksum.map(|checksum| -> (HeaderName, HeaderValue) { checksum.header() }));
        let object = name.id(self.lake.url());
        let version = Version::from_response(object, &headers, size_bytes, self.block_bytes);
        version.expect("a part of bounded size with an ETag has a version")
    }

    /// Makes an object of parts, and waits for it. `asked`: conditions, and checksums that it must have.
    pub async fn complete_upload(
        self: &Arc<Self>,
        id: UploadId,
        parts: &[Arc<Part>],
        asked: &HeaderMap,
    ) -> Result<Result<Arc<Completed>, CompletionError>, UploadUnavailable> {
        let selection = Selection::of(parts);
        loop {
            let complete = UploadRequest::Complete(id, selection.clone(), asked.clone());
            match self.ask_keeper(id, complete).await? {
                Answer::Done(body) => return Ok(completion_of(&body)?),
                Answer::Unsettled => {}
                Answer::Nothing => return Err(UploadUnavailable::NotFound),
                Answer::Refused => return Err(UploadUnavailable::PartsChanged),
                _ => return Err(AuthorityUnreachable.into()),
            }
        }
    }

    /// Gives an upload up.
    pub async fn abort_upload(self: &Arc<Self>, id: UploadId) -> Result<(), UploadUnavailable> {
        match self.ask_keeper(id, UploadRequest::Abort(id)).await? {
            Answer::Done(_) => Ok(()),
            Answer::Nothing => Err(UploadUnavailable::NotFound),
            Answer::Failed => Err(UploadUnavailable::Completing),
            _ => Err(AuthorityUnreachable.into()),
        }
    }

    /// Asks the keeper of an upload. One that is gone from the cluster has taken it along.
    pub(super) async fn ask_keeper(
        self: &Arc<Self>,
        id: UploadId,
        request: UploadRequest,
    ) -> Result<Answer, AuthorityUnreachable> {
        self.ask_about_uploads(id.keeper, request).await
    }

    /// Asks a node about uploads that it keeps. One that is gone from the cluster keeps none.
    pub(super) async fn ask_about_uploads(
        self: &Arc<Self>,
        node: NodeId,
        request: UploadRequest,
    ) -> Result<Answer, AuthorityUnreachable> {
        if node == self.uploads.me {
            return Ok(Box::pin(self.answer_upload(request)).await);
        }
        match self.home.messenger.say_of_upload(node, &request).await {
            Ok(answer) => Ok(answer),
            Err(Unheard::Gone) => Ok(Answer::Nothing),
            Err(error) => {
                tracing::debug!(%error, asked = request.verb(), "a node that keeps uploads cannot be asked");
                Err(AuthorityUnreachable)
            }
        }
    }
}

fn completion_of(body: &[u8]) -> Result<Ended, AuthorityUnreachable> {
    completion::of_bytes(body).map_err(|_| AuthorityUnreachable)
}

pub(super) fn progress_to_bytes(progress: &UploadProgress) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    match progress {
        UploadProgress::Open(parts) => {
            out.push(0);
            out.extend_from_slice(&(parts.len() as u32).to_le_bytes());
            for part in parts {
                part.write(&mut out);
            }
        }
        UploadProgress::Complete(completed) => {
            out.push(1);
            write_completed(completed, &mut out);
        }
    }
    out
}

/// Inverse of [`progress_to_bytes`].
fn progress_of_bytes(bytes: &[u8]) -> Result<UploadProgress, Malformed> {
    let mut reader = Reader::new(bytes);
    let progress = match reader.array()? {
        [0] => {
            let count = reader.u32()?;
            let parts = (0..count).map(|_| Part::read(&mut reader).map(Arc::new));
            UploadProgress::Open(parts.collect::<Result<_, _>>()?)
        }
        [1] => UploadProgress::Complete(Arc::new(read_completed(&mut reader)?)),
        _ => return Err(Malformed),
    };
    reader.rest().is_empty().then_some(progress).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::{Completed, UploadProgress, progress_of_bytes, progress_to_bytes};
    use crate::dirty::multipart::tests::part;

    #[test]
    fn how_far_an_upload_is_can_be_told_and_heard() {
        let parts = vec![Arc::new(part(1, 'a', 5)), Arc::new(part(2, 'b', 5))];
        for told in [
            UploadProgress::Open(parts),
            UploadProgress::Complete(Arc::new(Completed::default())),
        ] {
            let heard = progress_of_bytes(&progress_to_bytes(&told)).unwrap();
            assert_eq!(format!("{heard:?}"), format!("{told:?}"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_progress_or_refused(bytes in vec(any::<u8>(), 0..300)) {
            let _ = progress_of_bytes(&bytes);
        }
    }
}
