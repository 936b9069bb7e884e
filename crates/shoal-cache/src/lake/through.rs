//! Writes through the cache: the lake carries them out, and the node caches what it commits. Parts of an
//! upload that pass through this node are kept until the lake has completed the upload.

use http::{Response, StatusCode, header};
use shoal_s3::error::S3Error;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Operation;

use super::PlainLake;
use crate::exchange::respond::{self, relay};
use crate::exchange::{Admitted, ResponseBody};
use crate::write::{Spread, Uncached, Upload};

impl PlainLake {
    /// Writes an object or a part of an upload. The node caches the object that the lake commits; otherwise
    /// the response contains the reason.
    pub(super) async fn write(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        match admitted.classified.operation {
            Operation::UploadPart => return self.put_part(admitted, name).await,
            Operation::CompleteMultipartUpload => return self.complete(admitted, name).await,
            _ => {}
        }
        let Admitted {
            parts,
            classified,
            verified,
            ..
        } = &*admitted;
        let gathering = self.through.gather(classified, parts, &verified.caller, name);
        let mut relayed = relay(
            self.send_admitted(admitted, gathering.as_ref().ok().cloned())
                .await?,
        );
        if relayed.status() != StatusCode::OK {
            return Ok(relayed);
        }
        let object = name.id(self.cache().lake.url());
        let cached = gathering.and_then(|gathering| {
            let answer = relayed.headers();
            self.through.commit(&gathering, (object, answer), Spread::Homes)
        });
        respond::written(relayed.headers_mut(), cached);
        Ok(relayed)
    }

    /// Sends a part to the lake. The node keeps a part that the lake accepts; otherwise the response contains
    /// the reason.
    async fn put_part(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let Admitted {
            parts,
            classified,
            verified,
            ..
        } = &*admitted;
        let gathered = self
            .through
            .gather_part(classified, &parts.headers, &verified.caller, name);
        let gathering = gathered.as_ref().ok().map(|(_, gathering)| gathering.clone());
        let mut relayed = relay(self.send_admitted(admitted, gathering).await?);
        if relayed.status() == StatusCode::OK {
            let kept = gathered.and_then(|(part, gathering)| {
                let etag = relayed.headers().get(header::ETAG);
                self.through.keep_part(part, &gathering, etag)
            });
            respond::written(relayed.headers_mut(), kept);
        }
        Ok(relayed)
    }

    /// Completes an upload at the lake. The node caches the object if all its parts passed through it;
    /// otherwise the response contains the reason.
    async fn complete(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let upload = Upload::named(name.id(self.cache().lake.url()), &admitted.classified);
        let mut relayed = self.pass_on(admitted).await?;
        if relayed.status() == StatusCode::OK {
            let upload = upload.ok_or(Uncached::Multipart);
            let committed = upload.and_then(|upload| self.through.commit_upload(&upload));
            respond::written(relayed.headers_mut(), committed);
        }
        Ok(relayed)
    }

    /// Aborts an upload at the lake. The node then discards the parts that it kept.
    pub(super) async fn abort(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let upload = Upload::named(name.id(self.cache().lake.url()), &admitted.classified);
        let response = self.pass_on(admitted).await?;
        if let Some(upload) = upload.filter(|_| response.status().is_success()) {
            self.through.forget_upload(&upload);
        }
        Ok(response)
    }
}
