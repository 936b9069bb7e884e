//! A small S3 client for stories: it signs by the AWS library, sends target bytes as they are, and speaks
//! every payload mode. [`raw`] puts bytes on a socket for what no client would send.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sha2::{Digest, Sha256};
use shoal_net::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::chunks::{Checksum, ChunkSigner, encode};
use crate::lake::{REGION, hex};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type CallBody = UnsyncBoxBody<Bytes, BoxError>;

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// Sends requests to one address, as one account or as a stranger.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    account: Option<(String, String)>,
    http: HyperClient<HttpConnector, CallBody>,
}

/// How the body is covered by the signature, as `x-amz-content-sha256` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Its SHA-256 is signed.
    Hashed,
    Unsigned,
    /// Chunks of this many bytes, each signed; perhaps with a signed checksum trailer.
    SignedChunks(usize, Option<Checksum>),
    /// Chunks of this many bytes with a checksum trailer, none of it signed.
    UnsignedTrailer(usize, Checksum),
}

impl Client {
    pub(crate) fn anonymous(address: SocketAddr) -> Self {
        Self {
            address,
            account: None,
            http: HyperClient::builder(TokioExecutor::new()).build_http(),
        }
    }

    pub(crate) fn signing(address: SocketAddr, access_key: &str, secret_key: &str) -> Self {
        Self {
            account: Some((access_key.into(), secret_key.into())),
            ..Self::anonymous(address)
        }
    }

    /// `target` is path and query as they go over the wire: `/bucket/key?versionId=1`.
    pub(crate) fn get(&self, target: &str) -> Call {
        self.call(Method::GET, target)
    }

    pub(crate) fn head(&self, target: &str) -> Call {
        self.call(Method::HEAD, target)
    }

    pub(crate) fn delete(&self, target: &str) -> Call {
        self.call(Method::DELETE, target)
    }

    pub(crate) fn put(&self, target: &str, body: impl Into<Bytes>) -> Call {
        self.call(Method::PUT, target).body(body)
    }

    pub(crate) fn post(&self, target: &str, body: impl Into<Bytes>) -> Call {
        self.call(Method::POST, target).body(body)
    }

    pub(crate) fn call(&self, method: Method, target: &str) -> Call {
        Call {
            client: self.clone(),
            method,
            target: target.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            payload: Payload::Hashed,
            presigned: None,
            service: "s3",
            time: clock::utc_now(),
            tamper: None,
        }
    }
}

type Tamper = Box<dyn FnOnce(&mut Request<Bytes>) + Send>;

/// A request being made.
pub(crate) struct Call {
    client: Client,
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
    payload: Payload,
    presigned: Option<Duration>,
    service: &'static str,
    time: SystemTime,
    tamper: Option<Tamper>,
}

