//! A write that is acknowledged before the lake has it.

use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use shoal_registry::Lifetime;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::hop_by_hop::MODE_HEADER;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Operation;

use super::carry_out::{carry_out, unknown};
use super::copy::Copies;
use super::flush::{Flusher, NEARLY_FULL};
use super::{ResponseResult, Shared, try_again};
use crate::dirty::{DirtyObjects, ReceiveError, WriteError};
use crate::front::admission::Admitted;
use crate::front::respond::{self, X_CACHE_REASON};
use crate::front::writes::Writes;
use crate::write::{Uncached, WriteMode};

/// Writes back.
pub(super) struct DirtyWrites {
    dirty: Arc<DirtyObjects>,
    flusher: Arc<Flusher>,
    copies: Copies,
    through: Arc<Writes>,
}

impl DirtyWrites {
    /// Writes `through` the cache what may not be dirty.
    pub(super) fn new(shared: &Shared, through: Arc<Writes>) -> Self {
        Self {
            dirty: Arc::clone(&shared.dirty),
            flusher: Arc::clone(&shared.flusher),
            copies: Copies::new(shared),
            through,
        }
    }

    /// Acknowledges a write before the lake has it, or carries it out through the cache and says why.
    pub(super) async fn write(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        lifetime: Option<Lifetime>,
    ) -> ResponseResult {
        if let Some(response) = self.copies.copy(&admitted, (name, lifetime)).await? {
            return Ok(response);
        }
        let Admitted {
            parts,
            classified,
            verified,
            ..
        } = &*admitted;
        let asked = (&**parts, lifetime);
        let accepted = self.dirty.accept(name, classified, asked, &verified.caller).await;
        let order = match accepted {
            Ok(order) => order,
            Err(why) => return self.write_through_instead(admitted, name, why).await,
        };
        let (_, body) = admitted.open()?;
        let version = self.dirty.commit(order, body).await.map_err(not_written)?;
        let mut response = respond::empty(StatusCode::OK);
        let headers = response.headers_mut();
        headers.insert(header::ETAG, version.etag_header());
        let checksums = version.headers.iter();
        headers.extend(
            checksums
                .filter(|(name, _)| name.as_str().starts_with("x-amz-checksum-"))
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        headers.insert(MODE_HEADER, HeaderValue::from_static(WriteMode::Back.as_str()));
        Ok(response)
    }

    /// Writes as if the client had asked for `through`, unless the rule says that such a write is refused.
    pub(super) async fn write_through_instead(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        why: Uncached,
    ) -> ResponseResult {
        if self.dirty.refuses(name, why) {
            return Err(refused(why));
        }
        let has_bytes = admitted.classified.operation != Operation::CreateMultipartUpload;
        let mut response = if has_bytes {
            let change = self.flusher.begin_change(&admitted, name).await?;
            let (through, name) = (Arc::clone(&self.through), name.clone());
            let operation = admitted.classified.operation;
            let request = async move { through.write(admitted, &name).await };
            carry_out(change, operation, request).await?
        } else {
            self.through.write(admitted, name).await?
        };
        // The reason why the bytes are not even cached says more than the reason why they are not dirty.
        let is_told = has_bytes && response.headers().contains_key(X_CACHE_REASON);
        if response.status() == StatusCode::OK && !is_told {
            let reason = HeaderValue::from_static(why.as_str());
            response.headers_mut().insert(X_CACHE_REASON, reason);
        }
        Ok(response)
    }
}

pub(super) fn not_written(error: WriteError) -> S3Error {
    match error {
        WriteError::Receive(ReceiveError::Body(error)) => error,
        WriteError::Receive(ReceiveError::Full) => refused(Uncached::TooDirty),
        WriteError::OutcomeUnknown => unknown(),
        WriteError::Receive(ReceiveError::Unavailable(error)) | WriteError::Unavailable(error) => {
            try_again(error)
        }
    }
}

/// The answer to a write that the tier cannot take now.
fn refused(why: Uncached) -> S3Error {
    let message = match why {
        Uncached::TooDirty => {
            "The tier is full until the lake has taken some of its objects; please try again."
        }
        Uncached::RegistryFull => NEARLY_FULL,
        _ => "The tier takes no writes now; please try again.",
    };
    S3Error::new(ErrorCode::SlowDown, message)
}
