//! A request that was admitted.

use std::sync::Arc;

use http::header;
use http::request::Parts;
use shoal_base::send_permit::SendPermit;
use shoal_net::http::connection::ClientBody;
use shoal_s3::auth::Verified;
use shoal_s3::error::S3Error;
use shoal_s3::operation::Classified;
use shoal_s3::payload::CheckedBody;

/// A request that was classified and whose caller was verified.
pub struct Admitted {
    /// Head of the request.
    pub parts: Arc<Parts>,
    /// Its body, not read yet.
    pub body: ClientBody,
    /// The operation, the names and the query, parsed.
    pub classified: Classified,
    /// The proof of its signature.
    pub verified: Verified,
    /// The right to send the request to the lake, if it is a change of a name that may be dirty.
    pub permit: Option<SendPermit>,
    /// True if the node reads the lake's response, so that it must not be encoded.
    pub is_answer_read: bool,
}

impl Admitted {
    /// Returns the same request without its body. Only a request whose body has no meaning may be repeated
    /// like this.
    pub fn without_body(&self) -> Box<Self> {
        Box::new(Self {
            parts: Arc::clone(&self.parts),
            body: ClientBody::empty(),
            classified: self.classified.clone(),
            verified: self.verified.clone(),
            permit: self.permit.clone(),
            is_answer_read: self.is_answer_read,
        })
    }

    /// Returns the request without its body, and a verified reader of the body. Its user must discard all
    /// bytes if it ends in an error.
    pub fn open(mut self: Box<Self>) -> Result<(Box<Self>, CheckedBody<ClientBody>), S3Error> {
        let body = std::mem::replace(&mut self.body, ClientBody::empty());
        let body = CheckedBody::taken_here(body, &self.parts, self.verified.payload.clone())?;
        Ok((self, body))
    }
}

/// Returns the host of a request, which HTTP/2 has in the target.
pub fn host(parts: &Parts) -> Option<&str> {
    let header = parts
        .headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    header.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str))
}
