//! Admits a request: classifies it, verifies its caller, and waits for a place among the requests in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use http::{Request, header};
use shoal_base::send_permit::SendPermit;
use shoal_s3::auth::{Gate, Verified};
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::Caller;
use shoal_s3::operation::{Classified, classify};
use shoal_s3::payload::CheckedBody;

use crate::clock;
use crate::fair::in_flight::{InFlight, Overloaded};
use crate::front::record::{Record, Subject};
use crate::http::connection::ClientBody;
use crate::http::listener::RemoteEnd;
use crate::metrics::Metrics;

/// Admits requests.
pub(super) struct Admission {
    gate: Gate,
    in_flight: Arc<InFlight>,
    metrics: Arc<Metrics>,
    domain: Option<String>,
    writes_access_log: AtomicBool,
}

/// A request that was classified and whose caller was verified.
pub(super) struct Admitted {
    pub(super) parts: Arc<Parts>,
    pub(super) body: ClientBody,
    pub(super) classified: Classified,
    pub(super) verified: Verified,
    /// The right to send the request to the lake, if it is a change of a name that may be dirty.
    pub(super) permit: Option<SendPermit>,
}

/// The rest of a request whose body this node reads.
pub(super) struct Opened {
    pub(super) parts: Arc<Parts>,
    pub(super) classified: Classified,
    pub(super) caller: Caller,
}

impl Admitted {
    /// Returns the same request without its body. Only a request whose body has no meaning may be repeated
    /// like this.
    pub(super) fn without_body(&self) -> Box<Self> {
        Box::new(Self {
            parts: Arc::clone(&self.parts),
            body: ClientBody::empty(),
            classified: self.classified.clone(),
            verified: self.verified.clone(),
            permit: self.permit.clone(),
        })
    }

    /// Returns a verified reader of the body. Its user must discard all bytes if it ends in an error.
    pub(super) fn open(self) -> Result<(Opened, CheckedBody<ClientBody>), S3Error> {
        let Self {
            parts,
            body,
            classified,
            verified,
            permit: _,
        } = self;
        let body = CheckedBody::taken_here(body, &parts, verified.payload)?;
        let opened = Opened {
            parts,
            classified,
            caller: verified.caller,
        };
        Ok((opened, body))
    }
}

impl Admission {
    /// Verifies callers by `gate`, and classifies requests for buckets below `domain`.
    pub(super) fn new(
        gate: Gate,
        in_flight: Arc<InFlight>,
        metrics: Arc<Metrics>,
        domain: Option<String>,
        writes_access_log: bool,
    ) -> Self {
        Self {
            gate,
            in_flight,
            metrics,
            domain,
            writes_access_log: AtomicBool::new(writes_access_log),
        }
    }

    /// Enables or disables the access log.
    pub(super) fn set_access_log(&self, is_on: bool) {
        self.writes_access_log.store(is_on, Ordering::Relaxed);
    }

    /// Admits a request, and waits for a place among the requests in flight.
    pub(super) async fn enter(
        &self,
        request: Request<ClientBody>,
        remote: &RemoteEnd,
        record: &mut Record,
    ) -> Result<Box<Admitted>, S3Error> {
        let admitted = self.admit(request, remote, record)?;
        let place = self.in_flight.enter(&admitted.verified.caller).await;
        let refused = |crowded: &Overloaded| self.metrics.connections().refusals.count(crowded.as_str());
        record.permit = Some(place.inspect_err(refused)?);
        Ok(admitted)
    }

    /// Classifies a request and verifies its caller. Every request passes here.
    fn admit(
        &self,
        request: Request<ClientBody>,
        remote: &RemoteEnd,
        record: &mut Record,
    ) -> Result<Box<Admitted>, S3Error> {
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().cloned().ok_or_else(no_target)?;
        // The host names a bucket in virtual-host style only.
        let domain = self.domain.as_deref();
        let host = domain.and_then(|_| host(&parts));
        let classified = classify(&parts.method, &target, host, &parts.headers, domain)?;
        record.operation = classified.operation;
        let now = clock::utc_now();
        // Counted by the error code that the client gets.
        let refused = |error: &S3Error| self.metrics.connections().refusals.count(error.code.as_str());
        let verified = self.gate.verify(&parts, now).inspect_err(refused)?;
        remote.payer.set(verified.caller.payer());
        let parts = Arc::new(parts);
        if self.writes_access_log.load(Ordering::Relaxed) {
            record.subject = Some(Box::new(Subject::new(
                now,
                remote.address,
                &parts,
                &classified,
                &verified.caller,
            )));
        }
        Ok(Box::new(Admitted {
            parts,
            body,
            classified,
            verified,
            permit: None,
        }))
    }
}

/// Returns the host of a request, which HTTP/2 has in the target.
pub(super) fn host(parts: &Parts) -> Option<&str> {
    let header = parts
        .headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    header.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str))
}

fn no_target() -> S3Error {
    S3Error::new(ErrorCode::InvalidUri, "The request names no path.")
}
