//! Serves one request, from its head to its response: classifies, verifies, and dispatches it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use shoal_base::chance;
use shoal_cache::coherence::Coherence;
use shoal_cache::exchange::record::Record;
use shoal_cache::exchange::{Admitted, ResponseBody, respond};
use shoal_cache::freshness::FreshnessRules;
use shoal_cache::lake::{Lake, Verdict, Write, judged};
use shoal_cache::read::ObjectReader;
use shoal_cache::write::{WriteMode, WriteRules, lifetime_in};
use shoal_net::clock;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::expectation::expects_continue;
use shoal_net::http::listener::RemoteEnd;
use shoal_s3::auth::Gate;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::error_xml::RequestId;
use shoal_s3::hop_by_hop::MODE_HEADER;
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::{Effect, Operation};

use crate::config::{Anonymous, UnknownIdentities};
use crate::core::Core;
use crate::front::hosts::Hosts;

/// Serves S3 requests: dispatches each to its handler.
pub struct Front {
    pub(super) core: Arc<Core>,
    pub(super) gate: Gate,
    pub(super) hosts: Hosts,
    /// Reads from the cache and from the lake of clients.
    pub(super) reader: ObjectReader,
    pub(super) freshness: ArcSwap<FreshnessRules>,
    write_rules: ArcSwap<WriteRules>,
}

impl Front {
    /// Creates a front for clients of `lake`.
    pub(crate) fn new(core: &Arc<Core>, lake: &Arc<dyn Lake>) -> Self {
        let config = &core.config;
        let mut gate = Gate::new(Arc::clone(&core.identities), &config.lake.region);
        if config.s3.anonymous == Anonymous::Refuse {
            gate = gate.without_anonymous();
        }
        if config.s3.unknown_identities == UnknownIdentities::Lake {
            gate = gate.leaving_unknown_to_lake();
        }
        Self {
            gate,
            hosts: Hosts::new(&config.s3, core.lake.url()),
            reader: ObjectReader {
                lake: Arc::clone(lake),
                fetcher: Arc::clone(&core.fetcher),
            },
            freshness: ArcSwap::from_pointee(FreshnessRules::new(&config.freshness)),
            write_rules: ArcSwap::from_pointee(core.write_rules.clone()),
            core: Arc::clone(core),
        }
    }

    /// Returns the lake as clients reach it through this node.
    pub(super) fn lake(&self) -> &dyn Lake {
        &*self.reader.lake
    }

    /// Applies settings that can change while a node runs. Requests in flight keep the old ones.
    pub fn reload(&self, freshness: FreshnessRules, write_rules: WriteRules) {
        self.freshness.store(Arc::new(freshness));
        self.write_rules.store(Arc::new(write_rules));
    }

