//! Signatures of version 2: `Authorization: AWS AK:…`, or `AWSAccessKeyId` in the query. Accepted only if
//! enabled.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::DATE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use subtle::ConstantTimeEq;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::claim::has_token;
use super::presigned::EXPIRES_MAX;
use super::{Credentials, Refusal, SKEW_MAX, Verified, plain_payload};
use crate::identity::{Caller, Identities, Identity};
use crate::operation::path_style;
use crate::sigv2::{self, PARAMETERS};

static AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");

/// An identity claim as the request writes it.
#[derive(Debug)]
pub(super) enum Claim<'a> {
    /// `Authorization: AWS AK:signature`
    Header { access_key: &'a str, signature: &'a str },
    /// A presigned URL.
    Query(Parameters<'a>),
}

/// The query's parameters about its signer, decoded once.
#[derive(Debug, Default)]
pub(super) struct Parameters<'a> {
    /// In the order of [`PARAMETERS`].
    values: [Option<Cow<'a, [u8]>>; 3],
    is_repeated: bool,
    has_token: bool,
}

impl<'a> Parameters<'a> {
    /// Records a parameter of the query if it is one of those that matter.
    pub(super) fn note(&mut self, name: &[u8], value: impl FnOnce() -> Cow<'a, [u8]>) {
        if let Some(at) = PARAMETERS.iter().position(|known| known.as_bytes() == name) {
            self.is_repeated |= self.values[at].replace(value()).is_some();
        }
        self.has_token |= name == b"x-amz-security-token";
    }

    /// Whether the parameters claim anything: the others mean nothing without the first.
    pub(super) fn is_claim(&self) -> bool {
        self.values[0].is_some()
    }
}

impl<'a> Claim<'a> {
    /// The claim in an `Authorization` header; `None` if it is not of version 2.
    pub(super) fn of_header(value: &'a HeaderValue) -> Option<Self> {
        const ALGORITHM: &str = "AWS ";
        // Nearly every header is of version 4, and need not be read to its end to find out.
        if !value.as_bytes().starts_with(ALGORITHM.as_bytes()) {
            return None;
        }
        let claim = value.to_str().ok()?.strip_prefix(ALGORITHM)?;
        let (access_key, signature) = claim.rsplit_once(':')?;
        Some(Self::Header {
            access_key,
            signature,
        })
    }
}

/// Verifies claims.
#[derive(Debug)]
pub(super) struct Version2 {
    /// The domain of virtual-host style: the bucket is signed wherever it stands.
    pub(super) domain: Option<String>,
}

impl Version2 {
    /// Verifies the claim of a request received at `now`; `host` is the host that the request names.
    pub(super) fn verify(
        &self,
        claim: Claim<'_>,
        parts: &Parts,
        host: &[u8],
        identities: &Identities,
        now: SystemTime,
    ) -> Result<Verified, Refusal> {
        let evidence = Evidence::of(claim, &parts.headers, identities, now)?;
        let target = parts.uri.path_and_query().ok_or(Refusal::MalformedPath)?;
        let host = std::str::from_utf8(host).ok();
        let target = path_style(target, host, self.domain.as_deref()).map_err(|_| Refusal::MalformedPath)?;
        let request = sigv2::Request {
            method: &parts.method,
            date: &evidence.date,
            path: target.path(),
            query: target.query().unwrap_or_default(),
            headers: &parts.headers,
            is_presigned: evidence.credentials != Credentials::Header,
        };
        let signature = sigv2::sign(&evidence.identity.secret_key, &request.string_to_sign()?);
        if !bool::from(signature.as_bytes().ct_eq(&evidence.signature)) {
            return Err(Refusal::SignatureMismatch);
        }
        Ok(Verified {
            caller: Caller::Identity(evidence.identity),
            named: None,
            credentials: evidence.credentials,
            payload: plain_payload(&parts.headers, Refusal::StreamingWithVersion2)?,
        })
    }
}

