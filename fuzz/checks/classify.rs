//! The rule of request classification, for any head: every lake reads in the bytes that are sent
//! to it what this node has read in those of the client.
//!
//! An input is `METHOD SP target LF host LF headers`, a header a line; what is no HTTP head is no request.

#[path = "lake_readings.rs"]
pub(crate) mod lake_readings;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use shoal_s3::operation::{COPY_SOURCE, Classified, CopySource, Effect, Operation, classify};

use self::lake_readings::{Change, Lake, Reading, Sent};

const DOMAIN: &str = "s3.example.org";

/// Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut lines = text.split('\n');
    let (line, host) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let Some((method, target)) = line.split_once(' ') else {
        return;
    };
    let headers: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
    check_request(method, target, host, &headers);
}

/// Panics when a promise is broken. Whether the request was understood.
pub(crate) fn check_request(method: &str, target: &str, host: &str, headers: &[(&str, &str)]) -> bool {
    let (Ok(method), Ok(target)) = (
        Method::from_bytes(method.as_bytes()),
        PathAndQuery::try_from(target),
    ) else {
        return false;
    };
    let mut sent = HeaderMap::new();
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::from_str(value)) {
            sent.append(name, value);
        }
    }
    let understood = [None, Some(DOMAIN)].map(|domain| {
        let request = classify(&method, &target, Some(host), &sent, domain);
        request.map(|request| holds(&method, &sent, &request)).is_ok()
    });
    understood.contains(&true)
}

fn holds(method: &Method, headers: &HeaderMap, request: &Classified) {
    if let Some(object) = &request.object {
        assert!(!object.key.is_empty(), "an object has a name");
        assert_eq!(Some(&object.bucket), request.bucket.as_ref());
    }
    // A target that is too long to be spelled is refused before the lake is asked.
    let Ok(target) = request.target() else {
        return;
    };
    let again = classify(method, &target, None, headers, None).expect("what is told can be understood");
    assert_eq!(again.target().ok(), Some(target.clone()), "one spelling");
    assert_eq!(
        (again.operation, again.effect),
        (request.operation, request.effect)
    );

    let source = request.copy_source.as_ref().and_then(CopySource::header);
    let source = source.as_ref().or_else(|| headers.get(&COPY_SOURCE));
    let sent = Sent {
        method: method.as_str(),
        target: target.as_str(),
        headers: headers.keys().map(HeaderName::as_str).collect(),
        copy_source: source.map(HeaderValue::as_bytes),
    };
    for lake in Lake::ALL {
        agrees(request, &lake.read(&sent), lake);
    }
}

/// Whether a lake reads what the node has read.
fn agrees(request: &Classified, reading: &Reading, lake: Lake) {
    let context = || format!("{lake:?} reads {reading:?} in {request:?}");
    let is_ambiguous = request.object.as_ref().is_some_and(|name| name.key.contains(&0));
    if !is_ambiguous {
        let key = request.object.as_ref().map(|name| name.key.to_vec());
        assert_eq!(
            request.bucket.as_deref().unwrap_or_default().as_bytes(),
            reading.bucket,
            "{}",
            context()
        );
        assert_eq!(key.unwrap_or_default(), reading.key, "{}", context());
    }
    let is_read = matches!(request.operation, Operation::GetObject | Operation::HeadObject);
    if is_read {
        let version = request.object.as_ref().and_then(|name| name.version.as_deref());
        assert!(reading.is_plain_read, "{}", context());
        assert_eq!(version, reading.parameter("versionId"), "{}", context());
    }
    if matches!(
        request.operation,
        Operation::ListObjects | Operation::ListMultipartUploads
    ) {
        for name in [
            "prefix",
            "marker",
            "start-after",
            "continuation-token",
            "key-marker",
            "upload-id-marker",
        ] {
            assert_eq!(request.query.get(name), reading.parameter(name), "{}", context());
        }
    }
    let covers = match reading.change {
        Change::Nothing => true,
        Change::Object => request.effect != Effect::None,
        Change::OtherObjects => request.bucket.is_none() || request.effect == Effect::Bucket,
    };
    assert!(covers, "{}", context());
    if let (Some(copied), Some(source)) = (&reading.copied, &request.copy_source) {
        let mut objects = source.objects();
        let mut is_named = |bucket: &[u8], key: &[u8]| {
            objects.any(|name| (name.bucket.as_bytes(), &*name.key) == (bucket, key))
        };
        assert!(
            *source == CopySource::Arn || is_named(&copied.0, &copied.1),
            "{}",
            context()
        );
    }
}
