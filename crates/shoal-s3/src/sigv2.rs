//! AWS Signature Version 2, as old clients use it: the text to sign, and its signature. Only the front
//! verifies it; nothing here is sent to a lake.
//!
//! Follows "Signing and authenticating REST requests" of Amazon's documentation of S3. It is weaker than
//! version 4: it uses SHA-1, has no scope, does not cover the body, and covers only those parameters of the
//! query that S3 calls sub-resources.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};
use sha1::Sha1;
use shoal_base::secret::Secret;

use crate::percent::decode_query;
use crate::sigv4::canonical::split_pair;

/// The parameters of a presigned URL; the first marks it as one.
pub const PARAMETERS: [&str; 3] = ["AWSAccessKeyId", "Signature", "Expires"];

/// Parameters that are part of the resource, in the lists of Amazon and of botocore.
const SIGNED: [&str; 33] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Parameters that no client signs. They select the part of a list and its form.
const UNSIGNED: [&str; 17] = [
    "allow-unordered",
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "prefix",
    "start-after",
    "upload-id-marker",
    "version-id-marker",
    "x-id",
];

/// The parts of a request that a signature covers, or should cover.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method.
    pub method: &'a Method,
    /// The date line: `Date`, an empty line beside `x-amz-date`, or `Expires` of a presigned URL.
    pub date: &'a [u8],
    /// Path style, as it stands on the wire.
    pub path: &'a str,
    /// Query as it stands on the wire, without the `?`.
    pub query: &'a str,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// Whether the query carries the credentials; then it may carry headers of Amazon, too.
    pub is_presigned: bool,
}

/// A request that no signature of version 2 covers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UncoveredError {
    /// A parameter that is neither signed nor harmless: anyone could have added it.
    #[error("the parameter {0} is not signed")]
    UnsignedParameter(String),
    /// A value with a byte that would end it in the signed text: the same signature would cover another
    /// request.
    #[error("the value of {0} may be taken for more than a value")]
    RunsOn(String),
    /// A header that also stands in the query, with another value.
    #[error("{0} differs in header and query")]
    TwoValues(String),
}

impl Request<'_> {
    /// The text whose HMAC is the signature.
    ///
    /// # Errors
    ///
    /// Fails if a parameter is not covered by the signature, or could be read in two ways.
    pub fn string_to_sign(&self) -> Result<Vec<u8>, UncoveredError> {
        let mut headers = signed_headers(self.headers);
        let mut resources = Vec::new();
        for pair in self.query.as_bytes().split(|byte| *byte == b'&') {
            let (name, value) = split_pair(pair);
            let name = String::from_utf8_lossy(&decode_query(name)).into_owned();
            let value = decode_query(value).into_owned();
            if value.iter().any(|byte| matches!(byte, b'&' | b'\n')) && !UNSIGNED.contains(&name.as_str()) {
                return Err(UncoveredError::RunsOn(name));
            }
            if SIGNED.contains(&name.as_str()) {
                resources.push((name, value));
            } else if self.is_presigned && is_signed_header(&name) {
                let header = headers.entry(name.clone()).or_insert_with(|| value.clone());
                if *header != value {
                    return Err(UncoveredError::TwoValues(name));
                }
            } else if !self.may_stand_unsigned(&name) {
                return Err(UncoveredError::UnsignedParameter(name));
            }
        }
        resources.sort_unstable();

        let mut text = self.method.as_str().as_bytes().to_vec();
        for name in ["content-md5", CONTENT_TYPE.as_str()] {
            text.push(b'\n');
            text.extend(headers.remove(name).unwrap_or_default());
        }
        text.extend([b"\n", self.date, b"\n"].concat());
        for (name, value) in headers {
            text.extend([name.as_bytes(), b":", &value, b"\n"].concat());
        }
        text.extend(self.path.as_bytes());
        for (at, (name, value)) in resources.into_iter().enumerate() {
            text.push(if at == 0 { b'?' } else { b'&' });
            text.extend(name.as_bytes());
            if !value.is_empty() {
                text.push(b'=');
                text.extend(value);
            }
        }
        Ok(text)
    }

    fn may_stand_unsigned(&self, name: &str) -> bool {
        name.is_empty() || UNSIGNED.contains(&name) || (self.is_presigned && PARAMETERS.contains(&name))
    }
}

/// The signature of `text`, as a header carries it.
pub fn sign(secret: &Secret, text: &[u8]) -> String {
    let mut hmac =
        Hmac::<Sha1>::new_from_slice(secret.expose().as_bytes()).expect("HMAC takes keys of every length");
    hmac.update(text);
    STANDARD.encode(hmac.finalize().into_bytes())
}

/// The signed headers: names in order, values without blanks around them, repeated ones joined by commas.
fn signed_headers(headers: &HeaderMap) -> BTreeMap<String, Vec<u8>> {
    let names = headers.keys().filter(|name| is_signed_header(name.as_str()));
    names
        .map(|name| {
            let values = headers.get_all(name).iter();
            let values: Vec<&[u8]> = values.map(|value| value.as_bytes().trim_ascii()).collect();
            (name.as_str().to_owned(), values.join(&b','))
        })
        .collect()
}

