//! GET and HEAD of objects, served from the cache where possible.

use http::{HeaderValue, Response};
use shoal_cache::exchange::record::Record;
use shoal_cache::exchange::respond::{self, CacheStatus, X_CACHE_REASON, relay};
use shoal_cache::exchange::{Admitted, ResponseBody};
use shoal_cache::lake::{Asked, ReadError, errors};
use shoal_cache::read::GetAnswer;
use shoal_s3::error::S3Error;
use shoal_s3::object::{ObjectName, Uncacheable};

use crate::front::serve::Front;
use crate::front::wanted::Wanted;

/// Number of attempts if an object changes while a read of it is forwarded.
const ATTEMPTS: usize = 4;

impl Front {
    fn parse(&self, admitted: &Admitted, name: ObjectName) -> Result<Wanted, S3Error> {
        let reuse = self.lake().reuse(&name, self.freshness.load().reuse(&name));
        Wanted::parse(admitted, name, &self.core.lake, reuse)
    }

    /// Answers a GET of `name`, after pending writes through the cache have finished.
    pub(super) async fn get(
        &self,
        admitted: Box<Admitted>,
        name: ObjectName,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let wanted = self.parse(&admitted, name)?;
        if let Some(reason) = wanted.reason {
            return Box::pin(self.bypass(admitted, &wanted, reason, record)).await;
        }
        if let Some(finished) = self.core.write_through.pending_commit(wanted.request.object) {
            Box::pin(finished).await;
        }
        let answer = self.reader.read(&wanted.request).await;
        Ok(match answer.map_err(|error| errors::unread(&error))? {
            GetAnswer::Object(reading, caller_headers) => {
                record.cache = Some(CacheStatus::of(&reading, caller_headers.is_some()));
                respond::object(reading, caller_headers, wanted.request.range, &wanted.options)
            }
            GetAnswer::NoBytes(why, version, caller_headers) => {
                let path = admitted.parts.uri.path();
                let mut response = wanted.respond_without_bytes(why, &version, path, record);
                if let Some(caller_headers) = caller_headers {
                    respond::add_page_headers(response.headers_mut(), &caller_headers);
                }
                response
            }
            GetAnswer::Relay(response) => {
                record.cache = Some(CacheStatus::Miss);
                relay(*response)
            }
            GetAnswer::Bypass(reason) => {
                return Box::pin(self.bypass(admitted, &wanted, reason, record)).await;
            }
        })
    }

    /// Answers a HEAD of `name`. The lake is asked unless the answer is known, because it would need one
    /// request without a body in any case.
    pub(super) async fn head(
        &self,
        admitted: Box<Admitted>,
        name: ObjectName,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let wanted = self.parse(&admitted, name)?;
        self.forward(admitted, &wanted, wanted.reason.is_none(), record)
            .await
    }

    /// Forwards a GET that the node does not answer itself.
    async fn bypass(
        &self,
        admitted: Box<Admitted>,
        wanted: &Wanted,
        reason: Uncacheable,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        record.cache = Some(CacheStatus::Bypass);
        record.reason = Some(reason);
        let mut response = self.forward(admitted, wanted, false, record).await?;
        let reason = HeaderValue::from_static(reason.as_str());
        response.headers_mut().insert(X_CACHE_REASON, reason);
        Ok(response)
    }

    /// Forwards a read, again if the object changes meanwhile. If the read is a HEAD that is `answerable`, a
    /// known version answers it.
    async fn forward(
        &self,
        mut admitted: Box<Admitted>,
        wanted: &Wanted,
        answerable: bool,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let Wanted { request, options, .. } = wanted;
        let is_of_whole = answerable && !wanted.is_about_a_part();
        let is_plain = is_of_whole && request.conditions.is_empty() && options.overrides.is_empty();
        for _ in 0..ATTEMPTS {
            let asked = self.lake().ask(request, answerable).await;
            let question = match asked.map_err(|error| errors::unread(&error))? {
                Asked::Known(version) => {
                    debug_assert!(answerable, "a read that is not answerable is forwarded");
                    return Ok(wanted.respond_to_head(&version, record));
                }
                Asked::AtLake(question) => question,
            };
            let again = admitted.without_body();
            if is_of_whole {
                record.cache = Some(CacheStatus::Miss);
                admitted.is_answer_read = true;
            }
            let response = self.lake().forward(admitted).await?;
            if is_plain {
                let (status, headers) = (response.status(), response.headers());
                self.lake()
                    .learn_from_answer(request, status, headers, question.stamp);
            }
            let is_final = question.is_final(response.status()).await;
            if is_final.map_err(|error| errors::unread(&error))? {
                return Ok(response);
            }
            admitted = again;
        }
        Err(errors::unread(&ReadError::ChangesTooOften))
    }
}
