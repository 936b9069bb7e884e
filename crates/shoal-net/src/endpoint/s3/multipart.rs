//! A multipart upload, from creation to completion or abort.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, header};
use shoal_base::send_permit::SendPermit;
use shoal_s3::xml::{self, Completion, ListedPart};

use super::{Answer, CallError, S3Client, SendOptions, with_query};
use crate::endpoint::{EndpointRequest, RequestBody};

const NO_UPLOAD: CallError = CallError::Misunderstood("is not that of an upload");

/// An upload that the store has created.
#[derive(Clone)]
pub struct Multipart {
    client: S3Client,
    target: PathAndQuery,
    id: Arc<str>,
}

impl Multipart {
    /// Creates an upload to `target`.
    ///
    /// # Errors
    ///
    /// The request fails, or the response names no upload.
    pub async fn create(
        client: S3Client,
        target: &PathAndQuery,
        headers: HeaderMap,
    ) -> Result<Self, CallError> {
        let creation = client.create_upload(target, headers);
        let answer = client.send(creation, SendOptions::default()).await?;
        Self::created(client, target, &answer.ok()?)
    }

    /// Returns the upload that the store has created, from the response to [`S3Client::create_upload`].
    /// `client` sends the requests about it.
    ///
    /// # Errors
    ///
    /// The response names no upload.
    pub fn created(client: S3Client, target: &PathAndQuery, answer: &Answer) -> Result<Self, CallError> {
        let id = answer.body.as_ref().ok();
        let id = id.and_then(|answer| xml::upload_id(answer).ok());
        Ok(Self {
            client,
            target: target.clone(),
            id: id.ok_or(NO_UPLOAD)?.into(),
        })
    }

    /// Uploads one part. A permit is needed only if the upload is to become an object. Returns the headers of
    /// the response, with the part's ETag.
    ///
    /// # Errors
    ///
    /// The request fails, or the response has no ETag.
    pub async fn put(
        &self,
        number: u16,
        headers: HeaderMap,
        body: RequestBody,
        options: SendOptions<'_>,
    ) -> Result<HeaderMap, CallError> {
        let number = number.to_string();
        let query = [("partNumber", Some(number.as_bytes())), self.parameter()];
        let target = with_query(&self.target, query);
        let request = self.client.request("upload_part", Method::PUT, target);
        let request = request.with_headers(headers).with_body(body);
        let headers = self.client.send(request, options).await?.ok()?.head.headers;
        let is_named = headers.contains_key(header::ETAG);
        is_named.then_some(headers).ok_or(NO_UPLOAD)
    }

    /// Completes the upload. Returns the object's ETag, which Ceph RGW 16 omits.
    ///
    /// # Errors
    ///
    /// The request fails, or the response is not that of a completion.
    pub async fn complete(
        &self,
        parts: Vec<ListedPart>,
        conditions: HeaderMap,
        permit: &SendPermit,
    ) -> Result<Option<HeaderValue>, CallError> {
        let list = Completion { parts }.write();
        let mut headers = conditions;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        let request = self.request("complete_multipart_upload", Method::POST);
        let request = request
            .with_headers(headers)
            .with_body(RequestBody::Whole(list.into()));
        let options = SendOptions::permitted_by(Some(permit));
        let answer = self.client.send(request, options).await?.ok()?.settled()?;
        let etag = xml::completed_etag(&answer).map_err(|_| NO_UPLOAD)?;
        let etag = HeaderValue::from_str(etag.trim()).map_err(|_| NO_UPLOAD)?;
        Ok((!etag.is_empty()).then_some(etag))
    }

    /// Aborts the upload in a separate task. Nobody depends on the result: no other node knows the upload,
    /// and no object comes of it.
    pub fn abort(self) {
        let request = self.request("abort_multipart_upload", Method::DELETE);
        tokio::spawn(async move {
            if let Err(error) = self.client.send(request, SendOptions::default()).await {
                tracing::debug!(%error, "an upload at the lake was not aborted");
            }
        });
    }

    fn request(&self, operation: &'static str, method: Method) -> EndpointRequest {
        let target = with_query(&self.target, [self.parameter()]);
        self.client.request(operation, method, target)
    }

    fn parameter(&self) -> (&'static str, Option<&[u8]>) {
        ("uploadId", Some(self.id.as_bytes()))
    }
}
