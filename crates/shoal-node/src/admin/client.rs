//! Asks nodes on their admin ports, as operators' commands and the name server do.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpConnector, HttpInfo};
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

/// A node that takes longer is shown as one that does not answer.
const DEADLINE: Duration = Duration::from_secs(1);

/// A page of a thousand nodes, or of some thousand blocks.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Where a node's admin port is: `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminUrl(String);

/// Why a text is not an [`AdminUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it as http://host:port, such as http://127.0.0.1:9100; admin ports speak plain HTTP")]
pub struct InvalidAdminUrl;

impl FromStr for AdminUrl {
    type Err = InvalidAdminUrl;

    fn from_str(text: &str) -> Result<Self, InvalidAdminUrl> {
        let place = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let url = format!("http://{place}");
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

impl From<SocketAddr> for AdminUrl {
    fn from(address: SocketAddr) -> Self {
        Self(format!("http://{address}"))
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A node did not give the requested answer.
#[derive(Debug, thiserror::Error)]
#[error("{url} {why}")]
pub struct AdminError {
    /// The node that was asked.
    pub url: AdminUrl,
    /// Why it did not.
    pub why: AdminErrorKind,
}

/// The reason, worded to follow the name of the node in a sentence.
#[derive(Debug, thiserror::Error)]
pub enum AdminErrorKind {
    /// The answer took too long, or there is no node.
    #[error("did not answer within {} ms", .0.as_millis())]
    Deadline(Duration),
    /// No process listens there, or the connection broke.
    #[error("cannot be reached: {}", innermost(.0))]
    Unreachable(hyper_util::client::legacy::Error),
    /// The node refuses the request and says why.
    #[error("answered {status}: {said}")]
    Refused {
        /// Its status.
        status: StatusCode,
        /// The beginning of its page.
        said: String,
    },
    /// The page broke off, does not end, or is not the page of a node.
    #[error("sent a page that cannot be read: {0}")]
    Page(Box<dyn std::error::Error + Send + Sync>),
}

/// The answer of a node.
#[derive(Debug)]
pub struct AdminResponse<T> {
    /// Its page.
    pub page: T,
    /// The address at which it was reached.
    pub reached: IpAddr,
}

/// Asks nodes, each on one connection for as long as it holds.
#[derive(Clone, Debug)]
pub struct AdminClient {
    http: Client<HttpConnector, Empty<Bytes>>,
    deadline: Duration,
}

impl Default for AdminClient {
    fn default() -> Self {
        Self::within(DEADLINE)
    }
}

impl AdminClient {
    /// Creates a client that gives up on a node after `deadline`.
    pub fn within(deadline: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(deadline));
        Self {
            http: Client::builder(TokioExecutor::new()).build(connector),
            deadline,
        }
    }

    /// Gets a page in JSON.
    ///
    /// # Errors
    ///
    /// Fails if the node does not answer in time, refuses the request, or answers with another document.
    pub async fn get<T: DeserializeOwned>(&self, url: &AdminUrl, path: &str) -> Result<T, AdminError> {
        let said = self.ask(url, path).await;
        said.map(|said| said.page).map_err(|why| of(url, why))
    }

    /// Gets a page in JSON, and the address that it came from.
    ///
    /// # Errors
    ///
    /// Fails as [`get`](Self::get) does.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        url: &AdminUrl,
        path: &str,
    ) -> Result<AdminResponse<T>, AdminErrorKind> {
        let AdminResponse { page, reached } = self.call(Method::GET, url, path).await?;
        Ok(AdminResponse {
            page: json(&page)?,
            reached,
        })
    }

    /// Gets a page in any form.
    ///
    /// # Errors
    ///
    /// Fails if the node does not answer in time, or refuses the request.
    pub async fn text(&self, url: &AdminUrl, path: &str) -> Result<String, AdminError> {
        let said = self.call(Method::GET, url, path).await;
        let said = said.map_err(|why| of(url, why))?;
        Ok(String::from_utf8_lossy(&said.page).into_owned())
    }

    /// Sends an order, and returns the node's answer in JSON.
    ///
    /// # Errors
    ///
    /// Fails as [`get`](Self::get) does.
    pub async fn post<T: DeserializeOwned>(&self, url: &AdminUrl, path: &str) -> Result<T, AdminError> {
        let said = self.call(Method::POST, url, path).await;
        said.and_then(|said| json(&said.page)).map_err(|why| of(url, why))
    }

    async fn call(
        &self,
        method: Method,
        url: &AdminUrl,
        path: &str,
    ) -> Result<AdminResponse<Bytes>, AdminErrorKind> {
        match tokio::time::timeout(self.deadline, self.exchange(method, url, path)).await {
            Ok(answered) => answered,
            Err(_) => Err(AdminErrorKind::Deadline(self.deadline)),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        url: &AdminUrl,
        path: &str,
    ) -> Result<AdminResponse<Bytes>, AdminErrorKind> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = method;
        *request.uri_mut() = format!("{url}{path}")
            .parse()
            .expect("a checked URL with a path of ours is a URL");
        let response = self
            .http
            .request(request)
            .await
            .map_err(AdminErrorKind::Unreachable)?;
        let status = response.status();
        let reached = response
            .extensions()
            .get::<HttpInfo>()
            .map(|connection| connection.remote_addr().ip())
            .expect("the connector notes where it connected to");
        let page = Limited::new(response.into_body(), PAGE_BYTES_MAX).collect();
        let page = page.await.map_err(AdminErrorKind::Page)?.to_bytes();
        if !status.is_success() {
            let said = String::from_utf8_lossy(&page[..page.len().min(200)]);
            return Err(AdminErrorKind::Refused {
                status,
                said: said.trim_end().into(),
            });
        }
        Ok(AdminResponse { page, reached })
    }
}

fn of(url: &AdminUrl, why: AdminErrorKind) -> AdminError {
    AdminError {
        url: url.clone(),
        why,
    }
}

/// Returns the error of the system, beneath the words of the HTTP library.
fn innermost(error: &hyper_util::client::legacy::Error) -> &dyn std::error::Error {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

fn json<T: DeserializeOwned>(page: &[u8]) -> Result<T, AdminErrorKind> {
    serde_json::from_slice(page).map_err(|error| AdminErrorKind::Page(error.into()))
}

#[cfg(test)]
mod tests {
    use super::AdminUrl;

    #[test]
    fn the_address_of_a_member_is_one() {
        let of = |address: &str| AdminUrl::from(address.parse::<std::net::SocketAddr>().unwrap());
        for address in ["10.0.0.1:9100", "[::1]:9100"] {
            assert_eq!(of(address), address.parse().unwrap());
        }
    }

    #[test]
    fn an_admin_port_is_named_by_host_and_port() {
        let url = |text: &str| text.parse::<AdminUrl>().map(|url| url.to_string());
        for text in ["http://10.0.0.1:9100", "10.0.0.1:9100", "http://10.0.0.1:9100/"] {
            assert_eq!(url(text).as_deref(), Ok("http://10.0.0.1:9100"), "{text}");
        }
        for text in [
            "https://h:1",
            "http://",
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
