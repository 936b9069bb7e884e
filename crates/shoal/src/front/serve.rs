//! One request from its head to its answer: classify, verify, read or forward.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};

use crate::catalog::Catalog;
use crate::config::WriteMode;
use crate::dirty::DirtyObjects;
use crate::endpoint::{Endpoint, LakeBody};
use crate::fair::in_flight::{Crowded, InFlight};
use crate::freshness::FreshnessRules;
use crate::front::body::ResponseBody;
use crate::front::dirty::upload_named;
use crate::front::forward::forward;
use crate::front::lake_errors;
use crate::front::record::{Record, Subject};
use crate::front::respond::{self, CacheStatus, X_CACHE_REASON};
use crate::front::wanted::Wanted;
use crate::http::connection::ClientBody;
use crate::http::expectation::expects_continue;
use crate::http::listener::Peer;
use crate::metrics::Metrics;
use crate::read::{Answer, Reader};
use crate::s3::auth::{Gate, Verified};
use crate::s3::error::{ErrorCode, S3Error};
use crate::s3::error_xml::RequestId;
use crate::s3::hop_by_hop::end_to_end_of_response;
use crate::s3::identity::Caller;
use crate::s3::object::{ObjectName, Uncacheable};
use crate::s3::operation::{Classified, Operation, classify};
use crate::s3::payload::CheckedBody;
use crate::write::{Gathering, Through, WriteRules};
use crate::{chance, clock};

/// Answers S3 requests.
pub struct Front {
    /// Verifies callers.
    pub gate: Gate,
    /// The lake.
    pub lake: Arc<Endpoint>,
    /// This node's knowledge of objects.
    pub catalog: Arc<Catalog>,
    /// Reads objects.
    pub reader: Reader,
    /// How long a permission of the lake holds.
    pub freshness: ArcSwap<FreshnessRules>,
    /// How objects are written.
    pub writing: ArcSwap<WriteRules>,
    /// Objects that are written back.
    pub dirty: Arc<DirtyObjects>,
    /// Objects that are written through the cache.
    pub through: Arc<Through>,
    /// The bounds on requests in flight.
    pub in_flight: Arc<InFlight>,
    /// Where outcomes are counted.
    pub metrics: Arc<Metrics>,
    /// Domain of virtual-host style requests.
    pub domain: Option<String>,
    /// The scheme of this node's URLs: `http` or `https`.
    pub scheme: &'static str,
    /// Whether to write the access log.
    pub access_log: AtomicBool,
}

/// A request whose head is understood and whose sender is known.
pub(super) struct Admitted {
    pub(super) parts: Arc<Parts>,
    pub(super) body: ClientBody,
    pub(super) classified: Classified,
    pub(super) verified: Verified,
}

/// The rest of a request whose body this node takes.
pub(super) struct Opened {
    pub(super) parts: Arc<Parts>,
    pub(super) classified: Classified,
    pub(super) caller: Caller,
}

