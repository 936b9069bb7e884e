//! The node's signatures against an independent implementation: the signer of `aws-sigv4`.

mod presign;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SessionTokenMode, SignableBody, SignableRequest,
    SignatureLocation, SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::{Just, Strategy, prop_oneof, proptest};
use proptest::{collection, option};
use shoal_base::secret::Secret;

use super::{KeyCache, PayloadHash, SignError, Signer};
use crate::identity::Account;

const REGION: &str = "eu-central-1";

#[derive(Clone, Debug)]
struct Sample {
    method: Method,
    target: PathAndQuery,
    headers: Vec<(HeaderName, HeaderValue)>,
    payload: PayloadHash,
    account: Account,
    now: SystemTime,
}

impl Sample {
    fn headers(&self) -> HeaderMap {
        self.headers.iter().cloned().collect()
    }

    fn signer<'a>(&'a self, keys: &'a KeyCache) -> Signer<'a> {
        Signer {
            account: &self.account,
            region: REGION,
            keys,
        }
    }

    /// The signature that `aws-sigv4` computes for the request, without the rest.
    fn expected_signature(&self, settings: SigningSettings) -> String {
        let token = self
            .account
            .session_token
            .as_ref()
            .map(|token| token.expose().to_owned());
        let credentials = Credentials::new(
            &self.account.access_key,
            self.account.secret_key.expose(),
            token,
            None,
            "test",
        );
        let identity = credentials.into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(REGION)
            .name("s3")
            .time(self.now)
            .settings(settings)
            .build()
            .unwrap();
        let uri = format!("http://lake.example{}", self.target);
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
        let body = SignableBody::Precomputed(self.payload.as_text().into_owned());
        let request = SignableRequest::new(self.method.as_str(), uri, headers, body).unwrap();
        sign(request, &params.into()).unwrap().signature().to_owned()
    }
}

fn settings() -> SigningSettings {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.session_token_mode = SessionTokenMode::Include;
    settings
}

/// A path as AWS clients write it: already strictly encoded, because `aws-sigv4` signs it as it is.
fn path() -> impl Strategy<Value = String> {
    collection::vec("[A-Za-z0-9._~-]|/|//|%20|%2B|%25|%E2%82%AC|\\.\\./", 0..12)
        .prop_map(|parts| format!("/{}", parts.concat()))
}

fn query() -> impl Strategy<Value = Option<String>> {
    // No digit follows a lone `%`: it would encode half a UTF-8 character, which `aws-sigv4` replaces.
    let component = "([A-Za-z0-9._~!$'()*,;:@/?-]|\\+|%2B|%20|%25|%3d|%26|%41|%C3%A9|%[~-])*";
    let pair = (component, option::of(component))
        .prop_map(|(name, value)| value.map_or(name.clone(), |value| format!("{name}={value}")));
    option::of(collection::vec(pair, 0..6).prop_map(|pairs| pairs.join("&")))
}

fn headers() -> impl Strategy<Value = Vec<(HeaderName, HeaderValue)>> {
    let name = prop_oneof![
        Just("content-type"),
        Just("content-md5"),
        Just("x-amz-acl"),
        Just("x-amz-meta-a")
    ];
    let header = (name, "[!-~]( {0,3}[!-~]){0,8} {0,2}").prop_map(|(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::try_from(value).unwrap(),
        )
    });
    collection::vec(header, 0..5).prop_map(|mut headers| {
        headers.push((http::header::HOST, HeaderValue::from_static("lake.example")));
        headers
    })
}

fn payload() -> impl Strategy<Value = PayloadHash> {
    prop_oneof![
        Just(PayloadHash::Unsigned),
        Just(PayloadHash::StreamingSigned),
        Just(PayloadHash::StreamingUnsignedTrailer),
        proptest::array::uniform32(proptest::prelude::any::<u8>()).prop_map(PayloadHash::Sha256),
    ]
}

