//! Reads the bodies of responses from peers and from the lake in exact lengths, and checks that they carry
//! the requested bytes.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt;
use shoal_net::endpoint::{EndpointError, Failure, LakeBody, OnContradiction, RepeatableGet, Resumption};
use shoal_s3::object::Version;
use shoal_s3::payload::{Algorithm, Digests};
use shoal_s3::range::ByteRange;

use super::integrity::IntegrityCheck;
use crate::nodes::obtain::InPack;
use crate::single_flight::{FetchError, Leader};

/// A response body, read in exact lengths.
pub(super) struct BodyReader {
    body: LakeBody,
    rest: Bytes,
}

impl BodyReader {
    pub(super) fn new(body: LakeBody) -> Self {
        Self {
            body,
            rest: Bytes::new(),
        }
    }

    /// Delivers `missing` bytes to the leader. The whole block is verified before its last piece is
    /// delivered.
    pub(super) async fn fill(
        &mut self,
        leader: &Leader,
        mut missing: u64,
        check: Option<&IntegrityCheck<'_>>,
    ) -> Result<(), FetchError> {
        while missing > 0 {
            let piece = self.next(missing).await?;
            missing -= piece.len() as u64;
            let completes_block = leader.received() + piece.len() as u64 == leader.span().len;
            if let Some(check) = check.filter(|_| completes_block) {
                check.verify(&leader.pieces_with(Some(piece.clone())), leader.source())?;
            }
            leader.push(piece);
        }
        Ok(())
    }

    /// Delivers a block that is all of a packed object to the leader, once all of its bytes are there and
    /// proven. Other nodes and packs may send wrong ones.
    pub(super) async fn fill_proven(&mut self, leader: &Leader, in_pack: &InPack) -> Result<(), FetchError> {
        debug_assert_eq!(leader.received(), 0, "a packed object is delivered at once");
        let mut missing = leader.span().len;
        let (mut pieces, mut digests) = (Vec::new(), Digests::default());
        digests.add(Algorithm::Crc32);
        while missing > 0 {
            let piece = self.next(missing).await?;
            missing -= piece.len() as u64;
            digests.update(&piece);
            pieces.push(piece);
        }
        if !digests.matches(Algorithm::Crc32, &in_pack.crc32.to_be_bytes()) {
            return Err(FetchError::Kept(
                "the bytes do not match the CRC-32 of the object".into(),
            ));
        }
        for piece in pieces {
            leader.push(piece);
        }
        Ok(())
    }

    pub(super) async fn skip(&mut self, mut bytes: u64) -> Result<(), FetchError> {
        while bytes > 0 {
            bytes -= self.next(bytes).await?.len() as u64;
        }
        Ok(())
    }

    pub(super) async fn next(&mut self, at_most: u64) -> Result<Bytes, FetchError> {
        while self.rest.is_empty() {
            let frame = self.body.frame().await;
            let frame =
                frame.ok_or_else(|| FetchError::Lake("the lake sent less than it announced".into()))?;
            self.rest = frame.map_err(lake_error)?.into_data().unwrap_or_default();
        }
        let len = at_most.min(self.rest.len() as u64) as usize;
        Ok(self.rest.split_to(len))
    }
}

/// Returns the `Range` header of a non-empty range.
pub fn range_header(range: ByteRange) -> HeaderValue {
    HeaderValue::try_from(format!("bytes={}-{}", range.start, range.end - 1))
        .expect("digits are a header value")
}

/// Checks that a response carries `wanted` of `version`; returns the number of bytes to skip before it.
///
/// The ETag detects a lake that ignores `If-Match`, the status one that ignores `Range`.
pub(super) fn bytes_before<B>(
    version: &Version,
    wanted: ByteRange,
    response: &Response<B>,
) -> Result<u64, FetchError> {
    match response.status() {
        StatusCode::PARTIAL_CONTENT | StatusCode::OK => {}
        StatusCode::PRECONDITION_FAILED | StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE => {
            return Err(FetchError::Changed);
        }
        status => return Err(FetchError::Status(status)),
    }
    if response
        .headers()
        .get(header::ETAG)
        .is_none_or(|etag| etag.as_bytes() != version.etag.as_bytes())
    {
        return Err(FetchError::Changed);
    }
    // Another encoding means other bytes, although a proxy that compresses may leave the ETag unchanged.
    if !has_encoding_of(version, response.headers()) {
        return Err(FetchError::Mismatch);
    }
    if response.status() == StatusCode::OK {
        let is_whole = content_length(response.headers()) == Some(version.size_bytes);
        return is_whole.then_some(wanted.start).ok_or(FetchError::Mismatch);
    }
    match content_range(response.headers()) {
        Some((range, size)) if size == version.size_bytes && range == wanted => Ok(0),
        Some((_, size)) if size != version.size_bytes => Err(FetchError::Changed),
        _ => Err(FetchError::Lake(
            "the lake answered with another range than it was asked for".into(),
        )),
    }
}