impl Admitted {
    /// Takes the body at this node. Its reader must discard all of it if it ends in an error.
    pub(super) fn open(self) -> Result<(Opened, CheckedBody<ClientBody>), S3Error> {
        let Self {
            parts,
            body,
            classified,
            verified,
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

impl Front {
    /// Answers one request. Errors become answers, too.
    pub async fn serve(&self, mut request: Request<ClientBody>, peer: &Peer) -> Response<ResponseBody> {
        let request_id = RequestId::new(chance::bits());
        let mut record = Box::new(Record::begin(Arc::clone(&self.metrics), request_id));
        let is_head = request.method() == Method::HEAD;
        let continued =
            expects_continue(request.version(), request.headers()).then(|| request.body_mut().continued());
        let target = request.uri().path_and_query().cloned();

        let mut response = match self.answer(request, peer, &mut record).await {
            Ok(response) => response,
            Err(error) => {
                let path = target.as_ref().map_or("", PathAndQuery::path);
                let mut response = respond::error(&error, path, record.request_id);
                if is_head {
                    response.body_mut().without_content();
                    response.headers_mut().remove(header::CONTENT_TYPE);
                }
                response
            }
        };
        // A client that was not told to continue may or may not send its body, so the node does not know
        // where the next request begins. This holds even if the body is empty: HTTP libraries never say
        // `100 Continue` then, and botocore takes the final status in its stead, keeps it, and misreads the
        // next answer on the same connection: it waits forever.
        if continued.is_some_and(|continued| !continued.is_said()) {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let head_time = clock::instant().saturating_duration_since(record.started());
        respond::stamp(response.headers_mut(), record.request_id, record.cache, head_time);
        record.status = response.status();
        response.map(|body| body.recorded(record))
    }

    async fn answer(
        &self,
        request: Request<ClientBody>,
        peer: &Peer,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let admitted = self.admit(request, peer, record)?;
        let place = self.in_flight.enter(&admitted.verified.caller).await;
        let refused = |crowded: &Crowded| self.metrics.refused(crowded.as_str(), 1);
        record.place = Some(place.inspect_err(refused)?);
        // Only a hit is quick. Futures that wait for the lake are boxed separately, so that a hit does not
        // carry them.
        match (admitted.classified.operation, admitted.classified.object.clone()) {
            (Operation::GetObject, Some(name)) => self.get(admitted, name, record).await,
            (Operation::HeadObject, Some(name)) => Box::pin(self.head(admitted, name, record)).await,
            (operation, Some(name)) if operation.is_upload() => Box::pin(self.write(admitted, &name)).await,
            (Operation::DeleteObject, Some(name)) if self.may_be_dirty(&name) => {
                Box::pin(self.delete_dirty(admitted, &name)).await
            }
            (operation, None) => Box::pin(self.many(admitted, operation)).await,
            (_, Some(name)) => Box::pin(self.pass_on_settled(admitted, name)).await,
        }
    }

    /// The one gate: classifies the request and verifies its caller.
    fn admit(
        &self,
        request: Request<ClientBody>,
        peer: &Peer,
        record: &mut Record,
    ) -> Result<Box<Admitted>, S3Error> {
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().cloned().ok_or_else(no_target)?;
        // The host names a bucket only in virtual-host style.
        let domain = self.domain.as_deref();
        let host = domain.and_then(|_| host(&parts));
        let classified = classify(&parts.method, &target, host, &parts.headers, domain)?;
        record.operation = classified.operation;
        let now = clock::utc_now();
        // Counted under the error code that the client gets.
        let refused = |error: &S3Error| self.metrics.refused(error.code.as_str(), 1);
        let verified = self.gate.verify(&parts, now).inspect_err(refused)?;
        peer.payer.set(verified.caller.payer());
        let parts = Arc::new(parts);
        if self.access_log.load(Ordering::Relaxed) {
            record.subject = Some(Box::new(Subject::new(
                now,
                peer.address,
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
        }))
    }

    async fn get(
        &self,
        admitted: Box<Admitted>,
        name: ObjectName,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let wanted = self.wanted(&admitted, name)?;
        let name = &wanted.ask.name;
        if self.may_be_dirty(name)
            && let Some(response) = Box::pin(self.get_dirty(&admitted, name, &wanted, record)).await?
        {
            return Ok(response);
        }
        if let Some(reason) = wanted.reason {
            return Box::pin(self.bypass(admitted, reason, record)).await;
        }
        if let Some(settled) = self.through.unsettled(wanted.ask.object) {
            Box::pin(settled).await;
        }
        let answer = self.reader.read(&wanted.ask).await;
        Ok(match answer.map_err(|error| lake_errors::unread(&error))? {
            Answer::Known(known, told) => wanted.respond(known, told, admitted.parts.uri.path(), record),
            Answer::Relay(response) => {
                record.cache = Some(CacheStatus::Miss);
                relay(*response)
            }
            Answer::Bypass(reason) => return Box::pin(self.bypass(admitted, reason, record)).await,
        })
    }

    /// Answers a HEAD. It is one request without a body to the lake anyway, so it goes there unless a
    /// permission is remembered.
    async fn head(
        &self,
        admitted: Box<Admitted>,
        name: ObjectName,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let wanted = self.wanted(&admitted, name)?;
        let name = &wanted.ask.name;
        if self.may_be_dirty(name)
            && let Some(response) = self.head_dirty(&admitted, name, &wanted, record).await?
        {
            return Ok(response);
        }
        if wanted.is_about_a_part() || wanted.reason.is_some() {
            return self.pass_on(admitted).await;
        }
        let Wanted { ask, wishes, .. } = &wanted;
        if let Some(answer) = self.reader.head(ask) {
            return Ok(wanted.respond_to_head(answer, record));
        }
        record.cache = Some(CacheStatus::Miss);
        let asked = self.reader.asking(ask);
        let plain = ask.conditions.is_empty() && wishes.overrides.is_empty();
        let response = self.send_on(admitted, None).await?;
        if plain {
            self.reader.learn_from_head(ask, &response, asked);
        }
        Ok(relay(response))
    }

    async fn write(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        if let Some(upload) = upload_named(&admitted.classified) {
            return self.of_upload(admitted, name, upload).await;
        }
        let begins = admitted.classified.operation == Operation::CreateMultipartUpload;
        match self.writing.load().mode(name, &admitted.parts.headers)? {
            WriteMode::Back if begins => self.begin_upload(admitted, name).await,
            WriteMode::Back => self.write_back(admitted, name).await,
            mode => {
                let overwritten = self.settle_before(&admitted, name).await?;
                let response = match mode {
                    WriteMode::Through => self.write_through(admitted, name).await?,
                    _ => self.pass_on(admitted).await?,
                };
                self.settle_behind(overwritten, response).await
            }
        }
    }

    /// Writes through the cache. The node caches the object that the lake commits, or the answer says why
    /// not.
    pub(super) async fn write_through(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        match admitted.classified.operation {
            Operation::UploadPart => return self.write_part_through(admitted, name).await,
            Operation::CompleteMultipartUpload => return self.complete_through(admitted, name).await,
            _ => {}
        }
        let Admitted {
            parts, classified, ..
        } = &*admitted;
        let gathering = self.through.gather(classified, parts);
        let response = self.send_on(admitted, gathering.as_ref().ok().cloned()).await?;
        let mut relayed = relay(response);
        if relayed.status() != StatusCode::OK {
            return Ok(relayed);
        }
        let object = name.id(self.lake.url());
        let cached =
            gathering.and_then(|gathering| self.through.commit(&gathering, object, relayed.headers()));
        respond::written(relayed.headers_mut(), cached);
        Ok(relayed)
    }

    async fn bypass(
        &self,
        admitted: Box<Admitted>,
        reason: Uncacheable,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        record.cache = Some(CacheStatus::Bypass);
        record.reason = Some(reason);
        let mut response = self.pass_on(admitted).await?;
        response
            .headers_mut()
            .insert(X_CACHE_REASON, HeaderValue::from_static(reason.as_str()));
        Ok(response)
    }

    /// Passes a request about one object on to the lake, once the lake has the objects that the request
    /// needs.
    async fn pass_on_settled(
        &self,
        admitted: Box<Admitted>,
        name: ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        if let Some(upload) = upload_named(&admitted.classified) {
            return self.of_upload(admitted, &name, upload).await;
        }
        self.settle_before(&admitted, &name).await?;
        if admitted.classified.operation == Operation::AbortMultipartUpload {
            return self.abort_through(admitted, &name).await;
        }
        self.pass_on(admitted).await
    }

    /// Answers a request that is not about one object.
    async fn many(
        &self,
        admitted: Box<Admitted>,
        operation: Operation,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let classified = &admitted.classified;
        let is_listing = matches!(
            operation,
            Operation::ListObjects | Operation::ListMultipartUploads
        );
        let prefix = classified
            .query
            .get("prefix")
            .filter(|_| is_listing)
            .unwrap_or_default();
        let bucket = classified
            .bucket
            .clone()
            .filter(|bucket| self.dirty.may_be_dirty_below(bucket, prefix.as_bytes()));
        match (operation, bucket) {
            (Operation::ListObjects, Some(bucket)) => self.list_dirty(admitted, &bucket).await,
            (Operation::ListMultipartUploads, Some(bucket)) => self.list_uploads(admitted, bucket).await,
            (Operation::DeleteObjects, Some(bucket)) => self.delete_many_dirty(admitted, &bucket).await,
            (_, Some(_)) => {
                self.settle_for_bucket(&admitted).await?;
                self.pass_on(admitted).await
            }
            // Nothing here depends on the content of a body. That of a DeleteObjects goes on unchanged,
            // because the node forgets the whole bucket, whatever the lake reads in it.
            (_, None) => self.pass_on(admitted).await,
        }
    }

    pub(super) async fn pass_on(&self, admitted: Box<Admitted>) -> Result<Response<ResponseBody>, S3Error> {
        let relocation = self.relocation(&admitted);
        let response = self.send_on(admitted, None).await?;
        Ok(match relocation {
            Some(relocation) => relocation.relay(response),
            None => relay(response),
        })
    }

    pub(super) async fn send_on(
        &self,
        admitted: Box<Admitted>,
        gathering: Option<Gathering>,
    ) -> Result<Response<LakeBody>, S3Error> {
        let Admitted {
            parts,
            body,
            classified,
            verified,
        } = *admitted;
        forward(
            &self.lake,
            &self.catalog,
            &parts,
            body,
            verified,
            &classified,
            gathering,
        )
        .await
    }
}

/// Returns the host of a request. HTTP/2 names it in the target.
pub(super) fn host(parts: &Parts) -> Option<&str> {
    let header = parts
        .headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    header.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str))
}

pub(super) fn relay(response: Response<LakeBody>) -> Response<ResponseBody> {
    let (head, body) = response.into_parts();
    relay_with(&head, ResponseBody::lake(body))
}

/// The lake's answer with another body.
pub(super) fn relay_with(head: &http::response::Parts, body: ResponseBody) -> Response<ResponseBody> {
    let mut relayed = Response::new(body);
    *relayed.status_mut() = head.status;
    *relayed.headers_mut() = end_to_end_of_response(&head.headers);
    relayed
}

fn no_target() -> S3Error {
    S3Error::new(ErrorCode::InvalidUri, "The request names no path.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<'a, F>(_: impl FnOnce(&'a Front, Request<ClientBody>, &'a Peer) -> F) -> usize {
        size_of::<F>()
    }

    /// The HTTP library keeps room for the future in every connection, idle or not, and moves it there for
    /// every request.
    #[test]
    fn the_future_of_a_request_is_small() {
        let bytes = future_bytes(Front::serve);
        assert!(bytes <= 2048, "{bytes} bytes");
    }
}
