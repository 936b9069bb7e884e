//! Client of the admin ports, for operators' commands and the name server.

mod access;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpConnector, HttpInfo};
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use shoal_base::causes;

pub use self::access::AdminAccess;
pub use shoal_base::tls::FileError;

/// Time limit after which a node is shown as unresponsive.
const DEADLINE: Duration = Duration::from_secs(1);

/// Maximum size of a page: that of a thousand nodes, or of a few thousand blocks.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Maximum number of characters of a refusal that are shown.
const SAID_CHARS: usize = 1000;

/// URL of a node's admin port: `http://host:port`, or with `https`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminUrl(String);

/// The text is not an [`AdminUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it as http://host:port, such as http://127.0.0.1:9100, or with https")]
pub struct InvalidAdminUrl;

impl FromStr for AdminUrl {
    type Err = InvalidAdminUrl;

    fn from_str(text: &str) -> Result<Self, InvalidAdminUrl> {
        let (scheme, place) = match text.split_once("://") {
            Some((scheme @ ("http" | "https"), place)) => (scheme, place),
            Some(_) => return Err(InvalidAdminUrl),
            None => ("http", text),
        };
        let url = format!("{scheme}://{}", place.trim_end_matches('/'));
        let uri: Uri = url.parse().map_err(|_| InvalidAdminUrl)?;
        let is_plain = uri.host().is_some_and(|host| !host.is_empty())
            && uri
                .authority()
                .is_some_and(|authority| !authority.as_str().contains('@'))
            && uri.path() == "/"
            && uri.query().is_none();
        is_plain.then_some(Self(url)).ok_or(InvalidAdminUrl)
    }
}

impl AdminUrl {
    /// True if the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A request to an admin port failed.
#[derive(Debug, thiserror::Error)]
#[error("{url} {why}")]
pub struct AdminError {
    /// The node that was asked.
    pub url: AdminUrl,
    /// The reason.
    pub why: AdminErrorKind,
}

/// The reason, worded to follow the name of the node in a sentence.
#[derive(Debug, thiserror::Error)]
pub enum AdminErrorKind {
    /// The node did not answer in time.
    #[error("did not answer within {} ms", .0.as_millis())]
    Deadline(Duration),
    /// The connection was refused or broke off.
    #[error("cannot be reached: {}", innermost(.0))]
    Unreachable(hyper_util::client::legacy::Error),
    /// The node refused the request.
    #[error("answered {status}: {said}")]
    Refused {
        /// Status of the response.
        status: StatusCode,
        /// Beginning of the response body.
        said: String,
    },
    /// The port answers clients of S3.
    #[error("answers S3 requests: it is not an admin port")]
    S3Port,
    /// The page broke off, is too long, or cannot be parsed.
    #[error("sent a page that cannot be read: {0}")]
    Page(Box<dyn std::error::Error + Send + Sync>),
}

/// The body of a request.
type Body = BoxBody<Bytes, std::io::Error>;

/// Sends requests to the admin port of a node, reusing connections.
#[derive(Clone, Debug)]
pub struct AdminClient {
    http: Client<HttpsConnector<HttpConnector>, Body>,
    url: AdminUrl,
    token: Option<HeaderValue>,
    deadline: Duration,
}

impl AdminClient {
    /// Creates a client for the node at `url`.
    ///
    /// # Errors
    ///
    /// Fails if a file of `access` cannot be used.
    pub fn new(url: AdminUrl, access: &AdminAccess) -> Result<Self, FileError> {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(DEADLINE));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Ok(Self {
            http: Client::builder(TokioExecutor::new()).build(access.connector(&url, tcp)?),
            token: access.token.clone(),
            deadline: DEADLINE,
            url,
        })
    }

    /// Returns the client with another time limit.
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the URL of the node.
    pub fn url(&self) -> &AdminUrl {
        &self.url
    }