impl Call {
    /// A header that is signed with the others.
    pub(crate) fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref()).unwrap();
        self.headers.append(HeaderName::from_static(name), value);
        self
    }

    /// `bytes=0-9`
    pub(crate) fn range(self, range: &str) -> Self {
        self.header("range", range)
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    /// Signs in the query, valid for `expires`.
    pub(crate) fn presigned(mut self, expires: Duration) -> Self {
        self.presigned = Some(expires);
        self
    }

    /// Signs for another service than S3.
    pub(crate) fn of_service(mut self, service: &'static str) -> Self {
        self.service = service;
        self
    }

    /// Signs as of this time.
    pub(crate) fn at(mut self, time: SystemTime) -> Self {
        self.time = time;
        self
    }

    /// Changes the request after it was signed.
    pub(crate) fn tampered(mut self, tamper: impl FnOnce(&mut Request<Bytes>) + Send + 'static) -> Self {
        self.tamper = Some(Box::new(tamper));
        self
    }

    /// Sends the request and reads the whole answer.
    pub(crate) async fn send(self) -> Reply {
        self.try_send().await.unwrap()
    }

    /// Like [`Call::send`]; a broken-off answer is an error.
    pub(crate) async fn try_send(self) -> Result<Reply, BoxError> {
        let (head, body) = self.open().await?.into_parts();
        Ok(Reply {
            status: head.status,
            headers: head.headers,
            body: body.collect().await?.to_bytes(),
        })
    }

    /// Sends the request; the body of the answer is the caller's to read.
    pub(crate) async fn open(self) -> Result<Response<Incoming>, BoxError> {
        let http = self.client.http.clone();
        let request = self.into_request();
        let request = request.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync());
        Ok(http.request(request).await?)
    }

    /// The signed request, for tests that send it in their own way.
    pub(crate) fn into_request(mut self) -> Request<Bytes> {
        let tamper = self.tamper.take();
        let mut request = self.signed();
        if let Some(tamper) = tamper {
            tamper(&mut request);
        }
        request
    }

    fn signed(mut self) -> Request<Bytes> {
        let host = self.client.address.to_string();
        // A test may know the node by another name.
        if !self.headers.contains_key(HOST) {
            self.headers.insert(HOST, host.parse().unwrap());
        }
        let hash = self.payload_hash();
        self.announce_chunks();
        let account = self.client.account.clone();
        let seed =
            account.map(|(access_key, secret_key)| (self.sign(&access_key, &secret_key, &hash), secret_key));
        let body = match self.payload {
            Payload::Hashed | Payload::Unsigned => self.body.clone(),
            Payload::SignedChunks(size, trailer) => {
                let (seed, secret_key) = seed.expect("signed chunks need an account");
                encode(
                    &self.body,
                    size,
                    Some(self.chunk_signer(&seed, &secret_key)),
                    trailer,
                )
                .into()
            }
            Payload::UnsignedTrailer(size, trailer) => encode(&self.body, size, None, Some(trailer)).into(),
        };
        if !body.is_empty() || self.method == Method::PUT || self.method == Method::POST {
            self.headers.insert(CONTENT_LENGTH, body.len().into());
        }
        let uri = Uri::builder()
            .scheme("http")
            .authority(host)
            .path_and_query(self.target.as_str());
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = uri.build().unwrap();
        *request.headers_mut() = self.headers;
        request
    }

    fn payload_hash(&self) -> String {
        match self.payload {
            Payload::Hashed if self.presigned.is_none() => hex(&Sha256::digest(&self.body)),
            Payload::Hashed | Payload::Unsigned => "UNSIGNED-PAYLOAD".into(),
            Payload::SignedChunks(_, None) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".into(),
            Payload::SignedChunks(_, Some(_)) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER".into(),
            Payload::UnsignedTrailer(..) => "STREAMING-UNSIGNED-PAYLOAD-TRAILER".into(),
        }
    }

    fn announce_chunks(&mut self) {
        let trailer = match self.payload {
            Payload::Hashed | Payload::Unsigned => return,
            Payload::SignedChunks(_, trailer) => trailer,
            Payload::UnsignedTrailer(_, trailer) => Some(trailer),
        };
        self.headers
            .append(CONTENT_ENCODING, HeaderValue::from_static("aws-chunked"));
        self.headers
            .insert("x-amz-decoded-content-length", self.body.len().into());
        if let Some(trailer) = trailer {
            self.headers
                .insert("x-amz-trailer", HeaderValue::from_static(trailer.header()));
        }
        if self.client.account.is_none() {
            self.headers
                .insert("x-amz-content-sha256", self.payload_hash().parse().unwrap());
        }
    }

    /// Signs in headers or query; gives the signature.
    fn sign(&mut self, access_key: &str, secret_key: &str, hash: &str) -> String {
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        match self.presigned {
            Some(expires) => {
                settings.signature_location = SignatureLocation::QueryParams;
                settings.expires_in = Some(expires);
            }
            None => settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256,
        }
        let identity = Credentials::new(access_key, secret_key, None, None, "test").into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(REGION)
            .name(self.service)
            .time(self.time)
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let headers: Vec<(&str, &str)> = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), std::str::from_utf8(value.as_bytes()).unwrap()))
            .collect();
        let body = SignableBody::Precomputed(hash.to_owned());
        let request = SignableRequest::new(
            self.method.as_str(),
            canonical(&self.target),
            headers.into_iter(),
            body,
        )
        .unwrap();
        let (instructions, signature) = sign(request, &params).unwrap().into_parts();
        let (headers, parameters) = instructions.into_parts();
        for header in headers {
            self.headers.insert(
                HeaderName::from_static(header.name()),
                header.value().parse().unwrap(),
            );
        }
        for (name, value) in parameters {
            let separator = if self.target.contains('?') { "&" } else { "?" };
            let value = percent_encode(value.as_bytes(), UNRESERVED).to_string();
            self.target.extend([separator, name, "=", &value]);
        }
        signature
    }

    fn chunk_signer(&self, seed: &str, secret_key: &str) -> ChunkSigner {
        let date = self.headers["x-amz-date"].to_str().unwrap();
        ChunkSigner::new(
            secret_key,
            date,
            &format!("{}/{REGION}/s3/aws4_request", &date[..8]),
            seed,
        )
        .unwrap()
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The code of an S3 error document; empty when there is none.
    pub(crate) fn code(&self) -> &str {
        let text = std::str::from_utf8(&self.body).unwrap_or_default();
        let after = text.split_once("<Code>").map_or("", |(_, after)| after);
        after.split_once("</Code>").map_or("", |(code, _)| code)
    }
}

/// The target as S3 spells it to check a signature: the path decoded once and encoded again.
fn canonical(target: &str) -> String {
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(path, query)| (path, Some(query)));
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    let path = percent_encode(&decoded, PATH).to_string();
    query.map_or(path.clone(), |query| format!("{path}?{query}"))
}

/// Sends bytes on a new connection and gives all that comes back until it is closed.
pub(crate) async fn raw(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is an end like another.
    drop(stream.read_to_end(&mut answer).await);
    answer
}
