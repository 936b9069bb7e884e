//! Forwards requests to the lake. The node serializes what it has parsed, signs it for the lake, and returns
//! the lake's response.

use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, header};
use http_body_util::BodyExt;
use shoal_net::endpoint::{
    Endpoint, EndpointRequest, LakeBody, OnContradiction, RepeatableGet, RequestBody, SendOptions,
};
use shoal_net::http::connection::ClientBody;
use shoal_net::http::expectation::expects_continue;
use shoal_net::link::Purpose;
use shoal_s3::auth::Verified;
use shoal_s3::error::S3Error;
use shoal_s3::etag::names_version;
use shoal_s3::hop_by_hop::end_to_end;
use shoal_s3::identity::Caller;
use shoal_s3::operation::{COPY_SOURCE, Classified, CopySource, Effect, Operation};
use shoal_s3::payload::{CheckedBody, Outcome};

use super::{PlainLake, errors};
use crate::exchange::respond::{relay, relay_addressed};
use crate::exchange::{Admitted, ResponseBody};
use crate::fetch::{CacheParts, sent_range};
use crate::grants::{Grants, is_refusal};
use crate::write::BodyCopy;

/// Forwarding. Grants for what a request may change are invalidated, and responses name the addresses of this
/// node.
impl PlainLake {
    /// Forwards a request to the lake, and returns the response for the client.
    ///
    /// # Errors
    ///
    /// As for [`Self::send_admitted`].
    pub(super) async fn pass_on(&self, admitted: Box<Admitted>) -> Result<Response<ResponseBody>, S3Error> {
        let relocation = self.addresses.relocation(&admitted);
        // The node does not read the response if the request changes no object, so the client may get it
        // encoded. The response to a change may report an error in its document.
        let is_unread =
            relocation.is_none() && !admitted.is_answer_read && admitted.classified.effect == Effect::None;
        let encodings = admitted.parts.headers.get(header::ACCEPT_ENCODING);
        let encodings = encodings.filter(|_| is_unread).cloned();
        let response = self.exchange(admitted, None, encodings).await?;
        Ok(match relocation {
            Some(relocation) => relay_addressed(response, relocation),
            None => relay(response),
        })
    }

    /// Forwards a request to the lake, and returns its response without a content encoding, so that the node
    /// can read it. Grants for what the request may change are invalidated before and after. `gathering` gets
    /// a copy of the body's bytes.
    ///
    /// # Errors
    ///
    /// The lake does not answer, or the body does not match its signature, length or checksum. In the latter
    /// case the lake received an incomplete request and stored nothing.
    pub(super) async fn send_admitted(
        &self,
        admitted: Box<Admitted>,
        gathering: Option<BodyCopy>,
    ) -> Result<Response<LakeBody>, S3Error> {
        self.exchange(admitted, gathering, None).await
    }

    /// Like [`Self::send_admitted`], but the lake may encode its response with one of `encodings`.
    async fn exchange(
        &self,
        admitted: Box<Admitted>,
        gathering: Option<BodyCopy>,
        encodings: Option<HeaderValue>,
    ) -> Result<Response<LakeBody>, S3Error> {
        let Admitted {
            parts,
            body,
            classified,
            verified,
            permit,
            ..
        } = *admitted;
        let CacheParts { lake, grants, .. } = self.cache();
        let _forgotten = Forget::of(grants, &classified);
        // Reads that are not cached are charged to quotas, too.
        let quotas = self
            .cache()
            .quotas
            .of(&verified.caller, classified.object.as_ref());
        let is_read = parts.method == Method::GET;
        let transfer = is_read
            .then(|| Purpose::Client.transfer_within(quotas.rates()))
            .flatten();
        if matches!(verified.caller, Caller::Unverified) {
            let expects_continue = expects_continue(parts.version, &parts.headers);
            let mut request = self.as_sent.request(&parts, classified.operation, body)?;
            request.expects_continue = expects_continue && !matches!(request.body, RequestBody::Empty);
            let options = SendOptions {
                permit: permit.as_ref(),
                transfer: transfer.as_ref(),
            };
            let answered = lake.send_with(request, options);
            return answered.await.map_err(|error| errors::unanswered(&error));
        }
        let caller = verified.caller.id();
        let (account, payer) = (lake.account_for(&verified.caller), verified.caller.payer());
        let target = target(lake, &classified, &verified)?;
        let payload = verified.payload.hash;
        let (body, outcome) = request_body(&parts, body, verified, gathering).await?;
        let mut headers = headers(&parts, &classified);
        headers.extend(encodings.map(|encodings| (header::ACCEPT_ENCODING, encodings)));
        let request = EndpointRequest {
            operation: classified.operation.as_str(),
            method: parts.method.clone(),
            target,
            headers,
            // A request without a body has nothing to wait for.
            expects_continue: outcome.is_some() && expects_continue(parts.version, &parts.headers),
            body,
            payload,
            account,
            payer,
        };
        let question =
            is_resumable(&classified).then(|| RepeatableGet::of(lake, &request).within(transfer.as_ref()));
        let options = SendOptions {
            permit: permit.as_ref(),
            transfer: transfer.as_ref(),
        };
        let answered = lake.send_with(request, options).await;
        let contradicted = classified
            .object
            .as_ref()
            .map(|name| grants.revoker(caller, name.id(lake.url())));
        // If the lake refuses any operation on the object, its earlier grants to this caller are no longer
        // reliable.
        if let (Ok(response), Some(contradicted)) = (&answered, &contradicted)
            && is_refusal(response.status())
        {
            contradicted();
        }
        // An error in the client's body is reported to the client, whatever the lake replied to the
        // incomplete request.
        if let Some(error) = outcome.as_ref().and_then(Outcome::error) {
            return Err(error.clone());
        }
        let response = answered.map_err(|error| errors::unanswered(&error))?;
        Ok(match (question, contradicted) {
            (Some(question), Some(contradicted)) => resumed(response, question, contradicted),
            _ => response,
        })
    }
}

