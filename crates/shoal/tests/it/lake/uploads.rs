//! Uploads in parts: the object gets the ETag of its parts' digests, and a checksum of their checksums.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use md5::{Digest, Md5};

use super::answer::Answer;
use super::object::{Object, hex};
use super::policy::Access;
use super::request::Request;
use super::state::State;
use super::write::{check_conditions_of_write, store, stored_headers};
use crate::chunks::Checksum;

/// What was begun and is no object yet.
#[derive(Default)]
pub(super) struct Upload {
    headers: HeaderMap,
    checksum: Option<Checksum>,
    parts: BTreeMap<u32, Bytes>,
}

pub(super) fn start(state: &mut State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    let id = state.fresh_id();
    let algorithm = request.header("x-amz-checksum-algorithm").unwrap_or_default();
    let header = format!("x-amz-checksum-{}", algorithm.to_lowercase());
    let upload = Upload {
        headers: stored_headers(&request.headers),
        checksum: Checksum::named(&header),
        parts: BTreeMap::new(),
    };
    state.uploads.insert(id.clone(), upload);
    let result = format!("<UploadId>{id}</UploadId>");
    let xml = format!("<InitiateMultipartUploadResult>{result}</InitiateMultipartUploadResult>");
    Ok(Answer::xml(StatusCode::OK, &xml))
}

pub(super) fn put_part(state: &mut State, request: &Request, body: Bytes) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    let number = request
        .parameter("partNumber")
        .and_then(|number| number.parse().ok())
        .ok_or("InvalidArgument")?;
    let upload = request
        .parameter("uploadId")
        .and_then(|id| state.uploads.get_mut(&id))
        .ok_or("NoSuchUpload")?;
    let md5 = STANDARD.encode(Md5::digest(&body));
    if request.header("content-md5").is_some_and(|said| said != md5) {
        return Err("BadDigest");
    }
    let checksum = upload
        .checksum
        .map(|checksum| (checksum.header(), checksum.of(&body)));
    if checksum.is_some_and(|(header, value)| request.header(header) != Some(value.as_str())) {
        return Err("InvalidRequest");
    }
    let etag = Object::new(body.clone()).etag;
    upload.parts.insert(number, body);
    Ok(Answer::empty(StatusCode::OK).header("etag", &etag))
}

/// An empty list stands for all parts.
pub(super) fn complete(state: &mut State, request: &Request, list: &[u8]) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    check_conditions_of_write(state, request)?;
    let mut upload = request
        .parameter("uploadId")
        .and_then(|id| state.uploads.remove(&id))
        .ok_or("NoSuchUpload")?;
    let listed = String::from_utf8_lossy(list);
    let listed = listed.split("<PartNumber>").skip(1);
    let listed: Vec<u32> = listed
        .map(|rest| {
            rest.split('<')
                .next()
                .unwrap_or_default()
                .parse()
                .map_err(|_| "MalformedXML")
        })
        .collect::<Result<_, _>>()?;
    if !listed.is_empty() {
        upload.parts.retain(|number, _| listed.contains(number));
    }
    let parts: Vec<Bytes> = upload.parts.into_values().collect();
    let digests: Vec<u8> = parts.iter().flat_map(Md5::digest).collect();
    let etag = format!("\"{}-{}\"", hex(&Md5::digest(digests)), parts.len());
    let mut object =
        Object::new(parts.concat()).parts(parts.iter().map(|part| part.len() as u64).collect::<Vec<_>>());
    object.headers = upload.headers;
    if let Some(checksum) = upload.checksum {
        let of_parts = parts.iter().map(|part| STANDARD.decode(checksum.of(part)));
        let of_parts: Vec<u8> = of_parts
            .flat_map(|digest| digest.expect("it was just encoded"))
            .collect();
        let value = format!("{}-{}", checksum.of(&of_parts), parts.len());
        object = object
            .header(checksum.header(), &value)
            .header("x-amz-checksum-type", "COMPOSITE");
    }
    let xml = format!("<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>");
    store(state, request, object.etag(&etag))?;
    Ok(Answer::xml(StatusCode::OK, &xml))
}

pub(super) fn abort(state: &mut State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    request
        .parameter("uploadId")
        .and_then(|id| state.uploads.remove(&id))
        .ok_or("NoSuchUpload")?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}
