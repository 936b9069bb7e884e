//! The gate before routing: it determines the sender of a request and how its body is checked.
//!
//! It accepts header signatures, presigned URLs and requests without credentials, and returns a [`Verified`]
//! or an S3 error. It verifies the request exactly as it was sent and rewrites no byte of it.

mod claim;
mod credential;
mod header;
mod location;
mod presigned;
mod proven;
mod refusal;
mod unverified;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};

pub use location::Credentials;
pub use refusal::{Defect, Refusal};
pub use unverified::SignedHeaders;

use self::claim::{CONTENT_SHA256, Claim};
use self::header::Authorization;
use self::presigned::Parameters;
use self::proven::{PlainUrl, ProvenUrls};
use crate::error::S3Error;
use crate::identity::{Caller, Identities, Identity};
use crate::payload::Payload;
use crate::sigv4::{KeyCache, PayloadHash, SeedSignature, canonical, is_scope, words};

/// Maximum difference between a request's time and the node's clock.
const SKEW_MAX: Duration = Duration::from_mins(15);

/// A request that passed the gate.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The sender of the request.
    pub caller: Caller,
    /// The identity named by a presigned URL in a browser's preflight (`OPTIONS`). It is not proven, so it
    /// grants no rights.
    pub named: Option<Caller>,
    /// Where the request carried its credentials.
    pub credentials: Credentials,
    /// How the body is checked.
    pub payload: Payload,
}

/// Decides which requests are accepted.
#[derive(Debug)]
pub struct Gate {
    identities: Arc<Identities>,
    region: String,
    keys: KeyCache,
    proven: ProvenUrls,
    /// True if requests without credentials are accepted.
    accepts_anonymous: bool,
    /// True if the lake judges the requests that this gate cannot verify.
    leaves_unknown_to_lake: bool,
}

impl Gate {
    /// Creates a gate for `identities` that accepts signatures for `region`.
    pub fn new(identities: impl Into<Arc<Identities>>, region: impl Into<String>) -> Self {
        Self {
            identities: identities.into(),
            region: region.into(),
            keys: KeyCache::default(),
            proven: ProvenUrls::default(),
            accepts_anonymous: true,
            leaves_unknown_to_lake: false,
        }
    }

    /// Accepts signatures for another service than S3.
    #[must_use]
    pub fn of_service(mut self, service: &'static str) -> Self {
        self.keys = KeyCache::of(service);
        self
    }

    /// Rejects requests without credentials, except a browser's preflights (`OPTIONS`), which never carry
    /// any.
    #[must_use]
    pub fn without_anonymous(mut self) -> Self {
        self.accepts_anonymous = false;
        self
    }

    /// Lets the lake judge requests with a key or an algorithm that this gate does not know.
    #[must_use]
    pub fn leaving_unknown_to_lake(mut self) -> Self {
        self.leaves_unknown_to_lake = true;
        self
    }

    /// Verifies the head of a request received at `now`.
    ///
    /// # Errors
    ///
    /// Fails with S3's error if the request is not well-formed or its credentials do not permit it.
    pub fn verify(&self, parts: &Parts, now: SystemTime) -> Result<Verified, S3Error> {
        self.admit(parts, now).map_err(S3Error::from)
    }

    /// Like [`verify`](Self::verify), but returns the reason by name.
    ///
    /// # Errors
    ///
    /// Fails with the [`Refusal`] if the request is not well-formed or its credentials do not permit it.
    pub fn admit(&self, parts: &Parts, now: SystemTime) -> Result<Verified, Refusal> {
        refuse_repeated(&parts.headers)?;
        let host = host(parts)?;
        let url = PlainUrl::of(parts, &host);
        if let Some(verified) = url.as_ref().and_then(|url| self.admit_again(url, now)) {
            return Ok(verified);
        }
        match claim(parts)? {
            None if !self.accepts_anonymous && parts.method != Method::OPTIONS => Err(Refusal::Anonymous),
            None => admit_anonymous(&parts.headers),
            // A browser's preflight for a presigned URL. The URL proves nothing here: its signature is for
            // another method, and for headers that this request does not carry. So the request is anonymous.
            Some(claim) if self.is_preflight(parts, &claim) => Ok(Verified {
                named: self.named(&claim),
                ..admit_anonymous(&parts.headers)?
            }),
            Some(claim) => {
                let verified = self.admit_signed(&claim, parts, &host, now)?;
                if let Some(url) = url.filter(|_| claim.signed_headers == "host") {
                    self.proven.remember(url, claim.timestamp.time(), &verified);
                }
                Ok(verified)
            }
        }
    }

