//! A request has one canonical form, that of a plain reference implementation; and no made-up request is let
//! in.
//!
//! Input: lines of method, path, query, and `name:value` headers.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, Request};
use shoal_s3::auth::Gate;
use shoal_s3::identity::{Caller, Identities, Identity};
use shoal_s3::sigv4::canonical;

/// Panics if a canonical form is wrong or a stranger passes as an identity.
pub(crate) fn check(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (method, path, query) = (line(), line(), line());
    check_path(path);
    check_query(query);

    let headers: HeaderMap = lines.filter_map(header).collect();
    check_headers(&headers);
    check_gate(method, path, query, headers);
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((
        HeaderName::from_bytes(&line[..colon]).ok()?,
        HeaderValue::from_bytes(&line[colon + 1..]).ok()?,
    ))
}

fn check_path(path: &[u8]) {
    let mut out = Vec::new();
    let written = canonical::write_path(path, &mut out);
    let expected = decode(path, false, true).map(|decoded| encode(&decoded, true));
    assert_eq!(written.ok().map(|()| out.as_slice()), expected.as_deref());

    if expected.is_some() {
        let mut again = Vec::new();
        canonical::write_path(&out, &mut again).expect("a canonical path is a path");
        assert_eq!(again, out, "a canonical path is its own canonical form");
    }
}

fn check_query(query: &[u8]) {
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = query
        .split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            let component = |text: &[u8]| encode(&decode(text, true, false).expect("lenient"), false);
            (
                component(&pair[..equals]),
                component(pair.get(equals + 1..).unwrap_or_default()),
            )
        })
        .filter(|(name, _)| name != b"X-Amz-Signature")
        .collect();
    pairs.sort();
    let pairs: Vec<Vec<u8>> = pairs
        .into_iter()
        .map(|(name, value)| [name, value].join(&b'='))
        .collect();

    let mut out = Vec::new();
    canonical::write_query(query, &mut out);
    assert_eq!(out, pairs.join(&b'&'));
}

fn check_headers(headers: &HeaderMap) {
    let mut names: Vec<&str> = headers
        .keys()
        .map(HeaderName::as_str)
        .filter(|name| *name != "host")
        .collect();
    names.sort_unstable();
    let signed_headers = names.join(";");
    if names.is_empty() {
        return;
    }
    let request = canonical::Request {
        method: "GET",
        path: "/",
        query: "",
        headers,
        host: b"",
        signed_headers: &signed_headers,
        payload_hash: b"UNSIGNED-PAYLOAD",
    };
    let mut out = Vec::new();
    request.write(&mut out).expect("every signed header is there");
    let mut expected = b"GET\n/\n\n".to_vec();
    for name in names {
        let values = headers.get_all(name).iter().map(|value| fold(value.as_bytes()));
        expected.extend(
            [
                name.as_bytes(),
                b":",
                &values.collect::<Vec<_>>().join(&b','),
                b"\n",
            ]
            .concat(),
        );
    }
    expected.extend([b"\n", signed_headers.as_bytes(), b"\nUNSIGNED-PAYLOAD"].concat());
    assert_eq!(out, expected);
}

/// Nobody has the secret, so nobody is the identity.
fn check_gate(method: &[u8], path: &[u8], query: &[u8], headers: HeaderMap) {
    let target = [path, b"?", query].concat();
    let Ok(request) = Request::builder().method(method).uri(target.as_slice()).body(()) else {
        return;
    };
    let mut parts = request.into_parts().0;
    parts.headers = headers;
    let identity = Identity::new(
        "AKIAIOSFODNN7EXAMPLE",
        "a secret that no corpus holds a signature of",
    );
    let gate = Gate::new(Identities::new([identity]), "us-east-1");
    // 2013-05-24T00:00:00Z, the day of the examples.
    match gate.verify(&parts, UNIX_EPOCH + Duration::from_hours(380_376)) {
        Ok(verified) => assert!(
            matches!(verified.caller, Caller::Anonymous),
            "let in without the secret"
        ),
        Err(error) => assert!(error.code.status().is_client_error(), "{error}"),
    }
}

/// Percent-decodes once. A malformed escape is an error if `strict`, and stands for itself otherwise.
fn decode(text: &[u8], plus_is_space: bool, strict: bool) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let escape = text
            .get(at + 1..at + 3)
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        match (text[at], escape) {
            (b'%', Some(digits)) => {
                let digits = std::str::from_utf8(digits).expect("digits are ASCII");
                decoded.push(u8::from_str_radix(digits, 16).expect("two digits are a byte"));
                at += 2;
            }
            (b'%', None) if strict => return None,
            (b'+', _) if plus_is_space => decoded.push(b' '),
            (byte, _) => decoded.push(byte),
        }
        at += 1;
    }
    Some(decoded)
}

fn encode(bytes: &[u8], keep_slash: bool) -> Vec<u8> {
    const UNRESERVED: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    let encoded = bytes.iter().map(|byte| {
        let keep = UNRESERVED.contains(byte) || (keep_slash && *byte == b'/');
        if keep {
            vec![*byte]
        } else {
            format!("%{byte:02X}").into_bytes()
        }
    });
    encoded.collect::<Vec<_>>().concat()
}

fn fold(value: &[u8]) -> Vec<u8> {
    let words = value
        .split(|byte| *byte == b' ' || *byte == b'\t')
        .filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(&b' ')
}
