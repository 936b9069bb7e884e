//! Listings: pages of the lake, merged with the names of the layers above it.

mod api;
mod newer;
mod objects;
mod page;
mod uploads;

use bytes::Bytes;
use http::{Response, StatusCode, header, response};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use shoal_cache::exchange::{Admitted, ResponseBody, ResponseResult};
use shoal_cache::lake::Lake;
use shoal_net::endpoint::BoxError;
use shoal_s3::error::S3Error;
use shoal_s3::hop_by_hop::end_to_end_of_response;
use shoal_s3::operation::Query;

pub use self::newer::{Newer, NewerNames};
pub use self::objects::Listing;
pub(crate) use self::objects::in_order;
pub(crate) use self::page::MOST;
pub use self::uploads::UploadListing;
pub(crate) use self::uploads::described;
use crate::dirty::errors::unreadable;

/// Limit on a page: a thousand keys of 1,000 bytes, each byte escaped to up to six.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// The answer to a listing, or the rest of the listing if its next page has no entries: some clients take
/// such a page for the last one.
pub(crate) enum Paged {
    Page(Response<ResponseBody>),
    GoOn(Listing),
}

/// Sends a listing to the lake within, and merges newer names into its page.
///
/// # Errors
///
/// The lake does not answer, or its answer is no page.
pub(crate) async fn page_of(
    within: &dyn Lake,
    asked: Box<Admitted>,
    bucket: &str,
    listing: &Listing,
    newer: &NewerNames,
) -> Result<Paged, S3Error> {
    let mut nothing_until = None;
    let merge = |page: &[u8]| {
        let merged = listing.merge(page, newer)?;
        nothing_until = merged.nothing_until;
        Some(merged.document)
    };
    let response = merged(within.list_objects(asked, bucket), merge).await?;
    Ok(match nothing_until {
        None => Paged::Page(response),
        Some(until) => Paged::GoOn(listing.from(until)),
    })
}

/// Merges the page in an answer of the lake by `merge`. A refusal is passed on unchanged.
///
/// # Errors
///
/// The lake does not answer, or its answer is no page.
pub(crate) async fn merged(
    answered: impl Future<Output = ResponseResult>,
    merge: impl FnOnce(&[u8]) -> Option<String>,
) -> ResponseResult {
    let (head, body) = answered.await?.into_parts();
    let body = read(body).await?;
    let merged = match head.status {
        StatusCode::OK => merge(&body).ok_or_else(unreadable)?.into(),
        _ => body,
    };
    Ok(answered_with(&head, merged))
}

/// Returns a request for a listing with another query, whose page a node reads.
pub(crate) fn asking(mut admitted: Box<Admitted>, query: Query) -> Box<Admitted> {
    admitted.classified.query = query;
    admitted.is_answer_read = true;
    admitted
}

pub(crate) async fn read<B>(body: B) -> Result<Bytes, S3Error>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let body = Limited::new(body, PAGE_BYTES_MAX).collect().await;
    Ok(body.map_err(|_| unreadable())?.to_bytes())
}

pub(crate) fn answered_with(head: &response::Parts, body: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = end_to_end_of_response(&head.headers);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}