fn is_signed_header(name: &str) -> bool {
    name.starts_with("x-amz-") || name == "content-md5" || name == CONTENT_TYPE.as_str()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, Method};
    use shoal_base::secret::Secret;

    use super::{Request, UncoveredError, sign};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn text(
        query: &str,
        pairs: &[(&'static str, &'static str)],
        is_presigned: bool,
    ) -> Result<String, UncoveredError> {
        let request = Request {
            method: &Method::GET,
            date: b"today",
            path: "/b/k",
            query,
            headers: &headers(pairs),
            is_presigned,
        };
        request
            .string_to_sign()
            .map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn the_examples_of_amazon_are_signed_as_published() {
        let upload = [
            ("x-amz-acl", "public-read"),
            ("content-type", "application/x-download"),
            ("content-md5", "4gJE4saaMU4BqNR0kLY+lw=="),
            ("x-amz-meta-reviewedby", "joe@johnsmith.net"),
            ("x-amz-meta-reviewedby", "jane@johnsmith.net"),
            ("x-amz-meta-filechecksum", "0x02661779"),
            ("x-amz-meta-checksumalgorithm", "crc32"),
            ("content-encoding", "gzip"),
            ("host", "static.johnsmith.net:8080"),
        ];
        let image = [("content-type", "image/jpeg"), ("content-length", "94328")];
        let puppy = "/awsexamplebucket1/photos/puppy.jpg";
        let french = "/dictionary/fran%C3%A7ais/pr%c3%a9f%c3%a8re";
        let list = "prefix=photos&max-keys=50&marker=puppy";
        for (method, path, query, pairs, date, signature) in [
            (
                Method::GET,
                puppy,
                "",
                &[][..],
                "Tue, 27 Mar 2007 19:36:42 +0000",
                "qgk2+6Sv9/oM7G3qLEjTH1a1l1g=",
            ),
            (
                Method::PUT,
                puppy,
                "",
                &image,
                "Tue, 27 Mar 2007 21:15:45 +0000",
                "iqRzw+ileNPu1fhspnRs8nOjjIA=",
            ),
            (
                Method::GET,
                "/awsexamplebucket1/",
                list,
                &[],
                "Tue, 27 Mar 2007 19:42:41 +0000",
                "m0WP8eCtspQl5Ahe6L1SozdX9YA=",
            ),
            (
                Method::GET,
                "/awsexamplebucket1/",
                "acl",
                &[],
                "Tue, 27 Mar 2007 19:44:46 +0000",
                "82ZHiFIjc+WbcwFKGUVEQspPn+0=",
            ),
            (
                Method::PUT,
                "/static.johnsmith.net/db-backup.dat.gz",
                "",
                &upload,
                "Tue, 27 Mar 2007 21:06:08 +0000",
                "ilyl83RwaSoYIEdixDQcA4OnAnc=",
            ),
            (
                Method::GET,
                "/",
                "",
                &[],
                "Wed, 28 Mar 2007 01:29:59 +0000",
                "qGdzdERIC03wnaRNKh6OqZehG9s=",
            ),
            (
                Method::GET,
                french,
                "",
                &[],
                "Wed, 28 Mar 2007 01:49:49 +0000",
                "DNEZGsoieTZ92F3bUfSPQcbGmlM=",
            ),
        ] {
            let request = Request {
                method: &method,
                date: date.as_bytes(),
                path,
                query,
                headers: &headers(pairs),
                is_presigned: false,
            };
            let secret = Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
            assert_eq!(
                sign(&secret, &request.string_to_sign().unwrap()),
                signature,
                "{method} {path}?{query}"
            );
        }
    }

    #[test]
    fn sub_resources_are_signed_decoded_and_in_order() {
        let query = "versionId=a%2Fb+c&prefix=x&acl&response-content-type=text%2Fplain&uploads=";
        let expected = "GET\n\n\ntoday\n/b/k?acl&response-content-type=text/plain&uploads&versionId=a/b c";
        assert_eq!(text(query, &[], false).unwrap(), expected);
        assert_eq!(text("%61cl", &[], false).unwrap(), "GET\n\n\ntoday\n/b/k?acl");
    }

    #[test]
    fn parameters_that_the_signature_does_not_cover_are_refused() {
        for query in [
            "retention",
            "x-amz-acl=private",
            "AWSAccessKeyId=a",
            "acl&Expires=1",
            "Prefix=a",
        ] {
            let refused = text(query, &[], false);
            assert!(
                matches!(refused, Err(UncoveredError::UnsignedParameter(_))),
                "{query}"
            );
        }
        assert!(text("AWSAccessKeyId=a&Signature=s&Expires=1", &[], true).is_ok());
        assert!(text("retention", &[], true).is_err());
    }

    #[test]
    fn a_value_that_could_be_two_is_refused() {
        for query in [
            "response-content-type=x%26versionId%3D1",
            "versionId=1%0Ax",
            "x-amz-meta-a=1%0Ax-amz-acl:public-read",
            "acl=%26policy",
        ] {
            let refused = text(query, &[], true);
            assert!(matches!(refused, Err(UncoveredError::RunsOn(_))), "{query}");
        }
        assert!(text("prefix=a%26b", &[], true).is_ok(), "no client signs it");
    }

    #[test]
    fn headers_of_amazon_may_stand_in_a_presigned_query_if_they_are_not_contradicted() {
        let expected = "GET\n\ntext/plain\ntoday\nx-amz-acl:private\n/b/k";
        let query = "x-amz-acl=private&content-type=text%2Fplain";
        assert_eq!(text(query, &[], true).unwrap(), expected);
        assert_eq!(
            text(query, &[("x-amz-acl", " private ")], true).unwrap(),
            expected
        );
        let contradicted = text(query, &[("x-amz-acl", "public-read")], true);
        assert_eq!(contradicted, Err(UncoveredError::TwoValues("x-amz-acl".into())));
    }
}
