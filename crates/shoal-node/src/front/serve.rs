//! Serves one request, from its head to its response: classifies, verifies, and dispatches it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, header};
use shoal_base::chance;
use shoal_s3::auth::Gate;
use shoal_s3::error::S3Error;
use shoal_s3::error_xml::RequestId;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::{Effect, Operation};

use crate::clock;
use crate::coherence::Coherence;
use crate::dirty::DirtyObjects;
use crate::endpoint::Endpoint;
use crate::fair::in_flight::InFlight;
use crate::freshness::FreshnessRules;
use crate::front::admission::{Admission, Admitted};
use crate::front::body::ResponseBody;
use crate::front::dirty::{DirtyFront, Shared, Verdict, judged, upload_named};
use crate::front::forward::Forwarder;
use crate::front::location::Addresses;
use crate::front::reads::Reads;
use crate::front::record::Record;
use crate::front::respond;
use crate::front::writes::Writes;
use crate::grants::Grants;
use crate::http::connection::ClientBody;
use crate::http::expectation::expects_continue;
use crate::http::listener::RemoteEnd;
use crate::metrics::Metrics;
use crate::read::ObjectReader;
use crate::write::{WriteMode, WriteRules, WriteThrough, lifetime_in};

/// Serves S3 requests: dispatches each to its handler.
pub struct Front {
    metrics: Arc<Metrics>,
    admission: Admission,
    write_rules: ArcSwap<WriteRules>,
    reads: Reads,
    through: Arc<Writes>,
    dirty: DirtyFront,
    forwarder: Arc<Forwarder>,
    coherence: Option<Arc<Coherence>>,
}

/// The parts of a node that [`Front`] uses.
pub struct FrontParts {
    /// Verifies callers.
    pub gate: Gate,
    /// The lake.
    pub lake: Arc<Endpoint>,
    /// Remembered versions of objects and permissions.
    pub grants: Arc<Grants>,
    /// Reads objects.
    pub reader: ObjectReader,
    /// How long a permission of the lake may be reused.
    pub freshness: FreshnessRules,
    /// The rules for the mode of writes.
    pub write_rules: WriteRules,
    /// Tracks changes of coherent objects; `None` if no rule is coherent.
    pub coherence: Option<Arc<Coherence>>,
    /// Objects that are written back.
    pub dirty: Arc<DirtyObjects>,
    /// Caches the objects that are written through.
    pub through: Arc<WriteThrough>,
    /// The limits on requests in flight.
    pub in_flight: Arc<InFlight>,
    /// Counts outcomes.
    pub metrics: Arc<Metrics>,
    /// Domain of virtual-host style.
    pub domain: Option<String>,
    /// The scheme of this node's URLs: `http` or `https`.
    pub scheme: &'static str,
    /// True if the access log is enabled.
    pub access_log: bool,
}

impl Front {
    /// Creates a front from its parts.
    pub fn new(parts: FrontParts) -> Self {
        let FrontParts {
            lake,
            grants,
            through,
            metrics,
            ..
        } = parts;
        let addresses = Addresses::new(lake.url(), parts.domain.clone(), parts.scheme);
        let dirty = Arc::clone(&parts.dirty);
        let forwarder = Forwarder::new(Arc::clone(&lake), Arc::clone(&grants), dirty, addresses);
        let forwarder = Arc::new(forwarder);
        let write_through = Writes::new(Arc::clone(&lake), Arc::clone(&through), Arc::clone(&forwarder));
        let write_through = Arc::new(write_through);
        let shared = Shared::new(
            parts.dirty,
            Arc::clone(&grants),
            Arc::clone(&lake),
            Arc::clone(&forwarder),
        );
        let reads = Reads::new(
            lake,
            parts.reader,
            parts.freshness,
            through,
            Arc::clone(&forwarder),
        );
        Self {
            admission: Admission::new(
                parts.gate,
                parts.in_flight,
                Arc::clone(&metrics),
                parts.domain,
                parts.access_log,
            ),
            metrics,
            write_rules: ArcSwap::from_pointee(parts.write_rules),
            dirty: DirtyFront::new(shared, Arc::clone(&write_through)),
            reads,
            through: write_through,
            forwarder,
            coherence: parts.coherence,
        }
    }

    /// Applies settings that can change while a node runs. Requests in flight keep the old ones.
    pub fn reload(&self, freshness: FreshnessRules, write_rules: WriteRules, access_log: bool) {
        self.reads.set_freshness(freshness);
        self.write_rules.store(Arc::new(write_rules));
        self.admission.set_access_log(access_log);
    }

