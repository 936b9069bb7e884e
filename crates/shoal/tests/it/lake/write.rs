//! Everything of S3 that changes the lake or lists it, as far as stories need it.

use bytes::Bytes;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use shoal_s3::time::rfc3339;

use super::answer::{Answer, escape};
use super::deletion;
use super::object::{Object, this_second};
use super::policy::{Access, of_acl, of_bucket_policy, policy_origin};
use super::read::condition;
use super::request::Request;
use super::state::State;
use super::uploads;
use crate::chunks::Checksum;

/// Answers a request that is not a read of an object's bytes.
pub(super) fn write(
    state: &mut State,
    request: &Request,
    body: Bytes,
    trailers: &[(String, String)],
) -> Result<Answer, &'static str> {
    let on_object = !request.key.is_empty();
    let has = |name: &str| request.parameter(name).is_some();
    match request.method {
        Method::GET if request.bucket.is_empty() => list_buckets(state, request),
        _ if has("acl") => acl(state, request),
        _ if has("policy") => policy(state, request, &body),
        Method::GET if !on_object && has("versioning") => versioning(state, request),
        Method::PUT if has("uploadId") => uploads::put_part(state, request, body),
        Method::PUT if request.header("x-amz-copy-source").is_some() => copy(state, request),
        Method::PUT if on_object => put(state, request, body, trailers),
        Method::PUT if request.query.is_empty() => create_bucket(state, request),
        Method::DELETE if has("uploadId") => uploads::abort(state, request),
        Method::DELETE if on_object => deletion::delete(state, request),
        Method::DELETE => delete_bucket(state, request),
        Method::POST if has("delete") => deletion::delete_many(state, request, &body),
        Method::POST if has("uploads") => uploads::start(state, request),
        Method::POST if has("uploadId") => uploads::complete(state, request, &body),
        Method::GET if !on_object && has("uploads") => uploads::list(state, request),
        Method::GET | Method::HEAD if !on_object && (request.query.is_empty() || is_list(request)) => {
            list(state, request)
        }
        _ => Err("NotImplemented"),
    }
}

fn put(
    state: &mut State,
    request: &Request,
    body: Bytes,
    trailers: &[(String, String)],
) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    check_conditions_of_write(state, request)?;
    let mut object = Object::new(body);
    object.headers = stored_headers(&request.headers);
    for (name, value) in trailers {
        let name = HeaderName::try_from(name.as_str()).map_err(|_| "MalformedTrailerError")?;
        object
            .headers
            .append(name, value.parse().map_err(|_| "MalformedTrailerError")?);
    }
    let mut names = object.headers.keys();
    if names.any(|name| Checksum::named(name.as_str()).is_some()) {
        object = object.header("x-amz-checksum-type", "FULL_OBJECT");
    }
    store(state, request, object)
}

pub(super) fn store(state: &mut State, request: &Request, object: Object) -> Result<Answer, &'static str> {
    if !state.buckets.contains_key(&request.bucket) {
        return Err("NoSuchBucket");
    }
    let etag = object.etag.clone();
    let object = object.modified_at(this_second());
    let version = state.put(&request.bucket, &request.key, object);
    let answer = Answer::empty(StatusCode::OK).header("etag", &etag);
    Ok(match version {
        Some(version) => answer.header("x-amz-version-id", &version),
        None => answer,
    })
}

/// `If-None-Match: *` and `If-Match` on a write.
pub(super) fn check_conditions_of_write(state: &State, request: &Request) -> Result<(), &'static str> {
    let mut asked = HeaderMap::new();
    for name in [IF_MATCH, IF_NONE_MATCH] {
        if let Some(value) = request.headers.get(&name) {
            asked.insert(name, value.clone());
        }
    }
    match state.object(&request.bucket, &request.key, None) {
        Ok(object) if condition(object, &asked).is_some() => Err("PreconditionFailed"),
        Err(_) if asked.contains_key(IF_MATCH) => Err("NoSuchKey"),
        _ => Ok(()),
    }
}

