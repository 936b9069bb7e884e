//! Admits a request: classifies it, verifies its caller, and waits for a place among the requests in flight.

use std::sync::Arc;

use http::Request;
use shoal_cache::exchange::Admitted;
use shoal_cache::exchange::record::{Record, Subject};
use shoal_net::clock;
use shoal_net::fair::in_flight::Overloaded;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::RemoteEnd;
use shoal_net::key_lookup::Found;
use shoal_net::trace::Arrival;
use shoal_s3::auth::Refusal;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::Caller;
use shoal_s3::operation::{Operation, classify};

use crate::config::UnknownIdentities;
use crate::front::serve::Front;

impl Front {
    /// Admits a request, and waits for a place among the requests in flight.
    pub(super) async fn enter(
        &self,
        request: Request<ClientBody>,
        remote: &RemoteEnd,
        record: &mut Record,
    ) -> Result<Box<Admitted>, S3Error> {
        let admitted = match self.admit(request, remote, record, Others::NotAsked) {
            Ok(admitted) => admitted,
            Err(NotAdmitted::Refused(error)) => return Err(error),
            Err(NotAdmitted::UnknownKey(unknown)) => {
                Box::pin(self.admit_late(unknown, remote, record)).await?
            }
        };
        let place = self.core.in_flight.enter(&admitted.verified.caller).await;
        let refusals = &self.core.metrics.connections.refusals;
        let refused = |crowded: &Overloaded| refusals.count(crowded.as_str());
        record.permit = Some(place.inspect_err(refused)?);
        Ok(admitted)
    }

    /// Admits a request with an access key that this node does not know, if another node or a key source
    /// knows it.
    async fn admit_late(
        &self,
        unknown: Box<UnknownKey>,
        remote: &RemoteEnd,
        record: &mut Record,
    ) -> Result<Box<Admitted>, S3Error> {
        let UnknownKey { refusal, request } = *unknown;
        let found = self.core.find_key(&refusal).await;
        if found == Found::Unsure && self.core.config.s3.unknown_identities == UnknownIdentities::Refuse {
            let is_temporary = matches!(refusal, Refusal::UnknownTemporaryKey(_));
            let who = if is_temporary { "A node" } else { "A key source" };
            let why = format!("{who} that may know the access key did not answer. Please try again.");
            let error = S3Error::new(ErrorCode::ServiceUnavailable, why);
            self.core.metrics.connections.refusals.count(error.code.as_str());
            return Err(error);
        }
        match self.admit(request, remote, record, Others::Asked) {
            Ok(admitted) => Ok(admitted),
            Err(NotAdmitted::Refused(error)) => Err(error),
            Err(NotAdmitted::UnknownKey(_)) => unreachable!("the others are asked once"),
        }
    }

    /// Classifies a request and verifies its caller. Every request passes here.
    fn admit(
        &self,
        request: Request<ClientBody>,
        remote: &RemoteEnd,
        record: &mut Record,
        others: Others,
    ) -> Result<Box<Admitted>, NotAdmitted> {
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().ok_or_else(no_target)?;
        // The host names a bucket in virtual-host style only.
        let (host, domain) = self.hosts.of(&parts).unzip();
        let classified = classify(&parts.method, target, host, &parts.headers, domain)?;
        record.operation = classified.operation;
        record.bucket.clone_from(&classified.bucket);
        let reads = classified.operation == Operation::GetObject;
        record.object = classified.object.clone().filter(|_| reads);
        let now = clock::utc_now();
        // Counted by the error code that the client gets.
        let refusals = &self.core.metrics.connections.refusals;
        let refused = |error: &S3Error| refusals.count(error.code.as_str());
        let verified = match self.gate.admit(&parts, now) {
            Err(refusal) if others == Others::NotAsked && self.core.may_find(&refusal) => {
                return Err(NotAdmitted::UnknownKey(Box::new(UnknownKey {
                    refusal,
                    request: Request::from_parts(parts, body),
                })));
            }
            admitted => admitted
                .or_else(|refusal| self.gate.admit_unverified(&parts, refusal))
                .map_err(S3Error::from)
                .inspect_err(refused)?,
        };
        self.hosts.permit(&parts, &verified.caller).inspect_err(refused)?;
        remote.payer.set(verified.caller.payer());
        if let Some(collector) = &self.core.collector {
            record.span = collector.tracer.begin(
                classified.operation.as_str(),
                Arrival {
                    headers: &parts.headers,
                    is_proven: matches!(verified.caller, Caller::Identity(_)),
                    started: record.started,
                },
            );
            if let Some(span) = &mut record.span {
                span.text("http.request.method", parts.method.as_str());
                span.text("aws.s3.bucket", classified.bucket.as_deref().unwrap_or_default());
            }
        }
        let parts = Arc::new(parts);
        if self.core.access_log.is_on() {
            record.subject = Some(Box::new(Subject {
                at: now,
                peer: remote.address,
                caller: verified.caller.clone(),
                classified: classified.clone(),
                client: Arc::clone(&parts),
                credentials: verified.credentials,
                tls: remote.session.get().copied(),
                s3_log: self.core.access_log.s3(),
            }));
        }
        Ok(Box::new(Admitted {
            parts,
            body,
            classified,
            verified,
            permit: None,
            is_answer_read: false,
        }))
    }
}

/// A request that is not admitted yet, or not at all.
enum NotAdmitted {
    Refused(S3Error),
    /// Another node or a key source may know the access key.
    UnknownKey(Box<UnknownKey>),
}

/// The other nodes, which may know a temporary key, and the key sources, which may know another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    NotAsked,
    Asked,
}

struct UnknownKey {
    refusal: Refusal,
    request: Request<ClientBody>,
}

impl From<S3Error> for NotAdmitted {
    fn from(error: S3Error) -> Self {
        Self::Refused(error)
    }
}

fn no_target() -> S3Error {
    S3Error::new(ErrorCode::InvalidUri, "The request names no path.")
}