fn has_encoding_of(version: &Version, answer: &HeaderMap) -> bool {
    let encodings = |headers: &'_ HeaderMap| -> Vec<HeaderValue> {
        headers
            .get_all(header::CONTENT_ENCODING)
            .iter()
            .cloned()
            .collect()
    };
    encodings(&version.headers) == encodings(answer)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns the range of an object's bytes that a response with this status and these headers carries, and the
/// size of the object.
pub fn sent_range(status: StatusCode, headers: &HeaderMap) -> Option<(ByteRange, u64)> {
    match status {
        StatusCode::OK => {
            let (start, end) = (0, content_length(headers)?);
            Some((ByteRange { start, end }, end))
        }
        StatusCode::PARTIAL_CONTENT => content_range(headers),
        _ => None,
    }
}

/// Parses `Content-Range: bytes first-last/size` into the range and the size.
fn content_range(headers: &HeaderMap) -> Option<(ByteRange, u64)> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, size) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, size): (u64, u64, u64) = (first.parse().ok()?, last.parse().ok()?, size.parse().ok()?);
    (first <= last && last < size).then_some((ByteRange::new(first, last + 1), size))
}

/// Returns the resumption that repeats `question` if the lake's response with the bytes `part` of `version`
/// breaks off.
pub(super) fn resumption(
    question: RepeatableGet,
    version: &Version,
    part: Range<u64>,
    contradicted: OnContradiction,
) -> Resumption {
    question.resumes(
        version.etag_header(),
        version.headers.get(header::CONTENT_ENCODING),
        version.size_bytes,
        part,
        contradicted,
    )
}

pub(super) fn lake_error(error: EndpointError) -> FetchError {
    match error.kind() {
        Failure::Changed => FetchError::Changed,
        _ => FetchError::Lake(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Version {
        let object = shoal_policy::ObjectId([1; 16]);
        Version {
            id: Version::id_of(object, "\"e\"", 10),
            object,
            etag: "\"e\"".into(),
            size_bytes: 10,
            block_bytes: 4,
            last_modified: None,
            headers: HeaderMap::new(),
        }
    }

    fn response(status: u16, headers: &[(&str, &str)]) -> Response<()> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap()
    }

    #[test]
    fn a_response_names_the_part_of_its_object_that_it_carries() {
        let sent = |status: StatusCode, range: &str| {
            let headers = [("content-length", "5"), ("content-range", range)];
            let sent = sent_range(status, response(200, &headers).headers());
            sent.map(|(range, object_bytes)| (range.start, object_bytes))
        };
        assert_eq!(sent(StatusCode::OK, "x"), Some((0, 5)));
        assert_eq!(sent(StatusCode::PARTIAL_CONTENT, "bytes 7-11/20"), Some((7, 20)));
        for range in ["bytes 7-11/*", "bytes */20", "7-11/20", "bytes x-1/20"] {
            assert_eq!(sent(StatusCode::PARTIAL_CONTENT, range), None, "{range}");
        }
        assert_eq!(sent(StatusCode::NOT_FOUND, "bytes 7-11/20"), None);
    }

    #[test]
    fn only_the_wanted_bytes_of_the_pinned_version_are_accepted() {
        let wanted = ByteRange { start: 4, end: 8 };
        let judge =
            |status, headers: &[(&str, &str)]| bytes_before(&version(), wanted, &response(status, headers));
        let etag = ("etag", "\"e\"");
        assert_eq!(judge(206, &[etag, ("content-range", "bytes 4-7/10")]).unwrap(), 0);
        assert_eq!(
            judge(200, &[etag, ("content-length", "10")]).unwrap(),
            4,
            "a lake that ignores Range sends the bytes before, too"
        );
        let gzip = ("content-encoding", "gzip");
        let others = [
            judge(200, &[etag]),
            judge(200, &[etag, ("content-length", "9")]),
            judge(200, &[etag, ("content-length", "10"), gzip]),
            judge(206, &[etag, ("content-range", "bytes 4-7/10"), gzip]),
        ];
        assert!(
            others
                .iter()
                .all(|judged| matches!(judged, Err(FetchError::Mismatch))),
            "{others:?}"
        );
        let changed = [
            judge(412, &[]),
            judge(404, &[]),
            judge(416, &[]),
            judge(206, &[("etag", "\"other\""), ("content-range", "bytes 4-7/10")]),
            judge(206, &[etag, ("content-range", "bytes 4-7/11")]),
            judge(200, &[]),
        ];
        assert!(
            changed
                .iter()
                .all(|judged| matches!(judged, Err(FetchError::Changed))),
            "{changed:?}"
        );
        assert!(matches!(
            judge(206, &[etag, ("content-range", "bytes 0-3/10")]),
            Err(FetchError::Lake(_))
        ));
        assert!(matches!(judge(206, &[etag]), Err(FetchError::Lake(_))));
        assert!(matches!(judge(503, &[]), Err(FetchError::Status(_))));
    }

    #[test]
    fn content_ranges_that_make_no_sense_are_none() {
        for value in [
            "bytes 5-4/10",
            "bytes 5-10/10",
            "bytes */10",
            "bytes 0-1/*",
            "0-1/2",
            "bytes -1/2",
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_RANGE, value.parse().unwrap());
            assert_eq!(content_range(&headers), None, "{value}");
        }
    }
}
