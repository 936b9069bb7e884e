//! What must hold of request classification, whatever the target.
//!
//! An input is `METHOD SP target LF host`; what is no HTTP target is no request.

use http::Method;
use http::uri::PathAndQuery;
use shoal::front::operation::{Effect, Operation, classify};

const DOMAIN: &str = "s3.example.org";

/// Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (line, host) = text.split_once('\n').unwrap_or((text, ""));
    let Some((method, target)) = line.split_once(' ') else {
        return;
    };
    let (Ok(method), Ok(target)) = (
        Method::from_bytes(method.as_bytes()),
        PathAndQuery::try_from(target),
    ) else {
        return;
    };

    let Ok(request) = classify(&method, &target, Some(host), false, None) else {
        return;
    };
    assert_eq!(
        request.target, target,
        "a path-style target goes to the lake as it came"
    );
    if let Some(object) = &request.object {
        assert!(
            !object.key.is_empty() && !object.bucket.is_empty(),
            "an object has a name"
        );
        assert_eq!(Some(&object.bucket), request.bucket.as_ref());
        let raw = target.path().splitn(3, '/').nth(2).unwrap_or_default();
        assert!(
            object.key.len() <= raw.len(),
            "decoding once never makes a key longer"
        );
        assert!(
            raw.contains('%') || *object.key == *raw.as_bytes(),
            "without an escape nothing is decoded"
        );
    }
    let reads = matches!(request.operation, Operation::GetObject | Operation::HeadObject);
    assert!(
        !reads || request.object.is_some(),
        "a read of an object names one"
    );
    assert!(
        !reads || matches!(method.as_str(), "GET" | "HEAD"),
        "only GET and HEAD are answered here"
    );
    assert!(
        !reads || request.effect() == Effect::None,
        "a read changes nothing"
    );

    if let Ok(hosted) = classify(&method, &target, Some(host), false, Some(DOMAIN)) {
        assert!(
            hosted.target.as_str().ends_with(target.as_str()),
            "a bucket in the host only comes before the path"
        );
    }
}
