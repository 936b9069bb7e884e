//! Multipart uploads through the cache. The lake answers; the node keeps the parts that pass until the lake
//! has made an object of them.

use http::{Response, StatusCode, header};

use crate::front::body::ResponseBody;
use crate::front::respond;
use crate::front::serve::{Admitted, Front, relay};
use crate::s3::error::S3Error;
use crate::s3::object::ObjectName;
use crate::write::{Uncached, Upload};

impl Front {
    /// Sends a part to the lake. The node keeps a part that the lake takes, or the answer says why not.
    pub(super) async fn write_part_through(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let object = name.id(self.lake.url());
        let gathered = self
            .through
            .gather_part(object, &admitted.classified, &admitted.parts.headers);
        let gathering = gathered.as_ref().ok().map(|(_, gathering)| gathering.clone());
        let mut relayed = relay(self.send_on(admitted, gathering).await?);
        if relayed.status() == StatusCode::OK {
            let kept = gathered.and_then(|(part, gathering)| {
                let etag = relayed.headers().get(header::ETAG);
                self.through.keep_part(part, &gathering, etag)
            });
            respond::written(relayed.headers_mut(), kept);
        }
        Ok(relayed)
    }

    /// Completes an upload at the lake. The node caches the object if its parts passed here, or the answer
    /// says why not.
    pub(super) async fn complete_through(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let upload = Upload::named(name.id(self.lake.url()), &admitted.classified);
        let mut relayed = self.pass_on(admitted).await?;
        if relayed.status() == StatusCode::OK {
            let upload = upload.ok_or(Uncached::Multipart);
            let committed = upload.and_then(|upload| self.through.commit_upload(&upload));
            respond::written(relayed.headers_mut(), committed);
        }
        Ok(relayed)
    }

    /// Aborts an upload at the lake. The node then forgets the parts that it kept.
    pub(super) async fn abort_through(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let upload = Upload::named(name.id(self.lake.url()), &admitted.classified);
        let response = self.pass_on(admitted).await?;
        if let Some(upload) = upload.filter(|_| response.status().is_success()) {
            self.through.forget_upload(&upload);
        }
        Ok(response)
    }
}