/// Headers that a later GET returns: system headers, user metadata, checksums.
pub(super) fn stored_headers(sent: &HeaderMap) -> HeaderMap {
    let kept = |name: &str| {
        let of_s3 = ["x-amz-meta-", "x-amz-checksum-"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        let of_http = matches!(
            name,
            "content-type"
                | "content-encoding"
                | "content-language"
                | "content-disposition"
                | "cache-control"
                | "expires"
        );
        of_s3 && !name.ends_with("-algorithm") || of_http
    };
    let mut headers = HeaderMap::new();
    for (name, value) in sent {
        if kept(name.as_str()) {
            headers.append(name.clone(), value.clone());
        }
    }
    if let Some(encoding) = headers
        .get("content-encoding")
        .and_then(|value| value.to_str().ok())
    {
        let rest = encoding
            .replace("aws-chunked", "")
            .trim_matches([',', ' '])
            .to_owned();
        headers.remove("content-encoding");
        if !rest.is_empty() {
            headers.insert(
                "content-encoding",
                rest.parse().expect("a part of a header is one"),
            );
        }
    }
    headers
}

fn copy(state: &mut State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    let source = request.header("x-amz-copy-source").ok_or("InvalidArgument")?;
    let (path, version) = source
        .split_once("?versionId=")
        .map_or((source, None), |(path, id)| (path, Some(id)));
    let decoded: Vec<u8> = percent_decode_str(path.trim_start_matches('/')).collect();
    let slash = decoded
        .iter()
        .position(|byte| *byte == b'/')
        .ok_or("InvalidArgument")?;
    let (bucket, key) = (
        String::from_utf8_lossy(&decoded[..slash]).into_owned(),
        &decoded[slash + 1..],
    );
    state.check_place(request, Access::Read, &bucket, key)?;
    let copied = state.object(&bucket, key, version)?;
    let mut object = Object::new(copied.content.clone());
    object.headers = match request.header("x-amz-metadata-directive") {
        Some("REPLACE") => stored_headers(&request.headers),
        _ => copied.headers.clone(),
    };
    let xml = format!(
        "<CopyObjectResult><ETag>{}</ETag></CopyObjectResult>",
        object.etag
    );
    store(state, request, object)?;
    Ok(Answer::xml(StatusCode::OK, &xml))
}

fn acl(state: &mut State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    if request.method == Method::GET {
        return Ok(Answer::xml(
            StatusCode::OK,
            "<AccessControlPolicy></AccessControlPolicy>",
        ));
    }
    let rules = of_acl(
        request.header("x-amz-acl").ok_or("InvalidRequest")?,
        &request.bucket,
        &request.key,
    );
    let origin = rules[0].origin.clone().unwrap_or_default();
    state.replace_rules(&origin, rules);
    Ok(Answer::empty(StatusCode::OK))
}

fn versioning(state: &State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Read)?;
    let bucket = state.buckets.get(&request.bucket).ok_or("NoSuchBucket")?;
    let status = if bucket.versioned {
        "<Status>Enabled</Status>"
    } else {
        ""
    };
    let document = format!("<VersioningConfiguration>{status}</VersioningConfiguration>");
    Ok(Answer::xml(StatusCode::OK, &document))
}

fn policy(state: &mut State, request: &Request, body: &[u8]) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    let origin = policy_origin(&request.bucket);
    let rules = match request.method {
        Method::PUT => of_bucket_policy(&request.bucket, body).ok_or("MalformedPolicy")?,
        Method::DELETE => Vec::new(),
        _ => return Err("NoSuchBucketPolicy"),
    };
    state.replace_rules(&origin, rules);
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

fn create_bucket(state: &mut State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    state.buckets.entry(request.bucket.clone()).or_default();
    Ok(Answer::empty(StatusCode::OK))
}

fn delete_bucket(state: &mut State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Write)?;
    match state.buckets.get(&request.bucket) {
        None => Err("NoSuchBucket"),
        Some(bucket) if !bucket.objects.is_empty() => Err("BucketNotEmpty"),
        Some(_) => {
            state.buckets.remove(&request.bucket);
            Ok(Answer::empty(StatusCode::NO_CONTENT))
        }
    }
}

fn list_buckets(state: &State, request: &Request) -> Result<Answer, &'static str> {
    request.access_key.as_ref().ok_or("AccessDenied")?;
    let names: Vec<&str> = state.buckets.keys().map(String::as_str).collect();
    let names = names.join("</Name></Bucket><Bucket><Name>");
    let names = format!("<Bucket><Name>{names}</Name></Bucket>");
    let xml = format!("<ListAllMyBucketsResult><Buckets>{names}</Buckets></ListAllMyBucketsResult>");
    Ok(Answer::xml(StatusCode::OK, &xml))
}