    /// Admits a request that was rejected with `refusal`, if the lake is to judge it.
    ///
    /// # Errors
    ///
    /// Fails with `refusal` if the request is not for the lake to judge, or with the reason why the node does
    /// not forward it.
    pub fn admit_unverified(&self, parts: &Parts, refusal: Refusal) -> Result<Verified, Refusal> {
        if self.leaves_unknown_to_lake && refusal.is_of_unknown() {
            unverified::admit(parts, refusal)
        } else {
            Err(refusal)
        }
    }

    /// Admits a presigned URL that was verified before, if its identity is the same and its time has not
    /// passed.
    fn admit_again(&self, url: &PlainUrl<'_>, now: SystemTime) -> Option<Verified> {
        let (verified, signed) = self.proven.get(url)?;
        let Caller::Identity(identity) = &verified.caller else {
            return None;
        };
        // An identity whose secret has changed is another one.
        let known = self.identities.get(&identity.access_key)?;
        let is_current = Arc::ptr_eq(&known, identity)
            && !known.has_expired(now)
            && check_time(verified.credentials, signed, now).is_ok();
        is_current.then_some(verified)
    }

    /// Returns true if a request is a preflight for a presigned URL, unless the lake is to judge its key.
    fn is_preflight(&self, parts: &Parts, claim: &Claim<'_>) -> bool {
        let is_for_lake =
            self.leaves_unknown_to_lake && self.identities.get(claim.credential.access_key()).is_none();
        parts.method == Method::OPTIONS && claim.is_presigned() && !is_for_lake
    }

    /// Returns the caller that a presigned URL names. The URL of a session names the identity that asked for
    /// the session: lakes verify a URL with a token, and a preflight has no signature of its own.
    fn named(&self, claim: &Claim<'_>) -> Option<Caller> {
        let identity = self.identities.get(claim.credential.access_key())?;
        let named = match &identity.temporary {
            Some(key) if claim.token.is_some() => self.identities.get(key.principal.name()),
            None if claim.token.is_none() => Some(identity),
            _ => None,
        };
        named.map(Caller::Identity)
    }

    fn admit_signed(
        &self,
        claim: &Claim<'_>,
        parts: &Parts,
        host: &[u8],
        now: SystemTime,
    ) -> Result<Verified, Refusal> {
        let identity = self.identities.get(claim.credential.access_key());
        let (region, service) = (&self.region, self.keys.service());
        // A key that only the lake knows may be of another region.
        let is_for_lake = identity.is_none() && self.leaves_unknown_to_lake;
        let scope = claim.credential.scope();
        if !is_for_lake && !is_scope(scope, &claim.timestamp, region, service) {
            return Err(claim.credential.refuse_scope(region, service, &claim.timestamp));
        }
        let identity = identity.ok_or_else(|| {
            let access_key = claim.credential.access_key().into();
            if claim.token.is_some() {
                Refusal::UnknownTemporaryKey(access_key)
            } else {
                Refusal::UnknownAccessKey(access_key)
            }
        })?;
        check_kind(claim, &identity)?;
        check_time(claim.location, claim.timestamp.time(), now)?;
        check_signed_headers(&parts.headers, claim)?;
        let hash = payload_hash(claim)?;
        let seed = self.check_signature(parts, host, claim, &identity)?;
        check_token(claim, &identity, now)?;
        let seed = hash.signs_chunks().then(seed);

        Ok(Verified {
            caller: Caller::Identity(identity),
            named: None,
            credentials: claim.location,
            payload: Payload { hash, seed },
        })
    }

