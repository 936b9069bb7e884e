//! The canonical request: the one spelling of a request that client and server both sign.
//!
//! S3's rules: path and query are percent-decoded once and encoded again strictly (RFC 3986 unreserved
//! characters stay, hexadecimal is upper-case), the path keeps its slashes and its dot segments, the query is
//! sorted by encoded name, then value. A `+` in the query is a space, as everywhere in S3 (AWS, Ceph,
//! `MinIO`).

use std::ops::Range;

use http::{HeaderMap, HeaderName};

use super::{Signature, SigningKey, Timestamp, string_to_sign, words};
use crate::names::percent;

/// The parts of a request that a signature covers.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `GET`
    pub method: &'a str,
    /// Path as it stands on the wire.
    pub path: &'a str,
    /// Query as it stands on the wire, without the `?`.
    pub query: &'a str,
    /// All headers; only those named in `signed_headers` are used.
    pub headers: &'a HeaderMap,
    /// Value of the `host` line: the `Host` header, or `:authority` of HTTP/2.
    pub host: &'a [u8],
    /// Lower-case names joined by semicolons.
    pub signed_headers: &'a str,
    /// `x-amz-content-sha256`, or the value that stands in for it.
    pub payload_hash: &'a [u8],
}

/// A request that has no canonical form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// A `%` in the path without two hexadecimal digits after it.
    #[error("the path has a % without two hexadecimal digits")]
    MalformedPath,
    /// A name in `signed_headers` that the request does not carry.
    #[error("a signed header is missing")]
    MissingHeader,
}

/// The query parameter that carries the signature and therefore is not signed.
pub const SIGNATURE_PARAMETER: &str = "X-Amz-Signature";

impl Request<'_> {
    /// Writes the canonical request.
    ///
    /// # Errors
    ///
    /// Fails if the path has an incomplete escape, or if a signed header is missing.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
        out.extend_from_slice(self.method.as_bytes());
        out.push(b'\n');
        write_path(self.path.as_bytes(), out)?;
        out.push(b'\n');
        write_query(self.query.as_bytes(), out);
        out.push(b'\n');
        self.write_headers(out)?;
        out.push(b'\n');
        out.extend_from_slice(self.signed_headers.as_bytes());
        out.push(b'\n');
        out.extend_from_slice(self.payload_hash);
        Ok(())
    }

    /// Signs the request with the key of its day and region; `scope` names both.
    ///
    /// # Errors
    ///
    /// Fails as [`Request::write`] does.
    pub fn sign(
        &self,
        key: &SigningKey,
        timestamp: &Timestamp,
        scope: &str,
    ) -> Result<Signature, CanonicalError> {
        // Long enough for almost every request.
        let mut text = Vec::with_capacity(1024);
        self.write(&mut text)?;
        Ok(key.sign(&string_to_sign(timestamp, scope, text)))
    }

    fn write_headers(&self, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
        for name in words(self.signed_headers, b';') {
            out.extend_from_slice(name.as_bytes());
            out.push(b':');
            if name == "host" {
                write_header_value(self.host, out);
            } else {
                // Looking through a dozen headers is quicker than hashing a name that is a string. Nearly all
                // are spelled alike, and a comparison that ignores case is slower.
                let is_named = |other: &HeaderName| other.as_str() == name || *other == *name;
                let named = self.headers.iter().filter(|(other, _)| is_named(other));
                let mut values = named.map(|(_, value)| value);
                write_header_value(
                    values.next().ok_or(CanonicalError::MissingHeader)?.as_bytes(),
                    out,
                );
                for value in values {
                    out.push(b',');
                    write_header_value(value.as_bytes(), out);
                }
            }
            out.push(b'\n');
        }
        Ok(())
    }
}

