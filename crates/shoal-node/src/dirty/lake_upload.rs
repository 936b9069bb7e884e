//! A multipart upload at the lake, from creation to completion or abort.

use std::sync::Arc;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, response};
use http_body_util::{BodyExt, Collected, Full, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use shoal_policy::fair::Payer;
use shoal_registry::changes::SendPermit;
use shoal_s3::error::ErrorCode;
use shoal_s3::identity::NODE;
use shoal_s3::sigv4::PayloadHash;
use shoal_s3::xml::{self, Completion, Document, ErrorDocument, Malformed};

use super::checksums::{Checksum, element_name};
use crate::endpoint::{
    Endpoint, EndpointError, EndpointRequest, LakeAccount, LakeBody, RequestBody, RequestStream,
};
use crate::link::Transfer;

/// Limit on the lake's responses about uploads, which are short.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// An upload that the lake has created.
#[derive(Clone)]
pub(super) struct LakeUpload {
    lake: Arc<Endpoint>,
    target: PathAndQuery,
    account: LakeAccount,
    id: Arc<str>,
}

/// A part that the lake has accepted.
#[derive(Clone, Debug)]
pub(super) struct LakePart {
    pub(super) number: u16,
    pub(super) etag: HeaderValue,
    /// The checksum that the lake has verified the part's bytes against.
    pub(super) checksum: Option<Checksum>,
}

/// The reason why a request about an upload failed at the lake.
#[derive(Debug, thiserror::Error)]
pub(super) enum LakeUploadError {
    /// The lake refused the request.
    #[error("the lake answered {0}")]
    Refused(StatusCode),
    /// The lake refused the bytes because their digest is not the one in the request; its message.
    #[error("the lake answered {0}")]
    OtherBytes(String),
    /// The lake's response lacks a required field.
    #[error("the lake's answer is not that of an upload")]
    Misunderstood,
    /// The lake did not answer.
    #[error(transparent)]
    Lake(#[from] EndpointError),
}

impl LakeUpload {
    /// Creates an upload to `target`. Returns it with the head of the lake's response.
    pub(super) async fn create(
        lake: &Arc<Endpoint>,
        target: &PathAndQuery,
        headers: HeaderMap,
        account: LakeAccount,
    ) -> Result<(Self, response::Parts), LakeUploadError> {
        let creation = Self::creation(target, headers, (account.clone(), NODE));
        let (head, body) = answer(lake.send(creation).await?).await?;
        let upload = Self::created(lake, target, account, &body);
        let upload = upload.map_err(|_| LakeUploadError::Misunderstood)?;
        Ok((upload, head))
    }

    /// Returns the request that creates an upload to `target`.
    pub(super) fn creation(
        target: &PathAndQuery,
        headers: HeaderMap,
        (account, payer): (LakeAccount, Payer),
    ) -> EndpointRequest {
        EndpointRequest {
            operation: "create_multipart_upload",
            method: Method::POST,
            target: with_query(target, "uploads"),
            headers,
            body: RequestBody::Empty,
            expects_continue: false,
            payload: PayloadHash::empty(),
            account,
            payer,
        }
    }

    /// Returns the upload that the lake has created, from its response.
    pub(super) fn created(
        lake: &Arc<Endpoint>,
        target: &PathAndQuery,
        account: LakeAccount,
        answer: &[u8],
    ) -> Result<Self, Malformed> {
        Ok(Self {
            lake: Arc::clone(lake),
            target: target.clone(),
            account,
            id: upload_id(answer)?.into(),
        })
    }

    /// Uploads one part; `size_bytes` is the length of its body. `permit` is needed only if the upload is to
    /// become an object. Returns the headers of the response, with the part's ETag.
    pub(super) async fn put(
        &self,
        number: u16,
        headers: HeaderMap,
        (size_bytes, bytes): (u64, RequestStream),
        (permit, transfer): (Option<&SendPermit>, Option<&Transfer>),
    ) -> Result<HeaderMap, LakeUploadError> {
        let body = match size_bytes {
            0 => RequestBody::Empty,
            length => RequestBody::Stream {
                length: Some(length),
                body: bytes,
            },
        };
        let query = format!("partNumber={number}&{}", self.query());
        let request = self.request("upload_part", Method::PUT, &query, headers, body);
        let sent = self.lake.send_change(request, permit, transfer);
        let (head, _) = answer(sent.await?).await?;
        let is_named = head.headers.contains_key(header::ETAG);
        is_named
            .then_some(head.headers)
            .ok_or(LakeUploadError::Misunderstood)
    }

    /// Completes the upload. Returns the object's ETag, which Ceph RGW 16 omits.
    pub(super) async fn complete(
        &self,
        parts: &[LakePart],
        conditions: HeaderMap,
        permit: &SendPermit,
    ) -> Result<Option<HeaderValue>, LakeUploadError> {
        let list = listed(parts);
        let mut headers = conditions;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        let mut request = self.request(
            "complete_multipart_upload",
            Method::POST,
            &self.query(),
            headers,
            RequestBody::Empty,
        );
        request.payload = PayloadHash::Sha256(Sha256::digest(&list).into());
        request.body = RequestBody::Stream {
            length: Some(list.len() as u64),
            body: Full::new(list.into())
                .map_err(|never| match never {})
                .boxed_unsync(),
        };
        let sent = self.lake.send_change(request, Some(permit), None);
        let (_, body) = answer(sent.await?).await?;
        // A lake may send 200 early to keep the connection open, and report an error in the body.
        if let Ok(Some(error)) = ErrorDocument::read(&body) {
            return Err(refused(&error));
        }
        let completed = xml::Completed::read(&body).map_err(|_| LakeUploadError::Misunderstood)?;
        let etag =
            HeaderValue::from_str(completed.etag.trim()).map_err(|_| LakeUploadError::Misunderstood)?;
        Ok((!etag.is_empty()).then_some(etag))
    }

    /// Aborts the upload in a separate task. Nobody depends on the result: no other node knows the upload,
    /// and no object comes of it.
    pub(super) fn abort(self) {
        let query = self.query();
        let request = self.request(
            "abort_multipart_upload",
            Method::DELETE,
            &query,
            HeaderMap::new(),
            RequestBody::Empty,
        );
        tokio::spawn(async move {
            match self.lake.send(request).await {
                Ok(answer) => drop(answer.into_body().collect().await),
                Err(error) => tracing::debug!(%error, "an upload at the lake was not aborted"),
            }
        });
    }

    fn query(&self) -> String {
        format!("uploadId={}", utf8_percent_encode(&self.id, NON_ALPHANUMERIC))
    }

    fn request(
        &self,
        operation: &'static str,
        method: Method,
        query: &str,
        headers: HeaderMap,
        body: RequestBody,
    ) -> EndpointRequest {
        let payload = match &body {
            RequestBody::Empty => PayloadHash::empty(),
            _ => PayloadHash::Unsigned,
        };
        EndpointRequest {
            operation,
            method,
            target: with_query(&self.target, query),
            headers,
            body,
            expects_continue: false,
            payload,
            account: self.account.clone(),
            payer: NODE,
        }
    }
}

fn with_query(target: &PathAndQuery, query: &str) -> PathAndQuery {
    let target = PathAndQuery::try_from(format!("{}?{query}", target.path()));
    target.expect("a path with a query is a target")
}

/// Returns the list of parts that completes an upload, as XML.
fn listed(parts: &[LakePart]) -> String {
    let parts = parts.iter().map(|part| xml::ListedPart {
        number: part.number,
        etag: String::from_utf8_lossy(part.etag.as_bytes()).into_owned(),
        checksum: part
            .checksum
            .as_ref()
            .map(|checksum| (element_name(checksum.algorithm), checksum.text())),
    });
    Completion {
        parts: parts.collect(),
    }
    .write()
}

/// Converts an error after an early 200 to the one that its status would have been.
fn refused(error: &ErrorDocument) -> LakeUploadError {
    let code = ErrorCode::named(&error.code);
    code.map_or(LakeUploadError::Misunderstood, |code| {
        LakeUploadError::Refused(code.status())
    })
}

/// Reads a response to its end, so that the connection can be reused.
pub(super) async fn answer(answer: Response<LakeBody>) -> Result<(response::Parts, Bytes), LakeUploadError> {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    // An incomplete body is treated as empty.
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    match head.status {
        StatusCode::OK => Ok((head, body)),
        StatusCode::BAD_REQUEST => Err(other_bytes(&body).unwrap_or(LakeUploadError::Refused(head.status))),
        status => Err(LakeUploadError::Refused(status)),
    }
}

/// Returns the error if the lake rejected bytes because of their digest.
fn other_bytes(answer: &[u8]) -> Option<LakeUploadError> {
    let error = ErrorDocument::read(answer).ok()??;
    let codes = ["BadDigest", "XAmzContentChecksumMismatch"];
    codes
        .contains(&&*error.code)
        .then(|| LakeUploadError::OtherBytes(error.code.clone()))
}

/// Parses the upload's id in the lake's response.
fn upload_id(answer: &[u8]) -> Result<String, Malformed> {
    let document = Document::parse(answer)?;
    let (tag, mut reader) = document.answer()?;
    if tag.name() != "InitiateMultipartUploadResult" {
        return Err(Malformed);
    }
    let result = reader.element(&tag)?;
    reader.end()?;
    let id = result.text_of("UploadId").filter(|id| !id.is_empty());
    id.ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use shoal_s3::payload::Algorithm;
    use shoal_s3::xml::ErrorDocument;

    use super::{LakePart, LakeUploadError, listed, refused, upload_id};
    use crate::dirty::checksums::Checksum;

    #[test]
    fn the_id_of_an_upload_is_found_in_the_answer_that_created_it() {
        let answer = |inside: &str| {
            let root = "InitiateMultipartUploadResult";
            format!(
                "<?xml version=\"1.0\"?><{root}><Key><![CDATA[<UploadId>x</UploadId>]]></Key>{inside}</{root}>"
            )
        };
        let id = upload_id(answer("<UploadId>a&amp;b</UploadId>").as_bytes());
        assert_eq!(id.as_deref(), Ok("a&b"));
        for other in [
            answer(""),
            answer("<UploadId/>"),
            "<R><UploadId>x</UploadId></R>".into(),
        ] {
            assert!(upload_id(other.as_bytes()).is_err(), "{other}");
        }
    }

    #[test]
    fn an_error_behind_a_yes_is_the_no_that_it_stands_for() {
        let status = |code: &str| {
            let error = ErrorDocument {
                code: code.into(),
                message: String::new(),
            };
            match refused(&error) {
                LakeUploadError::Refused(status) => status.as_u16(),
                _ => 0,
            }
        };
        assert_eq!(
            ["PreconditionFailed", "NoSuchKey", "InternalError", "?"].map(status),
            [412, 404, 500, 0]
        );
    }

    #[test]
    fn the_list_of_parts_holds_what_the_lake_said_of_them() {
        let part = |number, checksum| LakePart {
            number,
            etag: HeaderValue::from_static("\"e\""),
            checksum,
        };
        let checksum = Checksum {
            algorithm: Algorithm::Crc32,
            digest: vec![0, 0, 0, 1],
        };
        let xml = listed(&[part(1, Some(checksum)), part(3, None)]);
        assert!(xml.contains(
            "<Part><PartNumber>1</PartNumber><ETag>&quot;e&quot;</ETag><ChecksumCRC32>AAAAAQ==</ChecksumCRC32></Part>"
        ));
        assert!(xml.ends_with(
            "<Part><PartNumber>3</PartNumber><ETag>&quot;e&quot;</ETag></Part></CompleteMultipartUpload>"
        ));
    }
}