    /// Returns a function that begins the chain of the chunks' signatures.
    fn check_signature(
        &self,
        parts: &Parts,
        host: &[u8],
        claim: &Claim<'_>,
        identity: &Identity,
    ) -> Result<impl FnOnce() -> SeedSignature, Refusal> {
        let key = self.keys.key(
            &identity.access_key,
            &identity.secret_key,
            &claim.timestamp,
            &self.region,
        );
        let (timestamp, scope) = (claim.timestamp, claim.credential.scope());
        let signature = canonical::Request {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            headers: &parts.headers,
            host,
            signed_headers: &claim.signed_headers,
            payload_hash: &claim.payload_hash,
        }
        .sign(&key, &timestamp, scope)?;
        if !signature.is(&claim.signature) {
            return Err(Refusal::SignatureMismatch);
        }
        Ok(move || SeedSignature {
            key,
            timestamp,
            scope: scope.to_owned(),
            signature,
        })
    }
}

/// Admits a request without credentials. Signed chunks are rejected: nothing proves their signatures, and
/// lakes do not decode them for anonymous callers.
fn admit_anonymous(headers: &HeaderMap) -> Result<Verified, Refusal> {
    let hash = match headers.get(&CONTENT_SHA256) {
        Some(value) => PayloadHash::parse(value.as_bytes()).ok_or_else(|| {
            Refusal::ImpossiblePayloadHash(String::from_utf8_lossy(value.as_bytes()).into())
        })?,
        None => PayloadHash::Unsigned,
    };
    if hash.is_streaming() {
        return Err(Refusal::StreamingWithoutCredentials);
    }
    Ok(Verified {
        caller: Caller::Anonymous,
        named: None,
        credentials: Credentials::None,
        payload: Payload { hash, seed: None },
    })
}

/// Rejects a repeated header where one is allowed: the signature, the cache and the lake might use different
/// values.
fn refuse_repeated(headers: &HeaderMap) -> Result<(), Refusal> {
    const SINGLE: [&str; 9] = [
        "host",
        "date",
        "authorization",
        "content-length",
        "content-md5",
        "x-amz-date",
        "x-amz-content-sha256",
        "x-amz-decoded-content-length",
        "x-amz-security-token",
    ];
    // Fast path: no header is repeated.
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    match SINGLE
        .into_iter()
        .find(|name| headers.get_all(*name).iter().nth(1).is_some())
    {
        Some(name) => Err(Refusal::RepeatedHeader(name)),
        None => Ok(()),
    }
}

/// The host that the client named: the `Host` header, or the authority that HTTP/2 sends in its place.
fn host(parts: &Parts) -> Result<Cow<'_, [u8]>, Refusal> {
    let authority = parts.uri.authority().map(http::uri::Authority::as_str);
    match (parts.headers.get(HOST), authority) {
        (Some(host), Some(authority)) if host.as_bytes() != authority.as_bytes() => Err(Refusal::TwoHosts),
        (Some(host), _) => Ok(Cow::Borrowed(host.as_bytes())),
        (None, Some(authority)) => Ok(Cow::Borrowed(authority.as_bytes())),
        (None, None) => Err(Refusal::MissingHost),
    }
}

/// Reads the one claim that a request may make; `None` if it makes none.
fn claim(parts: &Parts) -> Result<Option<Claim<'_>>, Refusal> {
    let query = Parameters::read(parts.uri.query().unwrap_or_default())?;
    let authorization = parts.headers.get(AUTHORIZATION).filter(|value| !value.is_empty());
    match (authorization, query) {
        (Some(_), Some(_)) => Err(Refusal::TwoKindsOfCredentials),
        (Some(authorization), None) => Authorization::parse(authorization)?
            .into_claim(&parts.headers)
            .map(Some),
        (None, Some(query)) => query.into_claim(&parts.headers).map(Some),
        (None, None) => Ok(None),
    }
}

/// Checks that a request has a token if its key is a temporary one, and none otherwise.
fn check_kind(claim: &Claim<'_>, identity: &Identity) -> Result<(), Refusal> {
    match (&identity.temporary, &claim.token) {
        (None, None) | (Some(_), Some(_)) => Ok(()),
        (None, Some(_)) => Err(Refusal::TokenForStaticIdentity),
        (Some(_), None) => Err(Refusal::UnknownAccessKey(identity.access_key.as_str().into())),
    }
}