/// Writes the path: every byte decoded once, then encoded unless it is unreserved or a slash.
///
/// # Errors
///
/// Fails with [`CanonicalError::MalformedPath`] if a `%` has no two hexadecimal digits after it.
pub fn write_path(path: &[u8], out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    let mut rest = path;
    loop {
        rest = write_plain(rest, |byte| is_unreserved(byte) || byte == b'/', out);
        let [byte, tail @ ..] = rest else {
            return Ok(());
        };
        rest = tail;
        if *byte == b'%' {
            let (decoded, tail) = percent::decode_escape(rest).ok_or(CanonicalError::MalformedPath)?;
            rest = tail;
            // An encoded slash is a slash: S3 decodes before it signs.
            write_encoded(decoded, decoded == b'/', out);
        } else {
            write_encoded(*byte, false, out);
        }
    }
}

/// Writes the query: sorted pairs without [`SIGNATURE_PARAMETER`]. A `%` that encodes nothing stands for
/// itself.
pub fn write_query(query: &[u8], out: &mut Vec<u8>) {
    if query.is_empty() {
        return;
    }
    let mut text = Vec::with_capacity(query.len() + 16);
    let mut pairs: Vec<(Range<usize>, Range<usize>)> = Vec::with_capacity(16);
    for pair in query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let (name, value) = split_pair(pair);
        let start = text.len();
        write_component(name, &mut text);
        let middle = text.len();
        if &text[start..] == SIGNATURE_PARAMETER.as_bytes() {
            text.truncate(start);
            continue;
        }
        write_component(value, &mut text);
        pairs.push((start..middle, middle..text.len()));
    }
    let spelled = |(name, value): &(Range<usize>, Range<usize>)| (&text[name.clone()], &text[value.clone()]);
    pairs.sort_unstable_by(|a, b| spelled(a).cmp(&spelled(b)));

    for (at, pair) in pairs.iter().enumerate() {
        let (name, value) = spelled(pair);
        if at > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
    }
}

/// Splits one parameter into name and value as they stand in the query; without `=` the value is empty.
pub fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    pair.iter()
        .position(|byte| *byte == b'=')
        .map_or((pair, &[]), |at| (&pair[..at], &pair[at + 1..]))
}

fn write_component(component: &[u8], out: &mut Vec<u8>) {
    let rest = write_plain(component, is_unreserved, out);
    percent::each_of_query(rest, |byte| write_encoded(byte, false, out));
}

/// Writes the bytes before the first one that must be encoded, all at once, and returns the rest.
fn write_plain<'a>(bytes: &'a [u8], is_plain: impl Fn(u8) -> bool, out: &mut Vec<u8>) -> &'a [u8] {
    let end = bytes.iter().position(|byte| !is_plain(*byte));
    let (plain, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
    out.extend_from_slice(plain);
    rest
}