fn is_list(request: &Request) -> bool {
    request.method == Method::GET
        && ["list-type", "prefix", "delimiter", "versions"]
            .iter()
            .any(|name| request.parameter(name).is_some())
}

/// Pages end after `max-keys`; a token is the last key in another spelling, and no key. Keys with one common
/// prefix are one entry.
fn list(state: &State, request: &Request) -> Result<Answer, &'static str> {
    state.check(request, Access::Read)?;
    let bucket = state.buckets.get(&request.bucket).ok_or("NoSuchBucket")?;
    let prefix = request.parameter("prefix").unwrap_or_default();
    let most: usize = request
        .parameter("max-keys")
        .map_or(Ok(1000), |most| most.parse())
        .map_err(|_| "InvalidArgument")?;
    let token = request.parameter("continuation-token");
    let token = token.map(|token| token.chars().rev().collect());
    let after: String = token
        .or_else(|| request.parameter("start-after"))
        .or_else(|| request.parameter("marker"))
        .or_else(|| request.parameter("key-marker"))
        .unwrap_or_default();
    let listed = bucket.objects.range(prefix.clone().into_bytes()..);
    let listed = listed
        .take_while(|(key, _)| key.starts_with(prefix.as_bytes()))
        .filter(|(key, _)| key.as_slice() > after.as_bytes());
    let listed = listed.filter_map(|(key, versions)| Some((key, versions.last()?.1.as_ref()?)));
    let delimiter = request.parameter("delimiter").unwrap_or_default();
    let group_of = |key: &str| {
        let (group, _) = key[prefix.len()..]
            .split_once(&delimiter)
            .filter(|_| !delimiter.is_empty())?;
        Some(format!("{prefix}{group}{delimiter}"))
    };
    let (root, entry) = match request.parameter("versions") {
        Some(_) => ("ListVersionsResult", "Version"),
        None => ("ListBucketResult", "Contents"),
    };
    let mut xml = format!(
        "<{root}><Name>{}</Name><Prefix>{}</Prefix><MaxKeys>{most}</MaxKeys>",
        request.bucket,
        escape(&prefix)
    );
    let is_encoded = request
        .parameter("encoding-type")
        .is_some_and(|given| given == "url");
    if is_encoded {
        xml += "<EncodingType>url</EncodingType>";
    }
    let (mut last, mut last_group, mut shown, mut is_truncated) = (String::new(), None, 0, false);
    for (key, object) in listed {
        let name = String::from_utf8_lossy(key).into_owned();
        let group = group_of(&name);
        if group.is_some() && group == last_group {
            last = name;
            continue;
        }
        if shown == most {
            is_truncated = true;
            break;
        }
        (last, last_group, shown) = (name, group, shown + 1);
        let encode = |name: &str| {
            if is_encoded {
                percent_encode(name.as_bytes(), NON_ALPHANUMERIC).to_string()
            } else {
                escape(name)
            }
        };
        if let Some(group) = &last_group {
            xml.extend([
                "<CommonPrefixes><Prefix>",
                &encode(group),
                "</Prefix></CommonPrefixes>",
            ]);
            continue;
        }
        let encoded = percent_encode(key, NON_ALPHANUMERIC).to_string();
        let key = if is_encoded { encoded } else { escape(&last) };
        let etag = escape(&object.etag);
        let size = object.content.size().to_string();
        xml.extend([
            &format!("<{entry}><Key>{key}</Key>"),
            "<LastModified>",
            &rfc3339(object.last_modified),
            "</LastModified><ETag>",
            &etag,
            "</ETag><Size>",
            &size,
            &format!("</Size></{entry}>"),
        ]);
    }
    xml.extend(["<IsTruncated>", &is_truncated.to_string(), "</IsTruncated>"]);
    if is_truncated {
        let (name, next) = match entry {
            "Version" => ("NextKeyMarker", last),
            _ => ("NextContinuationToken", last.chars().rev().collect()),
        };
        xml += &["<", name, ">", &escape(&next), "</", name, ">"].concat();
    }
    Ok(Answer::xml(StatusCode::OK, &format!("{xml}</{root}>")))
}
