//! Uploads in parts that go through the cache: the lake answers, and what passes is kept for when it has made an object of it.

use http::{Response, StatusCode, header};

use crate::front::body::ResponseBody;
use crate::front::respond;
use crate::front::serve::{Admitted, Front, relay};
use crate::s3::error::S3Error;
use crate::s3::object::ObjectName;
use crate::write::{Uncached, Upload};

impl Front {
    /// A part that the lake takes is kept aside, or the answer says why not.
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

    /// What the lake makes of parts that passed here is cached, or the answer says why not.
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

    /// What is kept of an upload goes with it.
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
