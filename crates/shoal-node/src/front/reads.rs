//! GET and HEAD of objects at the lake, served from the cache where possible.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderValue, Response};
use shoal_s3::error::S3Error;
use shoal_s3::object::{ObjectName, Uncacheable};

use crate::endpoint::Endpoint;
use crate::freshness::FreshnessRules;
use crate::front::admission::Admitted;
use crate::front::body::ResponseBody;
use crate::front::forward::{Forwarder, relay};
use crate::front::lake_errors;
use crate::front::record::Record;
use crate::front::respond::{CacheStatus, X_CACHE_REASON};
use crate::front::wanted::Wanted;
use crate::read::{GetAnswer, ObjectReader};
use crate::write::WriteThrough;

/// Answers reads.
pub(super) struct Reads {
    lake: Arc<Endpoint>,
    reader: Arc<ObjectReader>,
    freshness: ArcSwap<FreshnessRules>,
    through: Arc<WriteThrough>,
    forwarder: Arc<Forwarder>,
}

impl Reads {
    /// Reads by `reader`, as fresh as the rules require, after pending writes `through` the cache have
    /// finished.
    pub(super) fn new(
        lake: Arc<Endpoint>,
        reader: Arc<ObjectReader>,
        freshness: FreshnessRules,
        through: Arc<WriteThrough>,
        forwarder: Arc<Forwarder>,
    ) -> Self {
        Self {
            lake,
            reader,
            freshness: ArcSwap::from_pointee(freshness),
            through,
            forwarder,
        }
    }

    /// Replaces the freshness rules.
    pub(super) fn set_freshness(&self, rules: FreshnessRules) {
        self.freshness.store(Arc::new(rules));
    }

    /// Parses a GET or HEAD of `name`.
    pub(super) fn parse(&self, admitted: &Admitted, name: ObjectName) -> Result<Wanted, S3Error> {
        Wanted::parse(admitted, name, &self.lake, &self.freshness.load())
    }

    /// Answers a GET.
    pub(super) async fn get(
        &self,
        admitted: Box<Admitted>,
        wanted: &Wanted,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        if let Some(reason) = wanted.reason {
            return Box::pin(self.bypass(admitted, reason, record)).await;
        }
        if let Some(finished) = self.through.pending_commit(wanted.request.object) {
            Box::pin(finished).await;
        }
        let answer = self.reader.read(&wanted.request).await;
        Ok(match answer.map_err(|error| lake_errors::unread(&error))? {
            GetAnswer::Known(known, caller_headers) => {
                wanted.respond(known, caller_headers, admitted.parts.uri.path(), record)
            }
            GetAnswer::Relay(response) => {
                record.cache = Some(CacheStatus::Miss);
                relay(*response)
            }
            GetAnswer::Bypass(reason) => return Box::pin(self.bypass(admitted, reason, record)).await,
        })
    }

    /// Answers a HEAD. The lake is asked unless its permission is remembered, because it would need one
    /// request without a body in any case.
    pub(super) async fn head(
        &self,
        admitted: Box<Admitted>,
        wanted: &Wanted,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        if wanted.is_about_a_part() || wanted.reason.is_some() {
            return self.forwarder.pass_on(admitted).await;
        }
        let Wanted { request, wishes, .. } = wanted;
        let stamp = self.reader.stamp(request).await;
        if let Some(answer) = self.reader.head(request, stamp) {
            return Ok(wanted.respond_to_head(answer, record));
        }
        record.cache = Some(CacheStatus::Miss);
        let plain = request.conditions.is_empty() && wishes.overrides.is_empty();
        let response = self.forwarder.send(admitted, None).await?;
        if plain {
            self.reader.learn_from_head(request, &response, stamp);
        }
        Ok(relay(response))
    }

    async fn bypass(
        &self,
        admitted: Box<Admitted>,
        reason: Uncacheable,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        record.cache = Some(CacheStatus::Bypass);
        record.reason = Some(reason);
        let mut response = self.forwarder.pass_on(admitted).await?;
        response
            .headers_mut()
            .insert(X_CACHE_REASON, HeaderValue::from_static(reason.as_str()));
        Ok(response)
    }
}
