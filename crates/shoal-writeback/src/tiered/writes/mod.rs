//! Writes that are acknowledged before they are at the lake.

mod copy;
mod rewind;

use std::sync::Arc;

use futures_util::future::{Either, FutureExt as _, ready, select};
use http::{HeaderName, HeaderValue, StatusCode, header};
use shoal_cache::exchange::respond::{self, X_CACHE_REASON};
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::lake::Write;
use shoal_cache::write::{Uncached, WriteMode};
use shoal_net::http::connection::ClientBody;
use shoal_s3::error::S3Error;
use shoal_s3::hop_by_hop::MODE_HEADER;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Operation;
use shoal_s3::payload::CheckedBody;

pub(super) use self::copy::conditions_of_source;
use self::rewind::Rewindable;
use super::TieredLakeParts;
use crate::dirty::errors::refused;
use crate::dirty::{Clearance, PendingWrite, Received};
use crate::headers::those;

/// Destination of a write, once the lake's permission is known.
enum Taken {
    /// The tier has received the bytes.
    Here(Received),
    /// The object must be written to the lake at once, or the lake must decide, because it has denied a
    /// question about the write.
    AtLake(Box<Admitted>, Uncached, Option<S3Error>),
}

/// Writes objects back: acknowledges them once the tier has them.
impl TieredLakeParts {
    /// Acknowledges a write before it is at the lake, or writes through the cache and reports why.
    pub(super) async fn write(&self, admitted: Box<Admitted>, asked: Write<'_>) -> ResponseResult {
        if let Some(response) = self.copy(&admitted, asked).await? {
            return Ok(response);
        }
        let (dirty, name) = (&self.dirty, asked.name);
        let write = match dirty.clearances.accept(&admitted, asked) {
            Ok(write) => write,
            Err(why) => return self.write_through(admitted, name, why, None).await,
        };
        let taken = match dirty.clearances.known(&write, &admitted.verified.caller) {
            Some(Clearance::Granted) => {
                let (_, body) = admitted.open()?;
                Taken::Here(dirty.receive(&write, body).await?)
            }
            Some(Clearance::Through(why)) => Taken::AtLake(admitted, why, None),
            Some(Clearance::Refused(denied)) => Taken::AtLake(admitted, Uncached::NotPermitted, Some(denied)),
            None => self.receive_and_ask(&write, admitted).await?,
        };
        let received = match taken {
            Taken::Here(received) => received,
            Taken::AtLake(admitted, why, denied) => {
                return self.write_through(admitted, name, why, denied).await;
            }
        };
        let version = dirty.commit(write, received).await?;
        let mut response = respond::empty(StatusCode::OK);
        let headers = response.headers_mut();
        headers.insert(header::ETAG, version.etag_header());
        let is_checksum = |name: &HeaderName| name.as_str().starts_with("x-amz-checksum-");
        headers.extend(those(&version.headers, is_checksum));
        headers.insert(MODE_HEADER, HeaderValue::from_static(WriteMode::Back.as_str()));
        Ok(response)
    }

    /// Receives the bytes of a write while the lake is asked for permission. The bytes are not visible to
    /// reads, and are discarded unless the lake grants it.
    async fn receive_and_ask(
        &self,
        write: &PendingWrite,
        mut admitted: Box<Admitted>,
    ) -> Result<Taken, S3Error> {
        let caller = admitted.verified.caller.clone();
        let body = std::mem::replace(&mut admitted.body, ClientBody::empty());
        let rewind = Rewindable::new(body);
        let payload = admitted.verified.payload.clone();
        let body = CheckedBody::taken_here(rewind.clone(), &admitted.parts, payload)?;
        let (dirty, order) = (Arc::clone(&self.dirty), write.clone());
        let receiving = Box::pin(async move { dirty.receive(&order, body).await });
        let asking = std::pin::pin!(self.dirty.clearances.clear(write, &caller));
        let (answer, received) = match select(asking, receiving).await {
            Either::Left((answer, receiving)) => (answer, receiving.left_future()),
            Either::Right((received, asking)) => (asking.await, ready(received).right_future()),
        };
        let not_here = match answer {
            Ok(Clearance::Granted) => {
                rewind.goes_on();
                return Ok(Taken::Here(received.await?));
            }
            Ok(Clearance::Through(why)) => Ok((why, None)),
            Ok(Clearance::Refused(denied)) => Ok((Uncached::NotPermitted, Some(denied))),
            Err(error) => Err(S3Error::from(error)),
        };
        // The receiver gets no more bytes, but may already be storing a complete piece: wait, and discard it.
        admitted.body = rewind.rewound();
        let (dirty, order) = (Arc::clone(&self.dirty), write.clone());
        tokio::spawn(async move {
            if let Ok(received) = received.await {
                dirty.discard(&order, received).await;
            }
        });
        let (why, denied) = not_here?;
        Ok(Taken::AtLake(admitted, why, denied))
    }

    /// Writes as if the client had asked for `through`, unless the rule refuses writes that cannot be written
    /// back. `denied` is the error of a question about the write that the lake has denied.
    pub(super) async fn write_through(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        why: Uncached,
        denied: Option<S3Error>,
    ) -> ResponseResult {
        if denied.is_none() && self.dirty.entries.refuses(name, why) {
            return Err(refused(why));
        }
        let has_bytes = admitted.classified.operation != Operation::CreateMultipartUpload;
        let change = if has_bytes {
            self.begin_change(&admitted, name, denied).await?
        } else {
            None
        };
        let through = Write {
            name,
            mode: WriteMode::Through,
            lifetime: None,
        };
        let mut response = self.send(change, admitted, Some(through)).await?;
        // If the bytes are not even cached, that reason is reported in preference to why they were not
        // written back.
        let has_reason = has_bytes && response.headers().contains_key(X_CACHE_REASON);
        if response.status() == StatusCode::OK && !has_reason {
            let reason = HeaderValue::from_static(why.as_str());
            response.headers_mut().insert(X_CACHE_REASON, reason);
        }
        Ok(response)
    }
}
