//! A minimal client that signs as the SDKs do.

use std::net::{Ipv4Addr, SocketAddr};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use shoal_base::clock;
use tempfile::TempDir;

use crate::{ACCESS_KEY, EmbeddedLake, SECRET_KEY};

/// A lake in a temporary folder, and a client of it.
pub(super) struct Desk {
    pub(super) lake: EmbeddedLake,
    pub(super) folder: TempDir,
    http: Http<HttpConnector, Full<Bytes>>,
}

pub(super) type Answer = Response<Bytes>;

impl Desk {
    pub(super) async fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap()).await
    }

    pub(super) async fn on(folder: TempDir) -> Self {
        let lake = EmbeddedLake::start(folder.path(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .await
            .unwrap();
        Self {
            lake,
            folder,
            http: Http::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Stops the lake and starts another one on the same folder.
    pub(super) async fn restarted(self) -> Self {
        self.lake.shutdown().await;
        Self::on(self.folder).await
    }

    pub(super) async fn put(&self, path: &str, body: &str) -> Answer {
        self.send(Method::PUT, path, &[], body).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    pub(super) async fn get_with(&self, path: &str, header: &str, value: &str) -> Answer {
        self.send(Method::GET, path, &[(header, value)], "").await
    }

    pub(super) async fn head(&self, path: &str) -> Answer {
        self.send(Method::HEAD, path, &[], "").await
    }

    pub(super) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], "").await
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let request = self.request(method, path, headers, body);
        self.call(sign_as(SECRET_KEY, request, body)).await
    }

    /// Sends the GET signed with another secret, or unsigned.
    pub(super) async fn get_as(&self, path: &str, secret: Option<&str>) -> Answer {
        let request = self.request(Method::GET, path, &[], "");
        self.call(match secret {
            Some(secret) => sign_as(secret, request, ""),
            None => request,
        })
        .await
    }

    /// Returns a response without reading its body.
    pub(super) async fn open(&self, path: &str) -> Response<Incoming> {
        let request = sign_as(SECRET_KEY, self.request(Method::GET, path, &[], ""), "");
        self.http.request(request).await.unwrap()
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Request<Full<Bytes>> {
        let address = self.lake.address();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{address}{path}"));
        request = request.header("host", address.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .unwrap()
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Answer {
        let (parts, body) = self.http.request(request).await.unwrap().into_parts();
        Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
    }
}

fn sign_as(secret: &str, mut request: Request<Full<Bytes>>, body: &str) -> Request<Full<Bytes>> {
    let mut settings = SigningSettings::default();
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    let identity = Credentials::new(ACCESS_KEY, secret, None, None, "tests").into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region("us-east-1")
        .name("s3")
        .time(clock::utc_now())
        .settings(settings)
        .build()
        .unwrap()
        .into();
    let headers = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    let signable = SignableRequest::new(
        request.method().as_str(),
        request.uri().to_string(),
        headers,
        SignableBody::Bytes(body.as_bytes()),
    );
    let (instructions, _) = sign(signable.unwrap(), &params).unwrap().into_parts();
    instructions.apply_to_request_http1x(&mut request);
    request
}

/// Returns a header as text; empty if absent.
pub(super) fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

/// Returns the status and the S3 error code.
pub(super) fn error(answer: &Answer) -> (StatusCode, String) {
    (
        answer.status(),
        element(answer, "Code").into_iter().next().unwrap_or_default(),
    )
}

/// Returns the texts of all elements with this name.
pub(super) fn element(answer: &Answer, name: &str) -> Vec<String> {
    let body = String::from_utf8_lossy(answer.body());
    let open = format!("<{name}>");
    body.split(&open)
        .skip(1)
        .map(|rest| rest.split("</").next().unwrap_or_default().to_string())
        .collect()
}
