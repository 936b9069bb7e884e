//! Uploads in parts: the object gets the ETag of its parts' digests, and a checksum of their checksums.

use std::collections::BTreeMap;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use md5::{Digest, Md5};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use shoal_net::clock;

use super::answer::{Answer, escape};
use super::object::{Object, hex};
use super::policy::Access;
use super::request::Request;
use super::state::State;
use super::write::{check_conditions_of_write, store, stored_headers};
use crate::chunks::Checksum;

/// A multipart upload that has not ended.
pub(super) struct Upload {
    bucket: String,
    key: String,
    begun: SystemTime,
    headers: HeaderMap,
    checksum: Option<Checksum>,
    parts: BTreeMap<u32, Bytes>,
}

pub(super) fn start(state: &mut State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    let algorithm = request.header("x-amz-checksum-algorithm").unwrap_or_default();
    let header = format!("x-amz-checksum-{}", algorithm.to_lowercase());
    let key = String::from_utf8_lossy(&request.key);
    let upload = Upload {
        headers: stored_headers(&request.headers),
        checksum: Checksum::named(&header),
        ..Upload::new(&request.bucket, &key, clock::utc_now())
    };
    let id = begin(state, upload);
    let result = format!("<UploadId>{id}</UploadId>");
    let xml = format!("<InitiateMultipartUploadResult>{result}</InitiateMultipartUploadResult>");
    Ok(Answer::xml(StatusCode::OK, &xml))
}

/// Adds an upload, and returns its id.
pub(super) fn begin(state: &mut State, upload: Upload) -> String {
    let id = state.fresh_id();
    state.uploads.insert(id.clone(), upload);
    id
}

impl Upload {
    pub(super) fn new(bucket: &str, key: &str, begun: SystemTime) -> Self {
        Self {
            bucket: bucket.into(),
            key: key.into(),
            begun,
            headers: HeaderMap::new(),
            checksum: None,
            parts: BTreeMap::new(),
        }
    }
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

/// One line of a listing: a key with its upload, or a prefix.
struct Line {
    name: String,
    id: String,
    begun: Option<SystemTime>,
}

/// Pages end after `max-uploads`. Markers are those of S3: behind an upload that there is, or behind all of a
/// key.
pub(super) fn list(state: &State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Read)?;
    if !state.buckets.contains_key(&request.bucket) {
        return Err("NoSuchBucket");
    }
    let parameter = |name| request.parameter(name).unwrap_or_default();
    let most = match &*parameter("max-uploads") {
        "" => 1000,
        most => most.parse().map_err(|_| "InvalidArgument")?,
    };
    let mut lines = lines(state, request)?;
    let more = lines.len() > most;
    lines.truncate(most);
    let is_encoded = parameter("encoding-type") == "url";
    let shown = |name: &str| {
        if is_encoded {
            percent_encode(name.as_bytes(), NON_ALPHANUMERIC).to_string()
        } else {
            escape(name)
        }
    };
    let mut limits = vec![
        ("Bucket", request.bucket.clone()),
        ("KeyMarker", shown(&parameter("key-marker"))),
        ("UploadIdMarker", escape(&parameter("upload-id-marker"))),
        ("Prefix", shown(&parameter("prefix"))),
        ("MaxUploads", most.to_string()),
        ("IsTruncated", more.to_string()),
    ];
    if is_encoded {
        limits.push(("EncodingType", "url".into()));
    }
    if let Some(last) = lines.last().filter(|_| more) {
        limits.push(("NextKeyMarker", shown(&last.name)));
        limits.push(("NextUploadIdMarker", escape(&last.id)));
    }
    let limit = |(name, text)| format!("<{name}>{text}</{name}>");
    let limits: String = limits.into_iter().map(limit).collect();
    let entries: String = lines
        .iter()
        .map(|line| line.element(&shown(&line.name)))
        .collect();
    let xml = format!(
        "<ListMultipartUploadsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{limits}{entries}</ListMultipartUploadsResult>"
    );
    Ok(Answer::xml(StatusCode::OK, &xml))
}

/// Everything behind the markers.
fn lines(state: &State, request: &Request) -> Result<Vec<Line>, &'static str> {
    let parameter = |name| request.parameter(name).unwrap_or_default();
    let (prefix, delimiter) = (parameter("prefix"), parameter("delimiter"));
    let (key_marker, id_marker) = (parameter("key-marker"), parameter("upload-id-marker"));
    // Ids are numbers behind a word.
    let place = |id: &str, upload: &Upload| (upload.begun, id.len(), id.to_owned());
    let marked = match state.uploads.get(&id_marker) {
        Some(upload) if upload.key == key_marker => Some(place(&id_marker, upload)),
        None if key_marker.is_empty() || id_marker.is_empty() => None,
        _ => return Err("InvalidArgument"),
    };
    let is_behind = |id: &str, upload: &Upload| {
        upload.key > key_marker
            || upload.key == key_marker && marked.as_ref().is_some_and(|marked| *marked < place(id, upload))
    };
    let is_listed = |upload: &Upload| upload.bucket == request.bucket && upload.key.starts_with(&prefix);
    let open = state.uploads.iter();
    let mut open: Vec<_> = open
        .filter(|(id, upload)| is_listed(upload) && is_behind(id, upload))
        .collect();
    open.sort_by_key(|(id, upload)| (&upload.key, place(id, upload)));
    let mut lines = Vec::<Line>::new();
    for (id, upload) in open {
        let line = Line::new(id, upload, &prefix, &delimiter);
        let is_shown = line.begun.is_none()
            && (line.name == key_marker || lines.last().is_some_and(|last| last.name == line.name));
        if !is_shown {
            lines.push(line);
        }
    }
    Ok(lines)
}

impl Line {
    fn new(id: &str, upload: &Upload, prefix: &str, delimiter: &str) -> Self {
        let rest = upload.key[prefix.len()..].split_once(delimiter);
        match rest.filter(|_| !delimiter.is_empty()) {
            Some((group, _)) => Self {
                name: format!("{prefix}{group}{delimiter}"),
                id: String::new(),
                begun: None,
            },
            None => Self {
                name: upload.key.clone(),
                id: id.into(),
                begun: Some(upload.begun),
            },
        }
    }

    fn element(&self, name: &str) -> String {
        let Some(begun) = self.begun else {
            return format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>");
        };
        let id = &self.id;
        // To the second, as S3 shows it.
        let form = time::macros::format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].000Z");
        let begun = time::OffsetDateTime::from(begun).format(form).unwrap();
        format!("<Upload><Key>{name}</Key><UploadId>{id}</UploadId><Initiated>{begun}</Initiated></Upload>")
    }
}
