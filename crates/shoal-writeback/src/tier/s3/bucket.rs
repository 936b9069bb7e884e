//! The bucket that holds the pieces.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, response};
use shoal_net::endpoint::s3::{Answer, CallError, S3Client, SendOptions};
use shoal_net::endpoint::{Endpoint, EndpointRequest};
use shoal_s3::target;

use crate::tier::store::StoreError;

/// Prefix of the names of all objects that are pieces.
pub(super) const PREFIX: &str = "pieces/";

/// A bucket of an endpoint.
pub(super) struct Bucket {
    endpoint: Arc<Endpoint>,
    pub(super) name: String,
}

impl Bucket {
    pub(super) fn new(endpoint: Arc<Endpoint>, name: &str) -> Self {
        let name = name.into();
        Self { endpoint, name }
    }

    /// Returns the client of the node's own account, which may change.
    pub(super) fn s3(&self) -> S3Client {
        S3Client::of_node(&self.endpoint)
    }

    /// Returns the target of a piece, or of one version of it.
    pub(super) fn target(&self, key: &str, version: Option<&HeaderValue>) -> PathAndQuery {
        let version = version.map(|version| ("versionId", Some(version.as_bytes())));
        let path = target::path(Some(&self.name), Some(name_of(key).as_bytes()));
        target::with_query(path, version).expect("buckets and keys are short")
    }

    /// Sends a request with a short response.
    ///
    /// # Errors
    ///
    /// The store does not carry it out, or the response is incomplete.
    pub(super) async fn send(
        &self,
        request: EndpointRequest,
    ) -> Result<(response::Parts, Bytes), StoreError> {
        let answer = self.s3().send(request, SendOptions::default()).await?;
        let Answer { head, body } = answer.success()?;
        Ok((head, body.map_err(CallError::BrokenOff)?))
    }

    /// Removes one piece, or one version of it.
    pub(super) async fn delete(&self, key: &str, version: Option<&HeaderValue>) -> Result<(), StoreError> {
        let removal = self.s3().delete(self.target(key, version));
        match self.send(removal).await {
            Ok(_) | Err(StoreError::Missing) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes a piece that the store may have received but has not confirmed, in the background. No entry
    /// will name it. If the store commits it later still, a sweep removes it.
    pub(super) fn discard(self: &Arc<Self>, key: &str) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (bucket, key) = (Arc::clone(self), key.to_owned());
        runtime.spawn(async move {
            if let Err(error) = bucket.delete(&key, None).await {
                tracing::debug!(key, %error, "an unconfirmed piece may stay until a sweep");
            }
        });
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bucket {} of {}", self.name, self.endpoint.url())
    }
}

/// Returns the name of the object that is a piece. It needs no encoding: see
/// [`check_key`](crate::tier::store::check_key).
pub(super) fn name_of(key: &str) -> String {
    format!("{PREFIX}{key}")
}