    /// Serves one request. Errors are converted to responses.
    pub async fn serve(
        &self,
        mut request: Request<ClientBody>,
        remote: &RemoteEnd,
    ) -> Response<ResponseBody> {
        let request_id = RequestId::new(chance::bits());
        let mut record = Box::new(Record::begin(&self.core.metrics, request_id));
        let is_head = request.method() == Method::HEAD;
        let continued =
            expects_continue(request.version(), request.headers()).then(|| request.body_mut().continued());
        let target = request.uri().path_and_query().cloned();

        let mut response = match self.answer(request, remote, &mut record).await {
            Ok(response) => response,
            Err(error) => {
                record.error = Some(error.code.as_str());
                let path = target.as_ref().map_or("", PathAndQuery::path);
                let mut response = respond::error(&error, path, record.request_id);
                if is_head {
                    response.body_mut().without_content();
                    response.headers_mut().remove(header::CONTENT_TYPE);
                }
                response
            }
        };
        // A client that did not get `100 Continue` may or may not send its body, so the node does not know
        // where the next request begins. This is true even of an empty body: HTTP libraries do not send `100
        // Continue` then, and botocore takes the final status for it and misreads the next response on the
        // same connection: it waits forever.
        if continued.is_some_and(|continued| !continued.is_said()) {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        record.head_time = clock::instant().saturating_duration_since(record.started);
        respond::stamp(
            response.headers_mut(),
            record.request_id,
            record.cache,
            record.head_time,
        );
        record.answered(response.status(), response.headers());
        response.map(|body| body.recorded(record))
    }

    async fn answer(
        &self,
        request: Request<ClientBody>,
        remote: &RemoteEnd,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let admitted = self.enter(request, remote, record).await?;
        debug_assert!(record.permit.is_some(), "an admitted request holds a place");
        // Boxed separately, because few requests are traced.
        if let Some(span) = &record.span {
            let parent = span.parent();
            return Box::pin(parent.around(self.dispatch(admitted, record))).await;
        }
        self.dispatch(admitted, record).await
    }

    async fn dispatch(
        &self,
        admitted: Box<Admitted>,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        if admitted.classified.effect != Effect::None
            && let Some(coherence) = &self.core.coherence
        {
            return Box::pin(self.change(coherence, admitted, record)).await;
        }
        self.carry_out(admitted, record).await
    }

    /// Carries out a request that may change coherent objects. All nodes know that a change is in progress
    /// until it ends.
    async fn change(
        &self,
        coherence: &Arc<Coherence>,
        admitted: Box<Admitted>,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let changed = coherence.changed_by(&admitted.classified);
        if changed.is_empty() {
            return self.carry_out(admitted, record).await;
        }
        let operation = admitted.classified.operation;
        let change = coherence.begin(changed).await;
        let (answered, verdict) = judged(operation, self.carry_out(admitted, record)).await;
        match verdict {
            Verdict::Done | Verdict::Refused => change.end(),
            Verdict::Unknown => drop(change),
        }
        answered
    }

    async fn carry_out(
        &self,
        admitted: Box<Admitted>,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        // Only hits are fast. Futures that wait for the lake are boxed separately, to keep a hit's future
        // small.
        match (admitted.classified.operation, admitted.classified.object.clone()) {
            (Operation::GetObject, Some(name)) => self.get(admitted, name, record).await,
            (Operation::HeadObject, Some(name)) => Box::pin(self.head(admitted, name, record)).await,
            _ if matches!(admitted.verified.caller, Caller::Unverified) => {
                refuse_mode(&admitted.parts.headers)?;
                self.lake().forward(admitted).await
            }
            (_, Some(name)) if self.lake().keeps_upload(&admitted.classified) => {
                self.lake().of_upload(admitted, &name).await
            }
            (operation, Some(name)) if operation.is_upload() => Box::pin(self.write(admitted, &name)).await,
            (Operation::DeleteObject, Some(name)) => self.lake().delete(admitted, &name).await,
            (operation, None) => Box::pin(self.many(admitted, operation)).await,
            (_, Some(_)) => self.lake().forward(admitted).await,
        }
    }

    async fn write(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let headers = &admitted.parts.headers;
        // An unknown lifetime is refused in every mode.
        let lifetime = lifetime_in(headers)?;
        let mode = self.write_rules.load().mode(name, headers)?;
        let write = Write { name, mode, lifetime };
        self.lake().put(admitted, write).await
    }

    /// Serves a request that is not about one object.
    async fn many(
        &self,
        admitted: Box<Admitted>,
        operation: Operation,
    ) -> Result<Response<ResponseBody>, S3Error> {
        match (operation, admitted.classified.bucket.clone()) {
            (Operation::ListObjects, Some(bucket)) => self.lake().list_objects(admitted, &bucket).await,
            (Operation::ListMultipartUploads, Some(bucket)) => {
                self.lake().list_uploads(admitted, &bucket).await
            }
            (Operation::DeleteObjects, Some(bucket)) => self.lake().delete_many(admitted, &bucket).await,
            _ => self.lake().forward(admitted).await,
        }
    }
}

/// Refuses a write that the node would carry out in the name of its sender.
fn refuse_mode(headers: &HeaderMap) -> Result<(), S3Error> {
    let mode = headers
        .get(MODE_HEADER)
        .filter(|mode| *mode != WriteMode::Around.as_str());
    mode.map_or(Ok(()), |_| {
        let message = "x-shoal-write: the node must know the access key of a write that it caches or writes \
                       back. It forwards this one unread: leave the header out.";
        Err(S3Error::new(ErrorCode::InvalidRequest, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<'a, F>(_: impl FnOnce(&'a Front, Request<ClientBody>, &'a RemoteEnd) -> F) -> usize {
        size_of::<F>()
    }

    /// The HTTP library reserves room for the future in every connection, even an idle one, and moves it
    /// there for every request.
    #[test]
    fn the_future_of_a_request_is_small() {
        let bytes = future_bytes(Front::serve);
        assert!(bytes <= 2048, "{bytes} bytes");
    }
}
