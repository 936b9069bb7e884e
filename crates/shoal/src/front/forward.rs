//! Requests that are the lake's to answer: sent on with the meaning that this node has found, signed anew,
//! answered as the lake answers.

use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::BodyExt;

use crate::catalog::{Catalog, is_refusal};
use crate::endpoint::{
    Contradicted, Endpoint, EndpointRequest, LakeAccount, LakeBody, Question, RequestBody,
};
use crate::fetch::{content_range, whole};
use crate::front::lake_errors;
use crate::http::connection::ClientBody;
use crate::http::expectation::expects_continue;
use crate::s3::auth::Verified;
use crate::s3::error::S3Error;
use crate::s3::hop_by_hop::end_to_end;
use crate::s3::operation::{COPY_SOURCE, Classified, CopySource, Effect, Operation};
use crate::s3::payload::{CheckedBody, Outcome};
use crate::write::Gathering;

/// Sends a request on to the lake. What it may have changed is forgotten before and after. Its bytes are given to `gathering`, too.
///
/// Errors: the body was not what its signature, length or checksum says (the lake saw a broken-off request and stored
/// nothing), or the lake does not answer.
pub async fn forward(
    lake: &Arc<Endpoint>,
    catalog: &Arc<Catalog>,
    parts: &Parts,
    body: ClientBody,
    verified: Verified,
    classified: &Classified,
    gathering: Option<Gathering>,
) -> Result<Response<LakeBody>, S3Error> {
    let _forgotten = Forget::of(catalog, classified);
    let caller = verified.caller.id();
    let (account, payer) = (lake.account_for(&verified.caller), verified.caller.payer());
    let target = target(lake, classified, &verified)?;
    let payload = verified.payload.hash;
    let (body, outcome) = request_body(parts, body, verified, gathering).await?;
    let request = EndpointRequest {
        operation: classified.operation.as_str(),
        method: parts.method.clone(),
        target,
        headers: headers(parts, classified),
        // Without bytes to wait for there is nothing to expect.
        expects_continue: outcome.is_some() && expects_continue(parts.version, &parts.headers),
        body,
        payload,
        account,
        payer,
    };
    let question = is_resumable(classified).then(|| Question::of(lake, &request));
    let answered = lake.send(request).await;
    let contradicted = classified
        .object
        .as_ref()
        .map(|name| catalog.revoker(caller, name.id(lake.url())));
    // Whatever was asked of the object, what the lake granted to this caller before is in doubt.
    if let (Ok(response), Some(contradicted)) = (&answered, &contradicted)
        && is_refusal(response.status())
    {
        contradicted();
    }
    // What is wrong with the body is the client's to hear, whatever the lake made of the broken-off request.
    if let Some(error) = outcome.as_ref().and_then(Outcome::error) {
        return Err(error.clone());
    }
    let response = answered.map_err(|error| lake_errors::unanswered(&error))?;
    Ok(match (question, contradicted) {
        (Some(question), Some(contradicted)) => resumed(response, question, contradicted),
        _ => response,
    })
}

/// Whether a break in the answer may be mended: a part of an upload is named by the query, not by a range.
fn is_resumable(classified: &Classified) -> bool {
    classified.operation == Operation::GetObject && !classified.query.has("partNumber")
}

/// Lets the bytes of an object go on when they break, if the answer says which bytes of which version they are.
fn resumed(
    response: Response<LakeBody>,
    question: Question,
    contradicted: Contradicted,
) -> Response<LakeBody> {
    let headers = response.headers();
    let sent = match response.status() {
        StatusCode::OK => whole(headers),
        StatusCode::PARTIAL_CONTENT => content_range(headers),
        _ => None,
    };
    let etag = headers.get(header::ETAG).cloned();
    let etag = etag.filter(|etag| etag.as_bytes().starts_with(b"\"") && etag.len() > 2);
    let (Some((range, size_bytes)), Some(etag)) = (sent, etag) else {
        return response;
    };
    let encoding = headers.get(header::CONTENT_ENCODING);
    let resumption = question.resumes(etag, encoding, size_bytes, range.start..range.end, contradicted);
    response.map(|body| body.resumed_by(resumption))
}

/// What the lake is asked for. The credentials of a presigned URL stay here, where they were verified.
///
/// When a browser asks about the URL there is nothing to verify. The lake then hears whom the URL names, by the name it
/// knows, and gets no proof: it tells what it tells to anybody who names a key. Ceph RGW compares no signature then, and
/// looks for the bucket among those of the key's tenant.
fn target(lake: &Endpoint, classified: &Classified, verified: &Verified) -> Result<PathAndQuery, S3Error> {
    let named = verified.named.as_ref().map(|named| lake.account_for(named));
    match named {
        Some(LakeAccount::Signed(account) | LakeAccount::Brought(account, _)) => {
            classified.target_in_name(&account.access_key)
        }
        Some(LakeAccount::Anonymous) | None => classified.target(),
    }
}

/// The end-to-end headers of the client, with the source of a copy written anew.
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
    gathering: Option<Gathering>,
) -> Result<(RequestBody, Option<Outcome>), S3Error> {
    let has_body = http_body::Body::size_hint(&body).exact() != Some(0);
    let hash = verified.payload.hash;
    let mut checked = CheckedBody::new(body, parts, verified.payload)?;
    if let Some(gathering) = gathering {
        checked = checked.tapped_by(move |data| gathering.add(data));
    }
    if !has_body && !hash.is_streaming() {
        // What the head says must hold of nothing, too. Without a length a body would be sent in chunks, and a lake
        // may not understand a DELETE in chunks.
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
                checked.resign(seed);
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

/// Voids what the catalog holds about the object or bucket, now and when the request is over, however it ends: between
/// the two the lake may change it at any moment.
struct Forget {
    catalog: Arc<Catalog>,
    effect: Effect,
    classified: Classified,
}

impl Forget {
    fn of(catalog: &Arc<Catalog>, classified: &Classified) -> Self {
        let effect = classified.effect();
        let forget = Self {
            catalog: Arc::clone(catalog),
            effect,
            classified: classified.clone(),
        };
        forget.apply();
        forget
    }

    fn apply(&self) {
        match (self.effect, &self.classified.object, &self.classified.bucket) {
            (Effect::Object, Some(object), _) => self.catalog.forget_object(object),
            (Effect::Bucket, _, Some(bucket)) => self.catalog.forget_bucket(bucket),
            _ => {}
        }
    }
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.apply();
    }
}
