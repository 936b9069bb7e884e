//! GET and HEAD of an object: conditions, ranges, parts, and the headers that go with them.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::answer::{Answer, AnswerBody};
use super::object::Object;
use super::policy::Access;
use super::request::Request;
use super::state::State;

/// Answers with the object as `headers` ask for it; they may be fewer than were sent.
pub(super) fn read(state: &State, request: &Request, headers: &HeaderMap) -> Result<Answer, &'static str> {
    state.check(request, Access::Read)?;
    let version = request.parameter("versionId");
    let object = state.object(&request.bucket, &request.key, version.as_deref())?;
    let versioned = state.buckets[&request.bucket].versioned;
    match condition(object, headers) {
        Some(StatusCode::NOT_MODIFIED) => {
            let mut answer = Answer::empty(StatusCode::NOT_MODIFIED);
            describe_version(object, versioned, &mut answer.headers);
            return Ok(answer);
        }
        Some(_) => return Err("PreconditionFailed"),
        None => {}
    }

    let size = object.content.size();
    let (status, range) = match request.parameter("partNumber") {
        Some(number) => (StatusCode::PARTIAL_CONTENT, part(object, &number)?),
        None => match byte_range(headers.get(RANGE), size) {
            Asked::Whole => (StatusCode::OK, 0..size),
            Asked::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
            Asked::Nothing => return Err("InvalidRange"),
        },
    };
    let mut answer = Answer::empty(status);
    if status == StatusCode::PARTIAL_CONTENT {
        let text = format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
        answer
            .headers
            .insert(CONTENT_RANGE, HeaderValue::from_str(&text).unwrap());
    }
    describe(object, request, headers, &range, &mut answer.headers);
    describe_version(object, versioned, &mut answer.headers);
    if !request.is_head() {
        answer.body = AnswerBody::Content(object.content.clone(), range);
    }
    Ok(answer)
}

/// 304 or 412, in the order of RFC 9110, 13.2.2.
pub(super) fn condition(object: &Object, headers: &HeaderMap) -> Option<StatusCode> {
    let matches = |name: HeaderName| {
        let text = headers.get(&name)?.to_str().ok()?;
        // As most stores do: an empty condition is none, and a weak tag is no match to rely on.
        if text.is_empty() {
            return None;
        }
        let strong = |tag: &str| match tag.strip_prefix("W/") {
            Some(weak) if name != IF_MATCH => weak.to_owned(),
            _ => tag.to_owned(),
        };
        let tags = || text.split(',').map(|tag| strong(tag.trim()));
        Some(text == "*" || tags().any(|tag| tag.trim_matches('"') == object.etag.trim_matches('"')))
    };
    let date = |name: HeaderName| httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok();
    let after = |date: SystemTime| object.last_modified > date;

    let failed = match matches(IF_MATCH) {
        Some(matched) => !matched,
        None => date(IF_UNMODIFIED_SINCE).is_some_and(after),
    };
    let unchanged = match matches(IF_NONE_MATCH) {
        Some(matched) => matched,
        None => date(IF_MODIFIED_SINCE).is_some_and(|date| !after(date)),
    };
    if failed {
        Some(StatusCode::PRECONDITION_FAILED)
    } else {
        unchanged.then_some(StatusCode::NOT_MODIFIED)
    }
}

/// A `Range` header as S3 understands it.
enum Asked {
    /// No range, or none that S3 honours.
    Whole,
    Part(Range<u64>),
    /// A range of which nothing exists.
    Nothing,
}

fn byte_range(range: Option<&HeaderValue>, size: u64) -> Asked {
    let text = range
        .and_then(|range| range.to_str().ok())
        .and_then(|text| text.strip_prefix("bytes="));
    let Some((first, last)) = text.and_then(|text| text.split_once('-')) else {
        return Asked::Whole;
    };
    // As stores in Go read numbers: a signed one of 64 bits, or none.
    let number = |text: &str| text.parse::<i64>().map(i64::unsigned_abs);
    let (first, last) = match (number(first), number(last)) {
        (Ok(first), Ok(last)) if first <= last => (first, last),
        (Ok(first), Err(_)) if last.is_empty() => (first, u64::MAX),
        (Err(_), Ok(suffix)) if first.is_empty() && suffix > 0 => (size.saturating_sub(suffix), u64::MAX),
        (Err(_), Ok(_)) if first.is_empty() => return Asked::Nothing,
        _ => return Asked::Whole,
    };
    if first < size {
        Asked::Part(first..last.saturating_add(1).min(size))
    } else {
        Asked::Nothing
    }
}

fn part(object: &Object, number: &str) -> Result<Range<u64>, &'static str> {
    let index = number
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_sub(1))
        .ok_or("InvalidArgument")?;
    if object.parts.is_empty() && index == 0 {
        return Ok(0..object.content.size());
    }
    let size = object.parts.get(index).ok_or("InvalidPartNumber")?;
    let start: u64 = object.parts[..index].iter().sum();
    Ok(start..start + size)
}

fn describe(
    object: &Object,
    request: &Request,
    asked: &HeaderMap,
    range: &Range<u64>,
    answer: &mut HeaderMap,
) {
    let whole = *range == (0..object.content.size()) && !asked.contains_key(RANGE);
    let wants_checksum = asked
        .get("x-amz-checksum-mode")
        .is_some_and(|mode| mode == "ENABLED");
    for (name, value) in &object.headers {
        if !name.as_str().starts_with("x-amz-checksum-") || wants_checksum && whole {
            answer.append(name.clone(), value.clone());
        }
    }
    for (parameter, name) in [
        ("response-content-type", "content-type"),
        ("response-content-language", "content-language"),
        ("response-expires", "expires"),
        ("response-cache-control", "cache-control"),
        ("response-content-disposition", "content-disposition"),
        ("response-content-encoding", "content-encoding"),
    ] {
        if let Some(Ok(value)) = request
            .parameter(parameter)
            .map(|value| HeaderValue::from_str(&value))
        {
            answer.insert(name, value);
        }
    }
    answer.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    answer.insert(CONTENT_LENGTH, (range.end - range.start).into());
    if request.parameter("partNumber").is_some() && !object.parts.is_empty() {
        answer.insert("x-amz-mp-parts-count", object.parts.len().into());
    }
}

fn describe_version(object: &Object, versioned: bool, answer: &mut HeaderMap) {
    answer.insert(ETAG, HeaderValue::from_str(&object.etag).unwrap());
    let modified = httpdate::fmt_http_date(object.last_modified.max(UNIX_EPOCH));
    answer.insert(LAST_MODIFIED, HeaderValue::from_str(&modified).unwrap());
    if versioned {
        answer.insert(
            "x-amz-version-id",
            HeaderValue::from_str(&object.version_id).unwrap(),
        );
    }
}