fn write_encoded(byte: u8, keep: bool, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if keep || is_unreserved(byte) {
        out.push(byte);
    } else {
        out.extend_from_slice(&[
            b'%',
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]);
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Writes a header's value trimmed, with every run of blanks inside it as one space.
fn write_header_value(value: &[u8], out: &mut Vec<u8>) {
    // Most values contain no blanks.
    if memchr::memchr2(b' ', b'\t', value).is_none() {
        return out.extend_from_slice(value);
    }
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let words = value.split(blank).filter(|word| !word.is_empty());
    for (at, word) in words.enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
}

#[cfg(test)]
mod tests {
    use super::{CanonicalError, Request, write_path, write_query};
    use http::{HeaderMap, HeaderValue};
    use proptest::prelude::{any, proptest};

    fn path(path: &str) -> Result<String, CanonicalError> {
        let mut out = Vec::new();
        write_path(path.as_bytes(), &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    fn query(query: &str) -> String {
        let mut out = Vec::new();
        write_query(query.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_path_keeps_its_slashes_and_dot_segments_and_encodes_all_else_once() {
        for (raw, canonical) in [
            ("/", "/"),
            ("/b//k/./../k", "/b//k/./../k"),
            ("/b/a%2Fb", "/b/a/b"),
            ("/b/a%252Fb", "/b/a%252Fb"),
            ("/b/test$file.text", "/b/test%24file.text"),
            ("/b/%7e~-._", "/b/~~-._"),
            ("/b/a+b%20c", "/b/a%2Bb%20c"),
            ("/b/%e2%82%ac", "/b/%E2%82%AC"),
            ("/b/%00%ff(", "/b/%00%FF%28"),
        ] {
            assert_eq!(path(raw).unwrap(), canonical, "{raw}");
        }
    }

    #[test]
    fn a_percent_sign_that_encodes_nothing_is_malformed_in_a_path() {
        for raw in ["/%", "/%2", "/%2g", "/%g2", "/a%%20"] {
            assert_eq!(path(raw), Err(CanonicalError::MalformedPath), "{raw}");
        }
    }

    #[test]
    fn a_query_is_decoded_once_encoded_strictly_and_sorted_by_encoded_name_then_value() {
        for (raw, canonical) in [
            ("", ""),
            ("acl", "acl="),
            ("b=2&a=1&b=1", "a=1&b=1&b=2"),
            ("a=1&&", "a=1"),
            ("prefix=a/b&delimiter=%2F", "delimiter=%2F&prefix=a%2Fb"),
            ("a=x+y&b=x%2By", "a=x%20y&b=x%2By"),
            ("a=b=c", "a=b%3Dc"),
            ("a%2Db=1", "a-b=1"),
            ("a=%", "a=%25"),
            ("a=%2525", "a=%2525"),
            // '=' sorts after '-' and '.', the end of a name before both.
            ("a-b=1&a=2&a.=3", "a=2&a-b=1&a.=3"),
            // Encoded, "é" begins with '%' and so comes before every letter.
            ("b=1&%c3%a9=2", "%C3%A9=2&b=1"),
            (
                "X-Amz-Signature=s&a=1&X%2DAmz-Signature=t&x-amz-signature=u",
                "a=1&x-amz-signature=u",
            ),
        ] {
            assert_eq!(query(raw), canonical, "{raw}");
        }
    }

    #[test]
    fn headers_are_trimmed_their_blanks_folded_and_repetitions_joined_by_commas() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-a", HeaderValue::from_static("  one   two\t three "));
        headers.append("x-amz-meta-a", HeaderValue::from_static("four"));
        headers.append("x-amz-meta-b", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        headers.append("x-amz-meta-c", HeaderValue::from_static(""));
        let request = Request {
            method: "PUT",
            path: "/b/k",
            query: "acl",
            headers: &headers,
            host: b"h:9000",
            signed_headers: "host;x-amz-meta-a;x-amz-meta-b;x-amz-meta-c",
            payload_hash: b"UNSIGNED-PAYLOAD",
        };
        let mut out = Vec::new();
        request.write(&mut out).unwrap();
        let expected =
            b"PUT\n/b/k\nacl=\nhost:h:9000\nx-amz-meta-a:one two three,four\nx-amz-meta-b:caf\xe9\n\
            x-amz-meta-c:\n\nhost;x-amz-meta-a;x-amz-meta-b;x-amz-meta-c\nUNSIGNED-PAYLOAD";
        assert_eq!(out, expected);

        let request = Request {
            signed_headers: "host;range",
            ..request
        };
        assert_eq!(request.write(&mut Vec::new()), Err(CanonicalError::MissingHeader));
    }

    proptest! {
        #[test]
        fn a_canonical_form_is_its_own_canonical_form(raw in any::<Vec<u8>>()) {
            let mut once = Vec::new();
            if write_path(&raw, &mut once).is_ok() {
                let mut twice = Vec::new();
                write_path(&once, &mut twice).unwrap();
                assert_eq!(once, twice);
            }
            let (mut once, mut twice) = (Vec::new(), Vec::new());
            write_query(&raw, &mut once);
            write_query(&once, &mut twice);
            assert_eq!(once, twice);
        }
    }
}
