//! Writes that are acknowledged before they are at the lake.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode, header};
use shoal_cache::exchange::respond::{self, X_CACHE_REASON};
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::lake::Write;
use shoal_cache::lake::unknown;
use shoal_cache::write::{Uncached, WriteMode};
use shoal_net::http::connection::ClientBody;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::hop_by_hop::MODE_HEADER;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Operation;
use shoal_s3::payload::CheckedBody;

use super::carry_out::carry_out;
use super::parts::TieredLakeParts;
use super::rewind::Rewindable;
use crate::dirty::{Clearance, NEARLY_FULL, PendingWrite, Received, WriteError, no_permission, try_again};
use crate::headers::those;

/// Writes objects back: acknowledges them once the tier has them.
pub(super) struct DirtyWrites(pub(super) Arc<TieredLakeParts>);

/// Destination of a write, once the lake's permission is known.
enum Taken {
    /// The tier has received the bytes.
    Here(Received),
    /// The object must be written to the lake at once.
    Through(Box<Admitted>, Uncached),
    /// The lake has denied a question about the write; it decides about the write itself.
    Denied(Box<Admitted>, S3Error),
}

impl DirtyWrites {
    /// Acknowledges a write before it is at the lake, or writes through the cache and reports why.
    pub(super) async fn write(&self, admitted: Box<Admitted>, asked: Write<'_>) -> ResponseResult {
        if let Some(response) = self.copy(&admitted, asked).await? {
            return Ok(response);
        }
        let (dirty, name) = (&self.0.dirty, asked.name);
        let write = match dirty.clearances.accept(&admitted, asked) {
            Ok(write) => write,
            Err(why) => return self.0.write_through_instead(admitted, name, why).await,
        };
        let taken = match dirty.clearances.known(&write, &admitted.verified.caller) {
            Some(Clearance::Granted) => {
                let (_, body) = admitted.open()?;
                let received = dirty.receive(&write, body).await;
                Taken::Here(received.map_err(not_written)?)
            }
            Some(Clearance::Through(why)) => Taken::Through(admitted, why),
            Some(Clearance::Refused(denied)) => Taken::Denied(admitted, denied),
            None => self.receive_and_ask(&write, admitted).await?,
        };
        let received = match taken {
            Taken::Here(received) => received,
            Taken::Through(admitted, why) => return self.0.write_through_instead(admitted, name, why).await,
            Taken::Denied(admitted, denied) => {
                let why = Uncached::NotPermitted;
                return self.0.write_at_lake(admitted, name, why, Some(denied)).await;
            }
        };
        let version = dirty.commit(write, received).await.map_err(not_written)?;
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
        let (body, rewind) = Rewindable::of(body);
        let payload = admitted.verified.payload.clone();
        let body = CheckedBody::taken_here(body, &admitted.parts, payload)?;
        let (dirty, order) = (Arc::clone(&self.0.dirty), write.clone());
        let mut receiving = Box::pin(async move { dirty.receive(&order, body).await });
        let mut asking = std::pin::pin!(self.0.dirty.clearances.clear(write, &caller));
        let (answer, received) = tokio::select! {
            answer = &mut asking => (answer, None),
            received = &mut receiving => (asking.await, Some(received)),
        };
        let not_here = match answer {
            Ok(Clearance::Granted) => {
                rewind.goes_on();
                let received = match received {
                    Some(received) => received,
                    None => receiving.await,
                };
                return received.map(Taken::Here).map_err(not_written);
            }
            Ok(Clearance::Through(why)) => Ok((why, None)),
            Ok(Clearance::Refused(denied)) => Ok((Uncached::NotPermitted, Some(denied))),
            Err(error) => Err(no_permission(&error)),
        };
        // The receiver gets no more bytes, but may already be storing a complete piece: wait, and discard it.
        admitted.body = rewind.rewound();
        let (dirty, order) = (Arc::clone(&self.0.dirty), write.clone());
        tokio::spawn(async move {
            let received = match received {
                Some(received) => received,
                None => receiving.await,
            };
            if let Ok(received) = received {
                dirty.discard(&order, received).await;
            }
        });
        Ok(match not_here? {
            (_, Some(denied)) => Taken::Denied(admitted, denied),
            (why, None) => Taken::Through(admitted, why),
        })
    }
}

impl TieredLakeParts {
    /// Writes as if the client had asked for `through`, unless the rule refuses writes that cannot be written
    /// back.
    pub(super) async fn write_through_instead(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        why: Uncached,
    ) -> ResponseResult {
        self.write_at_lake(admitted, name, why, None).await
    }

    /// Writes through, unless the rule refuses that. `denied` is the error of a question about the write that
    /// the lake has denied.
    async fn write_at_lake(
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
        let mut response = if has_bytes {
            let change = self.begin_change(&admitted, name, denied).await?;
            let (within, name) = (Arc::clone(&self.within), name.clone());
            let send = |admitted| async move { within.put(admitted, through(&name)).await };
            match change {
                Some(change) => carry_out(change, admitted, send).await?,
                None => send(admitted).await?,
            }
        } else {
            self.within.put(admitted, through(name)).await?
        };
        // If the bytes are not even cached, that reason is reported in preference to why they were not
        // written back.
        let is_told = has_bytes && response.headers().contains_key(X_CACHE_REASON);
        if response.status() == StatusCode::OK && !is_told {
            let reason = HeaderValue::from_static(why.as_str());
            response.headers_mut().insert(X_CACHE_REASON, reason);
        }
        Ok(response)
    }
}

/// Returns the write of an object through the cache.
fn through(name: &ObjectName) -> Write<'_> {
    Write {
        name,
        mode: WriteMode::Through,
        lifetime: None,
    }
}

pub(super) fn not_written(error: WriteError) -> S3Error {
    match error {
        WriteError::Body(error) => error,
        WriteError::Full => refused(Uncached::TooDirty),
        WriteError::OutcomeUnknown => unknown(),
        WriteError::Unavailable(error) => try_again(error),
    }
}

/// Returns the error for a write that the tier cannot accept at present.
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