/// Checks that the token of a request is that of its key, and that the key has not expired. The signature was
/// verified before, so only the owner of the key learns from the time that a comparison takes.
fn check_token(claim: &Claim<'_>, identity: &Identity, now: SystemTime) -> Result<(), Refusal> {
    let Some(key) = &identity.temporary else {
        return Ok(());
    };
    if claim.token.as_deref() != Some(key.token().expose().as_bytes()) {
        Err(Refusal::WrongToken)
    } else if identity.has_expired(now) {
        Err(Refusal::TokenExpired)
    } else {
        Ok(())
    }
}

fn check_time(location: Credentials, signed: SystemTime, now: SystemTime) -> Result<(), Refusal> {
    let early = signed.duration_since(now).unwrap_or_default() > SKEW_MAX;
    let age = now.duration_since(signed).unwrap_or_default();
    match location {
        Credentials::Header if early || age > SKEW_MAX => Err(Refusal::TimeTooSkewed),
        Credentials::Query { .. } if early => Err(Refusal::NotYetValid),
        Credentials::Query { expires } if age >= expires => Err(Refusal::Expired),
        Credentials::Header | Credentials::Query { .. } => Ok(()),
        Credentials::None => unreachable!("a claim is in the header or in the query"),
    }
}

/// The `x-amz-*` headers that may stand unsigned: restic and minio-go leave some of them out of
/// `SignedHeaders`, as `MinIO` and Ceph let them.
///
/// They describe only the body, so changing them in transit grants no other right and reaches no other
/// object. `x-amz-content-sha256` is the last line of the canonical request and is therefore signed anyway: a
/// different value needs a different signature. The other three can only make the request fail: the body must
/// have the announced length and the named trailer, and signed chunks and trailers still cover every byte. If
/// the body is unsigned, an attacker who changes these headers could as well change the body and its
/// checksum.
const MAY_STAND_UNSIGNED: [&str; 4] = [
    "x-amz-content-sha256",
    "x-amz-decoded-content-length",
    "x-amz-trailer",
    "x-amz-checksum-algorithm",
];

/// Checks that the host and every `x-amz-*` header but [`MAY_STAND_UNSIGNED`] are signed; an unsigned one
/// could have been added on the way.
fn check_signed_headers(headers: &HeaderMap, claim: &Claim<'_>) -> Result<(), Refusal> {
    let names: Vec<&str> = words(&claim.signed_headers, b';').collect();
    // Names in strictly ascending order are distinct, so no header is hashed twice.
    if !names.is_sorted_by(|one, next| one < next) {
        return Err(Refusal::malformed(
            claim.location,
            "SignedHeaders must be sorted names, each once.",
        ));
    }
    let is_signed = |name: &str| names.binary_search(&name).is_ok();
    if !is_signed("host") {
        return Err(Refusal::UnsignedHeaders("host".into()));
    }
    require_signed(headers, |name| is_signed(name.as_str()))
}

/// Checks that every `x-amz-*` header but [`MAY_STAND_UNSIGNED`] is signed.
fn require_signed(headers: &HeaderMap, is_signed: impl Fn(&HeaderName) -> bool) -> Result<(), Refusal> {
    let names = headers.keys().filter(|name| name.as_str().starts_with("x-amz-"));
    let unsigned: Vec<&str> = names
        .filter(|name| !is_signed(name))
        .map(HeaderName::as_str)
        .filter(|name| !MAY_STAND_UNSIGNED.contains(name))
        .collect();
    if unsigned.is_empty() {
        Ok(())
    } else {
        Err(Refusal::UnsignedHeaders(unsigned.join(", ").into()))
    }
}

fn payload_hash(claim: &Claim<'_>) -> Result<PayloadHash, Refusal> {
    let hash = PayloadHash::parse(&claim.payload_hash).ok_or(Refusal::UnknownPayloadHash)?;
    // A presigned URL is passed on to others: it permits one body, not a chain of signatures
    // (CVE-2026-40344).
    if hash.is_streaming() && claim.is_presigned() {
        return Err(Refusal::StreamingWithPresigned);
    }
    Ok(hash)
}
