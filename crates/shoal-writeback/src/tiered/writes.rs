//! Writes that are acknowledged before they are at the lake.

use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use shoal_cache::exchange::Admitted;
use shoal_cache::exchange::respond::{self, X_CACHE_REASON};
use shoal_cache::lake::unknown;
use shoal_cache::lake::{Lake, Write};
use shoal_cache::write::{Uncached, WriteMode};
use shoal_net::http::connection::ClientBody;
use shoal_registry::Lifetime;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::hop_by_hop::MODE_HEADER;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Operation;
use shoal_s3::payload::CheckedBody;

use super::carry_out::carry_out;
use super::copy::Copies;
use super::flush::Flusher;
use super::rewind::Rewindable;
use super::{ResponseResult, Shared, try_again};
use crate::dirty::{
    Clearance, DirtyObjects, NEARLY_FULL, PendingWrite, ReceiveError, Received, WriteError, no_permission,
};

/// Writes objects back: acknowledges them once the tier has them.
pub(super) struct DirtyWrites {
    dirty: Arc<DirtyObjects>,
    flusher: Arc<Flusher>,
    copies: Copies,
    within: Arc<dyn Lake>,
}

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
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            dirty: Arc::clone(&shared.dirty),
            flusher: Arc::clone(&shared.flusher),
            copies: Copies::new(shared),
            within: Arc::clone(&shared.within),
        }
    }

    /// Acknowledges a write before it is at the lake, or writes through the cache and reports why.
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
        let write = match self.dirty.accept(name, classified, asked, &verified.caller) {
            Ok(write) => write,
            Err(why) => return self.write_through_instead(admitted, name, why).await,
        };
        let taken = match self.dirty.known_clearance(&write, &verified.caller) {
            Some(Clearance::Granted) => {
                let (_, body) = admitted.open()?;
                let received = self.dirty.receive(&write, body).await;
                Taken::Here(received.map_err(not_received)?)
            }
            Some(Clearance::Through(why)) => Taken::Through(admitted, why),
            Some(Clearance::Refused(denied)) => Taken::Denied(admitted, denied),
            None => self.receive_and_ask(&write, admitted).await?,
        };
        let received = match taken {
            Taken::Here(received) => received,
            Taken::Through(admitted, why) => return self.write_through_instead(admitted, name, why).await,
            Taken::Denied(admitted, denied) => {
                return self
                    .write_at_lake(admitted, name, (Uncached::NotPermitted, Some(denied)))
                    .await;
            }
        };
        let version = self.dirty.commit(write, received).await.map_err(not_written)?;
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
        let (dirty, order) = (Arc::clone(&self.dirty), write.clone());
        let mut receiving = Box::pin(async move { dirty.receive(&order, body).await });
        let mut asking = std::pin::pin!(self.dirty.clear(write, &caller));
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
                return received.map(Taken::Here).map_err(not_received);
            }
            Ok(Clearance::Through(why)) => Ok((why, None)),
            Ok(Clearance::Refused(denied)) => Ok((Uncached::NotPermitted, Some(denied))),
            Err(error) => Err(no_permission(&error)),
        };
        // The receiver gets no more bytes, but may already be storing a complete piece: wait, and discard it.
        admitted.body = rewind.rewound();
        let (dirty, order) = (Arc::clone(&self.dirty), write.clone());
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

    /// Writes as if the client had asked for `through`, unless the rule refuses writes that cannot be written
    /// back.
    pub(super) async fn write_through_instead(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        why: Uncached,
    ) -> ResponseResult {
        self.write_at_lake(admitted, name, (why, None)).await
    }

    /// Writes through, unless the rule refuses that. `denied` is the error of a question about the write that
    /// the lake has denied.
    async fn write_at_lake(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        (why, denied): (Uncached, Option<S3Error>),
    ) -> ResponseResult {
        if denied.is_none() && self.dirty.refuses(name, why) {
            return Err(refused(why));
        }
        let has_bytes = admitted.classified.operation != Operation::CreateMultipartUpload;
        let mut response = if has_bytes {
            let change = self.flusher.begin_change(&admitted, name, denied).await?;
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

fn not_received(error: ReceiveError) -> S3Error {
    not_written(error.into())
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