    /// Serves one request. Errors are converted to responses.
    pub async fn serve(
        &self,
        mut request: Request<ClientBody>,
        remote: &RemoteEnd,
    ) -> Response<ResponseBody> {
        let request_id = RequestId::new(chance::bits());
        let mut record = Box::new(Record::begin(Arc::clone(&self.metrics), request_id));
        let is_head = request.method() == Method::HEAD;
        let continued =
            expects_continue(request.version(), request.headers()).then(|| request.body_mut().continued());
        let target = request.uri().path_and_query().cloned();

        let mut response = match self.answer(request, remote, &mut record).await {
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
        // A client that did not get `100 Continue` may or may not send its body, so the node does not know
        // where the next request begins. This is true even of an empty body: HTTP libraries do not send `100
        // Continue` then, and botocore takes the final status for it and misreads the next response on the
        // same connection: it waits forever.
        if continued.is_some_and(|continued| !continued.is_said()) {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let head_time = clock::instant().saturating_duration_since(record.started());
        respond::stamp(response.headers_mut(), record.request_id, record.cache, head_time);
        record.answered(response.status(), response.headers());
        response.map(|body| body.recorded(record))
    }

    async fn answer(
        &self,
        request: Request<ClientBody>,
        remote: &RemoteEnd,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let admitted = self.admission.enter(request, remote, record).await?;
        if admitted.classified.effect() != Effect::None
            && let Some(coherence) = &self.coherence
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
            (operation, Some(name)) if operation.is_upload() => Box::pin(self.write(admitted, &name)).await,
            (Operation::DeleteObject, Some(name)) if self.dirty.may_be_dirty(&name) => {
                Box::pin(self.dirty.delete(admitted, &name)).await
            }
            (operation, None) => Box::pin(self.many(admitted, operation)).await,
            (_, Some(name)) => Box::pin(self.pass_on(admitted, name)).await,
        }
    }

    async fn get(
        &self,
        admitted: Box<Admitted>,
        name: ObjectName,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let wanted = self.reads.parse(&admitted, name)?;
        self.reads.get(admitted, &wanted, record).await
    }

    async fn head(
        &self,
        admitted: Box<Admitted>,
        name: ObjectName,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let wanted = self.reads.parse(&admitted, name)?;
        self.reads.head(admitted, &wanted, record).await
    }

    async fn write(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        if let Some(upload) = upload_named(&admitted.classified) {
            return self.dirty.of_upload(admitted, name, upload).await;
        }
        let begins = admitted.classified.operation == Operation::CreateMultipartUpload;
        // An unknown lifetime is refused in every mode.
        let lifetime = lifetime_in(&admitted.parts.headers)?;
        match self.write_rules.load().mode(name, &admitted.parts.headers)? {
            WriteMode::Back if begins => self.dirty.begin_upload(admitted, name, lifetime).await,
            WriteMode::Back => self.dirty.write(admitted, name, lifetime).await,
            WriteMode::Through => {
                let (through, of_through) = (Arc::clone(&self.through), name.clone());
                let write = |admitted| async move { through.write(admitted, &of_through).await };
                self.dirty.at_lake(admitted, name, write).await
            }
            WriteMode::Around => self.around(admitted, name).await,
        }
    }

    /// Forwards a request about one object to the lake, after flushing the objects that the request needs.
    async fn pass_on(
        &self,
        admitted: Box<Admitted>,
        name: ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        if let Some(upload) = upload_named(&admitted.classified) {
            return self.dirty.of_upload(admitted, &name, upload).await;
        }
        if admitted.classified.operation == Operation::AbortMultipartUpload {
            return self.through.abort(admitted, &name).await;
        }
        self.around(admitted, &name).await
    }

    async fn around(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let forwarder = Arc::clone(&self.forwarder);
        let forward = |admitted| async move { forwarder.pass_on(admitted).await };
        self.dirty.at_lake(admitted, name, forward).await
    }

    /// Serves a request that is not about one object.
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
            (Operation::ListObjects, Some(bucket)) => self.dirty.list(admitted, &bucket).await,
            (Operation::ListMultipartUploads, Some(bucket)) => {
                self.dirty.list_uploads(admitted, bucket).await
            }
            (Operation::DeleteObjects, Some(bucket)) => self.dirty.delete_many(admitted, &bucket).await,
            (_, Some(_)) => {
                let mut admitted = admitted;
                self.dirty.flush_for_bucket(&mut admitted).await?;
                self.forwarder.pass_on(admitted).await
            }
            // No decision here depends on the content of a body. That of a DeleteObjects is forwarded
            // unchanged, because the node invalidates the whole bucket in any case.
            (_, None) => self.forwarder.pass_on(admitted).await,
        }
    }
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