/// Returns true if a response that breaks off may be resumed. A read by `partNumber` may not: its range is
/// unknown.
fn is_resumable(classified: &Classified) -> bool {
    classified.operation == Operation::GetObject && !classified.query.has("partNumber")
}

/// Makes the body resume after a break, if the response identifies the bytes and the version that it carries.
fn resumed(
    response: Response<LakeBody>,
    question: RepeatableGet,
    contradicted: OnContradiction,
) -> Response<LakeBody> {
    let headers = response.headers();
    let sent = sent_range(response.status(), headers);
    let etag = headers.get(header::ETAG).cloned();
    let etag = etag.filter(|etag| etag.to_str().is_ok_and(names_version));
    let (Some((range, size_bytes)), Some(etag)) = (sent, etag) else {
        return response;
    };
    let encoding = headers.get(header::CONTENT_ENCODING);
    let resumption = question.resumes(etag, encoding, size_bytes, range.start..range.end, contradicted);
    response.map(|body| body.resumed_by(resumption))
}

/// Returns the target for the lake. The credentials of a presigned URL are verified here and not sent on.
///
/// A preflight for a presigned URL carries no credentials to verify. The node then sends the lake the access
/// key that stands for the URL's signer, but no signature, and the lake treats it as it treats every sender
/// that only names a key. Ceph RGW does not check signatures in this case, and looks for the bucket in the
/// tenant of the key.
fn target(lake: &Endpoint, classified: &Classified, verified: &Verified) -> Result<PathAndQuery, S3Error> {
    let named = verified.named.as_ref();
    match named.and_then(|named| lake.account_for(named).signer()) {
        Some((account, _)) => classified.target_in_name(&account.access_key),
        None => classified.target(),
    }
}

/// Returns the client's end-to-end headers, with the source of a copy rewritten.
fn headers(parts: &Parts, classified: &Classified) -> HeaderMap {
    let mut headers = end_to_end(&parts.headers);
    let source = classified.copy_source.as_ref().and_then(CopySource::header);
    if let (Some(source), Some(named)) = (source, headers.get_mut(&COPY_SOURCE)) {
        *named = source;
    }
    headers
}

async fn request_body(
    parts: &Parts,
    body: ClientBody,
    verified: Verified,
    gathering: Option<BodyCopy>,
) -> Result<(RequestBody, Option<Outcome>), S3Error> {
    let has_body = http_body::Body::size_hint(&body).exact() != Some(0);
    let hash = verified.payload.hash;
    let mut checked = CheckedBody::new(body, parts, verified.payload)?;
    if let Some(gathering) = gathering {
        checked = checked.tapped_by(move |data| gathering.add(data));
    }
    if !has_body && !hash.is_streaming() {
        // An empty body must match its headers, too. Without a length, it would be sent in chunks, and a lake
        // may not accept a chunked DELETE.
        checked.collect().await?;
        return Ok((RequestBody::Empty, None));
    }
    let outcome = checked.outcome();
    let length = http_body::Body::size_hint(&checked).exact();
    let body = if hash.signs_chunks() {
        RequestBody::Seeded {
            length,
            body: Box::new(move |seed| {
                let mut checked = checked;
                checked.sign_again(seed);
                checked.map_err(Into::into).boxed_unsync()
            }),
        }
    } else {
        RequestBody::Stream {
            length,
            body: checked.map_err(Into::into).boxed_unsync(),
        }
    };
    Ok((body, Some(outcome)))
}

/// Invalidates the grants of the object or bucket at once, and again when the request ends in any way,
/// because the lake may change it at any moment in between.
struct Forget {
    grants: Arc<Grants>,
    classified: Classified,
}

impl Forget {
    fn of(grants: &Arc<Grants>, classified: &Classified) -> Self {
        let forget = Self {
            grants: Arc::clone(grants),
            classified: classified.clone(),
        };
        forget.apply();
        forget
    }

    fn apply(&self) {
        let Classified { object, bucket, .. } = &self.classified;
        match (self.classified.effect, object, bucket) {
            (Effect::Object, Some(object), _) => self.grants.invalidate_object(object),
            (Effect::Bucket, _, Some(bucket)) => self.grants.invalidate_bucket(bucket),
            _ => {}
        }
    }
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.apply();
    }
}