    /// Fetches a JSON page.
    ///
    /// # Errors
    ///
    /// Fails if the node does not answer in time, refuses the request, or sends another document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        Ok(self.call(Method::GET, path, None).await?.0)
    }

    /// Fetches a JSON page and returns the address of the node, too.
    ///
    /// # Errors
    ///
    /// Fails as [`get`](Self::get) does.
    pub async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<(T, IpAddr), AdminError> {
        self.call(Method::GET, path, None).await
    }

    /// Fetches a page as text.
    ///
    /// # Errors
    ///
    /// Fails if the node does not answer in time, or refuses the request.
    pub async fn text(&self, path: &str) -> Result<String, AdminError> {
        let (page, _) = self.in_time(Method::GET, path, None).await?;
        Ok(String::from_utf8_lossy(&page).into_owned())
    }

    /// Sends an order and returns the JSON response.
    ///
    /// # Errors
    ///
    /// Fails as [`get`](Self::get) does.
    pub async fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        Ok(self.call(Method::POST, path, None).await?.0)
    }

    /// Sends an order as JSON and returns the JSON response.
    ///
    /// # Errors
    ///
    /// Fails as [`get`](Self::get) does.
    pub async fn post_json<T: DeserializeOwned>(&self, path: &str, order: Vec<u8>) -> Result<T, AdminError> {
        let body = Full::from(order).map_err(|never| match never {}).boxed();
        let content = Some(("application/json", body));
        Ok(self.call(Method::POST, path, content).await?.0)
    }

    /// Sends a DELETE for a path and returns the JSON response.
    ///
    /// # Errors
    ///
    /// Fails as [`get`](Self::get) does.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        Ok(self.call(Method::DELETE, path, None).await?.0)
    }

    /// Sends an order with a large text, without a time limit, and returns the JSON response.
    ///
    /// # Errors
    ///
    /// Fails if the node refuses the request, or sends another document.
    pub async fn post_text<T: DeserializeOwned>(&self, path: &str, body: Body) -> Result<T, AdminError> {
        let patient = self.clone().within(Duration::MAX);
        let content = Some(("text/plain", body));
        Ok(patient.call(Method::POST, path, content).await?.0)
    }

    /// Sends a request, whose body has the media type before it; returns the page and the node's address.
    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        content: Option<(&'static str, Body)>,
    ) -> Result<(T, IpAddr), AdminError> {
        let (page, reached) = self.in_time(method, path, content).await?;
        let page = serde_json::from_slice(&page);
        let page = page.map_err(|error| self.error(AdminErrorKind::Page(error.into())))?;
        Ok((page, reached))
    }

    fn error(&self, why: AdminErrorKind) -> AdminError {
        let url = self.url.clone();
        AdminError { url, why }
    }

    async fn in_time(
        &self,
        method: Method,
        path: &str,
        content: Option<(&'static str, Body)>,
    ) -> Result<(Bytes, IpAddr), AdminError> {
        let answer = tokio::time::timeout(self.deadline, self.exchange(method, path, content)).await;
        let answer = answer.unwrap_or(Err(AdminErrorKind::Deadline(self.deadline)));
        answer.map_err(|why| self.error(why))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        content: Option<(&'static str, Body)>,
    ) -> Result<(Bytes, IpAddr), AdminErrorKind> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let body = match content {
            Some((media, body)) => {
                request = request.header(CONTENT_TYPE, media);
                body
            }
            None => Body::default(),
        };
        let request = request
            .body(body)
            .expect("a checked URL with a path of ours is a URL");
        let response = self.http.request(request).await;
        let response = response.map_err(AdminErrorKind::Unreachable)?;
        let status = response.status();
        let is_of_s3 = response.headers().contains_key("x-amz-request-id");
        let connection = response.extensions().get::<HttpInfo>();
        let connection = connection.expect("the connector notes where it connected to");
        let reached = connection.remote_addr().ip();
        let page = Limited::new(response.into_body(), PAGE_BYTES_MAX).collect();
        let page = page.await.map_err(AdminErrorKind::Page)?.to_bytes();
        if is_of_s3 {
            return Err(AdminErrorKind::S3Port);
        }
        if !status.is_success() {
            let said = String::from_utf8_lossy(&page[..page.len().min(SAID_CHARS)]);
            let said = said.trim_end().into();
            return Err(AdminErrorKind::Refused { status, said });
        }
        Ok((page, reached))
    }
}

/// Returns the innermost error, that of the operating system.
fn innermost(error: &hyper_util::client::legacy::Error) -> &dyn std::error::Error {
    causes::chain(error).last().unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use super::AdminUrl;

    #[test]
    fn an_admin_port_is_named_by_host_and_port() {
        let url = |text: &str| text.parse::<AdminUrl>().map(|url| url.to_string());
        for text in ["http://10.0.0.1:9100", "10.0.0.1:9100", "http://10.0.0.1:9100/"] {
            assert_eq!(url(text).as_deref(), Ok("http://10.0.0.1:9100"), "{text}");
        }
        assert_eq!(url("https://h:1/").as_deref(), Ok("https://h:1"));
        assert_eq!(url("[::1]:9100").as_deref(), Ok("http://[::1]:9100"));
        for text in [
            "ftp://h:1",
            "http://",
            "https://",
            "",
            "h:1/status",
            "http://a@h:1",
            "h:1?x",
            "h o:1",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
    }
}
