//! A write that is acknowledged before the lake has it.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::hop_by_hop::MODE_HEADER;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Operation;

use super::Shared;
use super::flush::Flusher;
use crate::dirty::{DirtyObjects, LakeWriteError, ReceiveError, WriteError};
use crate::front::admission::Admitted;
use crate::front::body::ResponseBody;
use crate::front::respond::{self, X_CACHE_REASON};
use crate::front::writes::Writes;
use crate::write::{Uncached, WriteMode};

/// Writes back.
pub(super) struct DirtyWrites {
    dirty: Arc<DirtyObjects>,
    flusher: Arc<Flusher>,
    through: Arc<Writes>,
}

impl DirtyWrites {
    /// Writes `through` the cache what may not be dirty.
    pub(super) fn new(shared: &Shared, through: Arc<Writes>) -> Self {
        Self {
            dirty: Arc::clone(&shared.dirty),
            flusher: Arc::clone(&shared.flusher),
            through,
        }
    }

    /// Acknowledges a write before the lake has it, or carries it out through the cache and says why.
    pub(super) async fn write(
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
        let accepted = self.dirty.accept(name, classified, parts, &verified.caller).await;
        let order = match accepted {
            Ok(order) => order,
            Err(why) => return self.write_through_instead(admitted, name, why).await,
        };
        let (_, body) = admitted.open()?;
        let written = self.dirty.commit(order, body).await.map_err(not_written)?;
        let mut response = respond::empty(StatusCode::OK);
        let headers = response.headers_mut();
        headers.insert(header::ETAG, written.version.etag_header());
        let checksums = written.version.headers.iter();
        headers.extend(
            checksums
                .filter(|(name, _)| name.as_str().starts_with("x-amz-checksum-"))
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        set_write_mode(headers, written.through);
        Ok(response)
    }

    /// Writes as if the client had asked for `through`. A dirty object under the name goes to the lake first,
    /// if this write changes it.
    pub(super) async fn write_through_instead(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        why: Uncached,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let overwritten = self.flusher.flush_for_request(&admitted, name).await?;
        let has_bytes = admitted.classified.operation != Operation::CreateMultipartUpload;
        let response = self.through.write(admitted, name).await?;
        let mut response = self.flusher.discard_overwritten(overwritten, response).await?;
        // The reason why the bytes are not even cached says more than the reason why they are not dirty.
        let is_told = has_bytes && response.headers().contains_key(X_CACHE_REASON);
        if response.status() == StatusCode::OK && !is_told {
            let reason = HeaderValue::from_static(why.as_str());
            response.headers_mut().insert(X_CACHE_REASON, reason);
        }
        Ok(response)
    }
}

/// Adds the mode in which an object was written.
fn set_write_mode(headers: &mut HeaderMap, through: Option<Uncached>) {
    let mode = match through {
        None => WriteMode::Back,
        Some(why) => {
            headers.insert(X_CACHE_REASON, HeaderValue::from_static(why.as_str()));
            WriteMode::Through
        }
    };
    headers.insert(MODE_HEADER, HeaderValue::from_static(mode.as_str()));
}

fn not_written(error: WriteError) -> S3Error {
    match error {
        WriteError::Receive(ReceiveError::Body(error)) => error,
        WriteError::Upload(LakeWriteError::Refused(StatusCode::FORBIDDEN)) => {
            S3Error::new(ErrorCode::AccessDenied, "Access Denied")
        }
        error => {
            tracing::warn!(%error, "a write-back failed");
            S3Error::new(
                ErrorCode::SlowDown,
                "The object could not be written; please try again.",
            )
        }
    }
}