/// A claim that is complete, in time, and made by a known identity.
struct Evidence<'a> {
    identity: Arc<Identity>,
    credentials: Credentials,
    /// The date line of the signed text.
    date: Cow<'a, [u8]>,
    signature: Cow<'a, [u8]>,
}

impl<'a> Evidence<'a> {
    fn of(
        claim: Claim<'a>,
        headers: &'a HeaderMap,
        identities: &Identities,
        now: SystemTime,
    ) -> Result<Self, Refusal> {
        if has_token(headers) || matches!(claim, Claim::Query(Parameters { has_token: true, .. })) {
            return Err(Refusal::TokenForStaticIdentity);
        }
        match claim {
            Claim::Header {
                access_key,
                signature,
            } => Ok(Self {
                identity: known(identities, access_key.as_bytes())?,
                credentials: Credentials::Header,
                date: Cow::Borrowed(date(headers, now)?),
                signature: Cow::Borrowed(signature.as_bytes()),
            }),
            Claim::Query(Parameters {
                is_repeated: true, ..
            }) => Err(Refusal::RepeatedParameter),
            Claim::Query(Parameters { values, .. }) => {
                let [Some(access_key), Some(signature), Some(expires)] = values else {
                    return Err(Refusal::MissingParametersOfVersion2);
                };
                Ok(Self {
                    identity: known(identities, &access_key)?,
                    credentials: Credentials::Query {
                        expires: time_left(&expires, now)?,
                    },
                    date: expires,
                    signature,
                })
            }
        }
    }
}

fn known(identities: &Identities, access_key: &[u8]) -> Result<Arc<Identity>, Refusal> {
    let unknown = || Refusal::UnknownAccessKey(String::from_utf8_lossy(access_key).into());
    let access_key = std::str::from_utf8(access_key).map_err(|_| unknown())?;
    identities.get(access_key).ok_or_else(unknown)
}

/// Returns the date line of a header signature, whose date must be within [`SKEW_MAX`] of `now`: `Date`, or
/// an empty line beside `x-amz-date`, which is signed among Amazon's headers.
fn date(headers: &HeaderMap, now: SystemTime) -> Result<&[u8], Refusal> {
    let amazon = headers.get(&AMZ_DATE);
    let date = amazon.or_else(|| headers.get(DATE)).ok_or(Refusal::MissingDate)?;
    let signed = moment(date).ok_or(Refusal::MissingDate)?;
    let skew = signed
        .duration_since(now)
        .unwrap_or_else(|earlier| earlier.duration());
    if skew > SKEW_MAX {
        return Err(Refusal::TimeTooSkewed);
    }
    Ok(if amazon.is_some() { b"" } else { date.as_bytes() })
}

/// Parses a date in the format of HTTP or of mail. Amazon's own examples use the latter: `Tue, 27 Mar 2007
/// 19:36:42 +0000`. No S3 store accepts a date before 1970.
fn moment(date: &HeaderValue) -> Option<SystemTime> {
    let text = date.to_str().ok()?;
    let of_mail = || OffsetDateTime::parse(text, &Rfc2822).ok().map(SystemTime::from);
    let moment = httpdate::parse_http_date(text).ok().or_else(of_mail);
    moment.filter(|moment| *moment >= SystemTime::UNIX_EPOCH)
}

/// How long a URL that expires at `expires`, in seconds since 1970, is still valid.
fn time_left(expires: &[u8], now: SystemTime) -> Result<Duration, Refusal> {
    if expires.is_empty() || !expires.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::ExpiresNotATime);
    }
    let seconds = expires.iter().fold(0, |seconds: u64, digit| {
        seconds.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_secs(seconds).saturating_sub(now);
    if left.is_zero() {
        Err(Refusal::Expired)
    } else if left > Duration::from_secs(EXPIRES_MAX) {
        Err(Refusal::ExpiresTooLate)
    } else {
        Ok(left)
    }
}