fn sample() -> impl Strategy<Value = Sample> {
    let method = prop_oneof![
        Just(Method::GET),
        Just(Method::PUT),
        Just(Method::POST),
        Just(Method::DELETE)
    ];
    let account = (
        "[A-Z0-9]{1,20}",
        "[ -~]{1,40}",
        option::of("[A-Za-z0-9/+=]{1,60}"),
    );
    (
        method,
        path(),
        query(),
        headers(),
        payload(),
        account,
        0_u64..4_000_000_000,
    )
        .prop_map(
            |(method, path, query, headers, payload, (access_key, secret_key, token), seconds)| Sample {
                method,
                target: query
                    .map_or(path.clone(), |query| format!("{path}?{query}"))
                    .parse()
                    .unwrap(),
                headers,
                payload,
                account: Account {
                    access_key,
                    secret_key: Secret::new(secret_key),
                    session_token: token.map(Secret::new),
                },
                now: UNIX_EPOCH + Duration::from_secs(seconds),
            },
        )
}

proptest! {
    #[test]
    fn a_signature_in_the_header_is_the_one_aws_sigv4_makes(sample in sample()) {
        let keys = KeyCache::default();
        let mut headers = sample.headers();
        let seed =
            sample.signer(&keys).sign(&sample.method, &sample.target, &mut headers, sample.payload, sample.now).unwrap();
        assert_eq!(seed.signature.as_str(), sample.expected_signature(settings()));

        let authorization = headers["authorization"].to_str().unwrap();
        assert!(authorization.ends_with(seed.signature.as_str()));
        assert!(headers["authorization"].is_sensitive());
        assert_eq!(headers.contains_key("x-amz-security-token"), sample.account.session_token.is_some());
    }

    #[test]
    fn a_signature_in_the_query_is_the_one_aws_sigv4_makes(sample in sample(), seconds in 1_u64..=604_800) {
        let keys = KeyCache::default();
        let expires = Duration::from_secs(seconds);
        let url = sample
            .signer(&keys)
            .presign(&sample.method, &sample.target, &sample.headers(), sample.payload, expires, sample.now)
            .unwrap();

        let mut settings = settings();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(expires);
        let (unsigned, signature) = url.as_str().rsplit_once("&X-Amz-Signature=").unwrap();
        assert_eq!(signature, sample.expected_signature(settings));
        assert!(unsigned.starts_with(sample.target.as_str().trim_end_matches('?')));
    }
}

#[test]
fn a_request_signed_before_is_signed_anew_in_our_name() {
    let account = Account::new("AK", "secret");
    let keys = KeyCache::default();
    let signer = Signer {
        account: &account,
        region: REGION,
        keys: &keys,
    };
    let target = PathAndQuery::from_static("/bucket/key?partNumber=1");
    let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);

    let mut fresh = HeaderMap::new();
    fresh.insert("host", HeaderValue::from_static("lake.example"));
    let mut used = fresh.clone();
    for (name, value) in [
        ("authorization", "AWS4-HMAC-SHA256 Credential=other"),
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        ("x-amz-security-token", "theirs"),
    ] {
        used.append(name, HeaderValue::from_static(value));
        used.append(name, HeaderValue::from_static(value));
    }
    let one = signer
        .sign(&Method::PUT, &target, &mut fresh, PayloadHash::empty(), now)
        .unwrap();
    let other = signer
        .sign(&Method::PUT, &target, &mut used, PayloadHash::empty(), now)
        .unwrap();
    assert_eq!(one.signature.as_str(), other.signature.as_str());
    assert_eq!(fresh, used);
}

#[test]
fn signing_an_invalid_header_or_target_fails() {
    let account = Account::new("A\nK", "secret");
    let keys = KeyCache::default();
    let signer = Signer {
        account: &account,
        region: REGION,
        keys: &keys,
    };
    let sign = |target: &'static str, headers: &mut HeaderMap| {
        let target = PathAndQuery::from_static(target);
        signer
            .sign(&Method::GET, &target, headers, PayloadHash::empty(), UNIX_EPOCH)
            .unwrap_err()
    };
    let mut headers = HeaderMap::new();
    assert_eq!(sign("/", &mut headers), SignError::MissingHost);
    headers.insert("host", HeaderValue::from_static("lake.example"));
    assert!(matches!(sign("/%zz", &mut headers), SignError::NotCanonical(_)));
    let error = sign("/", &mut headers);
    assert_eq!(error, SignError::UnprintableCredentials);
    assert!(!error.to_string().contains("secret"));
}

#[test]
fn words_are_what_split_makes_of_a_list() {
    for list in ["", ";", "a", "a;b", ";a;;b;", "host;x-amz-date"] {
        let expected: Vec<_> = list.split(';').collect();
        assert_eq!(super::words(list, b';').collect::<Vec<_>>(), expected, "{list}");
    }
}
