//! Signs in the query, as clients make presigned URLs.

use std::time::{Duration, SystemTime};

use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::sigv4::sign::signed_headers;
use crate::sigv4::{ALGORITHM, PayloadHash, SignError, Signer, Timestamp, canonical, scope};

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

impl Signer<'_> {
    /// Signs in the query: returns the path and query to request, valid for `expires` (whole seconds) from
    /// `now`.
    ///
    /// The headers that are signed must be sent as they are. A query that was signed before must have been
    /// stripped of its signature.
    pub(crate) fn presign(
        &self,
        method: &Method,
        target: &PathAndQuery,
        headers: &HeaderMap,
        payload: PayloadHash,
        expires: Duration,
        now: SystemTime,
    ) -> Result<PathAndQuery, SignError> {
        let timestamp = Timestamp::at(now);
        let signed_headers = signed_headers(headers);
        let credential = format!(
            "{}/{}",
            self.account.access_key,
            scope(&timestamp, self.region, self.keys.service())
        );
        let expires = expires.as_secs().to_string();
        let mut parameters = vec![
            ("X-Amz-Algorithm", ALGORITHM),
            ("X-Amz-Credential", &credential),
            ("X-Amz-Date", timestamp.as_str()),
            ("X-Amz-Expires", &expires),
            ("X-Amz-SignedHeaders", &signed_headers),
        ];
        if let Some(token) = &self.account.session_token {
            parameters.push(("X-Amz-Security-Token", token.expose()));
        }
        let mut text = target.path().as_bytes().to_vec();
        let mut separator = b'?';
        if let Some(query) = target.query().filter(|query| !query.is_empty()) {
            text.push(separator);
            text.extend_from_slice(query.as_bytes());
            separator = b'&';
        }
        for (name, value) in parameters {
            append(&mut text, separator, name, value);
            separator = b'&';
        }
        let unsigned = PathAndQuery::try_from(text.as_slice()).expect("what is encoded makes a target");
        let seed = self.signature(method, &unsigned, headers, &signed_headers, payload, timestamp)?;
        append(
            &mut text,
            b'&',
            canonical::SIGNATURE_PARAMETER,
            seed.signature.as_str(),
        );
        Ok(PathAndQuery::try_from(text).expect("a signature is hexadecimal digits"))
    }
}

fn append(target: &mut Vec<u8>, separator: u8, name: &str, value: &str) {
    target.push(separator);
    target.extend_from_slice(name.as_bytes());
    target.push(b'=');
    target.extend_from_slice(utf8_percent_encode(value, RESERVED).to_string().as_bytes());
}
